//! Versions of CPython.

use std::fmt;

/// The first two numbers of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Version {
    pub major: u8,
    pub minor: u8,
}

impl Version {
    pub(super) const fn python3(minor: u8) -> Self {
        Self { major: 3, minor }
    }

    /// From `PY_VERSION_HEX`: 0x030b02f0 is 3.11.2.
    ///
    /// <https://docs.python.org/3/c-api/apiabiversion.html>
    pub(super) fn from_hex(hex: u32) -> Self {
        let [major, minor, ..] = hex.to_be_bytes();
        Self { major, minor }
    }

    /// From the name of a file: `python3.9`, `libpython3.9.so.1.0`.
    pub(super) fn from_path(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next()?;
        let numbers = name.strip_prefix("lib").unwrap_or(name).strip_prefix("python")?;
        let (major, rest) = numbers.split_once('.')?;
        let digits = rest.find(|other: char| !other.is_ascii_digit()).unwrap_or(rest.len());
        let minor = rest.get(..digits)?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_file_names_and_from_numbers() {
        let minor = |minor| Some(Version::python3(minor));
        assert_eq!(Version::from_path("/usr/bin/python3.11"), minor(11));
        assert_eq!(Version::from_path("/opt/lib/libpython3.9.so.1.0"), minor(9));
        assert_eq!(Version::from_path("python3.13t"), minor(13));
        assert_eq!(Version::from_path("/usr/bin/python3.9 (deleted)"), minor(9));
        for other in ["", "/usr/bin/python3", "/lib/libpython3.so", "python3.", "mypython3.9"] {
            assert_eq!(Version::from_path(other), None, "{other}");
        }
        assert_eq!(Version::from_path("python3.999"), None);
        assert_eq!(Version::from_hex(0x030b_02f0).to_string(), "3.11");
    }
}
