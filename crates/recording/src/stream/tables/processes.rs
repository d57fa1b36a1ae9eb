//! `processes` and `cgroups`: what the numbers in the records stand for outside of them.

use std::sync::Arc;

use arrow_array::{
    Array as _, StringArray, StructArray,
    types::{UInt32Type, UInt64Type},
};

use super::{Rows, Table};
use crate::{
    CgroupInfo, ContainerId, ContainerNames, PodName, ProcessInfo,
    stream::{
        TableError,
        column::{
            Column, Lists, Numbers, Texts, Times, if_there, lists, numbers, optional,
            optional_texts, texts, times,
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
        let names = || rows.iter().map(|row| &row.names);
        let pods = || names().map(|names| names.pod.as_ref());
        vec![
            numbers::<UInt64Type>("id", rows.iter().map(|row| row.id.0)),
            texts("path", rows.iter().map(|row| row.path.as_str())),
            optional_texts("container", containers),
            optional_texts("container_name", names().map(|names| names.name.as_deref())),
            optional_texts("image", names().map(|names| names.image.as_deref())),
            optional_texts("pod_namespace", pods().map(|pod| Some(pod?.namespace.as_str()))),
            optional_texts("pod_name", pods().map(|pod| Some(pod?.name.as_str()))),
        ]
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let id = Numbers::<UInt64Type>::find(table, "id")?;
        let path = Texts::find(table, "path")?;
        let name = if_there(Texts::find(table, "container_name"))?;
        let image = if_there(Texts::find(table, "image"))?;
        let namespace = if_there(Texts::find(table, "pod_namespace"))?;
        let pod = if_there(Texts::find(table, "pod_name"))?;
        let container = Texts::find(table, "container")?;
        // The container is what the path says, if it says so.
        Ok(Rows::collect(table.len(), |row| {
            let text = |texts: &Option<Texts<'_>>| texts.as_ref()?.get(row);
            let pod = text(&namespace).zip(text(&pod));
            let names = ContainerNames {
                name: text(&name),
                image: text(&image),
                pod: pod.map(|(namespace, name)| PodName { namespace, name }),
            };
            let cgroup = Self { names, ..Self::new(CgroupId(id.at(row)), path.at(row)) };
            let said = || ContainerId::new(&container.get(row)?);
            Some(Self { container: cgroup.container.clone().or_else(said), ..cgroup })
        }))
    }
}
