//! Bytes in a message, as a piece and not one by one.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

pub(crate) fn deserialize<'de, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Cow<'a, [u8]>, D::Error> {
    <&'de [u8]>::deserialize(deserializer).map(|bytes| Cow::Owned(bytes.to_vec()))
}
