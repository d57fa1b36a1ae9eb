//! Makes a recording fit to be shown to anybody: its times begin at 0, and it does not say whose
//! machine it is from.
//!
//! ```text
//! cargo run -p offwake --example rebase-recording -- IN.offwake OUT.offwake [--host NAME]
//! ```
//!
//! Of paths outside the system's own directories only the file's name is kept, of command lines
//! the program's name; of other processes than the target's neither names nor user stacks, and
//! nothing at all of threads that no chain of wakes leads to from the target.

use std::{
    collections::HashSet,
    fs::File,
    io::{BufWriter, Write as _},
    path::PathBuf,
};

use anyhow::{Context as _, bail};
use clap::Parser;
use offwake_recording::{
    OpenFile, Recording, StackRef, ThreadKind, Wait, WakeContext, stream,
    units::{Tgid, Tid},
};

/// More than any recording has that is worth to be kept.
const MEMORY: usize = 4 << 30;
const NOBODYS_BOOT: &str = "00000000-0000-0000-0000-000000000000";
const OTHER: &str = "other";
const SYSTEM: [&str; 14] = [
    "/usr/", "/lib", "/bin/", "/sbin/", "/proc/", "/dev/", "/sys/", "/etc/", "/var/", "/run/",
    "/opt/", "/tmp/", "/SYSV", "/memfd:",
];

#[derive(Parser)]
struct Arguments {
    /// The recording
    input: PathBuf,
    /// What to write
    output: PathBuf,
    /// What the machine shall be called
    #[arg(long, default_value = "host")]
    host: String,
    /// Other processes that are counted as the target's, so that their names are kept
    #[arg(long, value_delimiter = ',', value_name = "PID")]
    also: Vec<u32>,
}

fn main() -> anyhow::Result<()> {
    let Arguments { input, output, host, also } = Arguments::parse();
    let file = File::open(&input).with_context(|| format!("cannot read {}", input.display()))?;
    let mut recording =
        stream::read(&file, MEMORY).with_context(|| format!("cannot read {}", input.display()))?;
    if recording.damage != stream::Damage::default() {
        bail!("{} is damaged: {:?}", input.display(), recording.damage);
    }
    take_in(&mut recording, &also);
    drop_bystanders(&mut recording);
    recording.rebase();
    anonymise(&mut recording, &host);
    drop_unused(&mut recording);
    let cannot = || format!("cannot write {}", output.display());
    let mut out = BufWriter::new(File::create(&output).with_context(cannot)?);
    stream::write(&recording, &mut out).and_then(|()| out.flush()).with_context(cannot)
}

/// Counts other processes as the target's.
fn take_in(recording: &mut Recording, also: &[u32]) {
    let is_one = |tgid: Tgid| also.contains(&tgid.0);
    for thread_event in recording.thread_events.iter_mut().filter(|event| is_one(event.tgid)) {
        thread_event.in_target = true;
    }
    let mut waits: Vec<Wait> = recording.waits.iter().collect();
    waits.iter_mut().filter(|wait| is_one(wait.tgid)).for_each(|wait| wait.in_target = true);
    recording.waits = waits.into_iter().collect();
}

/// Keeps the target's threads, and those that a chain of wakes leads to from there.
fn drop_bystanders(recording: &mut Recording) {
    let mut kept: HashSet<Tid> = (recording.thread_events.iter())
        .filter(|thread_event| thread_event.in_target)
        .map(|thread_event| thread_event.tid)
        .collect();
    loop {
        let before = kept.len();
        for wait in recording.waits.iter() {
            if let Some(wake) = wait.wake.filter(|wake| wake.context == WakeContext::Task)
                && kept.contains(&wait.tid)
            {
                kept.insert(wake.current.tid);
            }
        }
        if kept.len() == before {
            break;
        }
    }
    recording.waits.retain(|_, waiter| kept.contains(&waiter.tid));
    recording.preemptions.retain(|preemption| kept.contains(&preemption.tid));
    recording.thread_events.retain(|thread_event| kept.contains(&thread_event.tid));
    recording.exits.retain(|exit| kept.contains(&exit.tid));
    recording.samples.retain(|sample| kept.contains(&sample.tid));
}

fn anonymise(recording: &mut Recording, host: &str) {
    host.clone_into(&mut recording.meta.host);
    NOBODYS_BOOT.clone_into(&mut recording.meta.boot_id);
    // What follows the version names whoever built it.
    let version = recording.meta.kernel.split('-').next().unwrap_or_default().to_owned();
    recording.meta.kernel = version;
    if let Some(command) = recording.meta.target.strip_prefix("command ") {
        recording.meta.target = format!("command {}", file_name(command));
    }
    let target: HashSet<Tgid> = (recording.thread_events.iter())
        .filter(|thread_event| thread_event.in_target)
        .map(|thread_event| thread_event.tgid)
        .collect();
    for thread_event in &mut recording.thread_events {
        if thread_event.kind != ThreadKind::Kernel && !target.contains(&thread_event.tgid) {
            OTHER.clone_into(&mut thread_event.comm);
        }
    }
    let mut waits: Vec<Wait> = recording.waits.iter().collect();
    for wait in &mut waits {
        if !target.contains(&wait.tgid) {
            wait.user_stack = StackRef::NotTaken;
        }
        if let Some(wake) = wait.wake.as_mut().filter(|wake| !target.contains(&wake.current.tgid)) {
            wake.user_stack = StackRef::NotTaken;
        }
    }
    recording.waits = waits.into_iter().collect();
    for sample in recording.samples.iter_mut().filter(|sample| !target.contains(&sample.tgid)) {
        sample.user_stack = StackRef::NotTaken;
    }
    recording.processes.retain(|process| target.contains(&process.tgid));
    for process in &mut recording.processes {
        process.executable = process.executable.as_deref().map(neutral);
        process.arguments.truncate(1);
        for argument in &mut process.arguments {
            *argument = file_name(argument).to_owned();
        }
    }
    for file in recording.files.files.values_mut() {
        match file {
            OpenFile::Named(path) => *path = neutral(path),
            OpenFile::Socket(socket) => {
                for peer in &mut socket.peers {
                    if !target.contains(&peer.tgid) {
                        OTHER.clone_into(&mut peer.comm);
                    }
                }
            }
        }
    }
    for module in recording.stacks.modules.values_mut() {
        module.path = neutral(&module.path);
    }
}

/// A path that says nothing of whose machine it is on.
fn neutral(path: &str) -> String {
    if !path.starts_with('/') || SYSTEM.iter().any(|system| path.starts_with(system)) {
        path.to_owned()
    } else {
        format!("/home/user/{}", file_name(path))
    }
}

fn file_name(path: &str) -> &str {
    let path = path.split_whitespace().next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or(path)
}

/// Takes out what nothing refers to any more.
fn drop_unused(recording: &mut Recording) {
    let waits = recording.waits.iter().flat_map(|wait| {
        let wake = wait.wake.as_ref();
        let wakers = wake.map(|wake| [wake.user_stack, wake.kernel_stack]);
        [wait.user_stack, wait.kernel_stack].into_iter().chain(wakers.into_iter().flatten())
    });
    let samples = recording.samples.iter().flat_map(|s| [s.user_stack, s.kernel_stack]);
    let used: HashSet<StackRef> = waits.chain(samples).collect();
    let stacks = &mut recording.stacks;
    stacks.stacks.retain(|id, _| used.contains(&StackRef::Id(*id)));
    let frames: HashSet<_> = stacks.stacks.values().flat_map(|stack| &stack.frames).collect();
    stacks.frames.retain(|id, _| frames.contains(id));
    let modules: HashSet<_> = stacks.frames.values().filter_map(|frame| frame.module).collect();
    stacks.modules.retain(|id, _| modules.contains(id));
    let cgroups: HashSet<_> = (recording.waits.iter().map(|wait| wait.cgroup))
        .chain(recording.thread_events.iter().map(|thread_event| thread_event.cgroup))
        .collect();
    recording.cgroups.retain(|id, _| cgroups.contains(id));
    let files: HashSet<_> = recording.waits.iter().filter_map(|wait| wait.file).collect();
    recording.files.files.retain(|id, _| files.contains(id));
}
