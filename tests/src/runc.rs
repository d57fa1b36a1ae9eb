//! A container by runc alone, which is what engines start them with: the Docker of Debian 12 has no name for
//! `CAP_BPF`, and runc has.

use std::{ffi::OsString, fs, os::unix::fs::symlink, path::Path};

use anyhow::Result;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::paths;

/// The system calls that Docker's [default profile](https://docs.docker.com/engine/security/seccomp/) refuses to
/// a container with the capabilities here, as far as this machine's kernel has them.
const REFUSED: &[&str] = &[
    "acct",
    "add_key",
    "clock_adjtime",
    "clock_settime",
    "create_module",
    "delete_module",
    "finit_module",
    "get_mempolicy",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "mbind",
    "mount",
    "move_pages",
    "open_by_handle_at",
    "personality",
    "pivot_root",
    "quotactl",
    "reboot",
    "request_key",
    "set_mempolicy",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "umount2",
    "unshare",
    "uselib",
    "userfaultfd",
    "vhangup",
];

/// Who a container's first process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Root, who gets on `execve` what the bounds allow.
    Root,
    /// A user of that number, whose capabilities are ambient ones.
    Other(u32),
}

/// A container that is to be run. What it is made of is removed when this is dropped.
pub struct Bundle(TempDir);

impl Bundle {
    /// Makes one that sees the machine's processes and libraries, and `volume` as `/volume`. It has these
    /// capabilities alone, and what Docker refuses to everybody is refused.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn make(user: User, capabilities: &[&str], volume: &Path, words: &[&str]) -> Result<Self> {
        let bundle = paths::scratch_directory()?;
        make_root(&bundle)?;
        let files = [
            bind("/usr", Path::new("/usr"), "ro"),
            bind("/lib", Path::new("/lib"), "ro"),
            bind("/lib64", Path::new("/lib64"), "ro"),
            bind("/volume", volume, "rw"),
        ];
        let configuration = configuration(user, capabilities, Path::new("root"), &files, words);
        fs::write(bundle.path().join("config.json"), configuration.to_string())?;
        Ok(Self(bundle))
    }

    /// Makes one of an image's files, below `root`, that sees the machine's processes. Its user is root, with
    /// these capabilities alone.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn from_image(root: &Path, capabilities: &[&str], words: &[&str]) -> Result<Self> {
        let bundle = paths::scratch_directory()?;
        let configuration = configuration(User::Root, capabilities, root, &[], words);
        fs::write(bundle.path().join("config.json"), configuration.to_string())?;
        Ok(Self(bundle))
    }

    /// What `runc` is told to run it, and to remove it after that.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let Self(bundle) = self;
        let name = format!("offwake-{}", std::process::id());
        let state = bundle.path().join("state").into_os_string();
        let bundle = bundle.path().as_os_str().to_owned();
        vec!["--root".into(), state, "run".into(), "--bundle".into(), bundle, name.into()]
    }
}

fn make_root(bundle: &TempDir) -> Result<()> {
    let root = bundle.path().join("root");
    for directory in ["dev", "etc", "lib", "lib64", "proc", "sys", "tmp", "usr", "volume"] {
        fs::create_dir_all(root.join(directory))?;
    }
    Ok(symlink("usr/bin", root.join("bin"))?)
}

fn bind(destination: &str, source: &Path, access: &str) -> Value {
    json!({"destination": destination, "type": "bind", "source": source, "options": ["rbind", access]})
}

/// The configuration of a container whose first folder is that of the last of these files, if it has any.
fn configuration(
    user: User,
    capabilities: &[&str],
    root: &Path,
    files: &[Value],
    words: &[&str],
) -> Value {
    let none: [&str; 0] = [];
    let (id, ambient) = match user {
        User::Root => (0, &none[..]),
        User::Other(id) => (id, capabilities),
    };
    let kind = |destination: &str, kind: &str, options: &[&str]| json!({"destination": destination, "type": kind, "source": kind, "options": options});
    let mut mounts = vec![
        kind("/proc", "proc", &[]),
        kind("/dev", "tmpfs", &["nosuid", "mode=755"]),
        kind("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
    ];
    mounts.extend_from_slice(files);
    let first = files.last().map_or(json!("/"), |last| last["destination"].clone());
    // No namespace of processes: theirs is the machine's.
    let namespaces = ["network", "ipc", "uts", "mount"].map(|kind| json!({"type": kind}));
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": id, "gid": id},
            "args": words,
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": first,
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "permitted": capabilities,
                "inheritable": ambient,
                "ambient": ambient,
            },
        },
        "root": {"path": root, "readonly": true},
        "hostname": "container",
        "mounts": mounts,
        "linux": {
            "namespaces": namespaces,
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            "seccomp": {
                "defaultAction": "SCMP_ACT_ALLOW",
                "syscalls": [{"names": REFUSED, "action": "SCMP_ACT_ERRNO", "errnoRet": 1}],
            },
        },
    })
}
