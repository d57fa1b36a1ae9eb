//! Who or what ended a wait, decided by the wake's context and by whether that context proves
//! anything.

use offwake_recording::{
    DeviceKind, OpenFile, Recording, SocketEnd, SystemVector, ThreadRef, Wait, Wake, WakeContext,
    units::{Tgid, Tid},
};

use super::{
    External, Reason,
    cause::{Cause, syscalls},
    signal,
    softirq::{self, Origin, Place},
};

/// The source of the wake that ended a wait: a task, something outside of every thread, or unknown.
///
/// ```text
/// task context                                 → that task, unless it only sent a signal
/// softirq inside a task's own send             → that task (its packet came back to this machine)
/// softirq TIMER, HRTIMER; hrtimer; timer tick  → external: timer
/// softirq BLOCK, IRQ_POLL                      → external: disk
/// softirq NET_TX, NET_RX   socket is local     → ksoftirqd, if the socket's other end is held by
///                                                whoever had set it to work
///                                              → else unattributed: local_softirq
///                          socket is remote    → external: network
///                          socket unknown      → what the stack says, else unattributed: interrupt
/// device interrupt         of a disk           → external: disk, whatever the wait was on
///           of another     wait on a disk      → external: disk
///           or not known   on a remote socket  → external: network
///                          else                → external: device
/// other softirqs, function calls, irq_work     → unattributed: interrupt
/// ```
///
/// HI and TASKLET run any driver's deferred work, SCHED balances the run queues, RCU ends a grace
/// period that every CPU has a part in; none of them proves a device or a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ender {
    /// No wake that ended the wait is known, for this reason.
    Nobody(Reason),
    /// A task made the wake itself.
    Task(ThreadRef),
    /// Something outside of every thread made the wake.
    External(External),
    /// An interrupt made the wake, and can't be traced to a thread or a device.
    Interrupt(Reason),
}

/// The source of a wake, as far as its own record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The record tells the source.
    Ender(Ender),
    /// A packet to this machine's own socket, delivered by this `ksoftirqd`. The sender is whoever
    /// had woken that thread.
    Softirqd(ThreadRef),
}

/// Softirqs by number
/// ([`include/linux/interrupt.h`](https://github.com/torvalds/linux/blob/v6.12/include/linux/interrupt.h#L552)).
mod vector {
    pub const TIMER: u16 = 1;
    pub const NET_TX: u16 = 2;
    pub const NET_RX: u16 = 3;
    pub const BLOCK: u16 = 4;
    pub const IRQ_POLL: u16 = 5;
    pub const HRTIMER: u16 = 8;
}

/// Finds the source of a wake from its record.
pub(super) fn source(recording: &Recording, wait: &Wait, wake: &Wake, cause: Cause) -> Source {
    match wake.context {
        WakeContext::Softirq(vector::NET_TX | vector::NET_RX) => packet(recording, wait, wake),
        _ => Source::Ender(ender(recording, wait, wake, cause)),
    }
}

fn ender(recording: &Recording, wait: &Wait, wake: &Wake, cause: Cause) -> Ender {
    match wake.context {
        // The idle task runs nothing of anybody's.
        WakeContext::Task if wake.current.tid == Tid(0) => Ender::Interrupt(Reason::Interrupt),
        WakeContext::Task if signal::cut_short(recording, wake, cause) => {
            Ender::Nobody(Reason::Signal)
        }
        WakeContext::Task => Ender::Task(wake.current),
        WakeContext::Hrtimer | WakeContext::System(SystemVector::LocalTimer) => {
            Ender::External(External::Timer)
        }
        WakeContext::Softirq(vector::TIMER | vector::HRTIMER) => Ender::External(External::Timer),
        context if is_of_disk(recording, context) => Ender::External(External::Disk),
        WakeContext::Hardirq(_) => Ender::External(device(recording, wait, cause)),
        WakeContext::Softirq(_)
        | WakeContext::System(
            SystemVector::Unknown
            | SystemVector::CallFunction
            | SystemVector::IrqWork
            | SystemVector::Idle,
        ) => Ender::Interrupt(Reason::Interrupt),
    }
}

/// Returns whether a wake was made by a disk's interrupt, or in the softirq to which such an
/// interrupt defers work.
///
/// A disk also ends waits that are not for a disk by themselves: for example that of a kernel
/// thread for work, whose work is then to tell others that their data is written.
pub(super) fn is_of_disk(recording: &Recording, context: WakeContext) -> bool {
    match context {
        WakeContext::Softirq(vector) => matches!(vector, vector::BLOCK | vector::IRQ_POLL),
        WakeContext::Hardirq(number) => {
            let device = recording.interrupts.get(&number).and_then(|info| info.device);
            device == Some(DeviceKind::Storage)
        }
        WakeContext::Task | WakeContext::Hrtimer | WakeContext::System(_) => false,
    }
}

/// Classifies the interrupt of a device that is not known to be a disk. A disk may still be behind
/// it: a USB port, for example, serves many kinds of devices.
fn device(recording: &Recording, wait: &Wait, cause: Cause) -> External {
    match cause {
        Cause::Disk | Cause::PageFault => External::Disk,
        Cause::Socket | Cause::Poll if peer(recording, wait) == Peer::Remote => External::Network,
        _ => External::Device,
    }
}

/// Classifies a wake from one of the network's softirqs.
fn packet(recording: &Recording, wait: &Wait, wake: &Wake) -> Source {
    let seen = softirq::read(&recording.stacks, wake.kernel_stack);
    let peer = peer(recording, wait);
    Source::Ender(match (seen.place, peer, seen.origin) {
        // A remote socket's packet may be handled while some other thread sends something; and so may
        // be what another sender has left over, where it is known who could have sent it.
        (Place::InSend, Peer::Local | Peer::Unknown, Origin::Backlog)
            if wake.current.tid != Tid(0) && may_have_sent(recording, wait, wake.current.tgid) =>
        {
            Ender::Task(wake.current)
        }
        (Place::InSoftirqd, Peer::Local, Origin::Backlog) => {
            return Source::Softirqd(wake.current);
        }
        (_, Peer::Local, _) => Ender::Interrupt(Reason::LocalSoftirq),
        (_, Peer::Remote, _) => Ender::External(External::Network),
        (_, Peer::Unknown, Origin::Backlog) => Ender::Interrupt(Reason::LocalSoftirq),
        (_, Peer::Unknown, Origin::Device) => Ender::External(External::Network),
        (_, Peer::Unknown, Origin::Unknown) => Ender::Interrupt(Reason::Interrupt),
    })
}

/// Returns whether a process holds the other end of the socket that a wait was on.
pub(super) fn holds_other_end(recording: &Recording, wait: &Wait, process: Tgid) -> bool {
    socket(recording, wait)
        .is_some_and(|socket| socket.peers.iter().any(|peer| peer.tgid == process))
}

/// Returns whether a process holds the other end of the socket, or no process is known to hold it.
fn may_have_sent(recording: &Recording, wait: &Wait, process: Tgid) -> bool {
    socket(recording, wait).is_none_or(|socket| socket.peers.is_empty())
        || holds_other_end(recording, wait, process)
}

/// Where the other end of a socket is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// On this machine.
    Local,
    /// On another one.
    Remote,
    /// Not known: no socket, many sockets, or one that was gone too soon.
    Unknown,
}

/// Finds the socket that a wait was on, if the wait's syscall names one.
fn socket<'a>(recording: &'a Recording, wait: &Wait) -> Option<&'a SocketEnd> {
    let named = wait.syscall.as_ref().and_then(syscalls::name).is_some_and(syscalls::takes_fd);
    match recording.files.files.get(&wait.file.filter(|_| named)?)? {
        OpenFile::Socket(socket) => Some(socket),
        OpenFile::Named(_) => None,
    }
}

fn peer(recording: &Recording, wait: &Wait) -> Peer {
    let Some(socket) = socket(recording, wait) else { return Peer::Unknown };
    if socket.protocol.starts_with("unix")
        || !socket.peers.is_empty()
        || is_loopback(&socket.local)
        || is_loopback(&socket.remote)
    {
        Peer::Local
    } else if has_host(&socket.remote) {
        Peer::Remote
    } else {
        Peer::Unknown
    }
}

fn is_loopback(address: &str) -> bool {
    address.starts_with("127.")
        || address.starts_with("[::1]")
        || address.starts_with("[::ffff:127.")
}

/// Returns whether an address names a host: that of a listening socket's other end does not.
fn has_host(address: &str) -> bool {
    !address.is_empty()
        && !["0.0.0.0", "[::]", "*"].iter().any(|nobody| address.starts_with(nobody))
}
