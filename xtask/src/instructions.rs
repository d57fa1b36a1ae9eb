//! How many instructions the kernel runs each program as, beside what was committed last: what makes
//! switches dearer shows here first, on any machine.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, ensure};

use xtask::{command, root::RootAccess, workspace};

/// How far a program may grow before somebody has to look: 10 %.
const MAX_GROWTH: f64 = 1.10;

/// Instructions by program, as one kernel made them.
#[derive(Debug, PartialEq, Eq)]
pub struct Counts {
    /// Kernels inline and rewrite differently: counts of two versions say nothing of each other.
    pub kernel: String,
    pub programs: BTreeMap<String, u32>,
}

/// Prints both beside each other.
///
/// # Errors
///
/// When a program has grown by more than a tenth on the kernel that the committed figures are of, when
/// there is none of them, or when the programs can't be loaded.
pub fn compare() -> anyhow::Result<()> {
    let before = read_committed()?;
    let now = count_now()?;
    let is_same_kernel = before.kernel == now.kernel;
    eprintln!(
        "instructions after verification: Linux {} now, {} before",
        now.kernel, before.kernel
    );
    let mut grown = Vec::new();
    for (program, count) in &now.programs {
        let earlier = before.programs.get(program).copied();
        let change = earlier.map_or("new".to_owned(), |earlier| {
            format!(
                "{earlier:>6} {:>+7.1} %",
                (f64::from(*count) / f64::from(earlier) - 1.0) * 100.0
            )
        });
        eprintln!("  {program:<28} {count:>6} {change}");
        if is_same_kernel
            && earlier.is_none_or(|earlier| f64::from(*count) > f64::from(earlier) * MAX_GROWTH)
        {
            grown.push(program.as_str());
        }
    }
    ensure!(
        grown.is_empty(),
        "these programs have grown by more than a tenth, or are new: {}; if that is meant, `cargo xtask bless`",
        grown.join(", ")
    );
    Ok(())
}

/// Takes what is now as what was before.
///
/// # Errors
///
/// When the programs can't be loaded, or the file not be written.
pub fn bless() -> anyhow::Result<()> {
    let Counts { kernel, programs } = count_now()?;
    let mut text = format!("# Linux {kernel}\n");
    for (program, count) in programs {
        text.push_str(&format!("{program} {count}\n"));
    }
    let path = committed_path();
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads the counts that were committed last.
///
/// # Errors
///
/// When they can't be read.
pub fn read_committed() -> anyhow::Result<Counts> {
    let path = committed_path();
    let text = fs::read_to_string(&path);
    let counts = text.map_err(anyhow::Error::from).and_then(|text| parse(&text));
    counts.with_context(|| format!("cannot read {}", path.display()))
}

fn committed_path() -> PathBuf {
    workspace::root().join("docs").join("instructions.txt")
}

/// `# Linux 6.12`, then a line for each program: its name and its instructions.
fn parse(text: &str) -> anyhow::Result<Counts> {
    let (first, rest) = text.split_once('\n').context("it is empty")?;
    let kernel = first.strip_prefix("# Linux ").context("its first line names no kernel")?;
    let program = |line: &str| {
        let (name, count) =
            line.split_once(' ').with_context(|| format!("not a program: {line:?}"))?;
        Ok((name.to_owned(), count.trim().parse()?))
    };
    let programs = rest.lines().map(program).collect::<anyhow::Result<_>>()?;
    Ok(Counts { kernel: kernel.to_owned(), programs })
}

/// What `offwake doctor` says of the programs that it loads.
fn count_now() -> anyhow::Result<Counts> {
    let root = RootAccess::obtain_for("offwake doctor")?;
    let text = command::output(root.command(workspace::offwake_binary()?).arg("doctor"))
        .context("`offwake doctor` failed")?;
    let programs = text.lines().filter_map(parse_program).collect::<BTreeMap<_, _>>();
    ensure!(!programs.is_empty(), "`offwake doctor` names no program");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").context("no kernel release")?;
    Ok(Counts { kernel: major_and_minor(release.trim()), programs })
}

/// A program and its instructions, if a line of what doctor says is about one.
///
/// `  sched_switch   2786 instructions,  43507 verified`
pub fn parse_program(line: &str) -> Option<(String, u32)> {
    let mut words = line.split_whitespace();
    let (name, count) = (words.next()?, words.next()?);
    (words.next()? == "instructions,").then_some((name.to_owned(), count.parse().ok()?))
}

fn major_and_minor(release: &str) -> String {
    release.split('.').take(2).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::{major_and_minor, parse, parse_program};

    #[test]
    fn what_is_committed_can_be_read() {
        let counts = parse("# Linux 6.12\nsched_switch 2786\nclock 761\n").unwrap();
        assert_eq!(counts.kernel, "6.12");
        assert_eq!(counts.programs["sched_switch"], 2786);
        assert!(parse("sched_switch 2786\n").is_err());
        assert!(parse("# Linux 6.12\nsched_switch\n").is_err());
    }

    #[test]
    fn programs_are_found_in_what_doctor_says() {
        let line = "           sched_switch                  2786 instructions,  43507 verified";
        assert_eq!(parse_program(line), Some(("sched_switch".to_owned(), 2786)));
        assert_eq!(parse_program("  ok       kernel release: 6.18.44"), None);
    }

    #[test]
    fn a_release_counts_by_its_first_two_numbers() {
        assert_eq!(major_and_minor("6.12.117+deb12-cloud-amd64"), "6.12");
    }
}
