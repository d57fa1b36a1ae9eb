//! Columns of a table: made from rows, and found again by name.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeListArray, ListArray,
    PrimitiveArray, StringArray, StructArray, UInt64Array, types::Int64Type,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, FieldRef, Fields};

use super::TableError;

/// A column with its name.
pub type Column = (&'static str, Nulls, ArrayRef);

/// Whether a column may hold nulls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// A value may be missing.
    Allowed,
    /// Every row has a value.
    None,
}

/// Numbers.
pub fn numbers<T: ArrowPrimitiveType>(
    name: &'static str,
    values: impl Iterator<Item = T::Native>,
) -> Column {
    (name, Nulls::None, Arc::new(PrimitiveArray::<T>::from_iter_values(values)))
}

/// Numbers, some of which are not known.
pub fn optional<T: ArrowPrimitiveType>(
    name: &'static str,
    values: impl Iterator<Item = Option<T::Native>>,
) -> Column {
    (name, Nulls::Allowed, Arc::new(values.collect::<PrimitiveArray<T>>()))
}

/// Times in ns. Signed, so that who subtracts one from an earlier one gets a negative number, and
/// not one of 584 years.
pub fn times(name: &'static str, values: impl Iterator<Item = u64>) -> Column {
    numbers::<Int64Type>(name, values.map(u64::cast_signed))
}

/// Times, some of which are not known.
pub fn optional_times(name: &'static str, values: impl Iterator<Item = Option<u64>>) -> Column {
    optional::<Int64Type>(name, values.map(|time| time.map(u64::cast_signed)))
}

/// Yes or no.
pub fn flags(name: &'static str, values: impl Iterator<Item = bool>) -> Column {
    (name, Nulls::None, Arc::new(values.map(Some).collect::<BooleanArray>()))
}

/// Texts.
pub fn texts<'a>(name: &'static str, values: impl Iterator<Item = &'a str>) -> Column {
    (name, Nulls::None, Arc::new(StringArray::from_iter_values(values)))
}

/// Texts, some of which are not known.
pub fn optional_texts<'a>(
    name: &'static str,
    values: impl Iterator<Item = Option<&'a str>>,
) -> Column {
    (name, Nulls::Allowed, Arc::new(values.collect::<StringArray>()))
}

/// Six numbers a row: a syscall's arguments.
pub(super) fn sixes(name: &'static str, values: impl Iterator<Item = [u64; 6]>) -> Column {
    let values = UInt64Array::from(values.flatten().collect::<Vec<u64>>());
    let item = Arc::new(Field::new("item", DataType::UInt64, false));
    (name, Nulls::None, Arc::new(FixedSizeListArray::new(item, 6, Arc::new(values), None)))
}

/// Several items a row.
pub(super) fn lists(
    name: &'static str,
    lengths: impl Iterator<Item = usize>,
    items: ArrayRef,
) -> Column {
    let item = Arc::new(Field::new("item", items.data_type().clone(), false));
    let offsets = OffsetBuffer::from_lengths(lengths);
    (name, Nulls::None, Arc::new(ListArray::new(item, offsets, items, None)))
}

/// A table of these columns.
pub(super) fn table(columns: Vec<Column>) -> StructArray {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = (columns.into_iter())
        .map(|(name, nulls, array)| {
            (Field::new(name, array.data_type().clone(), nulls == Nulls::Allowed), array)
        })
        .unzip();
    StructArray::new(Fields::from(fields), arrays, None)
}

/// One row of a list: all of a table's rows.
pub(super) fn as_list(rows: StructArray) -> ArrayRef {
    let item: FieldRef = Arc::new(Field::new("item", rows.data_type().clone(), false));
    let offsets = OffsetBuffer::from_lengths([rows.len()]);
    Arc::new(ListArray::new(item, offsets, Arc::new(rows), None))
}

/// The column of this name and type.
fn find<'a, T: Array + 'static>(
    table: &'a StructArray,
    name: &'static str,
) -> Result<&'a T, TableError> {
    table
        .column_by_name(name)
        .ok_or(TableError::NoColumn(name))?
        .as_any()
        .downcast_ref()
        .ok_or(TableError::ColumnType(name))
}

/// A column that came to the format later: none in a recording from before.
pub(super) fn if_there<T>(found: Result<T, TableError>) -> Result<Option<T>, TableError> {
    match found {
        Err(TableError::NoColumn(_)) => Ok(None),
        found => found.map(Some),
    }
}

/// A column of numbers.
pub(super) struct Numbers<'a, T: ArrowPrimitiveType>(&'a PrimitiveArray<T>);

impl<'a, T: ArrowPrimitiveType> Numbers<'a, T> {
    pub(super) fn find(table: &'a StructArray, name: &'static str) -> Result<Self, TableError> {
        find(table, name).map(Self)
    }

    /// The number in a row.
    pub(super) fn at(&self, row: usize) -> T::Native {
        self.0.value(row)
    }

    /// The number in a row, if there is one.
    pub(super) fn get(&self, row: usize) -> Option<T::Native> {
        self.0.is_valid(row).then(|| self.0.value(row))
    }
}

/// A column of times.
pub(super) struct Times<'a>(Numbers<'a, Int64Type>);

impl<'a> Times<'a> {
    pub(super) fn find(table: &'a StructArray, name: &'static str) -> Result<Self, TableError> {
        Numbers::find(table, name).map(Self)
    }

    pub(super) fn at(&self, row: usize) -> u64 {
        self.0.at(row).cast_unsigned()
    }

    pub(super) fn get(&self, row: usize) -> Option<u64> {
        self.0.get(row).map(i64::cast_unsigned)
    }
}

/// A column of yes or no.
pub(super) struct Flags<'a>(&'a BooleanArray);

impl<'a> Flags<'a> {
    pub(super) fn find(table: &'a StructArray, name: &'static str) -> Result<Self, TableError> {
        find(table, name).map(Self)
    }

    pub(super) fn at(&self, row: usize) -> bool {
        self.0.value(row)
    }
}

/// A column of texts.
pub(super) struct Texts<'a>(&'a StringArray);

impl<'a> Texts<'a> {
    pub(super) fn find(table: &'a StructArray, name: &'static str) -> Result<Self, TableError> {
        find(table, name).map(Self)
    }

    pub(super) fn at(&self, row: usize) -> String {
        self.0.value(row).to_owned()
    }

    pub(super) fn get(&self, row: usize) -> Option<String> {
        self.0.is_valid(row).then(|| self.at(row))
    }
}

/// A column of six numbers a row.
pub(super) struct Sixes<'a>(&'a UInt64Array);

impl<'a> Sixes<'a> {
    pub(super) fn find(table: &'a StructArray, name: &'static str) -> Result<Self, TableError> {
        let lists: &FixedSizeListArray = find(table, name)?;
        if lists.value_length() != 6 || lists.offset() != 0 {
            return Err(TableError::ColumnType(name));
        }
        lists.values().as_any().downcast_ref().map(Self).ok_or(TableError::ColumnType(name))
    }

    pub(super) fn at(&self, row: usize) -> [u64; 6] {
        std::array::from_fn(|n| self.0.values().get(row * 6 + n).copied().unwrap_or(0))
    }
}

/// A column of lists: of texts, of numbers, of rows.
pub(super) struct Lists<'a, T> {
    lists: &'a ListArray,
    items: &'a T,
}

impl<'a, T: Array + 'static> Lists<'a, T> {
    pub(super) fn find(table: &'a StructArray, name: &'static str) -> Result<Self, TableError> {
        let lists: &ListArray = find(table, name)?;
        let items = lists.values().as_any().downcast_ref().ok_or(TableError::ColumnType(name))?;
        Ok(Self { lists, items })
    }

    /// The items, and which of them are a row's.
    pub(super) fn at(&self, row: usize) -> (&'a T, std::ops::Range<usize>) {
        let offsets = self.lists.value_offsets();
        let offset =
            |n: usize| offsets.get(n).and_then(|&offset| usize::try_from(offset).ok()).unwrap_or(0);
        let end = offset(row + 1).min(self.items.len());
        (self.items, offset(row).min(end)..end)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::{UInt32Type, UInt64Type};

    use super::*;

    #[test]
    fn a_column_that_came_later_may_be_absent_but_not_of_another_type() {
        let of_two = |type_of: Column| table(vec![flags("in_target", [true].into_iter()), type_of]);
        let look = |table: &StructArray| {
            let seq = if_there(Numbers::<UInt32Type>::find(table, "seq"))?;
            Ok::<_, TableError>(seq.map(|seq| seq.get(0)))
        };
        let of_now = of_two(optional::<UInt32Type>("seq", [Some(7)].into_iter()));
        assert!(matches!(look(&of_now), Ok(Some(Some(7)))));
        let from_before = of_two(optional::<UInt32Type>("tid", [Some(7)].into_iter()));
        assert!(matches!(look(&from_before), Ok(None)));
        let broken = of_two(optional::<UInt64Type>("seq", [Some(7)].into_iter()));
        assert!(matches!(look(&broken), Err(TableError::ColumnType("seq"))));
    }
}
