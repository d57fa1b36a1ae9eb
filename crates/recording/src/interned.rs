//! Values that come again and again, stored once.

use std::{
    collections::HashMap,
    fmt,
    hash::{Hash, Hasher},
    marker::PhantomData,
    ops::Index,
};

/// Names a value of an [`Interned`] table.
pub struct Id<T> {
    index: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    const fn new(index: u32) -> Self {
        Self { index, of: PhantomData }
    }

    /// Its place in the table, from 0 on.
    #[must_use]
    pub fn index(self) -> usize {
        self.index as usize
    }
}

// Derived, they would ask the same of `T`.
impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Id<T> {}
impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}
impl<T> Eq for Id<T> {}
impl<T> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.index.hash(state);
    }
}
impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.index)
    }
}

/// A table that gives each different value an id, in the order of their first appearance.
#[derive(Clone, Debug)]
pub struct Interned<T> {
    values: Vec<T>,
    /// Keyed, so that nobody who writes a recording can make all values fall into one bucket.
    ids: HashMap<T, u32, foldhash::fast::RandomState>,
    /// The newest: the next one is often the same.
    newest: u32,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { values: Vec::new(), ids: HashMap::default(), newest: 0 }
    }
}

impl<T: Copy + Eq + Hash> Interned<T> {
    /// The id of a value; a new one if it was not seen before.
    ///
    /// # Panics
    ///
    /// With 2^32 - 1 different values: they would take a hundred gigabytes.
    pub fn id(&mut self, value: T) -> Id<T> {
        if self.values.get(self.newest as usize) == Some(&value) {
            return Id::new(self.newest);
        }
        self.newest = *self.ids.entry(value).or_insert_with(|| {
            let next = u32::try_from(self.values.len()).ok().filter(|&n| n != u32::MAX);
            self.values.push(value);
            next.unwrap_or_else(|| panic!("{} values in one table", self.values.len()))
        });
        Id::new(self.newest)
    }
}

impl<T: Copy + Eq + Hash> Interned<T> {
    /// Puts another value in each one's place; what becomes equal becomes one. Gives back the new ids
    /// by the places of the old ones.
    pub(super) fn replace(&mut self, other: impl Fn(T) -> T) -> Vec<Id<T>> {
        let old = std::mem::take(self);
        old.values.into_iter().map(|value| self.id(other(value))).collect()
    }
}

impl<T> Interned<T> {
    /// How many different values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Bytes that it takes, about.
    pub(super) fn memory(&self) -> usize {
        let entry = size_of::<(T, u32)>() + 1;
        self.values.capacity() * size_of::<T>() + self.ids.capacity() * entry
    }

    /// The values with their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Id<T>, &T)> {
        // No table is longer than ids are.
        self.values.iter().enumerate().map(|(n, value)| (Id::new(n as u32), value))
    }
}

impl<T> Index<Id<T>> for Interned<T> {
    type Output = T;

    fn index(&self, id: Id<T>) -> &T {
        &self.values[id.index()]
    }
}
