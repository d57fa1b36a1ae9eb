//! A server of NFS that is stopped. It is the kernel's own, on this machine, and so is its client: that takes a
//! kernel with both, as Debian's have, so that `cargo xtask vm` runs this in a guest.

use std::{
    ffi::CString,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use offwake_tests::{
    offwake::Offwake,
    report::Unanswered,
    wait_until::{wait_at_most, wait_until},
};

/// Where the kernel lets its server be controlled
/// ([nfsd](https://man7.org/linux/man-pages/man7/nfsd.7.html)).
const CONTROL: &str = "/proc/fs/nfsd";
/// Whoever may use the export, for ever.
const FOR_EVER: &str = "2147483647";
/// `NFSEXP_INSECURE_PORT | NFSEXP_NOSUBTREECHECK | NFSEXP_FSID`
const EXPORT_FLAGS: &str = "9218";
/// A server that has just begun lets nobody open a file before it has asked whom it knew before.
const GRACE: Duration = Duration::from_secs(120);
/// A second is recorded; the rest is how long nobody waits for longer on an emulated machine.
const IN_TIME: Duration = Duration::from_secs(120);

/// A server, what it exports, and where that is mounted.
struct Server {
    exported: PathBuf,
    mount: PathBuf,
}

impl Server {
    /// Starts it with one program in its export. None if the kernel has no server of NFS.
    fn start(directory: &Path, program: &Path, name: &str) -> Result<Option<Self>> {
        let known = fs::read_to_string("/proc/filesystems")?;
        let has = |wanted: &str| known.lines().any(|line| line.ends_with(&format!("\t{wanted}")));
        if !has("nfsd") || !has("nfs4") {
            return Ok(None);
        }
        let server = Self { exported: directory.join("export"), mount: directory.join("mount") };
        for directory in [&server.exported, &server.mount] {
            fs::create_dir_all(directory)?;
        }
        fs::copy(program, server.exported.join(name))?;
        mount("nfsd", Path::new(CONTROL), "nfsd", "")?;
        refuse_older_versions()?;
        // Nobody waits for long.
        for (file, words) in [
            ("nfsv4leasetime", "10"),
            ("nfsv4gracetime", "10"),
            ("portlist", "tcp 2049"),
            ("threads", "2"),
        ] {
            write(&Path::new(CONTROL).join(file), words)?;
        }
        // What rpc.mountd would answer when the server asks.
        let path = server.exported.display();
        for (question, answer) in [
            ("auth.unix.ip", format!("nfsd 127.0.0.1 {FOR_EVER} here")),
            ("nfsd.export", format!("here {path} {FOR_EVER} {EXPORT_FLAGS} -2 -2 0")),
            ("nfsd.fh", format!("here 1 \\x00000000 {FOR_EVER} {path}")),
        ] {
            write(&Path::new("/proc/net/rpc").join(question).join("channel"), &answer)?;
        }
        let options = "addr=127.0.0.1,clientaddr=127.0.0.1,vers=4.2,hard,proto=tcp";
        mount("127.0.0.1:/", &server.mount, "nfs4", options)?;
        Ok(Some(server))
    }

    /// Stops it. Whoever asks it something waits until it answers again: that is what `hard` means.
    fn stop(&self) -> Result<()> {
        write(&Path::new(CONTROL).join("threads"), "0")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(write(&Path::new(CONTROL).join("threads"), "0"));
        for mounted in [&self.mount, &PathBuf::from(CONTROL)] {
            drop(Command::new("umount").args(["-f", "-l"]).arg(mounted).output());
        }
    }
}

/// Has the server refuse versions of which it would have to tell the ports, as nobody is told any here. The kernel
/// lists those that it has (`+3 +4 +4.1 +4.2`), and takes no other's number.
fn refuse_older_versions() -> Result<()> {
    let path = Path::new(CONTROL).join("versions");
    let versions = fs::read_to_string(&path)?;
    for version in versions.split_whitespace().filter_map(|word| word.strip_prefix('+')) {
        if ["2", "3"].contains(&version) {
            write(&path, &format!("-{version}"))?;
        }
    }
    Ok(())
}

/// Writes a line. The kernel takes no version without its end.
fn write(path: &Path, words: &str) -> Result<()> {
    fs::write(path, format!("{words}\n"))
        .with_context(|| format!("cannot write {words:?} to {}", path.display()))
}

fn mount(what: &str, directory: &Path, kind: &str, options: &str) -> Result<()> {
    let text = |text: &str| CString::new(text).context("it has a zero byte");
    let [what, at, kind, options] =
        [text(what)?, text(&directory.display().to_string())?, text(kind)?, text(options)?];
    // SAFETY: each is a C string that outlives the call.
    let mounted = unsafe {
        libc::mount(what.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast())
    };
    let error = std::io::Error::last_os_error();
    ensure!(mounted == 0, "cannot mount {kind:?} on {}: {error}", directory.display());
    Ok(())
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        // It may wait for the server: it is gone when the mount is.
        drop(self.0.try_wait());
    }
}

#[test]
fn a_program_whose_server_is_stopped_costs_the_names_of_its_functions() -> Result<()> {
    let busybox = Path::new("/bin/busybox");
    let directory = offwake_tests::paths::scratch_directory()?;
    let server = match busybox.exists() {
        true => Server::start(directory.path(), busybox, "busybox")?,
        false => None,
    };
    let Some(server) = server else {
        eprintln!(
            "NOT RUN, this kernel has no server of NFS, or there is no busybox: a_program_whose_server_…"
        );
        return Ok(());
    };
    let program = server.mount.join("busybox");
    // It waits for input a second at a time.
    let mut command = Command::new(&program);
    command.args(["sh", "-c", "while :; do read -t 1 line; done"]).stdin(Stdio::piped());
    let target = wait_at_most(GRACE, "the server to let files be opened", || {
        Ok(command.spawn().ok().map(Killed))
    })?;
    let pid = target.0.id();
    wait_until("the program to run from there", || {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Ok(maps.contains(&program.display().to_string()).then_some(()))
    })?;
    server.stop()?;
    let offwake = Offwake::profile()?;
    let offwake = offwake.args(["-p", &pid.to_string(), "-d", "3s", "-o", "x.json", "--full"]);
    let outcome = offwake.start()?.outcome_within(IN_TIME)?;
    eprintln!("{:?}: {}", outcome.ran_for, outcome.stderr);
    ensure!(outcome.status.success(), "{outcome}");
    ensure!(outcome.stderr.contains(&format!("not answered: {}", program.display())), "{outcome}");
    let report = outcome.report("x.json")?;
    let place = server.mount.display().to_string();
    let is_it = |row: &Unanswered| row.kind == "file" && row.place == place;
    ensure!(report.loss.unanswered.iter().any(is_it), "{:?}", report.loss);
    let ledger = report.thread(pid)?;
    ensure!(ledger.blocked_ns * 2 > ledger.wall_ns, "it sleeps nearly always: {ledger:?}");
    Ok(())
}
