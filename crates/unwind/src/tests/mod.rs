//! Real stacks of real programs, and made-up ones.

mod chains;
mod hostile;
mod instructions;
mod live_process;
mod own;
mod probe_points;
mod programs;
