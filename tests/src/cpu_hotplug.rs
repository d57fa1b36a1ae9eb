//! Taking a CPU from the machine, and giving it back.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::wait_until::wait_until;

/// A CPU that can be taken. It comes back when this is dropped.
pub struct HotplugCpu {
    number: usize,
    switch: PathBuf,
}

impl HotplugCpu {
    /// The last one of the machine, if the kernel lets it go.
    #[must_use]
    pub fn last() -> Option<Self> {
        let present = fs::read_to_string("/sys/devices/system/cpu/present").ok()?;
        let number = last_of(&present)?;
        let switch = PathBuf::from(format!("/sys/devices/system/cpu/cpu{number}/online"));
        (number > 0 && may_write(&switch)).then_some(Self { number, switch })
    }

    /// The CPU's number.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Takes it from the machine, or gives it back.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn set(&self, power: Power) -> Result<()> {
        let wanted = match power {
            Power::Off => "0",
            Power::On => "1",
        };
        fs::write(&self.switch, wanted)
            .with_context(|| format!("cannot turn CPU {} {power:?}", self.number))?;
        wait_until("the CPU to do so", || {
            let is = fs::read_to_string(&self.switch)?;
            Ok((is.trim() == wanted).then_some(()))
        })
    }
}

/// Whether a CPU runs anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// The CPU is offline.
    Off,
    /// The CPU is online.
    On,
}

impl Drop for HotplugCpu {
    fn drop(&mut self) {
        if let Err(error) = self.set(Power::On) {
            eprintln!("CPU {} stays off: {error:#}", self.number);
        }
    }
}

/// The last number of a list like `0-3,5`.
fn last_of(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

fn may_write(path: &Path) -> bool {
    fs::OpenOptions::new().write(true).open(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_of_a_list_is_found() {
        assert_eq!(last_of("0-3\n"), Some(3));
        assert_eq!(last_of("0,2-5,7\n"), Some(7));
        assert_eq!(last_of("0\n"), Some(0));
        assert_eq!(last_of("\n"), None);
    }
}
