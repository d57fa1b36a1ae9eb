//! Has offwake look at an incident, and judges what it says.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{
    ClientLog, Incident, Scene, Trouble,
    criteria::{Card, Cause, Missed, OutputCost, Verdict},
};
use crate::{
    browser::Browser,
    gaps::check_gaps,
    offwake::{Offwake, Outcome},
    report::Report,
};

/// Where the page leads with what is wrong.
pub const FIRST_CARD: &str = "#verdict";

/// How long each incident is recorded.
const WINDOW: &str = "5s";

/// How long offwake may take in all.
const PATIENCE: Duration = Duration::from_secs(180);

/// The smallest screen on which the first card has to be seen.
const SCREEN: (u32, u32) = (1600, 1000);

/// The files that offwake writes, and that are kept if wanted.
const OUTPUTS: [&str; 3] = ["html", "json", "offwake"];

/// The outputs that are measured: what people and other programs read.
const MEASURED: [&str; 8] =
    ["md", "svg", "html", "json", "folded", "pftrace", "pb.gz", "speedscope.json"];

/// Where the files of an incident go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// They are removed.
    Nothing,
    /// They stay in this directory, named after the incident.
    In(PathBuf),
}

/// Whether sizes and times of outputs are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// None is.
    Nothing,
    /// Each output is made from the recording once more, and timed.
    Outputs,
}

/// How incidents are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is kept.
    pub keep: Keep,
    /// What is measured.
    pub measure: Measure,
    /// The selector of the page's first card.
    pub card: String,
}

/// Brings an incident about, has offwake profile it, and judges the answer. The trouble is proved
/// meanwhile.
///
/// # Errors
///
/// When the incident can't be set up, or the trouble turns out not to be real, or what offwake writes
/// can't be read. That offwake does not find the cause is no error, but a verdict.
pub fn run(incident: &Incident, options: &Options) -> Result<Verdict> {
    let scene = Scene::new()?;
    let trouble = start(incident, &scene)?;
    let cause = Cause::new(&trouble.cause, &trouble.context)?;
    let (parties, context) = (trouble.parties.clone(), trouble.context.clone());
    let known_miss = trouble.known_miss.clone();
    let (truth, outcome) = profile(trouble)?;
    // It would only be in the way.
    drop(scene);
    if let Keep::In(directory) = &options.keep {
        keep(directory, incident.name, &truth, &outcome)?;
    }
    // offwake may say that there was nothing to report, and write nothing.
    let page = outcome.path("x.html");
    let card = if page.is_file() { read_card(&page, &options.card)? } else { None };
    let innocents = match fs::read_to_string(outcome.path("x.json")) {
        Ok(json) => {
            let report = Report::parse(&json)?;
            check_gaps(&report)?;
            Some(parties.share_of_innocents(&report)?)
        }
        Err(_) => None,
    };
    let summary = outcome.terminal();
    let (lines, said) = cause.find_in(&summary).unzip();
    let known_miss = known_miss.map(|miss| -> Result<_> {
        let lines = Cause::new(&miss.least, &context)?.find_in(&summary);
        Ok(Missed { reason: miss.reason, lines: lines.map(|(lines, _)| lines) })
    });
    Ok(Verdict {
        lines,
        cause: said,
        card: match card {
            Some(card) if cause.is_named_in(&card) => Card::Named,
            Some(_) => Card::NotNamed,
            None => Card::NoCard,
        },
        innocents,
        known_miss: known_miss.transpose()?,
        outputs: match options.measure {
            Measure::Outputs => measure(&outcome)?,
            Measure::Nothing => Vec::new(),
        },
    })
}

/// Brings an incident about, proves the trouble while offwake records it, and returns the truth.
///
/// # Errors
///
/// When the incident can't be set up, or the trouble is not real.
pub fn check_trouble(incident: &Incident) -> Result<String> {
    let scene = Scene::new()?;
    let trouble = start(incident, &scene)?;
    Cause::new(&trouble.cause, &trouble.context)?;
    Ok(profile(trouble)?.0)
}

fn start(incident: &Incident, scene: &Scene) -> Result<Trouble> {
    let started = (incident.start)(scene);
    started.with_context(|| format!("cannot bring it about: {}", scene.complaints()))
}

/// Records the trouble. Returns the truth, evidence included, and what offwake says.
fn profile(trouble: Trouble) -> Result<(String, Outcome)> {
    let mut offwake = Offwake::profile()?.args(&trouble.target).args(["-d", WINDOW]);
    for (name, value) in &trouble.environment {
        offwake = offwake.env(name, value);
    }
    for output in OUTPUTS {
        offwake = offwake.arg("-o").arg(format!("x.{output}"));
    }
    if !trouble.command.is_empty() {
        offwake = offwake.arg("--").args(&trouble.command);
    }
    let size = |log: &Option<ClientLog>| log.as_ref().map(ClientLog::size).transpose();
    let (logged, held) = (size(&trouble.log)?, size(&trouble.culprit_log)?);
    let running = offwake.start_recording()?;
    if let Some(action) = trouble.once_recorded {
        action().context("cannot begin the trouble")?;
    }
    let proof = (trouble.proof)().context("the trouble is not proved")?;
    // Where CPUs are scarce, offwake lacks them too.
    let outcome = running.outcome_within(PATIENCE)?;
    ensure!(matches!(outcome.status.code(), Some(0 | 3)), "offwake failed: {outcome}");
    let mut truth = trouble.truth;
    for line in proof.lines() {
        truth += &format!("\n  {line}");
    }
    for (log, size, whose) in [
        (trouble.log, logged, "measured by the one that waits"),
        (trouble.culprit_log, held, "measured by the one whose fault it is"),
    ] {
        if let (Some(log), Some(size)) = (log, size) {
            let measured = log.read_from(size)?.check(log.least).context(whose)?;
            truth += &format!("\n  {whose}: {measured}");
        }
    }
    Ok((truth, outcome))
}

/// Makes each output from the recording.
fn measure(outcome: &Outcome) -> Result<Vec<OutputCost>> {
    let measure = |extension| -> Result<_> {
        let name = format!("measured.{extension}");
        let begin = Instant::now();
        let made = outcome.report_of("x.offwake", &["-q", "-o", &name])?;
        let seconds = begin.elapsed().as_secs_f64();
        ensure!(made.status.success(), "cannot make {name}: {made}");
        Ok(OutputCost { extension, size: fs::metadata(outcome.path(&name))?.len(), seconds })
    };
    MEASURED.into_iter().map(measure).collect()
}

/// The findings of the page's first card, if the page has one: of each the lines that are shown.
fn read_card(page: &Path, selector: &str) -> Result<Option<Vec<Vec<String>>>> {
    let browser = Browser::start(SCREEN.0, SCREEN.1)?;
    browser.open(&page.canonicalize()?)?;
    browser.until("return document.getElementById('head').dataset.drawn === 'yes'")?;
    let selector = serde_json::to_string(selector)?;
    let card = browser.run(&format!(
        "const card = document.querySelector({selector}); \
         if (!card) return null; \
         const shown = (of, what) => [...of.querySelectorAll(what)].filter((one) => one.offsetParent); \
         return shown(card, 'li').map((li) => shown(li, 'p').map((p) => p.innerText))"
    ))?;
    Ok(serde_json::from_value(card)?)
}

fn keep(directory: &Path, name: &str, truth: &str, outcome: &Outcome) -> Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let to = |extension: &str| directory.join(format!("{name}.{extension}"));
    fs::write(to("txt"), format!("{truth}\n"))?;
    fs::write(to("summary"), outcome.terminal())?;
    for output in OUTPUTS {
        let from = outcome.path(&format!("x.{output}"));
        if from.is_file() {
            fs::copy(&from, to(output))
                .with_context(|| format!("cannot keep {}", from.display()))?;
        }
    }
    Ok(())
}
