//! Folded stacks: `frame;frame;… value` per line.

use anyhow::{Context, Result, ensure};

/// One line of folded stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    /// The frames from root to leaf.
    pub frames: Vec<String>,
    /// The value, in ns.
    pub ns: u64,
}

/// Reads folded stacks as the common tools do: the value follows the last space.
///
/// # Errors
///
/// When a line has no value, or an empty frame.
pub fn parse(text: &str) -> Result<Vec<Folded>> {
    let line = |line: &str| {
        let (path, value) = line.rsplit_once(' ').context("no value")?;
        let frames: Vec<String> = path.split(';').map(str::to_owned).collect();
        ensure!(frames.iter().all(|frame| !frame.is_empty()), "an empty frame");
        Ok(Folded { frames, ns: value.parse().context("the value is no number")? })
    };
    text.lines().map(|text| line(text).with_context(|| format!("in the line {text:?}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_have_spaces_in_its_frames() -> Result<()> {
        let lines = parse("a b-1;main;[work] 20\n")?;
        assert_eq!(lines[0].frames, ["a b-1", "main", "[work]"]);
        assert_eq!(lines[0].ns, 20);
        Ok(())
    }

    #[test]
    fn what_is_no_folded_stack_is_an_error() {
        for wrong in ["a;b", "a;;b 1", "a;b x", "a;b -1", ""] {
            assert!(parse(&format!("{wrong}\n")).is_err(), "{wrong:?}");
        }
    }
}
