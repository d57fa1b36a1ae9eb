//! The thread that writes to the terminal while programs are attached.
//!
//! A terminal may have no reader: after Ctrl-S, or behind an ssh connection that hangs. Whoever writes to
//! it then waits, for ever if need be. So the thread that watches the deadline and the signals never
//! writes. It passes jobs on to this thread:
//!
//! ```text
//! main    ── print "…" ──▶ queue of 64 ──▶ offwake-print ──▶ standard error, standard output
//!         ◀── it is written, or 100 ms are over ──┘
//! ```
//!
//! Main waits so that lines stay in order: a message comes before the summary that follows it. It does
//! not wait again while an earlier job is late. Messages that find no room are dropped and counted.

use std::{
    io::{self, Write as _},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError},
    },
    time::Duration,
};

use indicatif::ProgressBar;
use offwake::{
    own_threads::{self, OwnThread},
    privileges::{self, Task},
};

use crate::console::{ProgressLine, Terminal};

/// How many jobs may wait.
const MAX_JOBS: usize = 64;
/// How long whoever has a message waits until it is written.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long the end of the program waits for the last messages.
const LAST_PATIENCE: Duration = Duration::from_secs(1);
/// Time between two drawings of the progress line.
const DRAW_INTERVAL: Duration = Duration::from_millis(200);

static THREAD: OnceLock<Option<Queue>> = OnceLock::new();

/// Starts the thread, unless it runs. If the kernel refuses, whoever has a message writes it.
pub fn start() {
    THREAD.get_or_init(|| Queue::start(Writer::default()).ok());
}

/// Prints a line on standard error, with the name of the program before it.
pub fn print_error(text: &str) {
    submit(Job::Error(text.to_owned()));
}

/// Prints a line on standard output, unless `--quiet` is given.
pub fn print_message(text: &str) {
    submit(Job::Message(text.to_owned()));
}

/// Draws this line again and again, until it is [hidden](hide_progress).
pub fn show_progress(line: &Arc<ProgressLine>) {
    start();
    submit(Job::ShowProgress(Arc::clone(line)));
}

/// Removes the line.
pub fn hide_progress() {
    submit(Job::HideProgress);
}

/// Waits a while for the last messages. Call this before the program ends.
pub fn finish() {
    if let Some(queue) = THREAD.get().and_then(Option::as_ref) {
        queue.wait_until_empty(LAST_PATIENCE);
    }
}

fn submit(job: Job) {
    let unsent = match THREAD.get().and_then(Option::as_ref) {
        Some(queue) => queue.submit(job),
        None => Some(job),
    };
    match unsent {
        Some(job @ (Job::Error(_) | Job::Message(_))) => job.write(),
        Some(Job::ShowProgress(_) | Job::HideProgress) | None => {}
    }
}

/// What is to be done with the terminal.
enum Job {
    Error(String),
    Message(String),
    ShowProgress(Arc<ProgressLine>),
    HideProgress,
}

impl Job {
    /// Writes a message.
    fn write(&self) {
        // If standard error is gone too, there is nobody to tell.
        let print_error = |text: &str| _ = writeln!(io::stderr(), "offwake: {text}");
        match self {
            Self::Error(text) => print_error(text),
            Self::Message(text) => {
                if let Err(error) = Terminal::messages().line(text) {
                    print_error(&format!("{error:#}"));
                }
            }
            Self::ShowProgress(_) | Self::HideProgress => {}
        }
    }
}

/// Does the jobs of the queue.
trait Worker: Send + 'static {
    fn perform(&mut self, job: &Job);

    /// Draws the progress line, if there is one. Returns when to do so again.
    fn draw(&mut self) -> Option<Duration>;
}

/// Writes to the real terminal.
#[derive(Default)]
struct Writer(Option<(Arc<ProgressLine>, ProgressBar)>);

impl Writer {
    fn hide(&mut self) {
        if let Some((_, bar)) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

impl Worker for Writer {
    fn perform(&mut self, job: &Job) {
        match (job, &self.0) {
            (Job::ShowProgress(line), _) => {
                self.hide();
                self.0 = Some((Arc::clone(line), line.to_bar()));
            }
            (Job::HideProgress, _) => self.hide(),
            (_, Some((_, bar))) => bar.suspend(|| job.write()),
            (_, None) => job.write(),
        }
    }

    fn draw(&mut self) -> Option<Duration> {
        let (line, bar) = self.0.as_ref()?;
        line.update(bar);
        bar.tick();
        Some(DRAW_INTERVAL)
    }
}

/// The jobs on their way to the thread.
struct Queue {
    jobs: SyncSender<Job>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    counts: Mutex<Counts>,
    changed: Condvar,
}

/// How many jobs there were, since the program began.
#[derive(Default)]
struct Counts {
    submitted: u64,
    performed: u64,
    /// Those that found no room, and were not mentioned yet.
    dropped: u64,
    /// Whether somebody has waited in vain for a job that is still not done.
    is_late: bool,
}

impl Queue {
    fn start(worker: impl Worker) -> io::Result<Self> {
        let (jobs, received) = mpsc::sync_channel(MAX_JOBS);
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        own_threads::spawn(OwnThread::Print, move || {
            privileges::restrict_to(Task::Other);
            perform_jobs(&received, &shared, worker);
        })?;
        Ok(Self { jobs, state })
    }

    /// Passes a job on, and waits a while until it is done. Returns it if nobody does jobs any more.
    fn submit(&self, job: Job) -> Option<Job> {
        let mut counts = self.state.lock();
        match self.jobs.try_send(job) {
            Ok(()) => counts.submitted += 1,
            Err(TrySendError::Full(_)) => {
                counts.dropped += 1;
                return None;
            }
            Err(TrySendError::Disconnected(job)) => return Some(job),
        }
        if !counts.is_late {
            counts = self.state.wait_until_performed(counts, PATIENCE);
            counts.is_late = counts.performed < counts.submitted;
        }
        None
    }

    fn wait_until_empty(&self, patience: Duration) {
        drop(self.state.wait_until_performed(self.state.lock(), patience));
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all that was submitted by now.
    fn wait_until_performed<'a>(
        &'a self,
        counts: MutexGuard<'a, Counts>,
        patience: Duration,
    ) -> MutexGuard<'a, Counts> {
        let last = counts.submitted;
        let is_open = |counts: &mut Counts| counts.performed < last;
        let waited = self.changed.wait_timeout_while(counts, patience, is_open);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Notes that a job is done. Returns how many were dropped since the last call.
    fn finish_job(&self) -> u64 {
        let mut counts = self.lock();
        counts.performed += 1;
        counts.is_late = false;
        self.changed.notify_all();
        std::mem::take(&mut counts.dropped)
    }
}

fn perform_jobs(jobs: &Receiver<Job>, state: &State, mut worker: impl Worker) {
    let mut next_drawing = None;
    loop {
        let received = match next_drawing {
            Some(pause) => jobs.recv_timeout(pause),
            None => jobs.recv().map_err(|_gone| RecvTimeoutError::Disconnected),
        };
        match received {
            Ok(job) => {
                own_threads::pass();
                worker.perform(&job);
                let dropped = state.finish_job();
                if dropped > 0 {
                    let words = format!("{dropped} messages are missing: the terminal took none");
                    worker.perform(&Job::Error(words));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        next_drawing = worker.draw();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Writes when the test lets it.
    struct Blocked {
        permits: Receiver<()>,
        written: mpsc::Sender<String>,
    }

    impl Worker for Blocked {
        fn perform(&mut self, job: &Job) {
            // The test has ended if there is no permit.
            let _ended = self.permits.recv();
            if let Job::Error(text) = job {
                let _ended = self.written.send(text.clone());
            }
        }

        fn draw(&mut self) -> Option<Duration> {
            None
        }
    }

    fn blocked_queue() -> (Queue, mpsc::Sender<()>, Receiver<String>) {
        let (permit, permits) = mpsc::channel();
        let (written, lines) = mpsc::channel();
        (Queue::start(Blocked { permits, written }).unwrap(), permit, lines)
    }

    #[test]
    fn nobody_waits_for_long_if_the_terminal_is_not_read_and_what_is_dropped_is_counted() {
        let (queue, permit, lines) = blocked_queue();
        let began = Instant::now();
        // One is being written, 64 wait.
        for number in 0..MAX_JOBS + 11 {
            assert!(queue.submit(Job::Error(number.to_string())).is_none());
        }
        // Each by itself would have waited 7 s in all.
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        for _ in 0..=MAX_JOBS + 1 {
            permit.send(()).unwrap();
        }
        queue.wait_until_empty(Duration::from_secs(60));
        let lines: Vec<String> = lines.iter().take(MAX_JOBS + 2).collect();
        assert_eq!(lines[0], "0");
        assert_eq!(lines[1], "10 messages are missing: the terminal took none");
        assert_eq!(lines[2], "1");
    }

    #[test]
    fn a_message_is_written_before_its_sender_goes_on() {
        let (queue, permit, lines) = blocked_queue();
        for number in ["1", "2"] {
            permit.send(()).unwrap();
            queue.submit(Job::Error(number.to_owned()));
            queue.wait_until_empty(Duration::from_secs(60));
            assert_eq!(lines.try_recv().unwrap(), number);
        }
    }
}
