//! Who or what ended a wait, decided by the wake's context and by whether that context proves
//! anything.

use offwake_recording::{
    DeviceKind, Recording, SocketEnd, SystemVector, ThreadRef, Wait, Wake, WakeContext,
    units::{Tgid, Tid},
};

use super::{
    External, Reason,
    cause::{self, Cause},
    connection_sides::ready_or_named,
    local_servers::LocalServers,
    signal,
    softirq::{self, PacketOrigin, SoftirqContext},
};

/// The source of the wake that ended a wait: a task, something outside of every thread, or unknown.
///
/// ```text
/// task context                                 → that task, unless it only sent a signal
///                          interrupt ends      → unattributed: interrupt
/// softirq inside a task's own send             → that task (its packet came back to this machine)
/// softirq TIMER, HRTIMER; hrtimer; timer tick  → external: timer, unless it only sent a signal
///                          throttled writer    → external: disk
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
pub enum WakeSource {
    /// No wake that ended the wait is known, for this reason.
    Unknown(Reason),
    /// A task made the wake itself.
    Task(ThreadRef),
    /// Something outside of every thread made the wake.
    External(External),
    /// An interrupt made the wake, and can't be traced to a thread or a device.
    Interrupt(Reason),
}

/// The source of a wake, as far as its own record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternWakeSource {
    /// The record tells the source.
    Known(WakeSource),
    /// A packet to this machine's own socket, delivered by this `ksoftirqd`. The sender is whoever
    /// had woken that thread.
    Softirqd(ThreadRef),
    /// A packet to this machine's own TCP socket, delivered as the interrupt of a CPU's timer ended. A
    /// timer of TCP had it sent, unless somebody was sending just then.
    OverTimer,
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
pub(super) fn classify_source(
    recording: &Recording,
    servers: &LocalServers<'_>,
    wait: &Wait,
    wake: &Wake,
    cause: Cause,
) -> PatternWakeSource {
    match wake.context {
        WakeContext::Softirq(vector::NET_TX | vector::NET_RX) => {
            classify_packet(recording, servers, wait, wake)
        }
        _ => PatternWakeSource::Known(classify_wake(recording, servers, wait, wake, cause)),
    }
}

fn classify_wake(
    recording: &Recording,
    servers: &LocalServers<'_>,
    wait: &Wait,
    wake: &Wake,
    cause: Cause,
) -> WakeSource {
    match wake.context {
        // The idle task runs nothing of anybody's.
        WakeContext::Task if wake.current.tid == Tid(0) => WakeSource::Interrupt(Reason::Interrupt),
        WakeContext::Task
            if softirq::is_at_end_of_interrupt(&recording.stacks, wake.kernel_stack) =>
        {
            WakeSource::Interrupt(Reason::Interrupt)
        }
        WakeContext::Task | WakeContext::TimerSignal
            if signal::is_signal_only(recording, wake, cause) =>
        {
            WakeSource::Unknown(Reason::Signal)
        }
        WakeContext::Task => WakeSource::Task(wake.current),
        WakeContext::Hrtimer
        | WakeContext::TimerSignal
        | WakeContext::System(SystemVector::LocalTimer)
        | WakeContext::Softirq(vector::TIMER | vector::HRTIMER) => {
            WakeSource::External(if is_throttled_writer(recording, wait) {
                External::Disk
            } else {
                External::Timer
            })
        }
        context if is_from_disk(recording, context) => WakeSource::External(External::Disk),
        WakeContext::Hardirq(_) => {
            WakeSource::External(classify_device(recording, servers, wait, cause))
        }
        WakeContext::Softirq(_)
        | WakeContext::System(
            SystemVector::Unknown
            | SystemVector::CallFunction
            | SystemVector::IrqWork
            | SystemVector::Idle,
        ) => WakeSource::Interrupt(Reason::Interrupt),
    }
}

/// Returns whether a thread that writes is made to wait until a disk has taken some of what is on
/// its way there. The kernel has it sleep for as long as that will take, by the disk's speed so far
/// ([`balance_dirty_pages`](https://github.com/torvalds/linux/blob/v6.12/mm/page-writeback.c#L1808)):
/// the clock is not what it waits for.
fn is_throttled_writer(recording: &Recording, wait: &Wait) -> bool {
    cause::kernel_frames(&recording.stacks, wait.kernel_stack)
        .any(|function| cause::matches_any(&["balance_dirty_pages"], function))
}

/// Returns whether a wake was made by a disk's interrupt, or in the softirq to which such an
/// interrupt defers work.
///
/// A disk also ends waits that are not for a disk by themselves: for example that of a kernel
/// thread for work, whose work is then to tell others that their data is written.
pub(super) fn is_from_disk(recording: &Recording, context: WakeContext) -> bool {
    match context {
        WakeContext::Softirq(vector) => matches!(vector, vector::BLOCK | vector::IRQ_POLL),
        WakeContext::Hardirq(number) => {
            let device = recording.interrupts.get(&number).and_then(|info| info.device);
            device == Some(DeviceKind::Storage)
        }
        WakeContext::Task
        | WakeContext::Hrtimer
        | WakeContext::TimerSignal
        | WakeContext::System(_) => false,
    }
}

/// Classifies the interrupt of a device that is not known to be a disk. A disk may still be behind
/// it: a USB port, for example, serves many kinds of devices.
fn classify_device(
    recording: &Recording,
    servers: &LocalServers<'_>,
    wait: &Wait,
    cause: Cause,
) -> External {
    match cause {
        Cause::Disk | Cause::PageFault | Cause::Memory => External::Disk,
        Cause::Socket | Cause::Poll
            if locate_peer(recording, servers, wait) == PeerLocation::Remote =>
        {
            External::Network
        }
        _ => External::Device,
    }
}

/// Classifies a wake from one of the network's softirqs.
fn classify_packet(
    recording: &Recording,
    servers: &LocalServers<'_>,
    wait: &Wait,
    wake: &Wake,
) -> PatternWakeSource {
    let seen = softirq::read_stack(&recording.stacks, wake.kernel_stack);
    let peer = locate_peer(recording, servers, wait);
    PatternWakeSource::Known(match (seen.context, peer, seen.origin) {
        // A remote socket's packet may be handled while some other thread sends something; and so may
        // be what another sender has left over, where it is known who could have sent it.
        (
            SoftirqContext::InSend,
            PeerLocation::Local | PeerLocation::Unknown,
            PacketOrigin::Backlog,
        ) if wake.current.tid != Tid(0) && may_have_sent(recording, wait, wake.current.tgid) => {
            WakeSource::Task(wake.current)
        }
        // Between network namespaces of this machine, packets can go through the driver of a virtual
        // device (veth with GRO): who holds the other end and is just sending is the sender. So is who
        // held that of another connection to the same server, where nobody had a look in time.
        (
            SoftirqContext::InSend,
            PeerLocation::Local | PeerLocation::Unknown,
            PacketOrigin::Device,
        ) if wake.current.tid != Tid(0)
            && (holds_other_end(recording, wait, wake.current.tgid)
                || servers.may_hold_other_end(
                    wait.tgid,
                    find_socket(recording, wait),
                    wake.current.tgid,
                )) =>
        {
            WakeSource::Task(wake.current)
        }
        (SoftirqContext::InSoftirqd, PeerLocation::Local, PacketOrigin::Backlog) => {
            return PatternWakeSource::Softirqd(wake.current);
        }
        (SoftirqContext::OverTimer, PeerLocation::Local, PacketOrigin::Backlog)
            if find_tcp_socket(recording, wait).is_some() =>
        {
            return PatternWakeSource::OverTimer;
        }
        (_, PeerLocation::Local, _) => WakeSource::Interrupt(Reason::LocalSoftirq),
        (_, PeerLocation::Remote, _) => WakeSource::External(External::Network),
        (_, PeerLocation::Unknown, PacketOrigin::Backlog) => {
            WakeSource::Interrupt(Reason::LocalSoftirq)
        }
        (_, PeerLocation::Unknown, PacketOrigin::Device) => WakeSource::External(External::Network),
        (_, PeerLocation::Unknown, PacketOrigin::Unknown) => {
            WakeSource::Interrupt(Reason::Interrupt)
        }
    })
}

/// Returns whether a process holds the other end of the socket that a wait was on.
pub(super) fn holds_other_end(recording: &Recording, wait: &Wait, process: Tgid) -> bool {
    holders_of_other_end(recording, wait).any(|holder| holder == process)
}

/// Returns the processes that hold the other end of the socket that a wait was on.
pub(super) fn holders_of_other_end<'a>(
    recording: &'a Recording,
    wait: &Wait,
) -> impl Iterator<Item = Tgid> + 'a {
    find_socket(recording, wait).into_iter().flat_map(|socket| &socket.peers).map(|peer| peer.tgid)
}

/// Returns whether a process holds the other end of the socket, or no process is known to hold it.
fn may_have_sent(recording: &Recording, wait: &Wait, process: Tgid) -> bool {
    find_socket(recording, wait).is_none_or(|socket| socket.peers.is_empty())
        || holds_other_end(recording, wait, process)
}

/// Where the other end of a socket is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PeerLocation {
    /// On this machine.
    Local,
    /// On another one.
    Remote,
    /// Not known: no socket, many sockets, or one that was gone too soon.
    Unknown,
}

/// Finds the socket that a wait was on, if the wait's syscall names one, or what made its `epoll` ready
/// is one.
fn find_socket<'a>(recording: &'a Recording, wait: &Wait) -> Option<&'a SocketEnd> {
    let ready = wait.wake.as_ref().and_then(|wake| wake.ready);
    let (_, file) = ready_or_named(ready, wait.syscall.as_ref(), wait.polled_fd, wait.file)?;
    recording.files.socket(file)
}

/// Finds the TCP socket that a wait was on, if it was on one that is known.
pub(super) fn find_tcp_socket<'a>(recording: &'a Recording, wait: &Wait) -> Option<&'a SocketEnd> {
    find_socket(recording, wait).filter(|socket| socket.protocol.starts_with("tcp"))
}

fn locate_peer(recording: &Recording, servers: &LocalServers<'_>, wait: &Wait) -> PeerLocation {
    let Some(socket) = find_socket(recording, wait) else { return PeerLocation::Unknown };
    if socket.protocol.starts_with("unix")
        || !socket.peers.is_empty()
        || servers.is_local(socket)
        || is_loopback(&socket.local)
        || is_loopback(&socket.remote)
    {
        PeerLocation::Local
    } else if has_host(&socket.remote) {
        PeerLocation::Remote
    } else {
        PeerLocation::Unknown
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
