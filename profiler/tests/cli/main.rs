//! The program itself, as far as it can be run by anybody.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test may panic")]

mod bad_recordings;
mod otlp;
mod pictures;
mod terminal;
