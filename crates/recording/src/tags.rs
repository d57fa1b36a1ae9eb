//! What programs say of what their threads are doing: traces, spans and labels.

use std::{fmt, str::FromStr};

use crate::{
    memory::measure_texts,
    units::{Tgid, Tid, Timestamp},
};

/// The number that [`TagChange`] refers to a [`TagSet`] by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagSetId(pub u64);

/// The id of a trace of the program's own, as [W3C](https://www.w3.org/TR/trace-context/#trace-id) has
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(pub [u8; 16]);

/// The id of a span of the program's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub [u8; 8]);

/// What a thread said that it was doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagSet {
    /// What changes refer to it by.
    pub id: TagSetId,
    /// The process.
    pub tgid: Tgid,
    /// The trace that it worked for, if any.
    pub trace: Option<TraceId>,
    /// The span of that trace.
    pub span: Option<SpanId>,
    /// The values of its labels, each key once, by the number that the process has for it.
    pub attributes: Vec<(u8, String)>,
    /// Labels that have their names with them, each once.
    pub labels: Vec<(String, String)>,
}

impl TagSet {
    /// Whether it has no labels.
    #[must_use]
    pub fn has_no_labels(&self) -> bool {
        self.attributes.is_empty() && self.labels.is_empty()
    }

    /// The texts of its labels.
    pub fn texts(&self) -> impl Iterator<Item = &String> {
        let values = self.attributes.iter().map(|(_, value)| value);
        values.chain(self.labels.iter().flat_map(|(name, value)| [name, value]))
    }

    /// Returns about how many bytes of memory it takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        size_of::<Self>() + measure_texts(self.texts())
    }
}

/// A thread was found to do something else than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagChange {
    /// The thread.
    pub tid: Tid,
    /// The thread's process.
    pub tgid: Tgid,
    /// When that was found.
    pub at: Timestamp,
    /// When it was last found to do what it did before: what it did in between is not known. None if
    /// it was never looked at.
    pub since: Option<Timestamp>,
    /// What it does now. None if it does not say.
    pub set: Option<TagSetId>,
}

/// What a process calls the labels of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagName {
    /// The process.
    pub tgid: Tgid,
    /// The number.
    pub key: u8,
    /// The name.
    pub name: String,
}

/// A text is not so many hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHexadecimal {
    /// How many digits there must be.
    pub digits: usize,
}

impl fmt::Display for NotHexadecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} hexadecimal digits are wanted", self.digits)
    }
}

impl std::error::Error for NotHexadecimal {}

fn parse_hex<const N: usize>(text: &str) -> Result<[u8; N], NotHexadecimal> {
    let error = NotHexadecimal { digits: 2 * N };
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(error);
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        let digits = text.get(2 * index..2 * index + 2).ok_or(error)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_invalid| error)?;
    }
    Ok(bytes)
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl FromStr for TraceId {
    type Err = NotHexadecimal;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_hex(text).map(Self)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl FromStr for SpanId {
    type Err = NotHexadecimal;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_hex(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_and_read_as_hexadecimal_digits() {
        let text = "0af7651916cd43dd8448eb211c80319c";
        let trace: TraceId = text.parse().unwrap();
        assert_eq!(trace.to_string(), text);
        assert_eq!("b7ad6b7169203331".parse::<SpanId>().unwrap().0[0], 0xb7);
        for wrong in
            ["", "0af7", "0af7651916cd43dd8448eb211c80319x", "+af7651916cd43dd8448eb211c80319c"]
        {
            assert_eq!(wrong.parse::<TraceId>(), Err(NotHexadecimal { digits: 32 }), "{wrong}");
        }
    }
}
