//! What a thread says that it is doing, as it was in its memory: OpenTelemetry's thread context.
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
    tags::{TagChangeRecord, TagSetRecord},
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

/// Decodes a set. None if its attributes are of a form that can't be.
pub(super) fn decode_set(bytes: &[u8]) -> Result<Option<TagSet>, DecodeError> {
    let fixed: Fixed = read_plain(kind::TAG_SET, bytes)?;
    let length = fixed.attributes_len as usize;
    let expected = TagSetRecord::FIXED.saturating_add(length);
    let Some(attributes) = bytes.get(TagSetRecord::FIXED..expected) else {
        return Err(DecodeError::Length { kind: kind::TAG_SET, len: bytes.len(), expected });
    };
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
    }))
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

    #[test]
    fn what_is_no_text_is_a_text_with_marks() {
        let attributes = b"\x01\x02\xff\xfe";
        let set = decode_set(&record(attributes, 4)).unwrap().unwrap();
        assert_eq!(set.attributes, [(1, "\u{fffd}\u{fffd}".to_owned())]);
    }
}
