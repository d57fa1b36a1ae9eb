//! `offwake doctor`

use offwake::kernel::{FeatureStatus, Features, Need, ProgramSize};

use crate::{console::Terminal, outcome::Outcome};

/// Prints how everything stands that offwake wants of this machine.
pub fn run() -> anyhow::Result<Outcome> {
    let mut features = Features::probe();
    let programs = if features.suffice() { features.try_programs() } else { Vec::new() };
    let mut out = Terminal::standard_output();
    for feature in &features.0 {
        match &feature.status {
            FeatureStatus::Works(how) => {
                out.line(&format!("  ok       {}: {how}", feature.name))?
            }
            FeatureStatus::Missing { why, remedy } => {
                let verdict = match feature.need {
                    Need::Required => "MISSING",
                    Need::Optional => "limited",
                };
                out.line(&format!("  {verdict}  {}: {why}", feature.name))?;
                out.line(&format!("           -> {remedy}"))?;
            }
        }
    }
    for program in programs.iter().filter(|program| program.instructions > 0) {
        let ProgramSize { name, instructions, verified } = program;
        out.line(&format!(
            "           {name:<28} {instructions:>5} instructions, {verified:>6} verified"
        ))?;
    }
    if features.suffice() {
        out.line("offwake works here.")?;
        Ok(Outcome::Done)
    } else {
        out.line("offwake does not work here yet: see what is MISSING.")?;
        Ok(Outcome::Failed)
    }
}
