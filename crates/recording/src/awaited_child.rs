//! Children that somebody waited for by a descriptor when a recording ended.

use crate::units::{Tgid, Tid};

/// A child that a thread waited for with `waitid(P_PIDFD, …)` when the window closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedChild {
    /// The thread that waited.
    pub waiter: Tid,
    /// The process that its descriptor stood for.
    pub child: Tgid,
}
