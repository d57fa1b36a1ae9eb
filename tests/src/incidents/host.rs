//! Disks, file systems and pipes.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use regex::Regex;

use super::{
    parties::Party,
    scene::{Scene, python},
    services::wait_for_operations,
    trouble::{ClientLog, Trouble},
};
use crate::{loop_disk::LoopDisk, wait_until::wait_until};

/// Somebody else's writes. The disk is a file on the machine's own: how fast that is matters little, as
/// all that dd writes has to go through it, and each fsync with it.
pub fn start_noisy_disk(scene: &Scene) -> Result<Trouble> {
    let disk = LoopDisk::make(&scene.path_on_disk("."), &scene.path("ledgers"))?;
    let name = disk.name()?;
    let ledger = scene.path("ledgers").join("ledger");
    scene.undo_at_end("the disk", move || {
        drop(disk);
        Ok(())
    });
    // On a fast disk an fsync by itself takes a third of a millisecond.
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(1) };
    let target = scene.start_python("noisy-disk/ledger.py", [&ledger, &log.path])?;
    let mut noise = Command::new("sh");
    noise
        .arg("-c")
        .arg("while :; do dd if=/dev/zero of=\"$0\" bs=1M count=40 conv=fsync 2>/dev/null; done");
    let noise = scene.start(noise.arg(scene.path("ledgers").join("noise")))?;
    wait_for_operations(&log, 6)?;
    let truth = format!(
        "The target, python3 {target} (ledger.py), waits in commit_entry, in fsync, for the disk \
         {name} and its journal, because dd (children of sh {noise}) writes 40 MB at a time to the \
         same disk."
    );
    let device = format!(r"{name} \(ext4");
    let written = move || sectors_written(&name);
    let before = written()?;
    Ok(Trouble::for_process(target, truth)
        .cause(&[&device])
        .context(&["fsync|commit_entry", r"too: .*\bdd\b"])
        .culprits([Party::Named(Regex::new("^dd$")?)])
        .log(log)
        .proof(move || {
            let megabytes = wait_until("the disk to be written to", || {
                Ok(Some((written()? - before) / 2048).filter(|megabytes| *megabytes >= 100))
            })?;
            Ok(format!("{megabytes} MB were written to the disk since"))
        }))
}

/// Sectors of 512 bytes, the seventh field: `Documentation/admin-guide/iostats.rst`.
fn sectors_written(disk: &str) -> Result<u64> {
    let text = fs::read_to_string(format!("/sys/class/block/{disk}/stat"))?;
    Ok(text.split_whitespace().nth(6).context("no such field")?.parse()?)
}

/// A file system in user space that does not answer any more.
struct HungMount {
    server: u32,
    file: PathBuf,
}

/// Hangs already.
pub fn start_hung_fuse(scene: &Scene) -> Result<Trouble> {
    let mount = mount_bucketfs(scene)?;
    let reader = scene.start_python("fuse-hang/summarise.py", [&mount.file])?;
    wait_for_hang(reader)?;
    Ok(hang(reader, &mount, "before the recording"))
}

/// Hangs once offwake looks.
pub fn start_hanging_fuse(scene: &Scene) -> Result<Trouble> {
    let mount = mount_bucketfs(scene)?;
    let (reader, mut input) =
        scene.start_with_input(python("fuse-hang/summarise.py").arg(&mount.file).arg("wait"))?;
    Ok(hang(reader, &mount, "within the recording")
        // It is the lab that has it wait, until offwake looks.
        .involved([Party::Process(std::process::id())])
        .once_recorded(move || Ok(input.write_all(b"\n")?)))
}

fn mount_bucketfs(scene: &Scene) -> Result<HungMount> {
    let program = scene.compile_c("fuse-hang/bucketfs.c")?;
    let directory = scene.path("mnt");
    fs::create_dir(&directory)?;
    let server = scene.start_and_wait(Command::new(program).arg(&directory))?;
    let file = directory.join("report");
    scene.undo_at_end("the mount of bucketfs", move || {
        let status = Command::new("umount").arg("--lazy").arg(&directory).status()?;
        ensure!(status.success(), "umount: {status}");
        Ok(())
    });
    Ok(HungMount { server, file })
}

fn hang(reader: u32, mount: &HungMount, when: &str) -> Trouble {
    let truth = format!(
        "The target, python3 {reader} (summarise.py), reads {} in read_report since {when}; the file \
         system, bucketfs {}, never answers, for it sleeps in fetch_object.",
        mount.file.display(),
        mount.server
    );
    Trouble::for_process(reader, truth)
        .cause(&["bucketfs", "fetch_object"])
        .context(&["(?i)still waiting", r"summarise\.py", "read_report"])
        .culprits([Party::Process(mount.server)])
        .proof(move || wait_for_hang(reader))
}

fn wait_for_hang(reader: u32) -> Result<String> {
    wait_until("the reader to hang", || {
        let place = fs::read_to_string(format!("/proc/{reader}/wchan"))?;
        // What the compiler did not inline into another function, on the kernels so far.
        let waits = place.contains("request_wait_answer") || place.contains("fuse");
        Ok(waits.then(|| format!("the reader is in {place}")))
    })
}

/// A pipe that is full.
pub fn start_slow_pipe(scene: &Scene) -> Result<Trouble> {
    let pipe = scene.path("pipe");
    scene.execute(Command::new("mkfifo").arg(&pipe))?;
    let indexer = scene.start_python("slow-pipe/indexer.py", [&pipe])?;
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(10) };
    let collector = scene.start_python("slow-pipe/collector.py", [&pipe, &log.path])?;
    // So many fill the pipe.
    wait_for_operations(&log, 12)?;
    let truth = format!(
        "The target, python3 {collector} (collector.py), waits in emit_event for room in a pipe that \
         python3 {indexer} (indexer.py) empties slowly: it computes in index_events."
    );
    Ok(Trouble::for_process(collector, truth)
        .cause(&[r"indexer\.py", "index_events"])
        .context(&[r"collector\.py", "emit_event"])
        .culprits([Party::Process(indexer)])
        .log(log)
        .proof(move || {
            let bytes = wait_until("the pipe to be full", || {
                let bytes = bytes_in(&pipe)?;
                Ok((bytes > 48 << 10).then_some(bytes))
            })?;
            Ok(format!("{bytes} bytes are in the pipe"))
        }))
}

/// How many bytes a pipe holds.
fn bytes_in(pipe: &Path) -> Result<libc::c_int> {
    use std::os::{fd::AsRawFd as _, unix::fs::OpenOptionsExt as _};

    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(pipe)?;
    let mut bytes = 0;
    // SAFETY: the descriptor is open, and the kernel writes one integer.
    let told = unsafe { libc::ioctl(file.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    ensure!(told == 0, "the kernel does not tell what is in the pipe");
    Ok(bytes)
}
