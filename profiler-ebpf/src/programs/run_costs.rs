//! Measuring what the programs cost, with [`profiler_ebpf::run_costs`].
//!
//! What is kept between a run's begin and end is in a map: older kernels give programs too little
//! stack. A run that another one of its group comes on top of is not measured.

use profiler_ebpf::run_costs::{Group, LONGEST_RUN_NS, RunCost, TIMED_ONE_IN};

use super::{maps::RUN_COSTS, ring::now};

#[inline(always)]
fn this_cpu(group: Group) -> Option<&'static mut RunCost> {
    // SAFETY: this CPU's own entry, which lives as long as the map; the index is a constant inside the
    // array.
    RUN_COSTS.get_ptr_mut(0).map(|costs| unsafe { &mut (*costs).of[group as usize] })
}

/// Runs a program that runs often.
#[inline(always)]
pub fn sample(group: Group, program: impl FnOnce()) {
    if let Some(cost) = this_cpu(group) {
        cost.runs += 1;
        cost.begun_ns = 0;
        if cost.until_timed == 0 {
            begin_sample(cost);
        } else {
            cost.until_timed -= 1;
        }
    }
    program();
    end(group);
}

/// Begins to time a run, and draws which one comes next: 33 to 96 runs from now, so that programs that
/// run in turns are all met.
#[inline(always)]
fn begin_sample(cost: &mut RunCost) {
    let now = now();
    let random = (now as u32).wrapping_mul(0x9e37_79b1) >> 16;
    cost.until_timed = u64::from((random & (TIMED_ONE_IN - 1)) + TIMED_ONE_IN / 2);
    cost.begun_ns = now;
}

/// Runs a program that runs seldom, and takes long.
#[inline(always)]
pub fn time(group: Group, program: impl FnOnce()) {
    if let Some(cost) = this_cpu(group) {
        cost.runs += 1;
        cost.begun_ns = now();
    }
    program();
    end(group);
}

#[inline(always)]
fn end(group: Group) {
    if let Some(cost) = this_cpu(group)
        && cost.begun_ns != 0
    {
        let took = now().wrapping_sub(cost.begun_ns);
        cost.timed += 1;
        cost.timed_ns += if took < LONGEST_RUN_NS { took } else { LONGEST_RUN_NS };
        cost.begun_ns = 0;
    }
}
