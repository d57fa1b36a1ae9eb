//! Decodes markers, whose texts come from other programs.

use offwake_recording::{
    Marker, MarkerKind,
    units::{Tgid, Tid, Timestamp},
};
use profiler_ebpf::{
    marker::{MarkerRecord, TEXT_LEN, marker_kind},
    record::kind,
};

use super::{DecodeError, Record};

pub(super) fn decode_marker(raw: &MarkerRecord) -> Result<Record, DecodeError> {
    let kind = match raw.kind {
        marker_kind::BEGIN => MarkerKind::Begin,
        marker_kind::END => MarkerKind::End,
        marker_kind::INSTANT => MarkerKind::Instant,
        other => {
            let value = u64::from(other);
            return Err(DecodeError::Value { kind: kind::MARKER, field: "kind of marker", value });
        }
    };
    let Some((track, name)) = text(raw).and_then(split_text) else {
        return Ok(Record::RefusedMarker);
    };
    Ok(Record::Marker(Marker {
        at: Timestamp(raw.ns),
        tid: Tid(raw.tid),
        tgid: Tgid(raw.tgid),
        kind,
        track: track.into(),
        name: name.into(),
    }))
}

/// Returns a marker's text up to its first NUL; none if it is no text. The last character of one
/// that was cut may be cut as well.
fn text(raw: &MarkerRecord) -> Option<&str> {
    let read = raw.text.get(..raw.text_len as usize)?;
    let text = read.split(|byte| *byte == 0).next()?;
    match std::str::from_utf8(text) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() && raw.text_len as usize == TEXT_LEN => {
            std::str::from_utf8(&text[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

/// Divides a text at its first colon; none if there is no name, or one that would write to
/// terminals.
fn split_text(text: &str) -> Option<(&str, &str)> {
    if text.chars().any(char::is_control) {
        return None;
    }
    let (track, name) = text.split_once(':').unwrap_or(("", text));
    let track = if track.is_empty() { Marker::DEFAULT_TRACK } else { track };
    (!name.is_empty()).then_some((track, name))
}

#[cfg(test)]
mod tests {
    use profiler_ebpf::record::RecordHeader;

    use super::*;

    fn record(kind: u32, text: &[u8]) -> MarkerRecord {
        let mut raw = MarkerRecord {
            header: RecordHeader { kind: kind::MARKER, cpu: 0, len: 0 },
            tid: 8,
            tgid: 7,
            ns: 9,
            kind,
            text_len: (text.len() + 1).min(TEXT_LEN) as u32,
            text: [0; TEXT_LEN],
        };
        let kept = text.len().min(TEXT_LEN - 1);
        raw.text[..kept].copy_from_slice(&text[..kept]);
        raw
    }

    fn decoded(text: &[u8]) -> Option<(String, String)> {
        match decode_marker(&record(0, text)).unwrap() {
            Record::Marker(marker) => Some((marker.track.to_string(), marker.name.to_string())),
            Record::RefusedMarker => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_colon_divides_the_track_from_the_name() {
        let of = |track: &str, name: &str| Some((track.to_owned(), name.to_owned()));
        assert_eq!(decoded(b"Training:fwd"), of("Training", "fwd"));
        assert_eq!(decoded(b"Track:a:b"), of("Track", "a:b"));
        assert_eq!(decoded(b"alone"), of("Markers", "alone"));
        assert_eq!(decoded(b":alone"), of("Markers", "alone"));
        assert_eq!(decoded("Küche:Öl".as_bytes()), of("Küche", "Öl"));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in [&b""[..], b"Track:", b":", b"a:\x1b[2Jb", b"a:\nb", b"a:\xff\xfe", b"a:\xc3"] {
            assert_eq!(decoded(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        let long = format!("T:{}", "ö".repeat(80));
        assert_eq!(decoded(long.as_bytes()), Some(("T".to_owned(), "ö".repeat(62))));
        let fits = format!("T:{}", "x".repeat(TEXT_LEN - 3));
        assert_eq!(decoded(fits.as_bytes()), Some(("T".to_owned(), "x".repeat(TEXT_LEN - 3))));
    }

    #[test]
    fn a_length_that_cannot_be_is_refused_and_a_kind_that_is_not_known_is_an_error() {
        let raw = MarkerRecord { text_len: 4_000, ..record(0, b"a") };
        assert_eq!(decode_marker(&raw), Ok(Record::RefusedMarker));
        assert!(decode_marker(&record(3, b"a")).is_err());
    }
}
