//! The bodies of the programs, one concern per file.

pub mod arrival;
mod atomic;
pub mod budget;
pub mod code_epoch;
pub mod config;
pub mod current_task;
pub mod file;
pub mod frame_slots;
pub mod interrupt_context;
pub mod kernel_stack_cache;
pub mod lifecycle;
pub mod maps;
pub mod python;
pub mod register_cache;
pub mod ring;
pub mod sample;
pub mod stack;
pub mod survey;
pub mod switch;
pub mod syscall;
pub mod target;
pub mod task;
pub mod task_address;
pub mod task_local;
pub mod throttle;
pub mod user_stack_copy;
pub mod waking;
