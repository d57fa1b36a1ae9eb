//! Columns of a table: made from rows, and found again by name.

use std::{borrow::Cow, marker::PhantomData, sync::Arc};

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeListArray, ListArray,
    PrimitiveArray, StringArray, StructArray, UInt64Array,
    types::{Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type},
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

/// A list in each row.
fn lists(name: &'static str, lengths: Vec<usize>, items: ArrayRef) -> Column {
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

/// A kind of columns: how values become a column, and what reads them again.
pub(super) trait ColumnKind {
    /// The value of a row that is written.
    type Value<'r>;
    /// The column of a table that is read.
    type Reader<'t>: ColumnReader<'t>;

    /// Makes the column from the values of all rows.
    fn from_values<'r>(name: &'static str, values: impl Iterator<Item = Self::Value<'r>>)
    -> Column;
}

/// A column of a table that is read.
pub(super) trait ColumnReader<'t>: Sized {
    /// Finds the column of this name.
    ///
    /// # Errors
    ///
    /// If it is not there, or of another type.
    fn find(table: &'t StructArray, name: &'static str) -> Result<Self, TableError>;
}

/// Declares the columns of a table in one place, in the order of the file: each one's name, its kind, and
/// its value in a row. Makes a type that writes them (`from_rows`) and that finds them again, each as a
/// field (`find`).
macro_rules! columns {
    ($columns:ident of $row:ident: $type:ty {
        $($name:ident: $kind:ty = $value:expr,)+
    }) => {
        struct $columns<'t> {
            $($name: <$kind as $crate::stream::column::ColumnKind>::Reader<'t>,)+
        }

        impl<'t> $columns<'t> {
            fn from_rows(rows: &[$type]) -> Vec<$crate::stream::column::Column> {
                use $crate::stream::column::ColumnKind;
                vec![$({
                    let values = rows.iter().map(|$row| $value);
                    <$kind as ColumnKind>::from_values(stringify!($name), values)
                },)+]
            }

            fn find(
                table: &'t arrow_array::StructArray,
            ) -> Result<Self, $crate::stream::TableError> {
                use $crate::stream::column::ColumnReader;
                Ok(Self { $($name: ColumnReader::find(table, stringify!($name))?,)+ })
            }
        }
    };
}
pub(super) use columns;

/// A number in every row.
pub(super) struct Number<T>(PhantomData<T>);
pub(super) type U8 = Number<UInt8Type>;
pub(super) type U16 = Number<UInt16Type>;
pub(super) type U32 = Number<UInt32Type>;
pub(super) type U64 = Number<UInt64Type>;

impl<T: ArrowPrimitiveType> ColumnKind for Number<T> {
    type Value<'r> = T::Native;
    type Reader<'t> = Numbers<'t, T>;

    fn from_values<'r>(
        name: &'static str,
        values: impl Iterator<Item = Self::Value<'r>>,
    ) -> Column {
        numbers::<T>(name, values)
    }
}

/// A number, in the rows where it is known.
pub(super) struct OptionalNumber<T>(PhantomData<T>);
pub(super) type OptionalU8 = OptionalNumber<UInt8Type>;
pub(super) type OptionalU32 = OptionalNumber<UInt32Type>;
pub(super) type OptionalU64 = OptionalNumber<UInt64Type>;

impl<T: ArrowPrimitiveType> ColumnKind for OptionalNumber<T> {
    type Value<'r> = Option<T::Native>;
    type Reader<'t> = Numbers<'t, T>;

    fn from_values<'r>(
        name: &'static str,
        values: impl Iterator<Item = Self::Value<'r>>,
    ) -> Column {
        optional::<T>(name, values)
    }
}

/// A time in every row.
pub(super) struct Time;

impl ColumnKind for Time {
    type Value<'r> = u64;
    type Reader<'t> = Times<'t>;

    fn from_values<'r>(
        name: &'static str,
        values: impl Iterator<Item = Self::Value<'r>>,
    ) -> Column {
        times(name, values)
    }
}

/// A time, in the rows where it is known.
pub(super) struct OptionalTime;

impl ColumnKind for OptionalTime {
    type Value<'r> = Option<u64>;
    type Reader<'t> = Times<'t>;

    fn from_values<'r>(
        name: &'static str,
        values: impl Iterator<Item = Self::Value<'r>>,
    ) -> Column {
        optional_times(name, values)
    }
}

/// Yes or no.
pub(super) struct Flag;

impl ColumnKind for Flag {
    type Value<'r> = bool;
    type Reader<'t> = Flags<'t>;

    fn from_values<'r>(
        name: &'static str,
        values: impl Iterator<Item = Self::Value<'r>>,
    ) -> Column {
        flags(name, values)
    }
}

/// A text in every row.
pub(super) struct Text;

impl ColumnKind for Text {
    type Value<'r> = &'r str;
    type Reader<'t> = Texts<'t>;

    fn from_values<'r>(
        name: &'static str,
        values: impl Iterator<Item = Self::Value<'r>>,
    ) -> Column {
        texts(name, values)
    }
}

/// A text, in the rows where it is known.
pub(super) struct OptionalText;

impl ColumnKind for OptionalText {
    type Value<'r> = Option<Cow<'r, str>>;
    type Reader<'t> = Texts<'t>;

    fn from_values<'r>(
        name: &'static str,
        values: impl Iterator<Item = Self::Value<'r>>,
    ) -> Column {
        (name, Nulls::Allowed, Arc::new(values.collect::<StringArray>()))
    }
}

/// Six numbers in every row: the arguments of a syscall.
pub(super) struct SixNumbers;

impl ColumnKind for SixNumbers {
    type Value<'r> = [u64; 6];
    type Reader<'t> = Sixes<'t>;

    fn from_values<'r>(
        name: &'static str,
        values: impl Iterator<Item = Self::Value<'r>>,
    ) -> Column {
        let values = UInt64Array::from(values.flatten().collect::<Vec<u64>>());
        let item = Arc::new(Field::new("item", DataType::UInt64, false));
        (name, Nulls::None, Arc::new(FixedSizeListArray::new(item, 6, Arc::new(values), None)))
    }
}

/// A list of numbers in every row.
pub(super) struct NumberList<T>(PhantomData<T>);

impl<T: ArrowPrimitiveType> ColumnKind for NumberList<T> {
    type Value<'r> = Vec<T::Native>;
    type Reader<'t> = Lists<'t, PrimitiveArray<T>>;

    fn from_values<'r>(
        name: &'static str,
        values: impl Iterator<Item = Self::Value<'r>>,
    ) -> Column {
        let (lengths, items) = flatten(values);
        lists(name, lengths, Arc::new(PrimitiveArray::<T>::from_iter_values(items)))
    }
}

/// A list of texts in every row.
pub(super) struct TextList;

impl ColumnKind for TextList {
    type Value<'r> = Vec<&'r str>;
    type Reader<'t> = Lists<'t, StringArray>;

    fn from_values<'r>(
        name: &'static str,
        values: impl Iterator<Item = Self::Value<'r>>,
    ) -> Column {
        let (lengths, items) = flatten(values);
        lists(name, lengths, Arc::new(StringArray::from_iter_values(items)))
    }
}

/// A column that came to the format later: recordings from before lack it.
pub(super) struct Later<K>(PhantomData<K>);

impl<K: ColumnKind> ColumnKind for Later<K> {
    type Value<'r> = K::Value<'r>;
    type Reader<'t> = Option<K::Reader<'t>>;

    fn from_values<'r>(
        name: &'static str,
        values: impl Iterator<Item = Self::Value<'r>>,
    ) -> Column {
        K::from_values(name, values)
    }
}

impl<'t, R: ColumnReader<'t>> ColumnReader<'t> for Option<R> {
    fn find(table: &'t StructArray, name: &'static str) -> Result<Self, TableError> {
        match R::find(table, name) {
            Err(TableError::NoColumn(_)) => Ok(None),
            found => found.map(Some),
        }
    }
}

/// The lengths of lists, and all of their items.
fn flatten<T>(all: impl Iterator<Item = Vec<T>>) -> (Vec<usize>, Vec<T>) {
    let (mut lengths, mut items) = (Vec::new(), Vec::new());
    for list in all {
        lengths.push(list.len());
        items.extend(list);
    }
    (lengths, items)
}

/// A column of numbers.
pub(super) struct Numbers<'a, T: ArrowPrimitiveType>(&'a PrimitiveArray<T>);

impl<'a, T: ArrowPrimitiveType> ColumnReader<'a> for Numbers<'a, T> {
    fn find(table: &'a StructArray, name: &'static str) -> Result<Self, TableError> {
        find(table, name).map(Self)
    }
}

impl<T: ArrowPrimitiveType> Numbers<'_, T> {
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

impl<'a> ColumnReader<'a> for Times<'a> {
    fn find(table: &'a StructArray, name: &'static str) -> Result<Self, TableError> {
        Numbers::find(table, name).map(Self)
    }
}

impl Times<'_> {
    pub(super) fn at(&self, row: usize) -> u64 {
        self.0.at(row).cast_unsigned()
    }

    pub(super) fn get(&self, row: usize) -> Option<u64> {
        self.0.get(row).map(i64::cast_unsigned)
    }
}

/// A column of yes or no.
pub(super) struct Flags<'a>(&'a BooleanArray);

impl<'a> ColumnReader<'a> for Flags<'a> {
    fn find(table: &'a StructArray, name: &'static str) -> Result<Self, TableError> {
        find(table, name).map(Self)
    }
}

impl Flags<'_> {
    pub(super) fn at(&self, row: usize) -> bool {
        self.0.value(row)
    }
}

/// A column of texts.
pub(super) struct Texts<'a>(&'a StringArray);

impl<'a> ColumnReader<'a> for Texts<'a> {
    fn find(table: &'a StructArray, name: &'static str) -> Result<Self, TableError> {
        find(table, name).map(Self)
    }
}

impl Texts<'_> {
    pub(super) fn at(&self, row: usize) -> String {
        self.0.value(row).to_owned()
    }

    pub(super) fn get(&self, row: usize) -> Option<String> {
        self.0.is_valid(row).then(|| self.at(row))
    }
}

/// A column of six numbers a row.
pub(super) struct Sixes<'a>(&'a UInt64Array);

impl<'a> ColumnReader<'a> for Sixes<'a> {
    fn find(table: &'a StructArray, name: &'static str) -> Result<Self, TableError> {
        let lists: &FixedSizeListArray = find(table, name)?;
        if lists.value_length() != 6 || lists.offset() != 0 {
            return Err(TableError::ColumnType(name));
        }
        lists.values().as_any().downcast_ref().map(Self).ok_or(TableError::ColumnType(name))
    }
}

impl Sixes<'_> {
    pub(super) fn at(&self, row: usize) -> [u64; 6] {
        std::array::from_fn(|n| self.0.values().get(row * 6 + n).copied().unwrap_or(0))
    }
}

/// A column of lists: of texts, of numbers, of rows.
pub(super) struct Lists<'a, T> {
    lists: &'a ListArray,
    items: &'a T,
}

impl<'a, T: Array + 'static> ColumnReader<'a> for Lists<'a, T> {
    fn find(table: &'a StructArray, name: &'static str) -> Result<Self, TableError> {
        let lists: &ListArray = find(table, name)?;
        let items = lists.values().as_any().downcast_ref().ok_or(TableError::ColumnType(name))?;
        Ok(Self { lists, items })
    }
}

impl<'a, T: Array + 'static> Lists<'a, T> {
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
    use super::*;

    #[test]
    fn a_column_that_came_later_may_be_absent_but_not_of_another_type() {
        let of_two = |type_of: Column| table(vec![flags("in_target", [true].into_iter()), type_of]);
        let look = |table: &StructArray| {
            let seq = Option::<Numbers<'_, UInt32Type>>::find(table, "seq")?;
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
