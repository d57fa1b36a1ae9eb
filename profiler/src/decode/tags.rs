//! What a thread says that it is doing, as it was in its memory: OpenTelemetry's thread context, or
//! labels alone ([`TagSetRecord`] has their form).
//!
//! ```text
//!  0            16         24      25      26       28
//!  +------------+----------+-------+-------+--------+-----+-----+---------+-----+-----+---
//!  | trace id   | span id  | valid | flags | size   | key | len | value   | key | len | …
//!  +------------+----------+-------+-------+--------+-----+-----+---------+-----+-----+---
//! ```

use offwake_recording::{
    SpanId, TagChange, TagSet, TagSetId, TraceId,
    units::{Tgid, Tid, Timestamp},
};
use profiler_ebpf::{
    record::kind,
    tags::{MAX_KEY, MAX_VALUE, TagChangeRecord, TagSetRecord},
};

use super::{DecodeError, Plain, read_plain};

/// The part of a set that is always there.
#[derive(Clone, Copy)]
#[repr(C)]
struct Fixed {
    header: profiler_ebpf::record::RecordHeader,
    id: u64,
    ns: u64,
    tgid: u32,
    attributes_len: u32,
    context: [u64; 4],
}

const _: () = assert!(size_of::<Fixed>() == TagSetRecord::FIXED);

// SAFETY: integers alone, whose sizes add up to its own.
unsafe impl Plain for Fixed {}
// SAFETY: as profiler-ebpf asserts.
unsafe impl Plain for TagChangeRecord {}

/// A record of this kind, and its attributes.
fn read_fixed(kind: u16, bytes: &[u8]) -> Result<(Fixed, &[u8]), DecodeError> {
    let fixed: Fixed = read_plain(kind, bytes)?;
    let expected = TagSetRecord::FIXED.saturating_add(fixed.attributes_len as usize);
    match bytes.get(TagSetRecord::FIXED..expected) {
        Some(attributes) => Ok((fixed, attributes)),
        None => Err(DecodeError::Length { kind, len: bytes.len(), expected }),
    }
}

/// Decodes a set. None if its attributes are of a form that can't be.
pub(super) fn decode_set(bytes: &[u8]) -> Result<Option<TagSet>, DecodeError> {
    let (fixed, attributes) = read_fixed(kind::TAG_SET, bytes)?;
    let context: Vec<u8> = fixed.context.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let trace = context.first_chunk().copied().filter(|id| *id != [0; 16]).map(TraceId);
    let span = context.get(16..).and_then(<[u8]>::first_chunk).copied();
    let span = span.filter(|id| *id != [0; 8]).map(SpanId);
    Ok(read_attributes(attributes).map(|attributes| TagSet {
        id: TagSetId(fixed.id),
        tgid: Tgid(fixed.tgid),
        trace,
        span,
        attributes,
        labels: Vec::new(),
    }))
}

/// Decodes a set of labels alone. None if one is cut off.
pub(super) fn decode_labels(bytes: &[u8]) -> Result<Option<TagSet>, DecodeError> {
    let (fixed, labels) = read_fixed(kind::LABEL_SET, bytes)?;
    Ok(read_labels(labels).map(|labels| TagSet {
        id: TagSetId(fixed.id),
        tgid: Tgid(fixed.tgid),
        trace: None,
        span: None,
        attributes: Vec::new(),
        labels,
    }))
}

/// Reads labels: of several with one name the first one counts.
fn read_labels(mut rest: &[u8]) -> Option<Vec<(String, String)>> {
    let mut labels: Vec<(String, String)> = Vec::new();
    while !rest.is_empty() {
        let mut length = || {
            let (length, others) = rest.split_first_chunk()?;
            rest = others;
            Some(u32::from_ne_bytes(*length) as usize)
        };
        let (name, value) = (length()?, length()?);
        let name = split_text(&mut rest, name, MAX_KEY)?;
        let value = split_text(&mut rest, value, MAX_VALUE)?;
        if !labels.iter().any(|(known, _)| *known == name) {
            labels.push((name, value));
        }
    }
    Some(labels)
}

/// Splits off a text of this length, of which at most so many bytes are there. What is cut off ends
/// in `…`.
fn split_text(rest: &mut &[u8], length: usize, limit: usize) -> Option<String> {
    let held = length.min(limit);
    let (padded, others) = rest.split_at_checked(held.next_multiple_of(8))?;
    *rest = others;
    let mut bytes = padded.get(..held)?;
    if held == length {
        return Some(String::from_utf8_lossy(bytes).into_owned());
    }
    // Half a character is none.
    if let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
    {
        bytes = bytes.get(..error.valid_up_to())?;
    }
    Some(format!("{}…", String::from_utf8_lossy(bytes)))
}

/// Reads attributes: of several with one key the last one counts. None if one is cut off.
fn read_attributes(mut rest: &[u8]) -> Option<Vec<(u8, String)>> {
    let mut attributes: Vec<(u8, String)> = Vec::new();
    while let [key, length, values @ ..] = rest {
        let (value, others) = values.split_at_checked(usize::from(*length))?;
        let value = String::from_utf8_lossy(value).into_owned();
        match attributes.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value,
            None => attributes.push((*key, value)),
        }
        rest = others;
    }
    rest.is_empty().then_some(attributes)
}

pub(super) fn decode_change(raw: &TagChangeRecord) -> TagChange {
    TagChange {
        tid: Tid(raw.tid),
        tgid: Tgid(raw.tgid),
        at: Timestamp(raw.ns),
        since: (raw.since_ns != 0).then_some(Timestamp(raw.since_ns)),
        set: (raw.set != 0).then_some(TagSetId(raw.set)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a context with these attributes, and as many bytes behind it as the ring has.
    fn record(attributes: &[u8], length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(kind::TAG_SET.to_ne_bytes());
        bytes.extend([0; 6]);
        bytes.extend(7_u64.to_ne_bytes());
        bytes.extend(1_u64.to_ne_bytes());
        bytes.extend(42_u32.to_ne_bytes());
        bytes.extend(u32::try_from(length).unwrap().to_ne_bytes());
        bytes.extend([0x11; 16]);
        bytes.extend([0; 8]);
        bytes.extend([1, 0, attributes.len() as u8, 0, 0, 0, 0, 0]);
        bytes.extend(attributes);
        bytes.extend([0; 8]);
        bytes
    }

    #[test]
    fn ids_of_zeroes_are_none_and_the_last_of_two_attributes_counts() {
        let attributes = b"\x01\x02ab\x00\x01c\x01\x00";
        let set = decode_set(&record(attributes, attributes.len())).unwrap().unwrap();
        assert_eq!((set.id, set.tgid), (TagSetId(7), Tgid(42)));
        assert_eq!((set.trace, set.span), (Some(TraceId([0x11; 16])), None));
        assert_eq!(set.attributes, [(1, String::new()), (0, "c".to_owned())]);
    }

    #[test]
    fn attributes_that_are_cut_off_are_refused_and_none_read_beyond_the_record() {
        for attributes in [&b"\x01"[..], b"\x01\x05ab", b"\x00\x01c\x02"] {
            assert_eq!(decode_set(&record(attributes, attributes.len())), Ok(None));
        }
        assert!(decode_set(&record(b"", 9)).is_err());
        assert!(decode_set(&record(b"", 0)[..40]).is_err());
        for length in 0..80 {
            let _any = decode_set(&record(b"\x01\x02ab", 4)[..length.min(76)]);
        }
    }

    /// A record of these labels.
    fn labelled(labels: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut words = Vec::new();
        for (name, value) in labels {
            words.extend((name.len() as u32).to_ne_bytes());
            words.extend((value.len() as u32).to_ne_bytes());
            for (text, limit) in [(name, MAX_KEY), (value, MAX_VALUE)] {
                words.extend(&text[..text.len().min(limit)]);
                words.resize(words.len().next_multiple_of(8), 0);
            }
        }
        let mut bytes = record(&[], words.len());
        bytes.truncate(TagSetRecord::FIXED);
        bytes.extend(words);
        bytes
    }

    fn decode_named(labels: &[(&[u8], &[u8])]) -> Vec<(String, String)> {
        decode_labels(&labelled(labels)).unwrap().unwrap().labels
    }

    fn label(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn of_two_labels_with_one_name_the_first_counts() {
        let labels = [(&b"user"[..], &b"Ada Lovelace"[..]), (b"", b"x"), (b"user", b"Babbage")];
        let set = decode_labels(&labelled(&labels)).unwrap().unwrap();
        assert_eq!((set.id, set.tgid, set.trace), (TagSetId(7), Tgid(42), None));
        assert_eq!(set.labels, [label("user", "Ada Lovelace"), label("", "x")]);
    }

    #[test]
    fn what_is_cut_off_says_so_and_ends_with_a_whole_character() {
        let long = [b'x'; MAX_VALUE + 1];
        assert_eq!(decode_named(&[(b"k", &long[1..])]), [label("k", &"x".repeat(MAX_VALUE))]);
        let cut = format!("{}…", "x".repeat(MAX_VALUE));
        assert_eq!(decode_named(&[(b"k", &long), (b"l", b"")]), [label("k", &cut), label("l", "")]);
        // The last byte that is there begins a character of two.
        let name = format!("{}é and more", "k".repeat(MAX_KEY - 1));
        let cut = format!("{}…", "k".repeat(MAX_KEY - 1));
        assert_eq!(decode_named(&[(name.as_bytes(), b"v")]), [label(&cut, "v")]);
    }

    #[test]
    fn labels_of_a_form_that_can_not_be_are_refused() {
        let whole = labelled(&[(b"user", b"Ada"), (b"name", b"value")]);
        for words in 0..(whole.len() - TagSetRecord::FIXED) / 4 {
            let mut bytes = whole.clone();
            bytes[28..32].copy_from_slice(&(words as u32 * 4).to_ne_bytes());
            let labels = decode_labels(&bytes).unwrap().map(|set| set.labels.len());
            let expected = match words {
                0 => Some(0),
                6 => Some(1),
                _ => None,
            };
            assert_eq!(labels, expected, "{words}");
        }
        assert!(decode_labels(&whole[..whole.len() - 1]).is_err());
    }

    #[test]
    fn what_is_no_text_is_a_text_with_marks() {
        let attributes = b"\x01\x02\xff\xfe";
        let set = decode_set(&record(attributes, 4)).unwrap().unwrap();
        assert_eq!(set.attributes, [(1, "\u{fffd}\u{fffd}".to_owned())]);
    }
}
