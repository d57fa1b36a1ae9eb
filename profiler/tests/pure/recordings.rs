//! Recordings as bytes: what is written comes back, and what is broken is never taken for whole.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    sync::atomic::{AtomicU64, Ordering},
};

use offwake_recording::{
    AddressSpace, Clocks, Frame, FrameId, Function, Meta, ProcessInfo, Recording, Stack, StackEnd,
    Window,
    stream::{self, Damage, Encoder, ReadError, Slice, Source},
    units::{StackId, Tgid, Timestamp},
};
use proptest::prelude::*;

use crate::strategies::recording;

const MEMORY: usize = 1 << 30;

fn bytes_of(recording: &Recording) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream::write(recording, &mut bytes).unwrap();
    bytes
}

/// Whether nothing in `read` was not in `whole`.
fn is_part(read: &Recording, whole: &Recording) -> bool {
    fn within<T: PartialEq>(part: &[T], whole: &[T]) -> bool {
        part.iter().all(|row| whole.contains(row))
    }
    let frames: BTreeMap<_, _> = (whole.stacks.frames.iter())
        .map(|(id, frame)| (*id, Frame { functions: Vec::new(), ..frame.clone() }))
        .collect();
    // They lie in the same order.
    let mut rest = whole.waits.iter();
    read.waits.iter().all(|wait| rest.any(|other| other == wait))
        && within(&read.preemptions, &whole.preemptions)
        && within(&read.throttles, &whole.throttles)
        && within(&read.samples, &whole.samples)
        && within(&read.thread_events, &whole.thread_events)
        && within(&read.exits, &whole.exits)
        && within(&read.processes, &whole.processes)
        && within(&read.file_locks, &whole.file_locks)
        && within(&read.fuse_servers, &whole.fuse_servers)
        && read
            .filesystems
            .iter()
            .all(|(device, known)| whole.filesystems.get(device) == Some(known))
        && within(&read.lock_owners, &whole.lock_owners)
        && within(&read.pipe_holders, &whole.pipe_holders)
        && within(&read.stopped_threads, &whole.stopped_threads)
        && within(&read.disk_uses, &whole.disk_uses)
        && within(&read.io_limits, &whole.io_limits)
        && within(&read.awaited_children, &whole.awaited_children)
        && within(&read.markers, &whole.markers)
        && within(&read.file_lock_events, &whole.file_lock_events)
        && within(&read.detail, &whole.detail)
        && within(&read.summed, &whole.summed)
        && within(&read.tag_changes, &whole.tag_changes)
        && within(&read.tag_names, &whole.tag_names)
        && read.tag_sets.iter().all(|(id, set)| whole.tag_sets.get(id) == Some(set))
        && read.stacks.stacks.iter().all(|(id, s)| whole.stacks.stacks.get(id) == Some(s))
        && read.stacks.modules.iter().all(|(id, m)| whole.stacks.modules.get(id) == Some(m))
        && read
            .stacks
            .frames
            .iter()
            .all(|(id, frame)| [whole.stacks.frames.get(id), frames.get(id)].contains(&Some(frame)))
        && read.files.files.iter().all(|(id, file)| whole.files.files.get(id) == Some(file))
        && read.cgroups.iter().all(|(id, c)| whole.cgroups.get(id) == Some(c))
        && read.quotas.iter().all(|(id, quota)| whole.quotas.get(id) == Some(quota))
        && read.interrupts.iter().all(|(n, info)| whole.interrupts.get(n) == Some(info))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_written_comes_back(recording in recording()) {
        let read = stream::read(&bytes_of(&recording)[..], MEMORY).unwrap();
        prop_assert_eq!(&read.damage, &Damage::default());
        prop_assert_eq!(format!("{read:?}"), format!("{recording:?}"));
    }

    #[test]
    fn a_cut_recording_is_what_came_before_the_cut(recording in recording(), cut in any::<prop::sample::Index>()) {
        let bytes = bytes_of(&recording);
        let cut = cut.index(bytes.len());
        match stream::read(&bytes[..cut], MEMORY) {
            Ok(read) => {
                prop_assert!(is_part(&read, &recording));
                prop_assert!(read.damage.cut_off);
            }
            Err(ReadError::Empty) => prop_assert_eq!(cut, 0),
            Err(ReadError::NotARecording | ReadError::NothingWhole(_)) => {}
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn a_flipped_bit_never_changes_what_is_read(
        recording in recording(), place in any::<prop::sample::Index>(), bit in 0..8_u8,
    ) {
        let mut bytes = bytes_of(&recording);
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        match stream::read(&bytes[..], MEMORY) {
            Ok(read) => prop_assert!(is_part(&read, &recording)),
            Err(ReadError::NotARecording | ReadError::NothingWhole(_) | ReadError::Newer { .. }) => {}
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn rubbish_is_no_recording(bytes in prop::collection::vec(any::<u8>(), 1..4096)) {
        let read = stream::read(&bytes[..], MEMORY);
        prop_assert!(matches!(read, Err(ReadError::NotARecording)), "{:?}", read.map(|_| ()));
    }
}

/// Many waits, a slice for each second.
fn long() -> Recording {
    let mut recording = crate::draw::recording(1_000);
    for n in 0..50_000_u64 {
        let (off, on) = (Timestamp(n * 1000), Timestamp(n * 1000 + 500));
        recording.waits.push(&crate::draw::wait(7, n as u32 + 1, off, on));
    }
    recording.clocks = vec![Clocks::default()];
    recording.sort();
    recording
}

#[test]
fn a_broken_slice_costs_itself_alone() {
    let recording = long();
    let mut bytes = bytes_of(&recording);
    let middle = bytes.len() / 2;
    // Longer than what fills a buffer up to a multiple of 64 bytes, which nobody reads.
    bytes[middle..middle + 128].iter_mut().for_each(|byte| *byte ^= 0x10);
    let read = stream::read(&bytes[..], MEMORY).unwrap();
    assert!(!read.damage.cut_off);
    let damage = &read.damage;
    assert_eq!(damage.slices_damaged + damage.tables_damaged, 1, "{damage:?}");
    assert_eq!(read.waits.len(), 50_000 - 16_384);
    assert!(is_part(&read, &Recording { waits: recording.waits.clone(), ..recording }));
}

#[test]
fn a_slice_that_is_gone_is_missed() {
    let recording = long();
    let bytes = bytes_of(&recording);
    let starts: Vec<usize> = message_starts(&bytes);
    // The schema, four slices of waits.
    assert_eq!(starts.len(), 5);
    let without = [&bytes[..starts[2]], &bytes[starts[3]..]].concat();
    let read = stream::read(&without[..], MEMORY).unwrap();
    assert_eq!(read.damage.slices_missing, 1);
    assert_eq!(read.waits.len(), 50_000 - 16_384);
    let seqs: HashSet<u32> = read.waits.iter().map(|wait| wait.seq).collect();
    assert!(seqs.contains(&1) && seqs.contains(&50_000) && !seqs.contains(&20_000));
}

fn message_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while bytes[at..] != stream::END {
        starts.push(at);
        let metadata = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        let next = (at + 8 + metadata..bytes.len())
            .step_by(8)
            .find(|&n| bytes[n..].starts_with(&[0xff; 4]) && bytes[n + 6..n + 8] == [0, 0])
            .unwrap();
        at = next;
    }
    starts
}

#[test]
fn a_broken_schema_is_made_up_for() {
    let recording = long();
    let bytes = bytes_of(&recording);
    let first_slice = message_starts(&bytes)[1];
    for broken in [&bytes[first_slice..], &[&[0; 64], &bytes[first_slice..]].concat()[..]] {
        let read = stream::read(broken, MEMORY).unwrap();
        assert!(read.damage.schema_missing);
        assert_eq!(read.waits, recording.waits);
    }
}

#[test]
fn a_column_with_a_broken_name_is_not_taken_for_one_that_came_later() {
    let mut bytes = bytes_of(&long());
    let name = b"waker_seq";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[at] ^= 1;
    let read = stream::read(&bytes[..], MEMORY).unwrap();
    // Every slice has the table.
    assert_eq!((read.damage.tables_damaged, read.waits.len()), (4, 0));
}

#[test]
fn memory_is_limited() {
    let bytes = bytes_of(&long());
    let error = stream::read(&bytes[..], 1 << 20).unwrap_err();
    assert!(matches!(error, ReadError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("--max-memory"));
}

#[test]
fn a_newer_format_is_named() {
    let bytes = bytes_of(&long());
    let key = b"offwake.recording";
    let key_at = bytes.windows(key.len()).position(|window| window == key).unwrap();
    // The value is a string of its own nearby: a length, then "1".
    let mut newer = bytes.clone();
    let range = key_at.saturating_sub(64)..key_at + 64;
    let value = range.clone().find(|&n| newer[n..n + 6] == [1, 0, 0, 0, b'1', 0]).unwrap();
    newer[value + 4] = b'2';
    let error = stream::read(&newer[..], MEMORY).unwrap_err();
    assert!(matches!(error, ReadError::Newer { version: 2 }), "{error}");
    assert!(error.to_string().contains("newer"));
}

/// Encodes a recording of these slices.
fn encode_slices(slices: &[Slice]) -> Vec<u8> {
    let mut encoder = Encoder::new().unwrap();
    let mut bytes = encoder.header().to_vec();
    for slice in slices {
        bytes.extend(encoder.encode(slice).unwrap());
    }
    bytes.extend(stream::END);
    bytes
}

#[test]
fn a_window_that_ends_before_it_begins_is_not_believed() {
    let window = Window { start: Timestamp(9), end: Timestamp(8) };
    let meta = Some(Meta { window, target: "pid 7".to_owned(), ..Meta::default() });
    let read =
        stream::read(&encode_slices(&[Slice { meta, ..Slice::default() }])[..], MEMORY).unwrap();
    assert_eq!((read.damage.rows_unreadable, read.damage.meta_missing), (1, true));
    assert!(read.meta.window.start <= read.meta.window.end);
}

#[test]
fn a_recording_without_slices_is_one_all_the_same() {
    let bytes = encode_slices(&[]);
    for bytes in [&bytes[..], &bytes[..bytes.len() - 8]] {
        let error = stream::read(bytes, MEMORY).unwrap_err();
        assert!(matches!(error, ReadError::NothingWhole(_)), "{error}");
    }
}

#[test]
fn what_no_kernel_and_no_linker_writes_is_not_read() {
    let stack = |frames: usize| Stack {
        space: AddressSpace::Kernel,
        frames: vec![FrameId(1); frames],
        end: StackEnd::Unknown,
    };
    let name = |id, functions| (FrameId(id), functions);
    let slice = Slice {
        stacks: vec![(StackId(1), stack(640)), (StackId(2), stack(1_000_000))],
        names: vec![
            name(1, vec![Function::named("a".repeat(4096))]),
            name(2, vec![Function::named("a".repeat(1_000_000))]),
            name(3, vec![Function::named("a"); 10_000]),
        ],
        ..Slice::default()
    };
    let read = stream::read(&encode_slices(&[slice])[..], MEMORY).unwrap();
    assert_eq!(read.damage.rows_unreadable, 3);
    assert_eq!(read.stacks.stacks.len(), 1);
}

/// A few KiB that unpack to much more than that: texts of nothing, each a text in memory.
#[test]
fn memory_is_limited_before_it_is_taken() {
    let process = ProcessInfo {
        tgid: Tgid(1),
        at: Timestamp(0),
        parent: None,
        executable: None,
        arguments: vec![String::new(); 4_000_000],
        cgroup: None,
        pid_in_container: None,
        uid: None,
    };
    let slice = Slice { processes: vec![process], ..Slice::default() };
    let bytes = encode_slices(std::slice::from_ref(&slice));
    assert!(bytes.len() < 100_000, "{}", bytes.len());
    let needed = |limit| match stream::read(&bytes[..], limit) {
        Err(ReadError::TooLarge { needed, .. }) => needed,
        other => panic!("{:?}", other.map(|_| ())),
    };
    // The columns alone are too large, then the rows that would be made of them.
    assert!((16_000_000..32_000_000).contains(&needed(1 << 20)));
    assert!(needed(64 << 20) > 96_000_000);
    // Slices that are there twice are thrown away, but not for nothing.
    let many = encode_slices(&vec![slice; 4]);
    assert!(matches!(stream::read(&many[..], 256 << 20), Err(ReadError::TooLarge { .. })));
    stream::read(&bytes[..], 256 << 20).unwrap();
}

/// A file that claims at every eighth byte that a message begins there, and counts what is read.
struct Claims {
    read: AtomicU64,
    size: u64,
}

impl Source for Claims {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read.fetch_add(into.len() as u64, Ordering::Relaxed);
        let claim = [0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0];
        for (n, byte) in into.iter_mut().enumerate() {
            *byte = claim[(offset as usize + n) % claim.len()];
        }
        Ok(())
    }
}

#[test]
fn a_search_comes_to_an_end() {
    let source = Claims { read: AtomicU64::new(0), size: 32 << 20 };
    let error = stream::read(&source, MEMORY).unwrap_err();
    assert!(matches!(error, ReadError::NotARecording), "{error}");
    let read = source.read.into_inner();
    assert!(read < 1 << 30, "{read} bytes read");
}

/// A null column has a length, and no bytes: two thousand million of them fit into a line.
#[test]
fn columns_of_other_kinds_are_not_read() {
    use std::{collections::HashMap, sync::Arc};

    use arrow_array::{NullArray, RecordBatch};
    use arrow_ipc::writer::StreamWriter;
    use arrow_schema::{DataType, Field, Schema};

    let about = HashMap::from([("offwake.recording".to_owned(), "1".to_owned())]);
    let schema =
        Arc::new(Schema::new_with_metadata(vec![Field::new("slice", DataType::Null, true)], about));
    let rows = Arc::new(NullArray::new(2_000_000_000));
    let batch = RecordBatch::try_new(schema.clone(), vec![rows]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    writer.write(&batch).unwrap();
    let error = stream::read(&writer.into_inner().unwrap()[..], MEMORY).unwrap_err();
    assert!(matches!(error, ReadError::NothingWhole(_)), "{error}");
}

#[test]
fn slices_with_any_numbers_are_counted() {
    let slice = |number| Slice { number, ..Slice::default() };
    for (numbers, missing) in
        [([0, u64::MAX], u64::MAX - 2), ([7, 9], 1), ([u64::MAX - 1, u64::MAX], 0)]
    {
        let read = stream::read(&encode_slices(&numbers.map(slice))[..], MEMORY).unwrap();
        assert_eq!(read.damage.slices_missing, missing);
    }
}
