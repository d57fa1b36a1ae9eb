//! Who has the pipes open at which threads wait: the other end is where an answer comes from.
//!
//! ```text
//! open read(5) of 2005 ──▶ pipe:[771]
//! /proc/1957/fd/1 ──▶ pipe:[771]   fdinfo: flags 01     1957 can write to it
//! /proc/2005/fd/5 ──▶ pipe:[771]   fdinfo: flags 00     2005 can read from it
//! ```
//!
//! All holders of a pipe are named, or nobody ([`crate::descriptor_search`]). The first process, if it lets
//! nobody see its descriptors, is named as one that may be a holder.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    time::Instant,
};

use offwake_recording::{
    FileKind, PeerProcess, PipeEnds, PipeHolder, Wait, loss::Diagnostics, units::Tgid,
};

use crate::{
    descriptor_search::{
        Descriptor, FIRST_PROCESS, FirstProcess, Incomplete, SEARCH_TIME, or_nobody,
        search_descriptors,
    },
    files,
    proc_files::{OpenDescriptor, device_of_mount, read_beginning},
};

/// The most processes that may have one pipe open. Of more, nobody could say whose turn it is.
const MAX_HOLDERS: usize = 64;
/// The most pipes that are looked for.
const MAX_PIPES: usize = 4_096;

/// The most bytes that are read of a process's name, and of a list of mounts.
const MAX_BYTES: u64 = 16 << 10;
const MAX_MOUNTS: u64 = 1 << 20;

/// A pipe: the device of its superblock, and its number there.
pub(crate) type PipeId = (u32, u64);

/// Returns the pipes at which threads wait that have not woken.
pub(crate) fn awaited_pipes(open: &[Wait]) -> BTreeSet<PipeId> {
    (open.iter())
        .filter(|wait| wait.wake.is_none())
        .filter_map(|wait| wait.file)
        .filter(|file| file.kind == FileKind::Pipe)
        .map(|file| (file.device, file.inode))
        .take(MAX_PIPES)
        .collect()
}

/// Finds who has these pipes open, by the descriptors of all processes. It takes the right to look at
/// other users' processes (`CAP_SYS_PTRACE`). A search that could not be completed is counted.
pub(crate) fn find_holders(
    awaited: &BTreeSet<PipeId>,
    diagnostics: &mut Diagnostics,
) -> Vec<PipeHolder> {
    if awaited.is_empty() {
        return Vec::new();
    }
    let found = or_nobody(search_processes(awaited, Instant::now() + SEARCH_TIME), diagnostics);
    let mut names = BTreeMap::new();
    (found.into_iter())
        .filter(|(_, holders)| holders.len() <= MAX_HOLDERS)
        .flat_map(|((device, inode), holders)| {
            holders.into_iter().map(move |(tgid, ends)| (device, inode, tgid, ends))
        })
        .map(|(device, inode, tgid, ends)| {
            let comm = names.entry(tgid).or_insert_with(|| name_of_process(tgid)).clone();
            PipeHolder { device, inode, holder: PeerProcess { tgid, comm }, ends }
        })
        .collect()
}

type Holders = BTreeMap<PipeId, BTreeMap<Tgid, PipeEnds>>;

/// Returns who has these pipes open.
fn search_processes(awaited: &BTreeSet<PipeId>, deadline: Instant) -> Result<Holders, Incomplete> {
    let Some(pipefs) = files::pipe_device() else { return Ok(Holders::new()) };
    let mut finder = PipeFinder { awaited, pipefs, mounts: None };
    let mut found = Holders::new();
    let first_process = search_descriptors(deadline, &mut |descriptor| {
        if let Some((pipe, ends)) = finder.identify_end(descriptor)? {
            let known = found.entry(pipe).or_default().entry(descriptor.tgid);
            known.and_modify(|known| *known = known.and(ends)).or_insert(ends);
        }
        Ok(())
    })?;
    if first_process == FirstProcess::Refused {
        for holders in found.values_mut() {
            holders.insert(FIRST_PROCESS, PipeEnds::NotSeen);
        }
    }
    Ok(found)
}

/// Tells which descriptors are ends of the pipes that are looked for.
struct PipeFinder<'a> {
    awaited: &'a BTreeSet<PipeId>,
    /// The device of all pipes that have no name.
    pipefs: u32,
    /// The mounts that a process sees, of the process that was asked last.
    mounts: Option<(Tgid, String)>,
}

impl PipeFinder<'_> {
    /// Returns which pipe a descriptor is of, and which of its ends it is. Nothing is asked of the file
    /// itself, whose file system may never answer.
    fn identify_end(
        &mut self,
        descriptor: &Descriptor<'_>,
    ) -> io::Result<Option<(PipeId, PipeEnds)>> {
        let leads_to = descriptor.read_link()?;
        let leads_to = leads_to.to_string_lossy();
        let pipe = parse_pipe(&leads_to).map(|inode| (self.pipefs, inode));
        let is_for_fifo = || self.awaited.iter().any(|&(device, _)| device != self.pipefs);
        let may_be = match pipe {
            Some(pipe) => self.awaited.contains(&pipe),
            None => leads_to.starts_with('/') && is_for_fifo(),
        };
        if !may_be {
            return Ok(None);
        }
        let unreadable = || io::Error::from(io::ErrorKind::InvalidData);
        let info = OpenDescriptor::parse(&descriptor.read_info()?).ok_or_else(unreadable)?;
        let pipe = match (pipe, info.inode) {
            (Some(pipe), _) => pipe,
            (None, Some(inode)) if self.awaited.iter().any(|&(_, known)| known == inode) => {
                let mounts = self.mounts_of_process(descriptor);
                (device_of_mount(mounts, info.mount).ok_or_else(unreadable)?, inode)
            }
            (None, _) => return Ok(None),
        };
        Ok(ends_of_flags(info.flags).filter(|_| self.awaited.contains(&pipe)).map(|it| (pipe, it)))
    }

    fn mounts_of_process(&mut self, descriptor: &Descriptor<'_>) -> &str {
        let tgid = descriptor.tgid;
        let read = || (tgid, read_beginning(&descriptor.process.join("mountinfo"), MAX_MOUNTS));
        let mounts = self.mounts.take().filter(|known| known.0 == tgid).unwrap_or_else(read);
        &self.mounts.insert(mounts).1
    }
}

/// The number in `pipe:[771]`. A FIFO has a path.
fn parse_pipe(leads_to: &str) -> Option<u64> {
    leads_to.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok()
}

/// The ends that a descriptor is, by the flags that it was opened with; none if nobody can read or write
/// by it
/// ([`fcntl.h`](https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/fcntl.h#L19)).
fn ends_of_flags(flags: u32) -> Option<PipeEnds> {
    const ACCESS_MODE: u32 = 0o3;
    const NAME_ALONE: u32 = 0o10_000_000;
    match flags & (ACCESS_MODE | NAME_ALONE) {
        0 => Some(PipeEnds::Reading),
        1 => Some(PipeEnds::Writing),
        2 => Some(PipeEnds::Both),
        _ => None,
    }
}

fn name_of_process(process: Tgid) -> String {
    let comm = read_beginning(Path::new(&format!("/proc/{process}/comm")), MAX_BYTES);
    comm.trim_end().to_owned()
}

/// Parses any text as what is read here, for the fuzzer.
pub(crate) fn parse_hostile(text: &str) {
    let _pipe = parse_pipe(text);
    let _ends = OpenDescriptor::parse(text).map(|descriptor| ends_of_flags(descriptor.flags));
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::fd::AsRawFd as _,
        process::{Child, Command, Stdio},
        time::Duration,
    };

    use offwake_recording::FileId;

    use super::*;

    /// Waits until these processes have a pipe open. Children that other tests start have all pipes of
    /// this process until they run their programs.
    fn await_holders(pipe: FileId, expected: &[(Tgid, PipeEnds)]) {
        let pipe = (pipe.device, pipe.inode);
        let expected: BTreeMap<_, _> = expected.iter().copied().collect();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let found = search_processes(&BTreeSet::from([pipe]), deadline).unwrap();
            let mut found = found.into_values().next().unwrap_or_default();
            found.retain(|_, ends| *ends != PipeEnds::NotSeen);
            if found == expected {
                return;
            }
        }
    }

    fn end(mut child: Child) {
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn all_processes_are_found_that_have_a_pipe_open_with_the_ends_that_they_have() {
        let (own, (reads, writes)) = (Tgid(std::process::id()), std::io::pipe().unwrap());
        let pipe = files::identify_of_process(own, reads.as_raw_fd().cast_unsigned()).unwrap();
        assert_eq!(pipe.kind, FileKind::Pipe);
        await_holders(pipe, &[(own, PipeEnds::Both)]);

        let writer = Command::new("cat").stdin(Stdio::piped()).stdout(writes).spawn().unwrap();
        let expected = [(own, PipeEnds::Reading), (Tgid(writer.id()), PipeEnds::Writing)];
        await_holders(pipe, &expected);
        let (other, _others) = std::io::pipe().unwrap();
        let other = files::identify_of_process(own, other.as_raw_fd().cast_unsigned()).unwrap();
        await_holders(other, &[(own, PipeEnds::Both)]);
        end(writer);
        await_holders(pipe, &[(own, PipeEnds::Reading)]);
    }

    #[test]
    fn a_fifo_is_found_by_its_device_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        let own = Tgid(std::process::id());
        let both = fs::File::options().read(true).write(true).open(&path).unwrap();
        let fifo = files::identify_of_process(own, both.as_raw_fd().cast_unsigned()).unwrap();
        await_holders(fifo, &[(own, PipeEnds::Both)]);
        let reads = fs::File::open(&path).unwrap();
        drop(both);
        await_holders(fifo, &[(own, PipeEnds::Reading)]);
        drop(reads);
        await_holders(fifo, &[]);
    }

    #[test]
    fn nobody_is_named_if_not_everybody_could_be_asked_in_time() {
        let (own, (reads, _writes)) = (Tgid(std::process::id()), std::io::pipe().unwrap());
        let pipe = files::identify_of_process(own, reads.as_raw_fd().cast_unsigned()).unwrap();
        let awaited = BTreeSet::from([(pipe.device, pipe.inode)]);
        assert_eq!(search_processes(&awaited, Instant::now()), Err(Incomplete::OutOfTime));
    }

    /// The first process is a holder that nobody has seen exactly where it refuses, whoever else is one.
    #[test]
    fn a_first_process_that_refuses_may_be_a_holder() {
        let (own, (reads, _writes)) = (Tgid(std::process::id()), std::io::pipe().unwrap());
        let pipe = files::identify_of_process(own, reads.as_raw_fd().cast_unsigned()).unwrap();
        let awaited = BTreeSet::from([(pipe.device, pipe.inode)]);
        let found = search_processes(&awaited, Instant::now() + Duration::from_secs(60)).unwrap();
        let ends = found[&(pipe.device, pipe.inode)].get(&FIRST_PROCESS);
        let refuses = fs::read_dir("/proc/1/fdinfo").is_err();
        assert_eq!(ends, refuses.then_some(&PipeEnds::NotSeen));
    }

    #[test]
    fn ends_are_told_by_the_flags_of_a_descriptor() {
        let ends = |flags: &str| {
            let fdinfo = format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t15\nino:\t771\n");
            ends_of_flags(OpenDescriptor::parse(&fdinfo)?.flags)
        };
        assert_eq!(ends("00"), Some(PipeEnds::Reading));
        assert_eq!(ends("02000001"), Some(PipeEnds::Writing));
        assert_eq!(ends("0100002"), Some(PipeEnds::Both));
        // `O_PATH`: a name, and no end of it.
        assert_eq!(ends("010000000"), None);
        assert_eq!(ends("x"), None);
        assert_eq!(parse_pipe("pipe:[771]"), Some(771));
        assert_eq!(parse_pipe("socket:[771]"), None);
        assert_eq!(parse_pipe("/tmp/pipe:[771]"), None);
    }
}
