//! `processes` and `cgroups`: what the numbers in the records stand for outside of them.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table};
use crate::{
    CgroupInfo, ContainerId, ContainerNames, PodName, ProcessInfo,
    stream::{
        TableError,
        column::{
            Column, Later, OptionalText, OptionalU32, Text, TextList, Texts, Time, U32, U64,
            columns,
        },
    },
    units::{CgroupId, Tgid, Timestamp},
};

columns! {
    ProcessColumns of row: ProcessInfo {
        tgid: U32 = row.tgid.0,
        at_ns: Time = row.at.0,
        parent_tgid: OptionalU32 = row.parent.map(|parent| parent.0),
        executable: OptionalText = row.executable.as_deref().map(Into::into),
        arguments: TextList = row.arguments.iter().map(String::as_str).collect(),
        cgroup_path: OptionalText = row.cgroup.as_deref().map(Into::into),
        pid_in_container: OptionalU32 = row.pid_in_container,
        uid: OptionalU32 = row.uid,
    }
}

impl Table for ProcessInfo {
    const NAME: &'static str = "processes";

    fn columns(rows: &[Self]) -> Vec<Column> {
        ProcessColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = ProcessColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let (texts, range) = columns.arguments.at(row);
            Some(Self {
                tgid: Tgid(columns.tgid.at(row)),
                at: Timestamp(columns.at_ns.at(row)),
                parent: columns.parent_tgid.get(row).map(Tgid),
                executable: columns.executable.get(row),
                arguments: range.map(|index| texts.value(index).to_owned()).collect(),
                cgroup: columns.cgroup_path.get(row),
                pid_in_container: columns.pid_in_container.get(row),
                uid: columns.uid.get(row),
            })
        }))
    }
}

columns! {
    CgroupColumns of row: CgroupInfo {
        id: U64 = row.id.0,
        path: Text = row.path.as_str(),
        container: OptionalText = row.container.as_ref().map(|id| id.as_str().into()),
        container_name: Later<OptionalText> = row.names.name.as_deref().map(Into::into),
        image: Later<OptionalText> = row.names.image.as_deref().map(Into::into),
        pod_namespace: Later<OptionalText> =
            row.names.pod.as_ref().map(|pod| pod.namespace.as_str().into()),
        pod_name: Later<OptionalText> = row.names.pod.as_ref().map(|pod| pod.name.as_str().into()),
    }
}

impl Table for CgroupInfo {
    const NAME: &'static str = "cgroups";

    fn columns(rows: &[Self]) -> Vec<Column> {
        CgroupColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = CgroupColumns::find(table)?;
        // The container is what the path says, if it says so.
        Ok(Rows::collect(table.len(), |row| {
            let text = |texts: &Option<Texts<'_>>| texts.as_ref()?.get(row);
            let pod = text(&columns.pod_namespace).zip(text(&columns.pod_name));
            let names = ContainerNames {
                name: text(&columns.container_name),
                image: text(&columns.image),
                pod: pod.map(|(namespace, name)| PodName { namespace, name }),
            };
            let id = CgroupId(columns.id.at(row));
            let cgroup = Self { names, ..Self::new(id, columns.path.at(row)) };
            let recorded = || ContainerId::new(&columns.container.get(row)?);
            Some(Self { container: cgroup.container.clone().or_else(recorded), ..cgroup })
        }))
    }
}
