//! Who called: under sudo not root, but the user who called sudo, to whom the outputs belong.

use std::{env, fs::File, io};

use rustix::{
    fs::fchown,
    process::{Gid, Uid, geteuid},
};

/// Gives a new file to the user who called sudo, if one did.
pub fn give(file: &File) -> io::Result<()> {
    let Some((user, group)) = caller() else { return Ok(()) };
    Ok(fchown(file, Some(user), Some(group))?)
}

/// sudo sets these for root, and who is not root can give nothing away.
fn caller() -> Option<(Uid, Gid)> {
    let id = |name: &str| env::var(name).ok()?.parse::<u32>().ok().filter(|id| *id != u32::MAX);
    if !geteuid().is_root() {
        return None;
    }
    Some((Uid::from_raw(id("SUDO_UID")?), Gid::from_raw(id("SUDO_GID")?)))
}
