//! A pthread condition variable: the consumer sleeps until the producer has computed for 5 ms.

use std::{
    cell::UnsafeCell,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use anyhow::Result;

use super::stage::Stage;

/// What the producer computes for each item.
const WORK: Duration = Duration::from_millis(5);

/// What the consumer does with one.
const CONSUME: Duration = Duration::from_millis(1);

pub(super) struct Queue {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    filled: UnsafeCell<libc::pthread_cond_t>,
    items: UnsafeCell<u64>,
}

// SAFETY: `items` is only touched with the mutex held.
unsafe impl Sync for Queue {}
// SAFETY: it is only moved before its first use.
unsafe impl Send for Queue {}

impl Queue {
    pub(super) fn empty() -> Arc<Self> {
        Arc::new(Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            filled: UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER),
            items: UnsafeCell::new(0),
        })
    }

    pub(super) fn put(&self) {
        // SAFETY: the mutex and the condition are initialised and stay inside their Arc; the
        // count is touched under the mutex.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            *self.items.get() += 1;
            libc::pthread_mutex_unlock(self.mutex.get());
            libc::pthread_cond_signal(self.filled.get());
        }
    }

    #[inline(never)]
    pub(super) fn drain(&self) {
        // SAFETY: as above.
        unsafe {
            libc::pthread_mutex_lock(self.mutex.get());
            while *self.items.get() == 0 {
                libc::pthread_cond_wait(self.filled.get(), self.mutex.get());
            }
            *self.items.get() = 0;
            libc::pthread_mutex_unlock(self.mutex.get());
        }
    }
}

pub(super) fn run(stage: &Stage) -> Result<()> {
    let (consumer, producer) = (stage.role("consumer")?, stage.role("producer")?);
    let stopped = stage.stopped();
    let queue = Queue::empty();
    {
        let queue = Arc::clone(&queue);
        stage.thread(move || {
            consumer.claim("ow-consumer");
            while stopped.load(SeqCst) == 0 {
                consumer.waits(|| queue.drain());
                consumer.works(CONSUME);
            }
        })?;
    }
    let last = Arc::clone(&queue);
    stage.thread(move || {
        producer.claim("ow-producer");
        while stopped.load(SeqCst) == 0 {
            producer.works(WORK);
            queue.put();
        }
    })?;
    // The producer may have left first.
    stage.play(move || last.put())
}
