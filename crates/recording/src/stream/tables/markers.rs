//! `markers`: what programs marked in their own code, one row a marker.

use std::{collections::HashMap, sync::Arc};

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table, required_code};
use crate::{
    Marker,
    stream::{
        TableError,
        code::Code as _,
        column::{Column, Text, Time, U8, U32, columns},
    },
    units::{Tgid, Tid, Timestamp},
};

columns! {
    MarkerColumns of row: Marker {
        at_ns: Time = row.at.0,
        tid: U32 = row.tid.0,
        tgid: U32 = row.tgid.0,
        kind: U8 = row.kind.code(),
        track: Text = &*row.track,
        name: Text = &*row.name,
    }
}

impl Table for Marker {
    const NAME: &'static str = "markers";

    fn columns(rows: &[Self]) -> Vec<Column> {
        MarkerColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = MarkerColumns::find(table)?;
        // A loop sets the same few markers over and over.
        let mut texts: HashMap<String, Arc<str>> = HashMap::new();
        let mut intern = |text: String| match texts.get(&text) {
            Some(known) => Arc::clone(known),
            None => {
                let new = Arc::from(text.as_str());
                texts.insert(text, Arc::clone(&new));
                new
            }
        };
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                at: Timestamp(columns.at_ns.at(row)),
                tid: Tid(columns.tid.at(row)),
                tgid: Tgid(columns.tgid.at(row)),
                kind: required_code(&columns.kind, row)?,
                track: intern(columns.track.at(row)),
                name: intern(columns.name.at(row)),
            })
        }))
    }
}
