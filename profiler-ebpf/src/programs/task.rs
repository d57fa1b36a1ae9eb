//! Reads the fields of the kernel's structures, above all of `struct task_struct`; nothing else
//! does.
//!
//! Rust has no CO-RE relocations: the offsets come from the running kernel's BTF as frozen
//! constants, and the loads go straight through typed pointers. The verifier folds the constant,
//! type-checks the access against BTF, and refuses a wrong offset.

use core::{ffi::c_void, ptr};

use aya_ebpf::helpers::generated::{
    bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_probe_read_user, bpf_task_pt_regs,
};
use profiler_ebpf::{
    offsets::NO_OFFSET,
    record::{NO_SYSCALL, Syscall, thread_flags},
};

use super::config::{CONFIG, frozen, offset};

/// `PF_IO_WORKER` and `PF_KTHREAD`: stable since 5.12 and 2.6.
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/sched.h#L1712>
const PF_IO_WORKER: u32 = 0x0000_0010;
const PF_KTHREAD: u32 = 0x0020_0000;

/// `TASK_DEAD`: the state of a thread's last switch-out.
pub const TASK_DEAD: u32 = 0x80;
/// `TASK_INTERRUPTIBLE` and `TASK_UNINTERRUPTIBLE`.
const TASK_INTERRUPTIBLE: u32 = 0x1;
const TASK_UNINTERRUPTIBLE: u32 = 0x2;

/// Whether a thread in this state waits for what a signal would end.
#[inline(always)]
pub fn is_interruptible(state: u32) -> bool {
    state & (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE) == TASK_INTERRUPTIBLE
}

/// A `struct task_struct` that the kernel vouches for.
#[derive(Clone, Copy)]
pub struct Task(*const c_void);

/// A `struct pt_regs` that the kernel vouches for: a thread's registers as it left user code. They
/// are zeroes for a thread that has never been in user code.
#[derive(Clone, Copy)]
pub struct Registers(*const c_void);

/// The registers that tell where a thread left user code.
#[derive(Clone, Copy)]
pub struct UserRegisters {
    /// The instruction pointer: the instruction after the one that left user code.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer, or whatever code without one keeps there.
    pub fp: u64,
}

/// Loads a field of a kernel structure through a typed pointer.
///
/// # Safety
///
/// The verifier knows the type of what `base` points to.
#[inline(always)]
pub unsafe fn field<T: Copy>(base: *const c_void, offset: usize) -> T {
    // SAFETY: the caller's pointer is typed for the verifier, which checks the access.
    unsafe { ptr::read_volatile(base.byte_add(offset).cast()) }
}

/// Reads kernel memory at an address that the verifier knows no type of. 0 where it can't be read.
#[inline(always)]
pub fn peek<T: Copy + Default>(address: u64) -> T {
    let mut value = T::default();
    // SAFETY: the helper writes `size_of::<T>()` bytes to `value`, zeroes if the read faults.
    unsafe {
        bpf_probe_read_kernel(
            (&raw mut value).cast(),
            size_of::<T>() as u32,
            address as *const c_void,
        );
    }
    value
}

/// Reads the current task's user memory. 0 where it can't be read.
#[inline(always)]
pub fn peek_user<T: Copy + Default>(address: u64) -> T {
    let mut value = T::default();
    // SAFETY: as in `peek`.
    unsafe {
        bpf_probe_read_user(
            (&raw mut value).cast(),
            size_of::<T>() as u32,
            address as *const c_void,
        );
    }
    value
}

impl Task {
    /// The task that a program was called with.
    #[inline(always)]
    pub fn from_arg(task: *const c_void) -> Self {
        Self(task)
    }

    /// The task that runs on this CPU, or was interrupted on it.
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the helper has no preconditions and never returns null.
        Self(unsafe { bpf_get_current_task_btf() }.cast())
    }

    /// Whether the task is in a syscall of the 32-bit table, if it is in any.
    #[inline(always)]
    pub fn is_in_compat_syscall(self) -> bool {
        let status: u32 = self.load(offset(&CONFIG.offsets.task_thread_status));
        status & frozen(&CONFIG.compat_mask) != 0
    }

    /// The pointer that helpers take.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut c_void {
        self.0.cast_mut()
    }

    #[inline(always)]
    fn load<T: Copy>(self, offset: usize) -> T {
        // SAFETY: `self.0` is a typed pointer.
        unsafe { field(self.0, offset) }
    }

    /// Thread id in the root PID namespace; 0 is the idle task.
    #[inline(always)]
    pub fn tid(self) -> u32 {
        self.load(offset(&CONFIG.offsets.task_pid))
    }

    /// Process id in the root PID namespace.
    #[inline(always)]
    pub fn tgid(self) -> u32 {
        self.load(offset(&CONFIG.offsets.task_tgid))
    }

    /// The scheduler's state of the thread (`__state`); 0 is running or runnable.
    #[inline(always)]
    pub fn state(self) -> u32 {
        self.load(offset(&CONFIG.offsets.task_state))
    }

    /// Whether the thread is on a CPU, or has not yet quite left one.
    ///
    /// The field was an `int` and is one byte in 7.3, whose verifier refuses to read more. Its lowest byte, which has
    /// all there is, is the first one of either.
    #[inline(always)]
    pub fn is_on_cpu(self) -> bool {
        self.load::<u8>(offset(&CONFIG.offsets.task_on_cpu)) != 0
    }

    /// Whether the thread is blocked. The scheduler may keep a blocked thread queued for a while:
    /// 6.12 and later delay the dequeue (`sched_delayed`).
    #[inline(always)]
    pub fn is_blocked(self) -> bool {
        if self.state() == 0 {
            return false;
        }
        // In this order: a delayed dequeue that is made up for in between leaves `on_rq` at 0, and the
        // thread would look runnable if that were read first.
        let delayed = offset(&CONFIG.offsets.task_sched_delayed);
        if delayed != NO_OFFSET as usize && self.load::<u8>(delayed) != 0 {
            return true;
        }
        // 0, 1 or 2, in one byte since some release before 7.3, as `on_cpu` is.
        self.load::<u8>(offset(&CONFIG.offsets.task_on_rq)) == 0
    }

    /// Whether a CPU quota has had the thread taken out of its CPU's queue. Always false where
    /// threads are not throttled one by one, which is before 6.18
    /// ([`throttle_cfs_rq_work`](https://github.com/torvalds/linux/blob/v6.18/kernel/sched/fair.c)).
    #[inline(always)]
    pub fn is_throttled(self) -> bool {
        let throttled = offset(&CONFIG.offsets.quota.task_throttled);
        throttled != NO_OFFSET as usize && self.load::<u8>(throttled) != 0
    }

    /// When the thread came to a CPU last, by the clock of that CPU's run queue.
    #[inline(always)]
    pub fn last_arrival(self) -> u64 {
        self.load(offset(&CONFIG.offsets.arrival.task_last_arrival))
    }

    /// The address of the queue that the thread is in or would be in, were it of the fair class.
    #[inline(always)]
    pub fn queue(self) -> u64 {
        peek(self.0 as u64 + offset(&CONFIG.offsets.arrival.task_queue) as u64)
    }

    /// The address of the thread's `sched_entity`.
    #[inline(always)]
    pub fn scheduling_entity(self) -> u64 {
        self.0 as u64 + offset(&CONFIG.offsets.quota.task_entity) as u64
    }

    /// Whether the thread has ended and only waits for its parent to collect it.
    #[inline(always)]
    pub fn is_dead(self) -> bool {
        self.load::<u32>(offset(&CONFIG.offsets.task_exit_state)) != 0
    }

    /// Whether every thread of its process has ended or is about to, as this one is: the kernel
    /// counts down before it says so
    /// ([`do_exit`](https://github.com/torvalds/linux/blob/v6.12/kernel/exit.c)).
    #[inline(always)]
    pub fn is_last_of_process(self) -> bool {
        let signal: *const c_void = self.load(offset(&CONFIG.offsets.task_signal));
        // SAFETY: `signal` is a typed pointer.
        !signal.is_null()
            && unsafe { field::<u32>(signal, offset(&CONFIG.offsets.signal_live)) } == 0
    }

    /// Whether a signal is pending for the thread, or for its process, that the thread does not
    /// block. The sets have a bit for each of 64 signals.
    #[inline(always)]
    pub fn has_deliverable_signal(self) -> bool {
        let signal: *const c_void = self.load(offset(&CONFIG.offsets.task_signal));
        if signal.is_null() {
            return false;
        }
        // SAFETY: `signal` is a typed pointer.
        let shared: u64 =
            unsafe { field(signal, offset(&CONFIG.offsets.signal_shared_pending_signals)) };
        let own: u64 = self.load(offset(&CONFIG.offsets.task_pending_signals));
        let blocked: u64 = self.load(offset(&CONFIG.offsets.task_blocked_signals));
        (own | shared) & !blocked != 0
    }

    /// Whether this is the address of the timer behind `alarm` and `setitimer` of the thread's
    /// process, whose signal interrupts the thread: it does not block that.
    #[inline(always)]
    pub fn is_interrupting_alarm(self, hrtimer: u64) -> bool {
        /// `SIGALRM` in a set of signals.
        const SIGALRM: u64 = 1 << 13;
        let signal: u64 = peek(self.0 as u64 + offset(&CONFIG.offsets.task_signal) as u64);
        let blocked: u64 = self.load(offset(&CONFIG.offsets.task_blocked_signals));
        hrtimer == signal + offset(&CONFIG.offsets.signal_real_timer) as u64
            && blocked & SIGALRM == 0
    }

    /// When the thread was created, in ns of `CLOCK_MONOTONIC`.
    #[inline(always)]
    pub fn start_time(self) -> u64 {
        self.load(offset(&CONFIG.offsets.task_start_time))
    }

    /// The exit status as `wait4` returns it.
    #[inline(always)]
    pub fn exit_code(self) -> u32 {
        self.load(offset(&CONFIG.offsets.task_exit_code))
    }

    /// A number that identifies the thread's address space: the pointer `mm`. It is read by a
    /// helper, since what is loaded through a typed pointer is a typed pointer for the verifier,
    /// not a number.
    #[inline(always)]
    pub fn mm(self) -> u64 {
        peek(self.0 as u64 + offset(&CONFIG.offsets.task_mm) as u64)
    }

    /// What the register for a thread's own storage held when the thread last left its CPU, or when
    /// it was created. 0 if that is not known on this kind of machine.
    #[inline(always)]
    pub fn thread_pointer(self) -> u64 {
        let offset = offset(&CONFIG.offsets.task_thread_pointer);
        if offset == NO_OFFSET as usize { 0 } else { peek(self.0 as u64 + offset as u64) }
    }

    /// The same of the current task, which a program that asks the kernel for its storage sets before
    /// it leaves its CPU: glibc and musl do.
    #[inline(always)]
    pub fn current_thread_pointer(self) -> u64 {
        let offset = offset(&CONFIG.offsets.task_thread_pointer);
        if offset == NO_OFFSET as usize { 0 } else { self.load(offset) }
    }

    /// How often the thread has gone to sleep.
    #[inline(always)]
    pub fn voluntary_switches(self) -> u64 {
        self.load(offset(&CONFIG.offsets.task_nvcsw))
    }

    /// The lowest address of the thread's kernel stack.
    #[inline(always)]
    pub fn stack(self) -> u64 {
        self.load(offset(&CONFIG.offsets.task_stack))
    }

    /// The thread's saved user registers, which are at the top of its kernel stack, a kernel
    /// thread's included. The helper is a real call, so a program should use it once.
    #[inline(always)]
    pub fn registers(self) -> Registers {
        // SAFETY: `self.0` is a task that the kernel vouches for.
        Registers(unsafe { bpf_task_pt_regs(self.as_ptr().cast()) as *const c_void })
    }

    /// The parent process; 0 if there is none.
    #[inline(always)]
    pub fn parent_tgid(self) -> u32 {
        let parent: u64 = peek(self.0 as u64 + offset(&CONFIG.offsets.task_real_parent) as u64);
        peek(parent + offset(&CONFIG.offsets.task_tgid) as u64)
    }

    /// Whether the thread is the kernel's own. A worker of io_uring is its process's.
    #[inline(always)]
    pub fn is_kernels_own(self) -> bool {
        let flags: u32 = self.load(offset(&CONFIG.offsets.task_flags));
        flags & PF_KTHREAD != 0
    }

    /// Whether the thread has no user code: a kernel thread, or a worker of io_uring.
    #[inline(always)]
    pub fn is_kernel_thread(self) -> bool {
        let flags: u32 = self.load(offset(&CONFIG.offsets.task_flags));
        flags & (PF_KTHREAD | PF_IO_WORKER) != 0
    }

    /// Whether there is a user stack to walk: a thread on its way out has given its address space
    /// back already.
    #[inline(always)]
    pub fn has_user_half(self) -> bool {
        let mm: *const c_void = self.load(offset(&CONFIG.offsets.task_mm));
        !self.is_kernel_thread() && !mm.is_null()
    }

    /// Id of the thread's cgroup in the v2 hierarchy.
    #[inline(always)]
    pub fn cgroup(self) -> u64 {
        let cgroup = self.default_cgroup();
        if cgroup.is_null() { 0 } else { cgroup_id(cgroup) }
    }

    /// Id of the cgroup at this level, the target's, that the thread's cgroup is or is below; 0 if
    /// the thread's cgroup is nearer to the root.
    #[inline(always)]
    pub fn cgroup_at(self, level: u32) -> u64 {
        let cgroup = self.default_cgroup();
        if cgroup.is_null() {
            return 0;
        }
        // SAFETY: `cgroup` is a typed pointer.
        let own_level: u32 = unsafe { field(cgroup, offset(&CONFIG.offsets.cgroup_level)) };
        if own_level < level {
            return 0;
        }
        let ancestor = offset(&CONFIG.offsets.cgroup_ancestor);
        if ancestor != NO_OFFSET as usize {
            let ancestor: u64 = peek(cgroup as u64 + ancestor as u64);
            let node: u64 = peek(ancestor + offset(&CONFIG.offsets.cgroup_kn) as u64);
            return peek(node + offset(&CONFIG.offsets.kernfs_node_id) as u64);
        }
        let ancestor_id = offset(&CONFIG.offsets.cgroup_ancestor_id);
        if ancestor_id != NO_OFFSET as usize {
            return peek(cgroup as u64 + ancestor_id as u64);
        }
        cgroup_id(cgroup)
    }

    #[inline(always)]
    fn default_cgroup(self) -> *const c_void {
        let css_set: *const c_void = self.load(offset(&CONFIG.offsets.task_cgroups));
        if css_set.is_null() {
            return ptr::null();
        }
        // SAFETY: `css_set` is a typed pointer.
        unsafe { field(css_set, offset(&CONFIG.offsets.css_set_dfl_cgrp)) }
    }

    /// Reads the syscall that the thread is in, with its arguments at entry; `registers` are the
    /// thread's own.
    #[inline(always)]
    pub fn syscall(self, registers: Registers, into: &mut Syscall) {
        into.number = NO_SYSCALL;
        into.thread_flags &= !thread_flags::COMPAT;
        if into.thread_flags & thread_flags::KERNEL != 0 {
            return;
        }
        let register = |offset| registers.get::<u64>(offset);
        // A thread that the kernel created to work on behalf of user space (vhost, say) has
        // registers of zeroes, and would seem to be in syscall 0.
        if register(offset(&CONFIG.offsets.pt_regs_ip)) == 0 {
            return;
        }
        // The number is -1 if the kernel was entered by a fault or an interrupt.
        into.number = registers.get(offset(&CONFIG.offsets.pt_regs_syscall));
        if into.number < 0 {
            into.number = NO_SYSCALL;
            return;
        }
        if self.is_in_compat_syscall() {
            into.thread_flags |= thread_flags::COMPAT;
            into.args[0] = register(offset(&CONFIG.offsets.pt_regs_compat_args[0])) as u32 as u64;
            into.args[1] = register(offset(&CONFIG.offsets.pt_regs_compat_args[1])) as u32 as u64;
            into.args[2] = register(offset(&CONFIG.offsets.pt_regs_compat_args[2])) as u32 as u64;
            into.args[3] = register(offset(&CONFIG.offsets.pt_regs_compat_args[3])) as u32 as u64;
            into.args[4] = register(offset(&CONFIG.offsets.pt_regs_compat_args[4])) as u32 as u64;
            into.args[5] = register(offset(&CONFIG.offsets.pt_regs_compat_args[5])) as u32 as u64;
        } else {
            into.args[0] = register(offset(&CONFIG.offsets.pt_regs_args[0]));
            into.args[1] = register(offset(&CONFIG.offsets.pt_regs_args[1]));
            into.args[2] = register(offset(&CONFIG.offsets.pt_regs_args[2]));
            into.args[3] = register(offset(&CONFIG.offsets.pt_regs_args[3]));
            into.args[4] = register(offset(&CONFIG.offsets.pt_regs_args[4]));
            into.args[5] = register(offset(&CONFIG.offsets.pt_regs_args[5]));
        }
    }

    /// Address of the `struct file` that one of the thread's descriptors refers to; 0 if there is
    /// none.
    #[inline(always)]
    pub fn open_file(self, descriptor: u32) -> u64 {
        let files: *const c_void = self.load(offset(&CONFIG.offsets.task_files));
        if files.is_null() {
            return 0;
        }
        // SAFETY: `files` is a typed pointer.
        let table: *const c_void = unsafe { field(files, offset(&CONFIG.offsets.files_fdt)) };
        if table.is_null() {
            return 0;
        }
        // SAFETY: `table` is a typed pointer.
        let (max, array): (u32, u64) = unsafe {
            (
                field(table, offset(&CONFIG.offsets.fdtable_max_fds)),
                field(table, offset(&CONFIG.offsets.fdtable_fd)),
            )
        };
        if descriptor >= max { 0 } else { peek(array + u64::from(descriptor) * 8) }
    }
}

impl Registers {
    /// The registers that the function of a syscall was called with.
    #[inline(always)]
    pub fn from_arg(registers: *const c_void) -> Self {
        Self(registers)
    }

    /// One of the first three arguments of the syscall that the thread is in.
    #[inline(always)]
    pub fn argument(self, index: usize) -> u64 {
        self.get(offset(&CONFIG.offsets.pt_regs_args[index]))
    }

    /// The address of the registers.
    #[inline(always)]
    pub fn as_ptr(self) -> *mut c_void {
        self.0.cast_mut()
    }

    /// The registers that tell where the thread is in user code.
    #[inline(always)]
    pub fn user(self) -> UserRegisters {
        UserRegisters {
            ip: self.get(offset(&CONFIG.offsets.pt_regs_ip)),
            sp: self.get(offset(&CONFIG.offsets.pt_regs_sp)),
            fp: self.get(offset(&CONFIG.offsets.pt_regs_fp)),
        }
    }

    #[inline(always)]
    fn get<T: Copy>(self, offset: usize) -> T {
        // SAFETY: `self.0` is a typed pointer.
        unsafe { field(self.0, offset) }
    }
}

/// Id of the cgroup at this address; 0 if there is none.
#[inline(always)]
pub fn cgroup_id_at(cgroup: u64) -> u64 {
    let node: u64 = peek(cgroup + offset(&CONFIG.offsets.cgroup_kn) as u64);
    peek(node + offset(&CONFIG.offsets.kernfs_node_id) as u64)
}

#[inline(always)]
fn cgroup_id(cgroup: *const c_void) -> u64 {
    // SAFETY: `cgroup` is a typed pointer.
    let node: *const c_void = unsafe { field(cgroup, offset(&CONFIG.offsets.cgroup_kn)) };
    if node.is_null() {
        return 0;
    }
    // SAFETY: `node` is a typed pointer.
    unsafe { field(node, offset(&CONFIG.offsets.kernfs_node_id)) }
}
