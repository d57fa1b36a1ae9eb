//! What a process calls the labels of its threads: OpenTelemetry's process context (OTEP 4719), a
//! mapping of a known name.
//!
//! ```text
//!  0          8         12      16             24        32
//!  +----------+---------+-------+--------------+---------+
//!  | OTEL_CTX | version | bytes | published at | pointer |---> ProcessContext (protobuf)
//!  +----------+---------+-------+--------------+---------+
//! ```
//!
//! The names are the strings of `threadlocal.attribute_key_map`, in the order of their numbers. The
//! time is 0 while the rest is being written, and is compared once more when all is read.

use crate::symbols::python::memory::Memory;

/// Names that a context's mapping begins with.
pub(super) const MAPPINGS: [&str; 3] =
    ["[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", "/memfd:OTEL_CTX"];

const SIGNATURE: &[u8] = b"OTEL_CTX";
const VERSION: u32 = 2;
const HEADER: usize = 32;
/// Bytes of a context at most.
const MAX_PAYLOAD: u32 = 64 << 10;
/// Bytes of a name at most.
const MAX_NAME: usize = 128;
/// The key whose value has the names.
const KEY_MAP: &[u8] = b"threadlocal.attribute_key_map";

/// Reads the names of a process's labels, by their numbers. None if there are none, or if they are
/// being written.
pub(super) fn read_names(memory: &impl Memory, address: u64) -> Option<Vec<String>> {
    let mut header = [0; HEADER];
    memory.read(address, &mut header)?;
    let half = |at: usize| Some(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?));
    let word = |at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
    let (length, published, pointer) = (half(12)?, word(16)?, word(24)?);
    let is_known = header.starts_with(SIGNATURE) && half(8)? == VERSION;
    if !is_known || published == 0 || length > MAX_PAYLOAD {
        return None;
    }
    let mut payload = vec![0; length as usize];
    memory.read(pointer, &mut payload)?;
    let mut again = [0; HEADER];
    memory.read(address, &mut again)?;
    (again == header).then(|| find_names(&payload))?
}

/// The names in a `ProcessContext`: among its own attributes, or among those of its resource.
pub(super) fn find_names(context: &[u8]) -> Option<Vec<String>> {
    let attributes = || fields(context).filter(|(field, _)| *field == 2).map(|(_, value)| value);
    let resources = || fields(context).filter(|(field, _)| *field == 1).map(|(_, value)| value);
    let of_resources = resources().flat_map(|resource| {
        fields(resource).filter(|(field, _)| *field == 1).map(|(_, value)| value)
    });
    attributes().chain(of_resources).find_map(read_key_map)
}

/// The strings of a `KeyValue`, if that is the one.
fn read_key_map(attribute: &[u8]) -> Option<Vec<String>> {
    let field =
        |wanted: u64| fields(attribute).find(|(field, _)| *field == wanted).map(|(_, value)| value);
    if field(1)? != KEY_MAP {
        return None;
    }
    // `AnyValue::array_value`, its `values`, and `AnyValue::string_value` of each.
    let (_, array) = fields(field(2)?).find(|(field, _)| *field == 5)?;
    let values = fields(array).filter(|(field, _)| *field == 1).take(usize::from(u8::MAX) + 1);
    let name = |value: &[u8]| {
        let text = fields(value).find(|(field, _)| *field == 1).map_or(&[][..], |(_, text)| text);
        String::from_utf8_lossy(text.get(..MAX_NAME).unwrap_or(text)).into_owned()
    };
    Some(values.map(|(_, value)| name(value)).collect())
}

/// The fields of a message that have a length, as their numbers and bytes. It ends where the message
/// has what can't be.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let tag = read_varint(&mut rest)?;
            match tag & 7 {
                0 => {
                    read_varint(&mut rest)?;
                }
                1 => rest = rest.get(8..)?,
                2 => {
                    let length = usize::try_from(read_varint(&mut rest)?).ok()?;
                    let (value, behind) = rest.split_at_checked(length)?;
                    rest = behind;
                    return Some((tag >> 3, value));
                }
                5 => rest = rest.get(4..)?,
                _ => return None,
            }
        }
    })
}

fn read_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with a length.
    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        let length = value.len() as u8;
        if length < 0x80 {
            bytes.push(length);
        } else {
            bytes.extend([length | 0x80, 1]);
        }
        bytes.extend(value);
        bytes
    }

    fn key_map(names: &[&str]) -> Vec<u8> {
        let values = names.iter().flat_map(|name| field(1, &field(1, name.as_bytes())));
        let values: Vec<u8> = values.collect();
        [field(1, KEY_MAP), field(2, &field(5, &values))].concat()
    }

    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
            let at = usize::try_from(address).ok()?;
            into.copy_from_slice(self.0.get(at..at.checked_add(into.len())?)?);
            Some(())
        }
    }

    fn memory(published: u64, payload: &[u8]) -> Bytes {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(published.to_le_bytes());
        bytes.extend(32_u64.to_le_bytes());
        bytes.extend(payload);
        Bytes(bytes)
    }

    #[test]
    fn names_are_found_among_the_attributes_of_the_process_and_of_its_resource() {
        let other = [field(1, b"service.name"), field(2, &field(1, b"shop"))].concat();
        let own = [field(2, &other), field(2, &key_map(&["http.route", "user"]))].concat();
        let names = read_names(&memory(9, &own), 0);
        assert_eq!(names, Some(vec!["http.route".to_owned(), "user".to_owned()]));
        let resource = field(1, &[field(1, &other), field(1, &key_map(&["route"]))].concat());
        assert_eq!(read_names(&memory(9, &resource), 0), Some(vec!["route".to_owned()]));
    }

    #[test]
    fn what_is_being_written_or_can_not_be_has_no_names() {
        let whole = field(2, &key_map(&["http.route"]));
        assert_eq!(read_names(&memory(0, &whole), 0), None);
        assert_eq!(read_names(&memory(9, &[]), 0), None);
        for length in 0..whole.len() {
            let _any = find_names(&whole[..length]);
        }
        for at in 0..whole.len() {
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let _any = find_names(&bytes);
            }
        }
        let mut bytes = memory(9, &whole);
        bytes.0[12] = 0xff;
        bytes.0[14] = 0xff;
        assert_eq!(read_names(&bytes, 0), None);
    }
}
