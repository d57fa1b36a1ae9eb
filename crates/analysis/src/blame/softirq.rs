//! What a kernel stack tells of a wake out of the network's softirqs.
//!
//! A packet to the own machine is handed over in a softirq, and most of the time that runs inside
//! the sender's own send, as the last thing before it enables softirqs again (seen on Linux 6.18,
//! leaf on the left):
//!
//! ```text
//! sock_def_readable < tcp_data_queue < tcp_v4_rcv < process_backlog < net_rx_action
//!   < handle_softirqs < do_softirq < __local_bh_enable_ip < __dev_queue_xmit < tcp_sendmsg
//!                       `--------- the sender: from here on its own frames ---------------'
//! ```
//!
//! The same softirq can run when an interrupt ends, over a task that has nothing to do with it:
//!
//! ```text
//! ... < net_rx_action < handle_softirqs < __irq_exit_rcu < common_interrupt < whoever was running
//! ```
//!
//! So it does after a timer of TCP's own: a delayed acknowledgement, which lets the other end send what
//! it has held back (Nagle's algorithm), or a retransmission:
//!
//! ```text
//! ... < net_rx_action < handle_softirqs < __irq_exit_rcu < sysvec_apic_timer_interrupt < anybody
//! ```

use offwake_recording::{Frame, StackRef, StackTable};

use super::cause::matches_any;

/// What a softirq interrupted, or was run by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SoftirqContext {
    /// Inside the current task's own send.
    InSend,
    /// In `ksoftirqd`, the kernel thread that runs what is left over.
    InSoftirqd,
    /// As the interrupt of a CPU's own timer ended. Timers of TCP run there too, and what these send
    /// to the own machine is delivered at once.
    OverTimer,
    /// Anything else, or unknown.
    Other,
}

/// Where a packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketOrigin {
    /// The queue of packets that this machine hands to itself
    /// ([`process_backlog`](https://github.com/torvalds/linux/blob/v6.12/net/core/dev.c#L6164)).
    /// Packets that another CPU passes on (RPS) go through it too: it does not prove a sender.
    Backlog,
    /// A network device's driver.
    Device,
    /// Unknown.
    Unknown,
}

/// What a waker's kernel stack tells about a wake from a softirq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SoftirqStack {
    pub(super) context: SoftirqContext,
    pub(super) origin: PacketOrigin,
}

const RUNS_SOFTIRQS: &[&str] = &["handle_softirqs", "__do_softirq", "__softirqentry_text_start"];
const CALLS_RUNNER: &[&str] =
    &["do_softirq", "__do_softirq", "do_softirq_own_stack", "asm_call_on_stack", "call_softirq"];
const ENABLES_SOFTIRQS: &[&str] = &["__local_bh_enable_ip", "__local_bh_enable"];
const ENDS_INTERRUPT: &[&str] = &["__irq_exit_rcu", "irq_exit_rcu", "irq_exit"];
/// The interrupt of a CPU's own timer, on x86, and the one in which a CPU does what it could not do in
/// that (`irq_work`), which follows it at once. Those of arm64 come through the same functions as any
/// other.
const TIMER_INTERRUPT: &[&str] = &[
    "sysvec_apic_timer_interrupt",
    "asm_sysvec_apic_timer_interrupt",
    "sysvec_hyperv_stimer0",
    "sysvec_irq_work",
    "asm_sysvec_irq_work",
];
const SOFTIRQD: &[&str] = &["run_ksoftirqd"];
const BACKLOG: &[&str] = &["process_backlog"];
const DRIVER: &[&str] = &[
    "napi_gro_receive",
    "gro_receive_skb",
    "napi_gro_frags",
    "netif_receive_skb",
    "netif_receive_skb_list_internal",
    "napi_complete_done",
    "gro_normal_list",
];
/// Every way of a packet out of the machine's stack into a device's queue, loopback included.
const SENDS: &[&str] = &["__dev_queue_xmit", "dev_queue_xmit", "__dev_direct_xmit"];

/// Returns whether a wake was made as an interrupt ended, over whichever thread was running. Softirqs
/// that are left over by then are handed to `ksoftirqd`, and that is woken after the last of them
/// ([`handle_softirqs`](https://github.com/torvalds/linux/blob/v6.12/kernel/softirq.c#L511)):
///
/// ```text
/// try_to_wake_up < wakeup_softirqd < handle_softirqs < __irq_exit_rcu < common_interrupt < anybody
/// ```
pub(super) fn is_at_end_of_interrupt(stacks: &StackTable, stack: StackRef) -> bool {
    let StackRef::Id(id) = stack else { return false };
    let mut frames = stacks.frames_of(id).flat_map(Frame::names);
    frames.any(|frame| matches_any(ENDS_INTERRUPT, frame))
}

/// Reads a waker's kernel stack.
pub(super) fn read_stack(stacks: &StackTable, stack: StackRef) -> SoftirqStack {
    let unknown = SoftirqStack { context: SoftirqContext::Other, origin: PacketOrigin::Unknown };
    let StackRef::Id(id) = stack else { return unknown };
    // Leaf first; of one address innermost first.
    let mut frames = stacks.frames_of(id).flat_map(Frame::names).peekable();
    let mut origin = PacketOrigin::Unknown;
    for frame in frames.by_ref() {
        if matches_any(BACKLOG, frame) {
            origin = PacketOrigin::Backlog;
        } else if matches_any(DRIVER, frame) && origin == PacketOrigin::Unknown {
            origin = PacketOrigin::Device;
        } else if matches_any(RUNS_SOFTIRQS, frame) {
            break;
        }
    }
    while frames.peek().is_some_and(|frame| matches_any(CALLS_RUNNER, frame)) {
        frames.next();
    }
    let caller = frames.next();
    if caller.is_some_and(|frame| matches_any(SOFTIRQD, frame)) {
        return SoftirqStack { context: SoftirqContext::InSoftirqd, origin };
    }
    if caller.is_some_and(|frame| matches_any(ENDS_INTERRUPT, frame))
        && frames.peek().is_some_and(|frame| matches_any(TIMER_INTERRUPT, frame))
    {
        return SoftirqStack { context: SoftirqContext::OverTimer, origin };
    }
    let own = caller.is_some_and(|frame| matches_any(ENABLES_SOFTIRQS, frame));
    // Enabling softirqs runs whatever is due on this CPU; only a task that is just sending is the
    // sender. The frame may sit behind inlined helpers.
    let sends = frames.take(4).any(|frame| matches_any(SENDS, frame));
    SoftirqStack {
        context: if own && sends { SoftirqContext::InSend } else { SoftirqContext::Other },
        origin,
    }
}
