//! The bodies of the programs, one concern a file.

pub mod atomic;
pub mod budget;
pub mod code_epoch;
pub mod context;
pub mod file;
pub mod known_stacks;
pub mod lifecycle;
pub mod maps;
pub mod python;
pub mod ring;
pub mod sample;
pub mod settings;
pub mod slot;
pub mod stack;
pub mod survey;
pub mod switch;
pub mod syscall;
pub mod target;
pub mod task;
pub mod user_stacks;
pub mod waking;
pub mod witnesses;
