//! NameTable for a recording that has none, or that was made where the files had none.
//!
//! Each module is looked for by its build id, in its own place and in those for names:
//!
//! ```text
//!  frame: offset into the file --(program headers of the file that had the code)--> address
//!                                         address --(the file that knows most)--> functions
//! ```
//!
//! A file that has names alone has lost those headers. They are read from another file of the
//! build, or taken as they were recorded.

use std::collections::BTreeMap;

use object::ReadCache;
use offwake_recording::{
    Frame, FrameId, Module, ModuleId, StackTable,
    loss::{Diagnostics, count},
};
use offwake_unwind::elf::layout::CodeLayout;

use super::{
    debug_files::{FoundFiles, find_files},
    detail::AddressForm,
    elf_names::NameFile,
    kernel as kernel_names,
    names::NameTable,
    open_file::OpenFile,
    sources::NameSources,
};
use crate::symbols::{address_spaces::kernel, frame_table::UnnamedFrame};

/// When a recording was made. At each boot the kernel puts itself at other addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedIn {
    /// Since this kernel was booted.
    ThisBoot,
    /// Before, or somewhere else, or nobody knows.
    AnotherBoot,
}

/// What came of looking names up again. Each module counts once, under the first that applies; of
/// modules without a build id only those that are files count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resymbolized {
    /// Modules of which a file was found.
    pub modules_found: usize,
    /// Modules whose build id was not recorded: what is at their paths now may be anything.
    pub modules_without_build_id: usize,
    /// Modules of which there is no file.
    pub modules_without_file: usize,
    /// Modules of which there are only files of other builds.
    pub modules_of_another_build: usize,
    /// Modules of which there is a file with names alone, and neither that nor the recording tells
    /// where the code was.
    pub modules_without_code: usize,
    /// Whether the kernel's names were left as they are because it was booted since.
    pub kernel_was_booted_since: bool,
    /// Frames that were named, those included that had a name.
    pub frames_named: usize,
    /// What could not be done, by name.
    pub diagnostics: Diagnostics,
}

/// Looks up the names of all frames again, and replaces those of the frames that have one.
/// `progress` is called with the frames done and all of them.
pub fn resymbolize(
    table: &mut StackTable,
    sources: &NameSources,
    recorded_in: RecordedIn,
    progress: &mut dyn FnMut(usize, usize),
) -> Resymbolized {
    let mut result = Resymbolized::default();
    let mut names = NameTable::new();
    let by_module = by_module(table);
    let total = by_module.values().map(Vec::len).sum();
    let mut done = 0;
    progress(done, total);
    for (id, frames) in by_module {
        if let Some(module) = table.modules.get(&id) {
            if module.path == kernel::MODULE {
                name_kernel(module, &frames, table, recorded_in, &mut result, &mut names);
            } else {
                name_file(module, &frames, table, sources, &mut result, &mut names);
            }
        }
        done += frames.len();
        progress(done, total);
    }
    names.add_diagnostics(&mut result.diagnostics);
    let names = names.into_vec();
    result.frames_named = names.len();
    table.name(names);
    result
}

fn by_module(table: &StackTable) -> BTreeMap<ModuleId, Vec<FrameId>> {
    let mut by_module = BTreeMap::<ModuleId, Vec<FrameId>>::new();
    for (&id, frame) in &table.frames {
        if let Some(module) = frame.module {
            by_module.entry(module).or_default().push(id);
        }
    }
    by_module
}

/// Frames with the addresses that have their names.
fn wanted(
    frames: &[FrameId],
    table: &StackTable,
    at: impl Fn(&Frame) -> Option<u64>,
) -> Vec<UnnamedFrame> {
    let wanted = |&frame| Some(UnnamedFrame { frame, at: at(table.frames.get(&frame)?)? });
    let mut wanted: Vec<_> = frames.iter().filter_map(wanted).collect();
    wanted.sort_unstable_by_key(|wanted| wanted.at);
    wanted
}

fn name_file(
    module: &Module,
    frames: &[FrameId],
    table: &StackTable,
    sources: &NameSources,
    result: &mut Resymbolized,
    names: &mut NameTable,
) {
    let Some(build_id) = &module.build_id else {
        result.modules_without_build_id += usize::from(module.path.starts_with('/'));
        return;
    };
    let found = find_files(module, build_id, &sources.debug_directories, &mut result.diagnostics);
    let FoundFiles { mut files, others } = found;
    if files.iter().all(|file| file.knowledge() > sources.detail.required_knowledge())
        && let Some((file, trust)) = sources.fetch(build_id)
    {
        match OpenFile::for_own_reading(file, trust).and_then(NameFile::new) {
            Ok(fetched) => files.insert(0, fetched),
            Err(diagnostic) => count(&mut result.diagnostics, diagnostic),
        }
    }
    if files.is_empty() {
        match others {
            true => result.modules_of_another_build += 1,
            false => result.modules_without_file += 1,
        }
        return;
    }
    let layout = |file: &NameFile| CodeLayout::from_file(&ReadCache::new(file.file()));
    let recorded = || CodeLayout::from_segments(&module.segments);
    let Some(layout) = files.iter().find_map(layout).or_else(recorded) else {
        result.modules_without_code += 1;
        return;
    };
    result.modules_found += 1;
    let wanted = wanted(frames, table, |frame| {
        layout.address(frame.module_offset?.checked_sub(frame.kind.before())?)
    });
    for file in files {
        file.name(sources.detail, AddressForm::Address, &wanted, &mut result.diagnostics, names);
    }
}

fn name_kernel(
    module: &Module,
    frames: &[FrameId],
    table: &StackTable,
    recorded_in: RecordedIn,
    result: &mut Resymbolized,
    names: &mut NameTable,
) {
    if module.build_id.is_none() {
        result.modules_without_build_id += 1;
        return;
    }
    if module.build_id != kernel::build_id() {
        result.modules_of_another_build += 1;
        return;
    }
    if recorded_in == RecordedIn::AnotherBoot {
        result.kernel_was_booted_since = true;
        return;
    }
    let Some(built_in) = kernel_names::built_in_range() else {
        result.modules_without_file += 1;
        return;
    };
    result.modules_found += 1;
    let wanted = wanted(frames, table, |frame| {
        let at = frame.address.checked_sub(frame.kind.before())?;
        built_in.contains(&at).then_some(at)
    });
    kernel_names::name_frames(&wanted, &mut result.diagnostics, names);
}
