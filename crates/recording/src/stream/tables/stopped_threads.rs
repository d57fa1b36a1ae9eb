//! `stopped_threads`: what kept threads stopped at the end, one row for each of them.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table};
use crate::{
    PeerProcess, StopOrigin, StoppedThread,
    stream::{
        TableError,
        column::{Column, Later, OptionalText, OptionalU32, U32, columns},
    },
    units::{Tgid, Tid},
};

columns! {
    StoppedThreadColumns of row: StoppedThread {
        tid: U32 = row.tid.0,
        tracer_tgid: OptionalU32 = tracer(row).map(|tracer| tracer.tgid.0),
        tracer_comm: OptionalText = tracer(row).map(|tracer| tracer.comm.as_str().into()),
        frozen_cgroup: OptionalText = frozen_cgroup(row).map(Into::into),
        frozen_asleep: Later<OptionalText> = frozen_asleep(row).map(Into::into),
    }
}

fn tracer(row: &StoppedThread) -> Option<&PeerProcess> {
    match &row.origin {
        StopOrigin::Tracer(tracer) => Some(tracer),
        StopOrigin::FrozenCgroup(_) | StopOrigin::FrozenAsleep(_) => None,
    }
}

fn frozen_cgroup(row: &StoppedThread) -> Option<&str> {
    match &row.origin {
        StopOrigin::FrozenCgroup(path) => Some(path),
        StopOrigin::Tracer(_) | StopOrigin::FrozenAsleep(_) => None,
    }
}

fn frozen_asleep(row: &StoppedThread) -> Option<&str> {
    match &row.origin {
        StopOrigin::FrozenAsleep(path) => Some(path),
        StopOrigin::Tracer(_) | StopOrigin::FrozenCgroup(_) => None,
    }
}

impl Table for StoppedThread {
    const NAME: &'static str = "stopped_threads";

    fn columns(rows: &[Self]) -> Vec<Column> {
        StoppedThreadColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = StoppedThreadColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            let tracer = columns.tracer_tgid.get(row).map(|tgid| {
                let comm = columns.tracer_comm.get(row).unwrap_or_default();
                StopOrigin::Tracer(PeerProcess { tgid: Tgid(tgid), comm })
            });
            let cgroup = || columns.frozen_cgroup.get(row).map(StopOrigin::FrozenCgroup);
            let asleep = || {
                let texts = columns.frozen_asleep.as_ref()?;
                texts.get(row).map(StopOrigin::FrozenAsleep)
            };
            let origin = tracer.or_else(cgroup).or_else(asleep)?;
            Some(Self { tid: Tid(columns.tid.at(row)), origin })
        }))
    }
}
