//! Tables of lines, against what CPython's own documents say of them.

use proptest::prelude::*;

use super::super::{lines::Lines, offsets::LineFormat};

const FIRST: u32 = 1000;

/// "Converting an address to a line number", `Objects/lnotab_notes.txt` of 3.9.
fn in_lnotab(table: &[u8], wanted: u32) -> Option<u32> {
    let (mut line, mut address) = (FIRST, 0);
    for pair in table.chunks_exact(2) {
        address += u32::from(pair[0]);
        if address > wanted {
            break;
        }
        line = line.wrapping_add_signed(i32::from(pair[1].cast_signed()));
    }
    Some(line)
}

/// "Reading the co_linetable", `Objects/lnotab_notes.txt` of 3.10.
fn in_ranges(table: &[u8], wanted: u32) -> Option<u32> {
    let (mut line, mut end) = (FIRST, 0);
    for pair in table.chunks_exact(2) {
        let lines = pair[1].cast_signed();
        if lines != -128 {
            line = line.wrapping_add_signed(i32::from(lines));
        }
        let start = end;
        end += u32::from(pair[0]);
        if (start..end).contains(&wanted) {
            return (lines != -128).then_some(line);
        }
    }
    None
}

/// An entry of a table of locations.
#[derive(Clone, Copy, Debug)]
enum Location {
    Short(u8),
    OneLine(u8),
    NoColumn(i32),
    Long(i32),
    None,
}

impl Location {
    fn lines(self) -> Option<i32> {
        match self {
            Self::Short(_) => Some(0),
            Self::OneLine(lines) => Some(i32::from(lines)),
            Self::NoColumn(lines) | Self::Long(lines) => Some(lines),
            Self::None => None,
        }
    }

    fn encode(self, units: u8) -> Vec<u8> {
        let first = |code: u8| 0x80 | code << 3 | (units - 1);
        match self {
            Self::Short(code) => vec![first(code), 0x35],
            Self::OneLine(lines) => vec![first(10 + lines), 3, 0x7f],
            Self::NoColumn(lines) => [vec![first(13)], signed(lines)].concat(),
            Self::Long(lines) => {
                [vec![first(14)], signed(lines), unsigned(0), unsigned(77), unsigned(300)].concat()
            }
            Self::None => vec![first(15)],
        }
    }
}

fn unsigned(mut number: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 64 {
        bytes.push(0x40 | (number & 0x3f) as u8);
        number >>= 6;
    }
    bytes.push(number as u8);
    bytes
}

fn signed(number: i32) -> Vec<u8> {
    let magnitude = number.unsigned_abs() << 1;
    unsigned(if number < 0 { magnitude | 1 } else { magnitude })
}

fn locations() -> impl Strategy<Value = Vec<(Location, u8)>> {
    let location = prop_oneof![
        (0..10_u8).prop_map(Location::Short),
        (0..3_u8).prop_map(Location::OneLine),
        (-900..5000_i32).prop_map(Location::NoColumn),
        (-900..5000_i32).prop_map(Location::Long),
        Just(Location::None),
    ];
    prop::collection::vec((location, 1..=8_u8), 0..40)
}

proptest! {
    #[test]
    fn tables_of_pairs_are_read_as_their_documents_say(
        table in prop::collection::vec((0..20_u8, any::<u8>()), 0..40),
    ) {
        let table: Vec<u8> = table.into_iter().flat_map(<[u8; 2]>::from).collect();
        let lnotab = Lines::read(&table, LineFormat::Lnotab, FIRST);
        let ranges = Lines::read(&table, LineFormat::Ranges, FIRST);
        for byte in 0..800 {
            prop_assert_eq!(lnotab.at(byte), in_lnotab(&table, byte), "lnotab, {}", byte);
            prop_assert_eq!(ranges.at(byte), in_ranges(&table, byte), "ranges, {}", byte);
        }
    }

    #[test]
    fn locations_are_read_as_they_were_written(locations in locations()) {
        let mut table = Vec::new();
        let mut expected = Vec::new();
        let mut line = FIRST;
        for (location, units) in locations {
            table.extend(location.encode(units));
            line = line.wrapping_add_signed(location.lines().unwrap_or(0));
            let here = location.lines().map(|_| line);
            expected.extend(std::iter::repeat_n(here, usize::from(units)));
        }
        let lines = Lines::read(&table, LineFormat::Locations, FIRST);
        for (byte, expected) in (0..).step_by(2).zip(&expected) {
            prop_assert_eq!(lines.at(byte), *expected);
        }
        prop_assert_eq!(lines.at(2 * expected.len() as u32), None);
    }

    #[test]
    fn any_bytes_can_be_read_as_a_table(
        table in prop::collection::vec(any::<u8>(), 0..200),
        first in any::<u32>(),
        byte in any::<u32>(),
    ) {
        for format in [LineFormat::Lnotab, LineFormat::Ranges, LineFormat::Locations] {
            let lines = Lines::read(&table, format, first);
            let _any = lines.at(byte);
            prop_assert!(lines.size() <= 12 * (table.len() + 1));
        }
    }
}
