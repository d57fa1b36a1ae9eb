//! Where a program that is linked statically looks up users, groups and hosts.
//!
//! glibc asks the libraries that `/etc/nsswitch.conf` names. A static program has none of them, and would
//! load those of the system that it runs on, with their own libc of another version: at best that
//! fails. Without them, users and groups come from files, and hosts from a file and from DNS.

#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
use std::ffi::{CStr, c_char, c_int};

#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
unsafe extern "C" {
    /// Sets which services a database has, whatever the file says
    /// ([`nss.h`](https://sourceware.org/git/?p=glibc.git;a=blob;f=nss/nss.h;hb=refs/tags/glibc-2.36)).
    fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
}

/// Uses the services that are part of this program, if it is linked statically. Before anything is looked up.
///
/// # Errors
///
/// If glibc refuses.
pub fn use_built_in() -> anyhow::Result<()> {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        const SERVICES: [(&CStr, &CStr); 4] = [
            (c"passwd", c"files"),
            (c"group", c"files"),
            (c"initgroups", c"files"),
            (c"hosts", c"files dns"),
        ];
        for (database, services) in SERVICES {
            // SAFETY: both are texts that end in zero, which it copies or keeps: they are there as long as
            // the program. No other thread looks anything up yet.
            let failed = unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
            anyhow::ensure!(failed == 0, "glibc does not look {database:?} up in {services:?}");
        }
    }
    Ok(())
}
