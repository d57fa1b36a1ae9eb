//! All kernels beside each other.

use std::collections::BTreeSet;

use super::{
    doctor::{Findings, Standing},
    features,
    judgement::{Judgement, Verdict},
    release::Release,
};
use crate::instructions::Counts;
use xtask::markdown_table::MarkdownTable;

/// What the kernels are compared with: the one that runs here.
pub struct ThisMachine {
    pub release: Release,
    pub findings: Findings,
    pub committed: Counts,
}

/// Features, programs and tests, each in its table.
pub fn tables(here: &ThisMachine, judgements: &[Judgement]) -> String {
    let header = |first: &str, second: String| {
        let releases = judgements.iter().map(Judgement::title);
        MarkdownTable::new([first.to_owned(), second].into_iter().chain(releases))
    };
    let Counts { kernel, programs: committed } = &here.committed;

    let mut features = header("what `offwake doctor` finds", format!("{} (here)", here.release));
    for (name, standing) in &here.findings.features {
        let there = judgements.iter().map(|j| shown(j.findings.standing(name)));
        features.push_row([name.clone(), shown(Some(*standing))].into_iter().chain(there));
    }

    let mut programs = header("instructions of", format!("{kernel} (committed)"));
    let names: BTreeSet<&String> = (committed.keys())
        .chain(judgements.iter().flat_map(|judgement| judgement.findings.programs.keys()))
        .collect();
    for name in names {
        let all = std::iter::once(committed)
            .chain(judgements.iter().map(|judgement| &judgement.findings.programs));
        let counts = all.map(|programs| programs.get(name).map_or(String::new(), u32::to_string));
        programs.push_row(std::iter::once(name.clone()).chain(counts));
    }

    let mut tests = header("test", "here".to_owned());
    let titles: Vec<&String> = (judgements.iter().max_by_key(|judgement| judgement.tests.len()))
        .into_iter()
        .flat_map(|judgement| judgement.tests.iter().map(|(title, _)| title))
        .collect();
    for title in titles {
        let there = judgements.iter().map(|judgement| {
            let verdict = judgement.tests.iter().find(|(known, _)| known == title);
            verdict.map_or(String::new(), |(_, verdict)| verdict_shown(verdict))
        });
        let privileged = "`cargo xtask test`".to_owned();
        tests.push_row([title.clone(), privileged].into_iter().chain(there));
    }
    [features, programs, tests].map(|table| table.markdown()).join("\n")
}

/// Summarises a kernel in one line.
pub fn line(judgement: &Judgement) -> String {
    let Judgement { release, package, tests, faults, .. } = judgement;
    let title = judgement.title();
    let count = |wanted: fn(&Verdict) -> bool| tests.iter().filter(|(_, v)| wanted(v)).count();
    let passed = count(|verdict| matches!(verdict, Verdict::Passed(_)));
    let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
    let mut outcome = format!("{passed} tests passed, {skipped} skipped");
    if tests.len() == skipped && faults.is_empty() {
        outcome.push_str(": it is refused, as it should be");
    } else {
        for feature in features::lacks(*release) {
            outcome.push_str(&format!("; {}", feature.lack()));
        }
    }
    if !faults.is_empty() {
        outcome.push_str(&format!("; {} FAULTS", faults.len()));
    }
    format!("Linux {title} ({package}): {outcome}")
}

fn shown(standing: Option<Standing>) -> String {
    let text = match standing {
        Some(Standing::Works) => "ok",
        Some(Standing::Limited) => "limited",
        Some(Standing::Missing) => "MISSING",
        None => "",
    };
    text.to_owned()
}

fn verdict_shown(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Passed(seconds) => format!("passed, {seconds} s"),
        Verdict::Skipped(why) => format!("skipped: {why}"),
        Verdict::Failed => "FAILED".to_owned(),
    }
}
