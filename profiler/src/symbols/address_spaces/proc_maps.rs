//! `/proc/PID/maps`: where a process has code.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    os::unix::fs::FileExt,
};

use offwake_recording::units::Tgid;

use crate::symbols::name_limit::cut_name;

/// Bytes of one `maps` file that are read. 65,530 mappings, the kernel's default limit
/// (`vm.max_map_count`), are some 6 MB.
const MAX_BYTES: u64 = 32 << 20;
/// Executable mappings kept of one process.
const MAX_MAPPINGS: usize = 65_536;

/// Bytes of a vDSO at most. It is two pages.
const MAX_VDSO: u64 = 1 << 20;

/// A line of `maps`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MapsLine {
    pub start: u64,
    pub end: u64,
    /// Offset into the file.
    pub offset: u64,
    /// Path or bracketed name as the kernel shows it, cut to a length; empty for anonymous memory.
    pub name: String,
}

/// Reads the executable lines of a process's `maps`, sorted by address. This waits for as long as
/// the process changes its mappings.
///
/// The second value is whether there were more than the limit.
pub(crate) fn read(tgid: Tgid) -> io::Result<(Vec<MapsLine>, bool)> {
    let file = File::open(format!("/proc/{tgid}/maps"))?;
    parse(BufReader::new(file))
}

fn parse(reader: impl BufRead) -> io::Result<(Vec<MapsLine>, bool)> {
    let mut lines = Vec::new();
    let mut read = 0;
    let mut reader = reader.take(MAX_BYTES);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let length = reader.read_until(b'\n', &mut bytes)?;
        if length == 0 {
            break;
        }
        read += length as u64;
        if lines.len() == MAX_MAPPINGS {
            return Ok((lines, true));
        }
        if let Some(line) = parse_line(bytes.strip_suffix(b"\n").unwrap_or(&bytes)) {
            lines.push(line);
        }
    }
    Ok((lines, read >= MAX_BYTES))
}

/// Parses `start-end perms offset major:minor inode   name`. None if the mapping is not executable,
/// or the line has another form.
fn parse_line(line: &[u8]) -> Option<MapsLine> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let mut text = || fields.next().and_then(|field| std::str::from_utf8(field).ok());
    let (start, end) = text()?.split_once('-')?;
    if text()?.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let offset = text()?;
    let _device = text()?;
    let _inode = text()?;
    let name = fields.next().unwrap_or_default().trim_ascii_start();
    let line = MapsLine {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        name: cut_name(&String::from_utf8_lossy(name)),
    };
    (line.start < line.end).then_some(line)
}

/// Finds where a process has the first mapping whose name begins with one of these.
pub(crate) fn find_named(tgid: Tgid, beginnings: &[String]) -> io::Result<Option<u64>> {
    let file = File::open(format!("/proc/{tgid}/maps"))?;
    find_named_line(BufReader::new(file), beginnings)
}

fn find_named_line(reader: impl BufRead, beginnings: &[String]) -> io::Result<Option<u64>> {
    for line in reader.take(MAX_BYTES).split(b'\n') {
        let line = line?;
        let Some(name) = line.splitn(6, |&byte| byte == b' ').nth(5) else { continue };
        let name = name.trim_ascii_start();
        if beginnings.iter().any(|beginning| name.starts_with(beginning.as_bytes())) {
            let start = line.split(|&byte| byte == b'-').next();
            let start = start.and_then(|start| std::str::from_utf8(start).ok());
            return Ok(start.and_then(|start| u64::from_str_radix(start, 16).ok()));
        }
    }
    Ok(None)
}

/// Whether a mapping's file has no name but in memory.
pub(crate) fn is_in_memory_file(name: &str) -> bool {
    name.starts_with("/memfd:")
}

/// Reads the bytes of a process's vDSO.
pub(crate) fn read_vdso(tgid: Tgid, line: &MapsLine) -> Option<Vec<u8>> {
    let length = line.end - line.start;
    if length > MAX_VDSO {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    let file = File::open(format!("/proc/{tgid}/mem")).ok()?;
    file.read_exact_at(&mut bytes, line.start).ok()?;
    Some(bytes)
}

/// Reads the bytes of our own vDSO.
pub(crate) fn read_own_vdso() -> Option<Vec<u8>> {
    let own = Tgid(std::process::id());
    let (lines, _) = read(own).ok()?;
    read_vdso(own, lines.iter().find(|line| line.name == "[vdso]")?)
}

/// Parses any bytes as `maps`, for the fuzzer: mappings have code, and each is within the limit of a name.
pub(crate) fn parse_hostile(bytes: &[u8]) {
    let (lines, _more) = parse(bytes).unwrap_or_default();
    assert!(lines.iter().all(|line| line.start < line.end));
}

#[cfg(test)]
mod tests {
    use super::{MapsLine, find_named_line, parse};

    #[test]
    fn executable_lines_are_kept_and_garbage_is_not() {
        let text =
            b"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/my prog (deleted)\n\
            00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/my prog\n\
            7f00-7e00 r-xp 0 00:00 0 /backwards\n\
            nonsense\n\
            \xff\xfe-\xff r-xp 0 0 0\n\
            7fff1000-7fff2000 r-xp 00000000 00:00 0                  [vdso]\n\
            7fff3000-7fff4000 rwxp 00000000 00:00 0 \n";
        let (lines, more) = parse(&text[..]).unwrap();
        assert!(!more);
        let expected = [
            (0x400000, 0x452000, 0x1000, "/usr/bin/my prog (deleted)"),
            (0x7fff1000, 0x7fff2000, 0, "[vdso]"),
            (0x7fff3000, 0x7fff4000, 0, ""),
        ];
        assert_eq!(
            lines,
            expected.map(|(start, end, offset, name)| MapsLine {
                start,
                end,
                offset,
                name: name.to_owned()
            })
        );
    }

    #[test]
    fn a_mapping_is_found_by_how_its_name_begins() {
        let text = b"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/x\n\
            7f0000000000-7f0000001000 r--p 00000000 00:01 5    /memfd:OTEL_CTX (deleted)\n\
            nonsense\n";
        let find = |beginning: &str| find_named_line(&text[..], &[beginning.to_owned()]).unwrap();
        assert_eq!(find("/memfd:OTEL_CTX"), Some(0x7f00_0000_0000));
        assert_eq!(find("[anon:OTEL_CTX]"), None);
    }
}
