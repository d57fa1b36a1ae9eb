//! Which directory a recording's files lie in, and what they are called.

use std::hash::Hasher as _;

use offwake_recording::Meta;
use twox_hash::XxHash3_64;

use crate::text::cut_bytes;

/// What Hive calls the directory of a value that is not there.
pub(super) const UNKNOWN: &str = "__HIVE_DEFAULT_PARTITION__";

/// The longest host name that Linux has (`HOST_NAME_MAX`). Escaped, it is still a file's name.
const MAX_HOST: usize = 64;

/// The directory of a host: `host=web%2F1`, its name written as Hive writes values in paths. It is
/// one directory, whatever the name.
#[must_use]
pub fn host_directory(host: &str) -> String {
    if host.is_empty() {
        return format!("host={UNKNOWN}");
    }
    let mut directory = "host=".to_owned();
    for byte in cut_bytes(host, MAX_HOST).bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            directory.push(char::from(byte));
        } else {
            directory.push_str(&format!("%{byte:02X}"));
        }
    }
    directory
}

/// What tells a recording from every other: the hash of where and when it was made.
pub(super) fn recording_id(meta: &Meta) -> String {
    let mut hasher = XxHash3_64::with_seed(0);
    for text in [&meta.boot_id, &meta.host] {
        hasher.write(&(text.len() as u64).to_le_bytes());
        hasher.write(text.as_bytes());
    }
    hasher.write(&meta.window.start.0.to_le_bytes());
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use offwake_recording::{Window, units::Timestamp};

    #[test]
    fn any_host_name_is_one_directory() {
        for (host, directory) in [
            ("web-1.example.org", "host=web-1.example.org"),
            ("..", "host=.."),
            ("../../etc", "host=..%2F..%2Fetc"),
            ("a=b%c d", "host=a%3Db%25c%20d"),
            ("ü\n\0", "host=%C3%BC%0A%00"),
            ("", "host=__HIVE_DEFAULT_PARTITION__"),
        ] {
            assert_eq!(host_directory(host), directory);
        }
        assert!(host_directory(&"/".repeat(10_000)).len() < 255);
    }

    #[test]
    fn a_recording_keeps_its_id_and_has_no_other_s() {
        let meta = |host: &str, boot_id: &str, start| Meta {
            host: host.to_owned(),
            boot_id: boot_id.to_owned(),
            window: Window { start: Timestamp(start), end: Timestamp(start + 1) },
            ..Meta::default()
        };
        let id = recording_id(&meta("a", "b", 7));
        assert_eq!(id, recording_id(&Meta { target: "x".to_owned(), ..meta("a", "b", 7) }));
        assert_eq!(id.len(), 16);
        for other in [meta("b", "b", 7), meta("a", "c", 7), meta("a", "b", 8), meta("", "ba", 7)] {
            assert_ne!(id, recording_id(&other));
        }
    }
}
