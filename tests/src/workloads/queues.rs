//! System V semaphores and message queues, POSIX message queues, and watched files.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::Path,
    sync::atomic::Ordering::SeqCst,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    raw,
    stage::{Role, Stage},
};

/// What somebody computes before each message, or after it.
const WORK: Duration = Duration::from_millis(5);

/// How long a message is. Two of them are more than a queue holds.
const MESSAGE: usize = 512;

/// The kernel's objects of this workload are in a namespace of its own, and gone with the process.
fn leave_namespace() -> Result<()> {
    // SAFETY: takes a plain integer.
    let left = unsafe { libc::unshare(libc::CLONE_NEWIPC) };
    ensure!(left == 0, "cannot make a namespace for IPC: {}", io::Error::last_os_error());
    Ok(())
}

fn check(result: libc::c_int, what: &str) -> Result<libc::c_int> {
    ensure!(result >= 0, "cannot {what}: {}", io::Error::last_os_error());
    Ok(result)
}

/// A place for messages, or for nothing but their number.
trait Queue: Copy + Send + 'static {
    /// Adds a message, and waits until there is room for it.
    fn send(self);
    /// Takes a message, and waits until there is one.
    fn receive(self);
}

/// Receivers wait for a sender that computes.
fn waits_for_messages(stage: &Stage, queue: impl Queue) -> Result<()> {
    let (receiver, sender) = (stage.role("receiver")?, stage.role("sender")?);
    let (stopped, total) = (stage.stopped(), stage.word()?);
    stage.thread(move || {
        receiver.claim("ow-receiver");
        // Until the last one: a queue that is left full would keep the sender waiting for room.
        let mut taken = 0;
        while taken == 0 || total.load(SeqCst) != taken {
            receiver.waits(|| queue.receive());
            taken += 1;
        }
    })?;
    stage.thread(move || {
        sender.claim("ow-sender");
        let mut sent = 0;
        while stopped.load(SeqCst) == 0 {
            sender.works(WORK);
            queue.send();
            sent += 1;
        }
        // The receiver may be waiting.
        total.store(sent + 1, SeqCst);
        queue.send();
    })?;
    stage.play(|| ())
}

/// A sender waits for room until a receiver, which computes, has taken a message.
fn waits_for_room(stage: &Stage, queue: impl Queue) -> Result<()> {
    let (receiver, sender) = (stage.role("receiver")?, stage.role("sender")?);
    let (stopped, sent) = (stage.stopped(), stage.word()?);
    stage.thread(move || {
        sender.claim("ow-sender");
        while stopped.load(SeqCst) == 0 {
            sender.waits(|| queue.send());
            sent.fetch_add(1, SeqCst);
        }
        sent.store(u32::MAX, SeqCst);
    })?;
    stage.thread(move || {
        receiver.claim("ow-receiver");
        let mut taken = 0;
        // Until the sender has gone, since it may be waiting; and never more than it has sent.
        loop {
            receiver.works(WORK);
            match sent.load(SeqCst) {
                u32::MAX => break,
                so_far if so_far > taken => {
                    queue.receive();
                    taken += 1;
                }
                _ => {}
            }
        }
    })?;
    stage.play(|| ())
}

/// A System V semaphore.
#[derive(Clone, Copy)]
struct Semaphore(libc::c_int);

impl Semaphore {
    fn new() -> Result<Self> {
        leave_namespace()?;
        // SAFETY: takes plain integers.
        let id = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
        Ok(Self(check(id, "make a semaphore")?))
    }

    fn add(self, amount: libc::c_short) {
        let mut operation = libc::sembuf { sem_num: 0, sem_op: amount, sem_flg: 0 };
        // SAFETY: the semaphore exists until the process ends, the operation is a valid place.
        let done = unsafe { libc::semop(self.0, &raw mut operation, 1) };
        assert!(done == 0, "no semaphore: {}", io::Error::last_os_error());
    }
}

impl Queue for Semaphore {
    fn send(self) {
        self.add(1);
    }

    fn receive(self) {
        self.add(-1);
    }
}

/// A thread waits for a semaphore that another one counts up.
pub(super) fn semaphore(stage: &Stage) -> Result<()> {
    waits_for_messages(stage, Semaphore::new()?)
}

/// A thread waits for a semaphore that nobody ever counts up, each time until a timeout.
pub(super) fn semaphore_timeout(stage: &Stage) -> Result<()> {
    let semaphore = Semaphore::new()?;
    times_out(stage, move || {
        let operation = libc::sembuf { sem_num: 0, sem_op: -1, sem_flg: 0 };
        let timeout = libc::timespec { tv_sec: 0, tv_nsec: WORK.subsec_nanos().into() };
        let (operation, timeout) = (&raw const operation as usize, &raw const timeout as usize);
        raw::syscall(libc::SYS_semtimedop, [semaphore.0 as usize, operation, 1, timeout]);
    })
}

fn times_out(stage: &Stage, wait: impl Fn() + Send + 'static) -> Result<()> {
    let waiter: &Role = stage.role("waiter")?;
    let stopped = stage.stopped();
    stage.thread(move || {
        waiter.claim("ow-waiter");
        while stopped.load(SeqCst) == 0 {
            waiter.waits(&wait);
            waiter.works(Duration::from_millis(1));
        }
    })?;
    stage.play(|| ())
}

/// A System V message queue that holds one message.
#[derive(Clone, Copy)]
struct SysvQueue(libc::c_int);

#[repr(C)]
struct SysvMessage {
    kind: libc::c_long,
    text: [u8; MESSAGE],
}

impl SysvQueue {
    fn new() -> Result<Self> {
        leave_namespace()?;
        // SAFETY: takes plain integers.
        let id = check(unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) }, "make a queue")?;
        // SAFETY: all bytes zero are a value.
        let mut settings: libc::msqid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: the queue is there, the settings are a valid place.
        unsafe {
            check(libc::msgctl(id, libc::IPC_STAT, &raw mut settings), "read a queue's settings")?;
            settings.msg_qbytes = MESSAGE as libc::msglen_t;
            check(libc::msgctl(id, libc::IPC_SET, &raw mut settings), "make a queue small")?;
        }
        Ok(Self(id))
    }
}

impl Queue for SysvQueue {
    fn send(self) {
        let message = SysvMessage { kind: 1, text: [0; MESSAGE] };
        // SAFETY: the message is a valid place of the size given.
        let sent = unsafe { libc::msgsnd(self.0, (&raw const message).cast(), MESSAGE, 0) };
        assert!(sent == 0, "cannot send: {}", io::Error::last_os_error());
    }

    fn receive(self) {
        let mut message = SysvMessage { kind: 0, text: [0; MESSAGE] };
        // SAFETY: as above.
        let got = unsafe { libc::msgrcv(self.0, (&raw mut message).cast(), MESSAGE, 0, 0) };
        assert!(got >= 0, "cannot receive: {}", io::Error::last_os_error());
    }
}

/// A thread waits for messages of another one in a System V queue.
pub(super) fn sysv_messages(stage: &Stage) -> Result<()> {
    waits_for_messages(stage, SysvQueue::new()?)
}

/// A thread waits for room in a System V queue.
pub(super) fn sysv_room(stage: &Stage) -> Result<()> {
    waits_for_room(stage, SysvQueue::new()?)
}

/// A POSIX message queue that holds one message.
#[derive(Clone, Copy)]
struct PosixQueue(libc::mqd_t);

impl PosixQueue {
    fn new() -> Result<Self> {
        leave_namespace()?;
        // SAFETY: all bytes zero are a value.
        let mut settings: libc::mq_attr = unsafe { std::mem::zeroed() };
        settings.mq_maxmsg = 1;
        settings.mq_msgsize = MESSAGE as _;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        // SAFETY: the name ends in a NUL, the settings are a valid place.
        let queue =
            unsafe { libc::mq_open(c"/ow-queue".as_ptr(), flags, 0o600, &raw mut settings) };
        Ok(Self(check(queue, "make a queue")?))
    }
}

impl Queue for PosixQueue {
    fn send(self) {
        let message = [0_u8; MESSAGE];
        // SAFETY: the message is a valid place of the size given.
        let sent = unsafe { libc::mq_send(self.0, message.as_ptr().cast(), MESSAGE, 0) };
        assert!(sent == 0, "cannot send: {}", io::Error::last_os_error());
    }

    fn receive(self) {
        let mut message = [0_u8; MESSAGE];
        let (place, none) = (message.as_mut_ptr().cast(), std::ptr::null_mut());
        // SAFETY: as above.
        let got = unsafe { libc::mq_receive(self.0, place, MESSAGE, none) };
        assert!(got >= 0, "cannot receive: {}", io::Error::last_os_error());
    }
}

/// A thread waits for messages of another one in a POSIX queue.
pub(super) fn posix_messages(stage: &Stage) -> Result<()> {
    waits_for_messages(stage, PosixQueue::new()?)
}

/// A thread waits for room in a POSIX queue.
pub(super) fn posix_room(stage: &Stage) -> Result<()> {
    waits_for_room(stage, PosixQueue::new()?)
}

/// A thread waits for messages that never come, each time until a timeout.
pub(super) fn posix_timeout(stage: &Stage) -> Result<()> {
    let queue = PosixQueue::new()?;
    times_out(stage, move || {
        let mut message = [0_u8; MESSAGE];
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both are valid places, the message's of the size given.
        unsafe {
            libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until);
            until.tv_nsec += libc::c_long::from(WORK.subsec_nanos() as i32);
            if until.tv_nsec >= 1_000_000_000 {
                until.tv_nsec -= 1_000_000_000;
                until.tv_sec += 1;
            }
            let (place, none) = (message.as_mut_ptr().cast(), std::ptr::null_mut());
            libc::mq_timedreceive(queue.0, place, MESSAGE, none, &raw const until);
        }
    })
}

/// A thread waits until a file changes, which another one writes to. The argument names the file's
/// directory.
pub(super) fn inotify(stage: &Stage) -> Result<()> {
    let (watcher, writer) = (stage.role("watcher")?, stage.role("writer")?);
    let stopped = stage.stopped();
    let path = Path::new(stage.argument()?).join("watched");
    let mut file =
        File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    // SAFETY: takes a plain integer.
    let watch = check(unsafe { libc::inotify_init1(libc::IN_CLOEXEC) }, "make a watch")?;
    // SAFETY: the descriptor was just made, nobody else owns it.
    let watch = unsafe { OwnedFd::from_raw_fd(watch) };
    let name = std::ffi::CString::new(path.to_string_lossy().into_owned())?;
    // SAFETY: the name ends in a NUL.
    let added =
        unsafe { libc::inotify_add_watch(watch.as_raw_fd(), name.as_ptr(), libc::IN_MODIFY) };
    check(added, "watch a file")?;
    stage.thread(move || {
        watcher.claim("ow-watcher");
        // One event without a name is no larger.
        let mut events = [0_u8; 64];
        while stopped.load(SeqCst) == 0 {
            watcher.waits(|| {
                let place = events.as_mut_ptr() as usize;
                raw::syscall(libc::SYS_read, [watch.as_raw_fd() as usize, place, events.len(), 0])
            });
        }
    })?;
    stage.thread(move || {
        writer.claim("ow-writer");
        while stopped.load(SeqCst) == 0 {
            writer.works(WORK);
            assert!(file.write_all(b"x").is_ok(), "cannot write");
        }
        // The watcher may be waiting.
        assert!(file.write_all(b"x").is_ok(), "cannot write");
    })?;
    stage.play(|| ())
}
