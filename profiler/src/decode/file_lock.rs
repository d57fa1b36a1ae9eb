//! Decodes what happened to locks on files.

use offwake_recording::{
    FileLockEvent, FileLockEventKind,
    units::{Tgid, Tid, Timestamp},
};
use profiler_ebpf::{
    file_lock::{FileLockRecord, file_lock_event},
    record::kind,
};

use super::DecodeError;

pub(super) fn decode_file_lock(raw: &FileLockRecord) -> Result<FileLockEvent, DecodeError> {
    let kind = match raw.event {
        file_lock_event::REFUSED => FileLockEventKind::Refused,
        file_lock_event::RELEASED => FileLockEventKind::Released,
        file_lock_event::ACQUIRED => FileLockEventKind::Acquired,
        other => {
            let value = u64::from(other);
            return Err(DecodeError::Value { kind: kind::FILE_LOCK, field: "event", value });
        }
    };
    Ok(FileLockEvent {
        at: Timestamp(raw.ns),
        tid: Tid(raw.tid),
        tgid: Tgid(raw.tgid),
        kind,
        holder: Some(raw.holder_tgid).filter(|&tgid| tgid != 0).map(Tgid),
        device: raw.file.device,
        inode: raw.file.number,
    })
}
