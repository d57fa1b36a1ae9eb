//! Incidents that are quick, and whose cause offwake names. `cargo xtask incidents` runs all of them.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use offwake_tests::incidents::{self, INCIDENTS};

/// Demands that the trouble is what the incident says, by evidence that is none of offwake's.
fn check_trouble(name: &str) -> Result<()> {
    let truth = incidents::check_trouble(incidents::find(name)?)?;
    ensure!(truth.lines().count() > 1, "no evidence: {truth}");
    Ok(())
}

#[test]
fn a_deadlock_is_one() -> Result<()> {
    check_trouble("deadlock")
}

#[test]
fn a_full_pipe_is_one() -> Result<()> {
    check_trouble("slow-pipe")
}

#[test]
fn a_quota_throttles() -> Result<()> {
    check_trouble("cpu-quota")
}

#[test]
fn every_incident_has_a_name_of_its_own_and_sources() -> Result<()> {
    let names: BTreeSet<_> = INCIDENTS.iter().map(|incident| incident.name).collect();
    ensure!(names.len() == INCIDENTS.len(), "a name is there twice");
    for incident in &INCIDENTS {
        let found = incidents::find(incident.name).context("not found by its name")?;
        ensure!(found.about == incident.about && !incident.about.is_empty());
    }
    ensure!(incidents::find("nothing").is_err());
    Ok(())
}
