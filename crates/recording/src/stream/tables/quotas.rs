//! `throttles`: when CPU quotas kept threads from running; `quotas`: those quotas. A row each.

use arrow_array::{Array as _, StructArray};

use super::{Rows, Table};
use crate::{
    CpuQuota, QuotaCount, Throttle,
    stream::{
        TableError,
        column::{Column, Text, Time, U32, U64, columns},
    },
    units::{CgroupId, Nanos, Tgid, Tid, Timestamp},
};

columns! {
    ThrottleColumns of row: Throttle {
        tid: U32 = row.tid.0,
        tgid: U32 = row.tgid.0,
        from_ns: Time = row.from.0,
        until_ns: Time = row.until.0,
        cgroup: U64 = row.cgroup.0,
    }
}

impl Table for Throttle {
    const NAME: &'static str = "throttles";

    fn columns(rows: &[Self]) -> Vec<Column> {
        ThrottleColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = ThrottleColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                tid: Tid(columns.tid.at(row)),
                tgid: Tgid(columns.tgid.at(row)),
                from: Timestamp(columns.from_ns.at(row)),
                until: Timestamp(columns.until_ns.at(row)),
                cgroup: CgroupId(columns.cgroup.at(row)),
            })
        }))
    }
}

columns! {
    QuotaColumns of row: CpuQuota {
        cgroup: U64 = row.cgroup.0,
        path: Text = row.path.as_str(),
        quota_ns: Time = row.quota.0,
        period_ns: Time = row.period.0,
        first_ns: Time = row.first.at.0,
        first_periods: U64 = row.first.periods,
        first_throttled_periods: U64 = row.first.throttled_periods,
        first_throttled_ns: Time = row.first.throttled.0,
        last_ns: Time = row.last.at.0,
        last_periods: U64 = row.last.periods,
        last_throttled_periods: U64 = row.last.throttled_periods,
        last_throttled_ns: Time = row.last.throttled.0,
    }
}

impl Table for CpuQuota {
    const NAME: &'static str = "quotas";

    fn columns(rows: &[Self]) -> Vec<Column> {
        QuotaColumns::from_rows(rows)
    }

    fn read(table: &StructArray) -> Result<Rows<Self>, TableError> {
        let columns = QuotaColumns::find(table)?;
        Ok(Rows::collect(table.len(), |row| {
            Some(Self {
                cgroup: CgroupId(columns.cgroup.at(row)),
                path: columns.path.at(row),
                quota: Nanos(columns.quota_ns.at(row)),
                period: Nanos(columns.period_ns.at(row)),
                first: QuotaCount {
                    at: Timestamp(columns.first_ns.at(row)),
                    periods: columns.first_periods.at(row),
                    throttled_periods: columns.first_throttled_periods.at(row),
                    throttled: Nanos(columns.first_throttled_ns.at(row)),
                },
                last: QuotaCount {
                    at: Timestamp(columns.last_ns.at(row)),
                    periods: columns.last_periods.at(row),
                    throttled_periods: columns.last_throttled_periods.at(row),
                    throttled: Nanos(columns.last_throttled_ns.at(row)),
                },
            })
        }))
    }
}
