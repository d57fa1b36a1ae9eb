//! Two lists in the order of time → one.

/// Goes through two sorted iterators in the order of `key`; of equals, those of `first` come first.
pub(super) fn merge<T, K: Ord>(
    first: impl Iterator<Item = T>,
    second: impl Iterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> impl Iterator<Item = T> {
    let (mut first, mut second) = (first.peekable(), second.peekable());
    std::iter::from_fn(move || match (first.peek(), second.peek()) {
        (Some(a), Some(b)) if key(b) < key(a) => second.next(),
        (Some(_), _) => first.next(),
        (None, _) => second.next(),
    })
}
