//! Exports: what they say of time is what the ledgers say, whatever was recorded or lost.

use std::collections::BTreeMap;

use arrow_array::{Array as _, Int64Array, RecordBatch, UInt32Array};
use offwake_analysis::{
    blame::{Blame, ChainLimits},
    export::{Export, HourOrNone, Partition, Table, parquet},
    filter::Filter,
    timeline::Timeline,
};
use offwake_recording::{
    Clocks, Recording,
    units::{Nanos, Tid},
};
use proptest::prelude::*;

use crate::{
    draw::{self, TICK, live},
    properties::world,
    strategies,
};

/// Does something with an export of a recording.
fn exported<T>(recording: &Recording, then: impl FnOnce(&Export<'_>) -> T) -> T {
    let timeline = Timeline::build(recording);
    let blame = Blame::new(recording, &timeline, ChainLimits::default());
    then(&Export::new(&blame))
}

fn batches(export: &Export<'_>, table: Table, part: &Partition) -> Vec<RecordBatch> {
    export.batches(table, part).map(Result::unwrap).collect()
}

/// A column of times by thread, added up.
fn sums(export: &Export<'_>, table: Table, column: &str) -> BTreeMap<u32, i64> {
    let mut sums = BTreeMap::new();
    for part in export.partitions(table).unwrap() {
        for batch in batches(export, table, &part) {
            let tids: &UInt32Array =
                batch.column_by_name("tid").unwrap().as_any().downcast_ref().unwrap();
            let times: &Int64Array =
                batch.column_by_name(column).unwrap().as_any().downcast_ref().unwrap();
            for (tid, time) in tids.iter().zip(times) {
                *sums.entry(tid.unwrap()).or_default() += time.unwrap();
            }
        }
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

/// Every file of an export.
fn files(export: &Export<'_>) -> Vec<(Table, HourOrNone, Vec<u8>)> {
    let mut files = Vec::new();
    for table in Table::ALL {
        for part in export.partitions(table).unwrap() {
            let mut bytes = Vec::new();
            parquet::write(export, table, &part, &mut bytes).unwrap();
            files.push((table, part.hour, bytes));
        }
    }
    files
}

fn rows(export: &Export<'_>, table: Table) -> usize {
    let parts = export.partitions(table).unwrap();
    let batches = parts.iter().flat_map(|part| batches(export, table, part));
    batches.map(|batch| batch.num_rows()).sum()
}

#[test]
fn rows_lie_in_the_hour_of_their_time() {
    const HOUR: u64 = 3_600_000;
    let mut recording = draw::recording(60);
    live(&mut recording, 7, &"#..r".repeat(15), 8);
    recording.sort();
    // 20 ms before the hour is full; 40 ms later the clock is set back by an hour.
    let clocks = |tick: usize, hours: u64, ms: u64| Clocks {
        monotonic: draw::at(tick),
        realtime_ns: ((hours * HOUR + ms) * TICK).cast_signed(),
        boottime_ns: draw::at(tick).0,
    };
    recording.clocks = vec![clocks(0, 7, HOUR - 20), clocks(40, 7, 20)];
    let (parts, waits) = exported(&recording, |export| {
        let parts = export.partitions(Table::Waits).unwrap();
        let rows =
            |part| batches(export, Table::Waits, part).iter().map(RecordBatch::num_rows).sum();
        let parts: Vec<(String, usize)> =
            parts.iter().map(|part| (part.hour.to_string(), rows(part))).collect();
        (parts, export.filtered_waits(&Filter { min: Some(Nanos(3 * TICK)), ..Filter::default() }))
    });
    let directory = |hour: &str| format!("date=1970-01-01/hour={hour}");
    assert_eq!(parts, [(directory("07"), 10), (directory("08"), 5)]);
    let kept: usize = exported(&recording, |export| {
        batches(export, Table::Waits, &waits).iter().map(RecordBatch::num_rows).sum()
    });
    assert_eq!(kept, 0, "each wait takes two ticks");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_time_of_all_rows_is_that_of_the_ledgers(world in world()) {
        for recording in [world.full(), world.lossy()] {
            exported(&recording, |export| {
                let of_threads = sums(export, Table::Threads, "runnable_ns");
                let mut of_records = sums(export, Table::Waits, "runnable_ns");
                for (tid, time) in sums(export, Table::Preemptions, "runnable_ns") {
                    *of_records.entry(tid).or_default() += time;
                }
                prop_assert_eq!(of_threads, of_records);

                let mut blocked = sums(export, Table::Threads, "blocked_ns");
                for (tid, lost) in sums(export, Table::Threads, "lost_ns") {
                    *blocked.entry(tid).or_default() -= lost;
                }
                blocked.retain(|_, time| *time != 0);
                // Blame can be `lost` too, of what the waker did.
                let waits = sums(export, Table::Waits, "blocked_ns");
                for (tid, time) in blocked {
                    prop_assert!(waits.get(&tid).is_some_and(|sum| *sum >= time), "{}", Tid(tid));
                }
                Ok(())
            })?;
        }
    }

    #[test]
    fn anything_can_be_exported_and_gives_the_same_bytes_again(
        recording in strategies::recording(),
    ) {
        exported(&recording, |export| {
            prop_assert_eq!(rows(export, Table::Waits), recording.waits.len());
            prop_assert_eq!(rows(export, Table::Preemptions), recording.preemptions.len());
            prop_assert_eq!(rows(export, Table::Samples), recording.samples.len());
            prop_assert_eq!(rows(export, Table::Processes), recording.processes.len());
            prop_assert_eq!(rows(export, Table::Stacks), recording.stacks.stacks.len());
            prop_assert_eq!(rows(export, Table::Cgroups), recording.cgroups.len());
            prop_assert_eq!(rows(export, Table::Files), recording.files.files.len());
            prop_assert_eq!(rows(export, Table::Meta), 1);
            prop_assert_eq!(files(export), exported(&recording, files));
            Ok(())
        })?;
    }
}
