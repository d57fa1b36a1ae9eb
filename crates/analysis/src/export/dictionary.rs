//! Columns of texts that come again and again: each is made once for a batch.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use arrow_array::{DictionaryArray, Int32Array, StringArray, types::Int32Type};
use offwake_recording::stream::column::{Column, Nulls};

use crate::text::cut_bytes;

/// Bytes that a text may have. A path has 4096 at most, and a stack of 127 frames mostly less than
/// this; a recording that somebody made up may hold anything.
const MAX_TEXT: usize = 1 << 16;

/// Makes a column. A text is known by its key.
pub(super) struct Dictionary<K> {
    places: HashMap<K, Option<i32>>,
    texts: Vec<String>,
    rows: Vec<Option<i32>>,
}

impl<K: Eq + Hash> Dictionary<K> {
    pub(super) fn new() -> Self {
        Self { places: HashMap::new(), texts: Vec::new(), rows: Vec::new() }
    }

    /// Appends a row: the key's text, if it has one.
    pub(super) fn push(&mut self, key: Option<K>, text: impl FnOnce() -> Option<String>) {
        let place = key.and_then(|key| {
            *self.places.entry(key).or_insert_with(|| {
                let place = i32::try_from(self.texts.len()).ok()?;
                self.texts.push(cut_bytes(&text()?, MAX_TEXT));
                Some(place)
            })
        });
        self.rows.push(place);
    }

    /// The column.
    pub(super) fn column(self, name: &'static str, nulls: Nulls) -> Column {
        let texts = StringArray::from_iter_values(&self.texts);
        let keys = Int32Array::from(self.rows);
        (name, nulls, Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(texts))))
    }
}

/// A column of words that are always there.
pub(super) fn words(name: &'static str, words: impl Iterator<Item = &'static str>) -> Column {
    let mut column = Dictionary::new();
    words.for_each(|word| column.push(Some(word), || Some(word.to_owned())));
    column.column(name, Nulls::None)
}

/// A column of words, some of which are not there.
pub(super) fn optional_words(
    name: &'static str,
    words: impl Iterator<Item = Option<&'static str>>,
) -> Column {
    let mut column = Dictionary::new();
    words.for_each(|word| column.push(word, || word.map(str::to_owned)));
    column.column(name, Nulls::Allowed)
}

/// A column of texts, some of which are not there.
pub(super) fn names<'a>(
    name: &'static str,
    texts: impl Iterator<Item = Option<&'a str>>,
) -> Column {
    let mut column = Dictionary::new();
    texts.for_each(|text| column.push(text, || text.map(str::to_owned)));
    column.column(name, Nulls::Allowed)
}

/// A column of texts that are always there.
pub(super) fn all_names<'a>(name: &'static str, texts: impl Iterator<Item = &'a str>) -> Column {
    let (name, _, texts) = names(name, texts.map(Some));
    (name, Nulls::None, texts)
}
