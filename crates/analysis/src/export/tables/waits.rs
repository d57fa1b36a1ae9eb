//! `waits`: one row a wait, with everything about it that a query may want to group by.

use arrow_array::types::{UInt16Type, UInt32Type, UInt64Type};
use offwake_recording::{
    FileId, StackRef, TagSet, ThreadRef, Wait, Wake,
    stream::{
        code::{self, Code as _},
        column::{Column, Nulls, flags, numbers, optional, optional_times, times},
    },
    units::Timestamp,
};

use super::{
    bearer, cgroups, comms, executables,
    runnable::{self, Off},
    wall_times,
};
use crate::{
    blame::{
        WakeSource,
        cause::{self, Cause, FutexOp, WaitedOn, WokenThrough, syscalls},
    },
    export::{
        Export,
        dictionary::{Dictionary, optional_words, words},
        stack_text::{join_frames, stack_number},
    },
    report::wake_context,
    timeline::{BlockedInterval, Thread, ThreadIndex, WaitIndex, WakeUse, wake_use},
    waited_on_entry,
};

/// A wait, and all that the columns are made from.
struct Row<'a> {
    wait: Wait,
    /// None if it has no blocked part.
    place: Option<BlockedInterval>,
    thread: Option<(ThreadIndex, &'a Thread)>,
    cause: Cause,
    waited_on: Option<WaitedOn>,
    /// The wake that ended it: not one that is too old to be believed.
    wake: Option<Wake>,
    ender: WakeSource,
    waker: Option<Waker>,
}

/// The task that is held responsible.
#[derive(Clone, Copy)]
struct Waker {
    task: ThreadRef,
    wake: Wake,
}

impl<'a> Row<'a> {
    fn from_wait(export: &Export<'a>, item: u32) -> Option<Self> {
        let wait = export.recording.waits.get(item as usize)?;
        let row = export.recording.waits.rows().get(item as usize)?;
        let index = WaitIndex(item);
        let place = export.timeline.blocked_interval(index);
        let (cause, ender) = (export.blame.cause(index), export.blame.wake_source(index));
        let wake = wait.wake.filter(|_| wake_use(row) != WakeUse::Stale);
        let waker = match (ender, wake) {
            (WakeSource::Task(task), Some(wake)) => Some(Waker { task, wake }),
            _ => None,
        };
        let lived = wait.off.max(export.recording.meta.window.start);
        let thread = place.map(|place| place.thread);
        let thread = thread.or_else(|| export.timeline.find_thread(wait.tid, lived));
        let thread = thread.and_then(|n| Some((n, export.timeline.thread(n)?)));
        let waited_on = cause::waited_on(&wait, cause);
        Some(Self { wait, place, thread, cause, waited_on, wake, ender, waker })
    }

    /// Whether it is the target's: as it was recorded, unless the target is another one now.
    fn is_in_target(&self, export: &Export<'_>) -> bool {
        match (export.timeline.selected_target(), self.thread) {
            (Some(_), thread) => thread.is_some_and(|(_, thread)| thread.in_target),
            (None, _) => self.wait.in_target,
        }
    }

    fn blocked(&self) -> u64 {
        self.place.map_or(0, |place| place.to.since(place.from).0)
    }

    /// When its blocked part begins.
    fn from(&self) -> Timestamp {
        self.place.map_or(self.wait.off, |place| place.from)
    }

    /// When it ends.
    fn woken(&self) -> Timestamp {
        self.place.map_or(self.from(), |place| place.to)
    }

    fn runnable(&self) -> u64 {
        let Wait { begin, end, off, on, .. } = self.wait;
        let runnable_from = self.place.map_or(off, |place| place.to);
        let off = Off { begin, end, runnable_from, on };
        self.thread.map_or(0, |(_, thread)| runnable::part(thread, off).0)
    }

    fn futex(&self) -> Option<(u64, FutexOp, bool)> {
        match self.waited_on {
            Some(WaitedOn::Futex { address, op, private }) => Some((address, op, private)),
            Some(WaitedOn::File { .. }) | None => None,
        }
    }

    fn fd(&self) -> Option<u32> {
        match self.waited_on {
            Some(WaitedOn::File { fd, .. }) => Some(fd),
            Some(WaitedOn::Futex { .. }) | None => None,
        }
    }
}

impl Waker {
    fn through(&self) -> Option<WokenThrough> {
        cause::woken_through(&self.wake)
    }

    fn file(&self) -> Option<FileId> {
        match self.through()? {
            WokenThrough::File { file, .. } => file,
            WokenThrough::Futex { .. } => None,
        }
    }
}

pub(super) fn columns(export: &Export<'_>, items: &[u32]) -> Vec<Column> {
    let rows: Vec<Row<'_>> =
        items.iter().filter_map(|&item| Row::from_wait(export, item)).collect();
    let mut columns = times_of(export, &rows);
    columns.extend(waiter(export, &rows));
    columns.extend(subject(export, &rows));
    columns.extend(ending(export, &rows));
    columns.extend(doing(export, &rows));
    columns
}

fn times_of(export: &Export<'_>, rows: &[Row<'_>]) -> Vec<Column> {
    let waits = || rows.iter().map(|row| &row.wait);
    vec![
        wall_times(export, waits().map(|wait| wait.off)),
        times("off_ns", waits().map(|wait| wait.off.0)),
        optional_times("wake_ns", rows.iter().map(|row| row.wake.as_ref().map(|wake| wake.at.0))),
        times("on_ns", waits().map(|wait| wait.on.0)),
        optional_times("migrated_ns", waits().map(|wait| wait.migrated.map(|at| at.0))),
        times("blocked_ns", rows.iter().map(Row::blocked)),
        times("runnable_ns", rows.iter().map(Row::runnable)),
        words("begin", waits().map(|wait| wait.begin.text())),
        words("end", waits().map(|wait| wait.end.text())),
        numbers::<UInt32Type>("seq", waits().map(|wait| wait.seq)),
        numbers::<UInt16Type>("off_cpu", waits().map(|wait| wait.off_cpu.0)),
        numbers::<UInt16Type>("on_cpu", waits().map(|wait| wait.on_cpu.0)),
    ]
}

fn waiter(export: &Export<'_>, rows: &[Row<'_>]) -> Vec<Column> {
    let waits = || rows.iter().map(|row| &row.wait);
    let borne = rows.iter().map(|row| {
        let (index, thread) = row.thread?;
        Some((index, thread, row.from()))
    });
    let mut columns = vec![
        numbers::<UInt32Type>("tid", waits().map(|wait| wait.tid.0)),
        numbers::<UInt32Type>("tgid", waits().map(|wait| wait.tgid.0)),
        comms("comm", borne),
        words("thread_kind", waits().map(|wait| wait.kind.text())),
        flags("in_target", rows.iter().map(|row| row.is_in_target(export))),
        executables(export, "executable", waits().map(|wait| (wait.tgid, wait.off))),
    ];
    let ids: Vec<_> = waits().map(|wait| Some(wait.cgroup)).collect();
    columns.extend(cgroups(export, &ids));
    columns
}

/// What it was on.
fn subject(export: &Export<'_>, rows: &[Row<'_>]) -> Vec<Column> {
    let waits = || rows.iter().map(|row| &row.wait);
    let files = || waits().map(|wait| wait.file);
    let mut on = Dictionary::new();
    let mut stacks = Dictionary::new();
    for row in rows {
        let text =
            |subject| waited_on_entry::waited_on_entry(&export.recording.files, subject).text;
        on.push(row.waited_on, || row.waited_on.map(text));
        let pair = (row.wait.user_stack, row.wait.kernel_stack);
        stacks.push(Some(pair), || join_frames(&export.recording.stacks, pair));
    }
    let mut letters = Dictionary::new();
    waits().map(|wait| wait.state.letter()).for_each(|letter| {
        letters.push(Some(letter), || Some(letter.to_string()));
    });
    vec![
        words("cause", rows.iter().map(|row| row.cause.name())),
        letters.column("state", Nulls::None),
        optional_words(
            "syscall",
            waits().map(|wait| wait.syscall.as_ref().and_then(syscalls::name)),
        ),
        optional_times("timeout_ns", waits().map(|wait| wait.timeout.map(|timeout| timeout.0))),
        on.column("waited_on", Nulls::Allowed),
        optional::<UInt64Type>("futex_address", rows.iter().map(|row| row.futex().map(|f| f.0))),
        optional_words("futex_op", rows.iter().map(|row| row.futex().map(|f| f.1.name()))),
        optional::<UInt32Type>("fd", rows.iter().map(Row::fd)),
        optional_words("file_kind", files().map(|file| file.map(|file| file.kind.text()))),
        optional::<UInt32Type>("file_device", files().map(|file| file.map(|file| file.device))),
        optional::<UInt64Type>("file_inode", files().map(|file| file.map(|file| file.inode))),
        stacks.column("stack", Nulls::Allowed),
        optional::<UInt64Type>("user_stack_id", waits().map(|wait| stack_number(wait.user_stack))),
        optional::<UInt64Type>(
            "kernel_stack_id",
            waits().map(|wait| stack_number(wait.kernel_stack)),
        ),
    ]
}

/// Who or what ended it.
fn ending(export: &Export<'_>, rows: &[Row<'_>]) -> Vec<Column> {
    let wakers = || rows.iter().map(|row| row.waker.as_ref());
    let wakes = || rows.iter().map(|row| row.wake.as_ref());
    let mut vectors = Dictionary::new();
    wakes().for_each(|wake| {
        let context = wake.map(|wake| wake.context);
        vectors.push(context, || wake_context::vector_name(context?));
    });
    let mut stacks = Dictionary::new();
    wakers().for_each(|waker| {
        let pair = waker.map(|Waker { wake, .. }| (wake.user_stack, wake.kernel_stack));
        stacks.push(pair, || join_frames(&export.recording.stacks, pair?));
    });
    let called = wakers().map(|waker| waker?.wake.syscall.as_ref().and_then(syscalls::name));
    let through = || wakers().map(|waker| waker.and_then(Waker::through));
    let files = || wakers().map(|waker| waker.and_then(Waker::file));
    let mut texts = Dictionary::new();
    files().for_each(|file| {
        texts.push(file, || Some(waited_on_entry::file_text(&export.recording.files, file?)));
    });
    let stack_ids =
        |half: fn(&Wake) -> StackRef| wakers().map(move |w| stack_number(half(&w?.wake)));
    vec![
        words("ender", rows.iter().map(|row| ender(row.ender).0)),
        optional_words("ender_reason", rows.iter().map(|row| ender(row.ender).1)),
        optional_words(
            "wake_context",
            wakes().map(|wake| wake.map(|wake| code::split(wake.context).0.text())),
        ),
        vectors.column("wake_vector", Nulls::Allowed),
        optional::<UInt16Type>("wake_cpu", wakes().map(|wake| wake.map(|wake| wake.cpu.0))),
        optional::<UInt32Type>("waker_tid", wakers().map(|waker| waker.map(|w| w.task.tid.0))),
        optional::<UInt32Type>("waker_tgid", wakers().map(|waker| waker.map(|w| w.task.tgid.0))),
        waker_comms(export, rows),
        optional::<UInt32Type>(
            "waker_seq",
            wakers().map(|waker| waker.and_then(|waker| waker.wake.current_seq)),
        ),
        optional_words("waker_syscall", called),
        optional::<UInt64Type>(
            "waker_futex_address",
            through().map(|through| match through {
                Some(WokenThrough::Futex { address }) => Some(address),
                Some(WokenThrough::File { .. }) | None => None,
            }),
        ),
        optional::<UInt32Type>(
            "waker_fd",
            through().map(|through| match through {
                Some(WokenThrough::File { fd, .. }) => Some(fd),
                Some(WokenThrough::Futex { .. }) | None => None,
            }),
        ),
        texts.column("waker_file", Nulls::Allowed),
        optional_words("waker_file_kind", files().map(|file| file.map(|file| file.kind.text()))),
        optional::<UInt32Type>("waker_file_device", files().map(|f| f.map(|f| f.device))),
        optional::<UInt64Type>("waker_file_inode", files().map(|f| f.map(|f| f.inode))),
        stacks.column("waker_stack", Nulls::Allowed),
        optional::<UInt64Type>("waker_user_stack_id", stack_ids(|wake| wake.user_stack)),
        optional::<UInt64Type>("waker_kernel_stack_id", stack_ids(|wake| wake.kernel_stack)),
    ]
}

/// Who or what, and why that is not known.
fn ender(ender: WakeSource) -> (&'static str, Option<&'static str>) {
    match ender {
        WakeSource::Task(_) => ("task", None),
        WakeSource::External(external) => (external.name(), None),
        WakeSource::Interrupt(reason) | WakeSource::Unknown(reason) => {
            ("unattributed", Some(reason.name()))
        }
    }
}

/// The profiler's own threads have no records to learn their names from.
fn waker_comms(export: &Export<'_>, rows: &[Row<'_>]) -> Column {
    let mut column = Dictionary::new();
    for row in rows {
        let task = row.waker.map(|waker| waker.task);
        let borne = task.and_then(|task| bearer(export, task.tid, row.woken()));
        let key = task
            .map(|task| (task, borne.and_then(|(n, thread, at)| Some((n, thread.name_at(at)?)))));
        column.push(key, || {
            let named = borne.and_then(|(_, thread, at)| thread.comm_at(at));
            let is_profiler = export.recording.meta.profiler == task.map(|task| task.tgid);
            named.map(str::to_owned).or_else(|| is_profiler.then(|| "offwake".to_owned()))
        });
    }
    column.column("waker_comm", Nulls::Allowed)
}

/// What the thread said that it was doing as it began to wait, and what its waker was doing.
fn doing(export: &Export<'_>, rows: &[Row<'_>]) -> Vec<Column> {
    let waiters = rows.iter().map(|row| export.tags.find(row.wait.tid, row.wait.off));
    let waiters: Vec<_> = waiters.collect();
    let wakers = rows.iter().map(|row| {
        let waker = row.waker?;
        export.tags.find(waker.task.tid, waker.wake.at)
    });
    let wakers: Vec<_> = wakers.collect();
    let mut columns = Vec::new();
    for (names, sets) in [
        (["trace_id", "span_id", "labels"], &waiters),
        (["waker_trace_id", "waker_span_id", "waker_labels"], &wakers),
    ] {
        let (mut traces, mut spans, mut labels) =
            (Dictionary::new(), Dictionary::new(), Dictionary::new());
        for set in sets {
            let trace = set.and_then(|set| set.trace);
            traces.push(trace, || trace.map(|trace| trace.to_string()));
            let span = set.and_then(|set| set.span);
            spans.push(span, || span.map(|span| span.to_string()));
            let labelled = set.filter(|set| !set.has_no_labels());
            labels.push(labelled.map(|set| set.id), || Some(label_text(export, labelled?)));
        }
        let [trace, span, label] = names;
        columns.push(traces.column(trace, Nulls::Allowed));
        columns.push(spans.column(span, Nulls::Allowed));
        columns.push(labels.column(label, Nulls::Allowed));
    }
    columns
}

/// Labels as JSON: `{"http.route":"/checkout"}`.
fn label_text(export: &Export<'_>, set: &TagSet) -> String {
    serde_json::to_string(&export.tags.labels(set)).unwrap_or_default()
}
