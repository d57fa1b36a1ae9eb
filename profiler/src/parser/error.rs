//! What can go wrong between offwake and a process that parses.

/// Why a process that parses has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// The other process could not be started, or was too often.
    NotStarted,
    /// The other process is gone.
    Died,
    /// The other process has not answered for too long.
    TimedOut,
    /// The other process has sent what is no valid message.
    InvalidMessage,
    /// The time for the end of the run is over: the other process is not to blame.
    OutOfTime,
}

impl ChannelError {
    /// The name of the counter of such errors.
    #[must_use]
    pub fn diagnostic(self) -> &'static str {
        match self {
            Self::NotStarted => "parser_not_started",
            Self::Died => "parser_died",
            Self::TimedOut => "parser_silent",
            Self::InvalidMessage => "parser_nonsense",
            Self::OutOfTime => "parser_out_of_time",
        }
    }
}
