//! The user who started the program: under sudo, doas and pkexec not root, but whoever called those. As that
//! user everything is done from the beginning, with the rights added that recording takes: outputs are
//! its own and can be nowhere where it could not write, and a command that is run is run as if it
//! had started it.

use std::{env, ffi::CString};

use anyhow::Context as _;
use nix::unistd::{self, getgrouplist};
use offwake::privileges::{self, User};
use rustix::process::{Gid, Uid, geteuid};

/// What says who called, in the environment that it gives to root's program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Caller {
    /// By what.
    by: &'static str,
    name: CallerName,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum CallerName {
    /// `SUDO_UID` and `SUDO_GID`.
    Ids(u32, u32),
    /// `PKEXEC_UID`.
    Id(u32),
    /// `DOAS_USER`.
    Login(String),
}

/// Becomes the user who called sudo, doas or pkexec, if one did. Before there are other threads.
pub fn become_caller() -> anyhow::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let Some(caller) = find_caller(|name| env::var(name).ok()) else { return Ok(()) };
    let Caller { by, name } = &caller;
    let known = match name {
        CallerName::Ids(id, _) | CallerName::Id(id) => unistd::User::from_uid((*id).into()),
        CallerName::Login(login) => unistd::User::from_name(login),
    };
    let known = known.ok().flatten();
    let (id, group) = match (name, &known) {
        (CallerName::Ids(id, group), _) => (*id, *group),
        (_, Some(user)) => (user.uid.as_raw(), user.gid.as_raw()),
        (name, None) => anyhow::bail!("there is no user {}, who called {by}", name.words()),
    };
    // Root by another name stays root.
    if id == 0 {
        return Ok(());
    }
    let (id, group) = (Uid::from_raw(id), Gid::from_raw(group));
    let groups = match &known {
        Some(user) => groups(user, group)
            .with_context(|| format!("cannot tell the groups of who called {by}"))?,
        None => vec![group],
    };
    privileges::become_user(&User { id, group, groups })
        .with_context(|| format!("cannot become user {}, who called {by}", id.as_raw()))?;
    if let Some(user) = known {
        // They have set these for root; a command that is run, and what keeps files at home, want
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

/// Who called, by what sudo, pkexec or doas set for root's program: the first of them that was not root,
/// who stays root.
fn find_caller(variable: impl Fn(&str) -> Option<String>) -> Option<Caller> {
    let id = |name| variable(name)?.parse::<u32>().ok().filter(|id| *id != u32::MAX);
    let sudo = || Some(CallerName::Ids(id("SUDO_UID")?, id("SUDO_GID")?));
    let pkexec = || id("PKEXEC_UID").map(CallerName::Id);
    let doas = || variable("DOAS_USER").map(CallerName::Login);
    let callers = [("sudo", sudo()), ("pkexec", pkexec()), ("doas", doas())];
    callers
        .into_iter()
        .filter_map(|(by, name)| Some(Caller { by, name: name? }))
        .find(|caller| !caller.name.is_root())
}

impl CallerName {
    fn is_root(&self) -> bool {
        match self {
            Self::Ids(id, _) | Self::Id(id) => *id == 0,
            Self::Login(login) => login == "root",
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Ids(id, _) | Self::Id(id) => id.to_string(),
            Self::Login(login) => login.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(variables: &[(&str, &str)]) -> Option<CallerName> {
        let value = |name: &str| {
            let (_, value) = variables.iter().find(|(variable, _)| *variable == name)?;
            Some((*value).to_owned())
        };
        find_caller(value).map(|caller| caller.name)
    }

    #[test]
    fn whoever_called_is_found_by_what_each_of_them_sets() {
        assert_eq!(called(&[("SUDO_UID", "5"), ("SUDO_GID", "6")]), Some(CallerName::Ids(5, 6)));
        assert_eq!(called(&[("PKEXEC_UID", "5")]), Some(CallerName::Id(5)));
        assert_eq!(called(&[("DOAS_USER", "ann")]), Some(CallerName::Login("ann".to_owned())));
        assert_eq!(called(&[]), None);
    }

    #[test]
    fn root_that_calls_stays_root_unless_another_one_called_it() {
        assert_eq!(called(&[("SUDO_UID", "0"), ("SUDO_GID", "0")]), None);
        assert_eq!(called(&[("PKEXEC_UID", "0")]), None);
        assert_eq!(called(&[("DOAS_USER", "root")]), None);
        let both = [("SUDO_UID", "0"), ("SUDO_GID", "0"), ("DOAS_USER", "ann")];
        assert_eq!(called(&both), Some(CallerName::Login("ann".to_owned())));
    }

    #[test]
    fn what_is_no_id_names_nobody() {
        for id in ["", "-1", "4294967295", "x"] {
            assert_eq!(called(&[("SUDO_UID", id), ("SUDO_GID", "1")]), None);
            assert_eq!(called(&[("PKEXEC_UID", id)]), None);
        }
    }
}
