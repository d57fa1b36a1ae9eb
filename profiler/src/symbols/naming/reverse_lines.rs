//! The lines of a file, the last one first.

use std::{fs::File, io, ops::ControlFlow, os::unix::fs::FileExt};

/// Bytes that are read at a time.
const BLOCK: usize = 256 << 10;
/// Bytes of a line that are kept.
const MAX_LINE: usize = 64 << 10;

/// Calls `each` with every whole line in `range` of a file, without its end, the last one first,
/// until that says to break. What lies behind the last line's end is half of a line. A range that
/// does not begin with the file is taken to begin within a line.
///
/// # Errors
///
/// If the file can't be read, or is shorter by now.
pub(crate) fn read(
    file: &File,
    range: std::ops::Range<u64>,
    mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    // The rest of the line that the next block ends in; none while it has no end.
    let mut rest: Option<Vec<u8>> = None;
    let mut end = range.end;
    while end > range.start {
        let start = end.saturating_sub(BLOCK as u64).max(range.start);
        let length = usize::try_from(end - start).unwrap_or(BLOCK);
        let block = &mut block[..length];
        file.read_exact_at(block, start)?;
        end = start;
        let mut pieces = block.rsplitn(2, |&byte| byte == b'\n');
        let last = pieces.next().unwrap_or_default();
        let joined = rest.take().map(|rest| {
            let mut line = [last, &rest].concat();
            line.truncate(MAX_LINE);
            line
        });
        let Some(before) = pieces.next() else {
            rest = joined;
            continue;
        };
        if let Some(line) = joined
            && each(&line).is_break()
        {
            return Ok(());
        }
        let mut lines = before.rsplit(|&byte| byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            let line = &line[..line.len().min(MAX_LINE)];
            if lines.peek().is_none() {
                rest = Some(line.to_vec());
            } else if each(line).is_break() {
                return Ok(());
            }
        }
    }
    if let Some(first) = rest
        && range.start == 0
    {
        let _last_of_all = each(&first);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn lines_of(bytes: &[u8], from: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        super::read(&file(bytes), from as u64..bytes.len() as u64, |line| {
            all.push(line.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
        all
    }

    #[test]
    fn whole_lines_come_in_reverse() {
        assert_eq!(lines_of(b"one\ntwo\n\nthree\n", 0), [&b"three"[..], b"", b"two", b"one"]);
        assert_eq!(lines_of(b"one\ntwo\nhal", 0), [b"two", b"one"]);
        assert_eq!(lines_of(b"one\ntwo\nthree\n", 2), [&b"three"[..], b"two"]);
        assert_eq!(lines_of(b"\n", 0), [b""]);
        for nothing in [&b""[..], b"half"] {
            assert!(lines_of(nothing, 0).is_empty());
        }
    }

    #[test]
    fn blocks_can_end_anywhere() {
        for length in [1, 2, 7, 63, 1000] {
            // Lines of numbers, some more than two blocks.
            let numbers: Vec<String> =
                (0..3 * BLOCK / length).map(|n| format!("{n:0length$}")).collect();
            let text: String = numbers.iter().map(|number| format!("{number}\n")).collect();
            let lines = lines_of(text.as_bytes(), 0);
            assert!(lines.iter().eq(numbers.iter().rev().map(|number| number.as_bytes())));
        }
    }

    #[test]
    fn the_beginning_of_a_long_line_is_kept() {
        let long = [&b"begin"[..], &vec![b'x'; 3 * BLOCK]].concat();
        let lines = lines_of(&[&b"one\n"[..], &long, b"\ntwo\n"].concat(), 0);
        assert_eq!(lines, [&b"two"[..], &long[..MAX_LINE], b"one"]);
    }

    #[test]
    fn a_break_is_the_end_and_a_file_that_shrank_is_an_error() {
        let mut count = 0;
        super::read(&file(b"1\n2\n3\n"), 0..6, |_| {
            count += 1;
            ControlFlow::Break(())
        })
        .unwrap();
        assert_eq!(count, 1);
        assert!(super::read(&file(b"1\n"), 0..6, |_| ControlFlow::Continue(())).is_err());
    }
}
