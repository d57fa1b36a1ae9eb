//! The program itself, as far as it can be run by anybody.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test may panic")]

mod bad_recordings;
#[path = "../pure/draw.rs"]
#[expect(dead_code, reason = "the tests of the pure half use more of it")]
mod draw;
mod exit_status;
mod otlp;
mod outputs;
mod pictures;
mod selection;
mod terminal;
