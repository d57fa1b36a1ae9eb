//! Labels that a program keeps as keys and values in its own memory, read by the thread that has
//! them.
//!
//! ```text
//!  custom-labels    pointer ──> set { labels, count, capacity }
//!                                       └──> label { key length, key, value length, value } … ──> bytes
//!  Go, since 1.24   pointer ──> g ──> m ──> curg ──> list { labels, count, capacity }
//!                                                             └──> label { key, its length, … } …
//!  Go, before       pointer ──> g ──> m ──> curg ──> map ──> { count, kind, buckets }
//!                                                                              └──> bucket of 8 labels
//! ```
//!
//! custom-labels writes so that a set is whole at each instruction of its thread: a label without a
//! key is none, and of two with one key the first counts ([its
//! ABI](https://github.com/polarsignals/custom-labels/blob/02cdba5b/custom-labels-v1.md)). Go
//! writes a set before a goroutine has it, and never again
//! ([1.23](https://github.com/golang/go/blob/go1.23.0/src/runtime/pprof/label.go),
//! [1.24](https://github.com/golang/go/blob/go1.24.0/src/runtime/pprof/label.go)).

use core::{
    ffi::c_void,
    ptr::{read_volatile, write_volatile},
};

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profiler_ebpf::{
    loss::Loss,
    tags::{GoOffsets, MAX_ATTRIBUTES, MAX_KEY, MAX_LABELS, MAX_VALUE, TagSetRecord, form},
};

use super::{
    maps::LABEL_SCRATCH,
    ring::count_loss,
    tags::{find_record, identify, read_length},
    task::Task,
};

/// Labels of a set, and bytes of a key or a value, beyond which nobody means it.
const MAX_COUNT: u64 = 4096;
const MAX_LENGTH: u64 = 1 << 16;

/// Words of a label.
const LABEL_WORDS: usize = 4;

/// A bucket of a Go map: a byte for each label, which says whether there is one, then the keys,
/// then the values. A larger map has several.
/// <https://github.com/golang/go/blob/go1.23.0/src/runtime/map.go#L150>
const BUCKET_LABELS: usize = 8;
const BUCKET_WORDS: usize = 1 + BUCKET_LABELS * LABEL_WORDS;
const KEYS_AT: usize = 1;
const VALUES_AT: usize = KEYS_AT + 2 * BUCKET_LABELS;
/// Below that the byte says that there is none.
const MIN_TOP_HASH: u64 = 5;

/// Where the labels are that are being read. It is in a map, as [`CopyRequest`] is, and its lengths
/// are read anew where the verifier has to see what they are at most.
///
/// [`CopyRequest`]: super::user_stack_copy::CopyRequest
#[repr(C)]
pub struct LabelScratch {
    /// Where the labels are, how many there are, and how many there is room for.
    set: [u64; 3],
    /// How many are read.
    count: u64,
    /// Bytes of the key and of the value that are read.
    key_length: u64,
    value_length: u64,
    /// Not 0 if some are left out or cut off.
    is_cut: u64,
    /// The labels, or a bucket of them, as they are in the program's memory.
    labels: [u64; MAX_LABELS * LABEL_WORDS],
}

/// Why labels can't be read: something is not in memory, or of a form that can't be.
struct Refused;

/// Reads the labels that what a thread points to leads to, in this [`form`], into the record of
/// this [`Scratch`], and returns their id: 0 if there are none, or none that can be.
///
/// [`Scratch`]: super::stack::Scratch
#[unsafe(no_mangle)]
pub extern "C" fn read_labels(scratch: u32, first: u64, form: u64, go: u64) -> u64 {
    let Some(record) = find_record(scratch) else { return 0 };
    let Some(labels) = LABEL_SCRATCH.get_ptr_mut(scratch) else { return 0 };
    // SAFETY: as that of the record.
    let labels = unsafe { &mut *labels };
    // Word by word: all at once is a loop of bytes.
    for word in &mut record.context {
        // SAFETY: a reference can be written to.
        unsafe { write_volatile(word, 0) };
    }
    record.attributes_len = 0;
    labels.is_cut = 0;
    labels.count = 0;
    let read = find_set(first, form, GoOffsets(go)).and_then(|set| {
        if set == 0 {
            return Ok(());
        }
        if form == form::GO_MAP {
            read_map(labels, set)?
        } else {
            read_list(labels, set)?
        }
        push_labels(labels, record, form)
    });
    if read.is_err() {
        count_loss(Loss::TagsRefused);
        return 0;
    }
    if labels.is_cut != 0 {
        count_loss(Loss::LabelsCut);
    }
    if read_length(record) == 0 { 0 } else { identify(record, Task::current().tgid()) }
}

/// Where the set of labels is; 0 if there is none.
#[inline(always)]
fn find_set(first: u64, form: u64, go: GoOffsets) -> Result<u64, Refused> {
    if form == form::CUSTOM_LABELS {
        return Ok(first);
    }
    // A thread that is in the runtime's scheduler runs no goroutine, and one that C has started may
    // have nothing of Go.
    let thread = read_word(first + go.thread())?;
    if thread == 0 {
        return Ok(0);
    }
    let goroutine = read_word(thread + go.goroutine())?;
    if goroutine == 0 {
        return Ok(0);
    }
    // One that begins or ends to run there has no thread for a moment. With another one, these are
    // no goroutines.
    let own_thread = read_word(goroutine + go.thread())?;
    if own_thread == 0 {
        return Ok(0);
    }
    if own_thread != thread {
        return Err(Refused);
    }
    let set = read_word(goroutine + go.labels())?;
    if set == 0 || form != form::GO_MAP { Ok(set) } else { read_word(set) }
}

/// Reads where the labels of a list are, and then these.
#[inline(always)]
fn read_list(labels: &mut LabelScratch, set: u64) -> Result<(), Refused> {
    read(labels.set.as_mut_ptr(), size_of::<[u64; 3]>(), set)?;
    let [storage, count, _] = labels.set;
    if count > MAX_COUNT {
        return Err(Refused);
    }
    labels.count = count;
    if count > MAX_LABELS as u64 {
        labels.count = MAX_LABELS as u64;
        labels.is_cut = 1;
    }
    let bytes = read_anew(&labels.count) * (LABEL_WORDS * 8);
    if bytes > MAX_LABELS * LABEL_WORDS * 8 {
        return Err(Refused);
    }
    read(labels.labels.as_mut_ptr(), bytes, storage)
}

/// Reads the labels of a map. More than eight are in several buckets, and not read.
#[inline(always)]
fn read_map(labels: &mut LabelScratch, map: u64) -> Result<(), Refused> {
    read(labels.set.as_mut_ptr(), size_of::<[u64; 3]>(), map)?;
    let [count, kind, buckets] = labels.set;
    if count == 0 {
        return Ok(());
    }
    let log_of_buckets = kind >> 8 & 0xff;
    if log_of_buckets != 0 {
        return Err(Refused);
    }
    labels.count = BUCKET_LABELS as u64;
    read(labels.labels.as_mut_ptr(), BUCKET_WORDS * 8, buckets)
}

/// Adds the labels to the record.
#[inline(always)]
fn push_labels(
    labels: &mut LabelScratch,
    record: &mut TagSetRecord,
    form: u64,
) -> Result<(), Refused> {
    let mut index = 0;
    while index < MAX_LABELS && index < read_anew(&labels.count) {
        push_label(labels, record, form, index)?;
        index += 1;
    }
    Ok(())
}

#[inline(always)]
fn push_label(
    labels: &mut LabelScratch,
    record: &mut TagSetRecord,
    form: u64,
    index: usize,
) -> Result<(), Refused> {
    let (key_at, value_at) = if form == form::GO_MAP {
        (KEYS_AT + 2 * index, VALUES_AT + 2 * index)
    } else {
        (LABEL_WORDS * index, LABEL_WORDS * index + 2)
    };
    // SAFETY: a list has so many words for each label, and the last place in a bucket that could be
    // asked for is before the end of such a list.
    let word = |at| unsafe { *labels.labels.get_unchecked(at) };
    let (mut key_length, mut key) = (word(key_at), word(key_at + 1));
    let (mut value_length, mut value) = (word(value_at), word(value_at + 1));
    if form == form::CUSTOM_LABELS {
        if key == 0 {
            return Ok(());
        }
    } else {
        (key_length, key) = (key, key_length);
        (value_length, value) = (value, value_length);
    }
    if form == form::GO_MAP && labels.labels[0] >> (8 * index) & 0xff < MIN_TOP_HASH {
        return Ok(());
    }
    if key_length > MAX_LENGTH || value_length > MAX_LENGTH {
        return Err(Refused);
    }
    labels.key_length = key_length.min(MAX_KEY as u64);
    labels.value_length = value_length.min(MAX_VALUE as u64);
    let length = 8 + pad(read_anew(&labels.key_length)) + pad(read_anew(&labels.value_length));
    if read_length(record) + length > MAX_ATTRIBUTES {
        labels.is_cut = 1;
        return Ok(());
    }
    if key_length > MAX_KEY as u64 || value_length > MAX_VALUE as u64 {
        labels.is_cut = 1;
    }
    let at = position(record)?;
    // SAFETY: the position is inside.
    unsafe { *record.attributes.get_unchecked_mut(at) = key_length | value_length << 32 };
    record.attributes_len += 8;
    let length = read_anew(&labels.key_length);
    if length > MAX_KEY {
        return Err(Refused);
    }
    push_text(record, key, length)?;
    let length = read_anew(&labels.value_length);
    if length > MAX_VALUE {
        return Err(Refused);
    }
    push_text(record, value, length)
}

/// Adds a text of at most [`MAX_VALUE`] bytes, and zeroes up to a whole word.
#[inline(always)]
fn push_text(record: &mut TagSetRecord, address: u64, length: usize) -> Result<(), Refused> {
    if length == 0 {
        return Ok(());
    }
    let at = position(record)?;
    // SAFETY: behind the position is room for as many words as a text has at most.
    let text = unsafe {
        *record.attributes.get_unchecked_mut(at + length / 8) = 0;
        record.attributes.as_mut_ptr().add(at)
    };
    read(text, length, address)?;
    record.attributes_len += pad(length) as u32;
    Ok(())
}

/// The word of the attributes that is the next.
#[inline(always)]
fn position(record: &TagSetRecord) -> Result<usize, Refused> {
    let bytes = read_length(record);
    if bytes > MAX_ATTRIBUTES { Err(Refused) } else { Ok(bytes / 8) }
}

/// Bytes of a text up to a whole word.
#[inline(always)]
fn pad(length: usize) -> usize {
    (length + 7) & !7
}

/// Reads so many bytes of the current task's memory.
#[inline(always)]
fn read(into: *mut u64, bytes: usize, address: u64) -> Result<(), Refused> {
    // SAFETY: callers have room for so many bytes, and the verifier checks that.
    let failed =
        unsafe { bpf_probe_read_user(into.cast(), bytes as u32, address as *const c_void) };
    if failed == 0 { Ok(()) } else { Err(Refused) }
}

/// Reads a word of the current task's memory.
#[inline(always)]
fn read_word(address: u64) -> Result<u64, Refused> {
    let mut word = 0;
    read(&raw mut word, size_of::<u64>(), address)?;
    Ok(word)
}

/// A number as it is now, of which nothing has been concluded yet.
#[inline(always)]
fn read_anew(number: &u64) -> usize {
    // SAFETY: a reference can be read from.
    unsafe { read_volatile(number) as usize }
}

const _: () = {
    // What is said where words are read.
    assert!(VALUES_AT + 2 * (MAX_LABELS - 1) + 1 < MAX_LABELS * LABEL_WORDS);
    assert!(BUCKET_WORDS <= MAX_LABELS * LABEL_WORDS);
};
