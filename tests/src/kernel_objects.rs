//! What the kernel holds for a process that uses BPF: programs, maps and links.

use std::{collections::BTreeSet, fs, str::FromStr};

use anyhow::{Context, Result, ensure};
use aya::{
    maps::{MapData, loaded_maps},
    programs::{loaded_links, loaded_programs},
};

/// Objects of BPF, by the kernel's own ids, which are not given again soon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelObjects {
    /// Programs.
    pub programs: BTreeSet<u32>,
    /// Maps, those that only programs hold included.
    pub maps: BTreeSet<u32>,
    /// Links, which attach programs.
    pub links: BTreeSet<u32>,
}

impl KernelObjects {
    /// The objects that a process holds open, as its `fdinfo` says, and the maps of those programs.
    ///
    /// # Errors
    ///
    /// When there is no such process.
    pub fn held_by(pid: u32) -> Result<Self> {
        let mut held = Self {
            // A link names its program as well.
            programs: parse_fdinfo(pid, "prog_id:")?,
            maps: parse_fdinfo(pid, "map_id:")?,
            links: parse_fdinfo(pid, "link_id:")?,
        };
        for program in loaded_programs().flatten() {
            if held.programs.contains(&program.id()) {
                held.maps.extend(program.map_ids()?.unwrap_or_default());
            }
        }
        Ok(held)
    }

    /// The objects among these that are still loaded.
    #[must_use]
    pub fn still_loaded(&self) -> Self {
        // What ends while it is asked for is an error, and is not there.
        let there = Self {
            programs: loaded_programs().flatten().map(|program| program.id()).collect(),
            maps: loaded_maps().flatten().map(|map| map.id()).collect(),
            links: loaded_links().flatten().map(|link| link.id()).collect(),
        };
        Self {
            programs: &self.programs & &there.programs,
            maps: &self.maps & &there.maps,
            links: &self.links & &there.links,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty() && self.links.is_empty()
    }

    /// The id of the map of this name.
    ///
    /// # Errors
    ///
    /// When there is none, or several.
    pub fn map_id(&self, name: &str) -> Result<u32> {
        let maps = loaded_maps().flatten();
        let named =
            maps.filter(|map| self.maps.contains(&map.id()) && map.name() == name.as_bytes());
        let ids: Vec<u32> = named.map(|map| map.id()).collect();
        ensure!(ids.len() == 1, "wanted one map {name}, got {ids:?}");
        Ok(ids[0])
    }

    /// The map of this name, opened.
    ///
    /// # Errors
    ///
    /// As [`KernelObjects::map_id`], or when the kernel does not hand it out.
    pub fn open_map(&self, name: &str) -> Result<MapData> {
        MapData::from_id(self.map_id(name)?).with_context(|| format!("cannot open the map {name}"))
    }
}

/// What the `fdinfo` of a process's descriptors says after a key, of those that have it.
///
/// # Errors
///
/// When there is no such process.
pub fn parse_fdinfo<N: FromStr, C: FromIterator<N>>(pid: u32, key: &str) -> Result<C> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo"))
        .with_context(|| format!("there is no process {pid}"))?;
    let said = descriptors.flatten().filter_map(|descriptor| {
        // It may have been closed meanwhile.
        let text = fs::read_to_string(descriptor.path()).ok()?;
        text.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
    });
    Ok(said.collect())
}
