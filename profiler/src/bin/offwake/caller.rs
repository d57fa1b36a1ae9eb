//! The user who started the program: under sudo not root, but whoever called sudo. As that user
//! everything is done from the beginning, with the rights added that recording takes: outputs are
//! its own and can be nowhere where it could not write, and a command that is run is run as if it
//! had started it.

use std::{env, ffi::CString};

use anyhow::Context as _;
use nix::unistd::{self, getgrouplist};
use offwake::privileges::{self, User};
use rustix::process::{Gid, Uid, geteuid};

/// Becomes the user who called sudo, if one did. Before there are other threads.
pub fn become_caller() -> anyhow::Result<()> {
    let Some((id, group)) = sudo_caller() else { return Ok(()) };
    let known = unistd::User::from_uid(id.as_raw().into()).ok().flatten();
    let groups = match &known {
        Some(user) => groups(user, group).context("cannot tell the groups of who called sudo")?,
        None => vec![group],
    };
    privileges::become_user(&User { id, group, groups })
        .with_context(|| format!("cannot become user {}, who called sudo", id.as_raw()))?;
    if let Some(user) = known {
        // sudo has set these for root; a command that is run, and what keeps files at home, want
        // these.
        let home = user.dir.into_os_string();
        let name = user.name.into();
        for (variable, value) in [("HOME", &home), ("USER", &name), ("LOGNAME", &name)] {
            // SAFETY: there are no other threads that could read the environment.
            unsafe { env::set_var(variable, value) };
        }
    }
    Ok(())
}

fn groups(user: &unistd::User, group: Gid) -> anyhow::Result<Vec<Gid>> {
    let name = CString::new(user.name.as_bytes())?;
    let groups = getgrouplist(&name, group.as_raw().into())?;
    Ok(groups.into_iter().map(|group| Gid::from_raw(group.as_raw())).collect())
}

/// The user and group that called sudo, which sets these variables for root. Root that calls sudo
/// stays root.
fn sudo_caller() -> Option<(Uid, Gid)> {
    let id = |name: &str| env::var(name).ok()?.parse::<u32>().ok().filter(|id| *id != u32::MAX);
    if !geteuid().is_root() {
        return None;
    }
    let (user, group) = (id("SUDO_UID")?, id("SUDO_GID")?);
    (user != 0).then(|| (Uid::from_raw(user), Gid::from_raw(group)))
}
