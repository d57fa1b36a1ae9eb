//! The paths of the folded stacks as a gzipped profile for pprof.
//!
//! The messages are those of
//! [`profile.proto`](https://github.com/google/pprof/blob/main/proto/profile.proto). Each path is a
//! sample, and each of its frames a function, with its file and line where they are known. Threads
//! are among the frames, so that frames have no addresses. The kind of blame is a label.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Write as _},
    sync::Arc,
};

use flate2::{Compression, write::GzEncoder};
use libdd_profiling_protobuf::{
    Function, Label, Line, Location, NO_OPT_ZERO, OPT_ZERO, Record, Sample, StringOffset, Value,
    ValueType,
};
use offwake_recording::units::{Tgid, Tid};

use crate::{
    analysis::{Analysis, Extent},
    blame::BlameEntryKind,
    report::{
        BlameEntry, Report, SmallPaths, WaitEntry,
        flame::{Path, View, shown_parts},
        loss_line,
    },
    text,
};

use super::{
    OutputFormat, Written,
    call_path::CallPathBuilder,
    source_frame::{SourceFrame, SourceFrames},
};

/// What is counted of each path: its name, and its unit.
const SAMPLE_TYPES: [(&str, &str); COUNTED] = [
    ("blocked", "nanoseconds"),
    ("waits", "count"),
    ("work", "nanoseconds"),
    ("cpu_queue", "nanoseconds"),
    ("external", "nanoseconds"),
    ("unattributed", "nanoseconds"),
    ("idle", "nanoseconds"),
];
const COUNTED: usize = 7;

/// A profile for pprof.
pub(super) struct Pprof;

impl OutputFormat for Pprof {
    fn name(&self) -> &'static str {
        "pprof"
    }

    fn extension(&self) -> &'static str {
        "pb.gz"
    }

    fn write(
        &self,
        analysis: &Analysis<'_>,
        out: &mut (dyn io::Write + Send),
    ) -> io::Result<Written> {
        let options = analysis.options();
        write(analysis.report(), &options.view, options.extent, out)?;
        Ok(Written::from_limits(&analysis.report().filter, SmallPaths::default()))
    }
}

/// Writes the shown waits.
///
/// # Errors
///
/// Those of `out`, and if there are more than 4,294,967,295 different texts.
pub fn write(
    report: &Report,
    view: &View,
    extent: Extent,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut gzip = GzEncoder::new(out, Compression::default());
    write_plain(report, view, extent, &mut gzip)?;
    gzip.finish()?.flush()
}

/// The same, not compressed.
///
/// # Errors
///
/// Those of [`write()`].
pub fn write_plain(
    report: &Report,
    view: &View,
    extent: Extent,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    // Messages are written a byte at a time.
    let mut out = io::BufWriter::new(out);
    let mut table = ProfileTables::default();
    table.text("")?;
    for (name, unit) in SAMPLE_TYPES {
        let r#type = ValueType { r#type: table.text(name)?.into(), unit: table.text(unit)?.into() };
        field::<_, 1, NO_OPT_ZERO>(r#type, &mut out)?;
    }
    for (key, values) in samples(report, view, extent) {
        let locations = key.path.iter().rev().map(|frame| table.location(frame));
        let locations: Vec<u64> = locations.collect::<io::Result<_>>()?;
        let labels = labels(&key, &mut table)?;
        let sample = Sample {
            location_ids: locations.as_slice().into(),
            values: values.0.as_slice().into(),
            labels: &labels,
        };
        field::<_, 2, NO_OPT_ZERO>(sample, &mut out)?;
    }
    let start = report.window.start_unix_ns.unwrap_or(0);
    field::<_, 9, OPT_ZERO>(start, &mut out)?;
    field::<_, 10, OPT_ZERO>(signed(report.window.duration_ns.0), &mut out)?;
    let remarks = [
        format!("offwake {}: {}", report.meta.offwake, report.meta.target),
        format!("host {}, kernel {}", report.meta.host, report.meta.kernel),
        loss_line(report),
    ];
    for remark in remarks.into_iter().chain(report.warnings()).chain(report.limit_note()) {
        let remark = table.text(&text::plain(&remark))?;
        field::<_, 13, NO_OPT_ZERO>(remark, &mut out)?;
    }
    field::<_, 14, OPT_ZERO>(table.text(SAMPLE_TYPES[0].0)?, &mut out)?;
    table.write(&mut out)?;
    out.flush()
}

/// What the waits of one sample have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SampleKey {
    path: Vec<Arc<SourceFrame>>,
    thread: String,
    tid: u32,
    container: Option<String>,
    process: String,
    pid: u32,
    cause: &'static str,
    waker: Option<String>,
    blame: &'static str,
    reason: Option<&'static str>,
    holder: Option<String>,
    labels: BTreeMap<String, String>,
}

#[derive(Default)]
struct SampleValues([i64; COUNTED]);

impl SampleValues {
    fn add(&mut self, wait: &WaitEntry, share: &BlameEntry, counts: bool) {
        let of = |is: bool| if is { share.ns.0 } else { 0 };
        let is = |words: &[BlameEntryKind]| of(words.contains(&share.kind));
        let external = [
            BlameEntryKind::Timer,
            BlameEntryKind::Disk,
            BlameEntryKind::Network,
            BlameEntryKind::Device,
            BlameEntryKind::Throttled,
        ];
        let values = [
            share.ns.0,
            if counts { wait.count } else { 0 },
            is(&[BlameEntryKind::Work]),
            is(&[BlameEntryKind::CpuQueue]),
            is(&external),
            is(&[BlameEntryKind::Unattributed]),
            of(share.idle),
        ];
        for (sum, value) in self.0.iter_mut().zip(values) {
            *sum = sum.saturating_add(signed(value));
        }
    }
}

/// A wait counts once, where most of its time went; one that was over before it began nowhere.
fn samples(report: &Report, view: &View, extent: Extent) -> BTreeMap<SampleKey, SampleValues> {
    let processes: HashMap<Tgid, &str> =
        report.processes.iter().map(|process| (process.tgid, process.comm.as_str())).collect();
    let mut most: HashMap<*const WaitEntry, &BlameEntry> = HashMap::new();
    for (wait, share) in shown_parts(report) {
        let most = most.entry(std::ptr::from_ref(wait)).or_insert(share);
        if share.ns > most.ns {
            *most = share;
        }
    }
    let mut names = SourceFrames::default();
    let mut samples: BTreeMap<SampleKey, SampleValues> = BTreeMap::new();
    let builder = CallPathBuilder::new(report, *view, extent);
    for (Path { wait, blame: share, .. }, frames) in builder.build_all() {
        let key = SampleKey {
            path: names.path(&frames),
            thread: wait.comm.clone(),
            tid: wait.tid.0,
            container: wait.container.clone(),
            process: processes.get(&wait.tgid).map_or_else(String::new, |&comm| comm.to_owned()),
            pid: wait.tgid.0,
            cause: wait.cause.name(),
            waker: wait.waker.as_ref().map(|waker| match (&waker.comm, waker.tid) {
                (Some(comm), Some(tid)) => describe_thread(comm, tid, waker.container.as_deref()),
                _ => waker.vector.clone().unwrap_or_default(),
            }),
            blame: share.kind.name(),
            reason: share.reason.map(|reason| reason.name()),
            holder: share.holder.as_ref().map(|holder| {
                describe_thread(&holder.comm, holder.tid, holder.container.as_deref())
            }),
            labels: wait.labels.clone(),
        };
        let most = most.get(&std::ptr::from_ref(wait));
        let counts = most.is_some_and(|&most| std::ptr::eq(most, share));
        samples.entry(key).or_default().add(wait, share, counts);
    }
    samples
}

fn describe_thread(comm: &str, tid: Tid, container: Option<&str>) -> String {
    match container {
        Some(container) => format!("{comm} {tid} in {container}"),
        None => format!("{comm} {tid}"),
    }
}

type LabelRecord = Record<Label, 3, NO_OPT_ZERO>;

fn labels(key: &SampleKey, table: &mut ProfileTables) -> io::Result<Vec<LabelRecord>> {
    let SampleKey {
        path: _,
        thread,
        tid,
        container,
        process,
        pid,
        cause,
        waker,
        blame,
        reason,
        holder,
        labels: of_program,
    } = key;
    let texts = [
        ("thread", Some(thread.as_str())),
        ("process", Some(process.as_str())),
        ("container", container.as_deref()),
        ("cause", Some(*cause)),
        ("waker", waker.as_deref()),
        ("blame", Some(*blame)),
        ("reason", *reason),
        ("holder", holder.as_deref()),
    ];
    let mut labels = Vec::new();
    for (name, words) in texts {
        if let Some(words) = words.filter(|words| !words.is_empty()) {
            let str = table.text(&text::plain(words))?.into();
            labels.push(Label { key: table.text(name)?.into(), str, ..Label::default() }.into());
        }
    }
    for (name, value) in of_program {
        let key = table.text(&text::plain(&format!("label.{name}")))?.into();
        let str = table.text(&text::plain(value))?.into();
        labels.push(Label { key, str, ..Label::default() }.into());
    }
    for (name, number) in [("tid", *tid), ("pid", *pid)] {
        let key = table.text(name)?.into();
        labels.push(Label { key, num: i64::from(number).into(), ..Label::default() }.into());
    }
    Ok(labels)
}

/// The texts and frames that samples refer to by number.
#[derive(Default)]
struct ProfileTables {
    texts: Vec<String>,
    numbers: HashMap<String, StringOffset>,
    /// With their numbers, from 1.
    functions: HashMap<FunctionTexts, u64>,
    locations: HashMap<LocationKey, u64>,
}

/// A function's name and its file, which is 0 if it is not known.
type FunctionTexts = (StringOffset, StringOffset);
/// A function's number and the line in it, which is 0 if it is not known.
type LocationKey = (u64, i64);

impl ProfileTables {
    fn text(&mut self, text: &str) -> io::Result<StringOffset> {
        if let Some(&known) = self.numbers.get(text) {
            return Ok(known);
        }
        let number = StringOffset::try_from(self.texts.len()).map_err(io::Error::other)?;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        Ok(number)
    }

    fn location(&mut self, frame: &SourceFrame) -> io::Result<u64> {
        let texts = (self.text(&frame.name)?, self.text(frame.file())?);
        let next = self.functions.len() as u64 + 1;
        let function = *self.functions.entry(texts).or_insert(next);
        let next = self.locations.len() as u64 + 1;
        Ok(*self.locations.entry((function, frame.line.unwrap_or(0).into())).or_insert(next))
    }

    fn write(&self, out: &mut impl io::Write) -> io::Result<()> {
        for (&(function, line), &id) in sorted_by_number(&self.locations) {
            let line = Line { function_id: function.into(), lineno: line.into() };
            let location = Location { id: id.into(), line: line.into(), ..Location::default() };
            field::<_, 4, NO_OPT_ZERO>(location, out)?;
        }
        for (&(name, file), &id) in sorted_by_number(&self.functions) {
            let (name, filename) = (name.into(), file.into());
            let function = Function { id: id.into(), name, filename, ..Function::default() };
            field::<_, 5, NO_OPT_ZERO>(function, out)?;
        }
        let mut texts = self.texts.iter();
        texts.try_for_each(|text| field::<_, 6, NO_OPT_ZERO>(text.as_str(), out))
    }
}

fn sorted_by_number<K>(numbers: &HashMap<K, u64>) -> Vec<(&K, &u64)> {
    let mut all: Vec<_> = numbers.iter().collect();
    all.sort_unstable_by_key(|(_, number)| **number);
    all
}

fn field<V: Value, const NUMBER: u32, const OMIT_ZERO: bool>(
    value: V,
    out: &mut impl io::Write,
) -> io::Result<()> {
    Record::<V, NUMBER, OMIT_ZERO>::from(value).encode(out)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
