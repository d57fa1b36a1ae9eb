//! Has offwake look at an incident, and judges what it says.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    Incident, Scene, Trouble,
    criteria::{Card, Cause, Verdict, share_of_innocents},
};
use crate::{
    browser::Browser,
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

/// Where the files of an incident go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// They are removed.
    Nothing,
    /// They stay in this directory, named after the incident.
    In(PathBuf),
}

/// How incidents are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is kept.
    pub keep: Keep,
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
    let (cause, innocents) = (Cause::new(&trouble.cause)?, trouble.innocents.clone());
    let (truth, outcome) = profile(trouble)?;
    // It would only be in the way.
    drop(scene);
    let summary = outcome.terminal();
    if let Keep::In(directory) = &options.keep {
        keep(directory, incident.name, &truth, &outcome)?;
    }
    // offwake may say that there was nothing to report, and write nothing.
    let page = outcome.path("x.html");
    let card = if page.is_file() { read_card(&page, &options.card)? } else { None };
    let innocents = match fs::read_to_string(outcome.path("x.json")) {
        Ok(json) => Some(share_of_innocents(&Report::parse(&json)?, &innocents)?),
        Err(_) => None,
    };
    Ok(Verdict {
        lines: cause.lines_until_named(&summary),
        card: match card {
            Some(text) if cause.is_named_in(&text) => Card::Named,
            Some(_) => Card::NotNamed,
            None => Card::NoCard,
        },
        innocents,
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
    Cause::new(&trouble.cause)?;
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
    let logged = trouble.log.as_ref().map(|log| log.size()).transpose()?;
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
    if let (Some(log), Some(size)) = (trouble.log, logged) {
        let measured = log.read_from(size)?.check(log.least).context("measured by the client")?;
        truth += &format!("\n  measured by the one that waits: {measured}");
    }
    Ok((truth, outcome))
}

/// The text of the page's first card as it is shown, if the page has one.
fn read_card(page: &Path, selector: &str) -> Result<Option<String>> {
    let browser = Browser::start(SCREEN.0, SCREEN.1)?;
    browser.open(&page.canonicalize()?)?;
    browser.until("return document.getElementById('head').dataset.drawn === 'yes'")?;
    let selector = serde_json::to_string(selector)?;
    let text = browser.run(&format!("return document.querySelector({selector})?.innerText"))?;
    Ok(text.as_str().map(str::to_owned))
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
