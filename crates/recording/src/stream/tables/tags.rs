//! `tag_sets`, `tag_changes` and `tag_names`: what programs say of what their threads are doing.

use arrow_array::{Array as _, StringArray, StructArray, types::UInt8Type};

use super::{Rows, Table};
use crate::{
    TagChange, TagName, TagSet, TagSetId,
    stream::{
        TableError,
        column::{
            Column, Later, NumberList, OptionalText, OptionalTime, OptionalU64, Text, TextList,
            Time, U8, U32, U64, columns,
        },
    },
    units::{Tgid, Tid, Timestamp},
};

columns! {
    TagSetColumns of row: TagSet {
        id: U64 = row.id.0,
        tgid: U32 = row.tgid.0,
        trace_id: OptionalText = row.trace.map(|trace| trace.to_string().into()),
        span_id: OptionalText = row.span.map(|span| span.to_string().into()),
        keys: NumberList<UInt8Type> = row.attributes.iter().map(|(key, _)| *key).collect(),
        values: TextList = row.attributes.iter().map(|(_, value)| value.as_str()).collect(),
        names: Later<TextList> = row.labels.iter().map(|(name, _)| name.as_str()).collect(),
        named_values: Later<TextList> = row.labels.iter().map(|(_, value)| value.as_str()).collect(),
    }
}

impl Table for TagSet {
    const NAME: &'static str = "tag_sets";

    fn columns(rows: &[Self]) -> Vec<Column> {
        TagSetColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = TagSetColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let (keys, of_keys) = columns.keys.at(row);
            let (values, of_values) = columns.values.at(row);
            if of_keys.len() != of_values.len() {
                return None;
            }
            let attributes = of_keys
                .zip(of_values)
                .map(|(key, value)| (keys.value(key), values.value(value).to_owned()));
            let named = columns.names.as_ref().zip(columns.named_values.as_ref());
            let labels = match named {
                None => Vec::new(),
                Some((names, values)) => {
                    let ((names, of_names), (values, of_values)) = (names.at(row), values.at(row));
                    if of_names.len() != of_values.len() {
                        return None;
                    }
                    let text = |texts: &StringArray, at| texts.value(at).to_owned();
                    let both = of_names.zip(of_values);
                    both.map(|(name, value)| (text(names, name), text(values, value))).collect()
                }
            };
            let trace = columns.trace_id.get(row).map(|id| id.parse()).transpose().ok()?;
            let span = columns.span_id.get(row).map(|id| id.parse()).transpose().ok()?;
            Some(Self {
                id: TagSetId(columns.id.at(row)),
                tgid: Tgid(columns.tgid.at(row)),
                trace,
                span,
                attributes: attributes.collect(),
                labels,
            })
        }))
    }
}

columns! {
    TagChangeColumns of row: TagChange {
        tid: U32 = row.tid.0,
        tgid: U32 = row.tgid.0,
        at_ns: Time = row.at.0,
        since_ns: OptionalTime = row.since.map(|since| since.0),
        set: OptionalU64 = row.set.map(|set| set.0),
    }
}

impl Table for TagChange {
    const NAME: &'static str = "tag_changes";

    fn columns(rows: &[Self]) -> Vec<Column> {
        TagChangeColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = TagChangeColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                tid: Tid(columns.tid.at(row)),
                tgid: Tgid(columns.tgid.at(row)),
                at: Timestamp(columns.at_ns.at(row)),
                since: columns.since_ns.get(row).map(Timestamp),
                set: columns.set.get(row).map(TagSetId),
            })
        }))
    }
}

columns! {
    TagNameColumns of row: TagName {
        tgid: U32 = row.tgid.0,
        key: U8 = row.key,
        name: Text = row.name.as_str(),
    }
}

impl Table for TagName {
    const NAME: &'static str = "tag_names";

    fn columns(rows: &[Self]) -> Vec<Column> {
        TagNameColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = TagNameColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                tgid: Tgid(columns.tgid.at(row)),
                key: columns.key.at(row),
                name: columns.name.at(row),
            })
        }))
    }
}
