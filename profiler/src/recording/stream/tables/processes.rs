//! `processes` and `cgroups`: what the numbers in the records stand for outside of them.

use std::sync::Arc;

use arrow_array::{
    Array as _, StringArray, StructArray,
    types::{UInt32Type, UInt64Type},
};

use super::{Rows, Table};
use crate::{
    recording::{
        CgroupInfo, ContainerId, ProcessInfo,
        stream::{
            TableError,
            column::{
                Column, Lists, Numbers, Texts, Times, lists, numbers, optional, optional_texts,
                texts, times,
            },
        },
    },
    units::{CgroupId, Tgid, Timestamp},
};

impl Table for ProcessInfo {
    const NAME: &'static str = "processes";

    fn columns(rows: &[Self]) -> Vec<Column> {
        let arguments = rows.iter().flat_map(|row| row.arguments.iter());
        vec![
            numbers::<UInt32Type>("tgid", rows.iter().map(|row| row.tgid.0)),
            times("at_ns", rows.iter().map(|row| row.at.0)),
            optional::<UInt32Type>("parent_tgid", rows.iter().map(|r| r.parent.map(|p| p.0))),
            optional_texts("executable", rows.iter().map(|row| row.executable.as_deref())),
            lists(
                "arguments",
                rows.iter().map(|row| row.arguments.len()),
                Arc::new(StringArray::from_iter_values(arguments)),
            ),
            optional_texts("cgroup_path", rows.iter().map(|row| row.cgroup.as_deref())),
            optional::<UInt32Type>("pid_in_container", rows.iter().map(|r| r.pid_in_container)),
            optional::<UInt32Type>("uid", rows.iter().map(|row| row.uid)),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let tgid = Numbers::<UInt32Type>::find(table, "tgid")?;
        let at = Times::find(table, "at_ns")?;
        let parent = Numbers::<UInt32Type>::find(table, "parent_tgid")?;
        let executable = Texts::find(table, "executable")?;
        let arguments = Lists::<StringArray>::find(table, "arguments")?;
        let cgroup = Texts::find(table, "cgroup_path")?;
        let pid_in_container = Numbers::<UInt32Type>::find(table, "pid_in_container")?;
        let uid = Numbers::<UInt32Type>::find(table, "uid")?;
        Ok(Rows::collect(table.len(), |row| {
            let (texts, range) = arguments.at(row);
            Some(Self {
                tgid: Tgid(tgid.at(row)),
                at: Timestamp(at.at(row)),
                parent: parent.get(row).map(Tgid),
                executable: executable.get(row),
                arguments: range.map(|index| texts.value(index).to_owned()).collect(),
                cgroup: cgroup.get(row),
                pid_in_container: pid_in_container.get(row),
                uid: uid.get(row),
            })
        }))
    }
}

impl Table for CgroupInfo {
    const NAME: &'static str = "cgroups";

    fn columns(rows: &[Self]) -> Vec<Column> {
        let containers = rows.iter().map(|row| row.container.as_ref().map(ContainerId::as_str));
        vec![
            numbers::<UInt64Type>("id", rows.iter().map(|row| row.id.0)),
            texts("path", rows.iter().map(|row| row.path.as_str())),
            optional_texts("container", containers),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let id = Numbers::<UInt64Type>::find(table, "id")?;
        let path = Texts::find(table, "path")?;
        // The container is what the path says; the column is for those who query.
        Ok(Rows::collect(table.len(), |row| Some(Self::new(CgroupId(id.at(row)), path.at(row)))))
    }
}
