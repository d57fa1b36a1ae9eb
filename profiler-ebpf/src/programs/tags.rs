//! What threads are doing in their programs' own words, read at each switch-out and wake, in the
//! thread's own context: nothing else can change it meanwhile.

use core::{
    ffi::c_void,
    mem::offset_of,
    ptr::{self, read_volatile},
};

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use profiler_ebpf::{
    loss::Loss,
    record::kind,
    tags::{
        CONTEXT_BYTES, MAX_ATTRIBUTES, TagChangeRecord, TagSetRecord, TagSource, USED_WORDS, form,
    },
};

use super::{
    config::{CONFIG, frozen},
    labels::read_labels,
    maps::{SENT_TAGS, TAG_EPOCH, TAG_SCRATCH, TAG_SOURCES},
    ring::{count_loss, header, try_send},
    stack::{Scratch, mix},
    task::{Task, peek_user},
    task_local::TaskLocal,
};

/// What a context has in the byte that says whether it can be read.
const BEING_WRITTEN: u64 = 0;
const WHOLE: u64 = 1;

/// What is kept of a thread's tags.
#[repr(C)]
pub struct ThreadTags {
    /// The set that user space knows the thread to have; 0 for none.
    set: u64,
    /// When the thread was last found to have it.
    checked_ns: u64,
    /// The epoch of [`TAG_SOURCES`] in which the rest was found out.
    epoch: u64,
    /// As in [`TagSource`].
    offset: i64,
    /// As in [`TagSource`].
    module: u64,
    /// As in [`TagSource`]; [`form::NONE`] if the thread's process has no source.
    form: u64,
    /// As in [`TagSource`].
    go: u64,
}

/// Forgets what is known of a thread that has executed another program.
#[inline(always)]
pub fn forget(local: &mut TaskLocal, tgid: u32) {
    let _absent = TAG_SOURCES.remove(tgid);
    let tags = &mut local.tags;
    tags.set = 0;
    tags.epoch = 0;
    tags.form = form::NONE;
}

/// Checks whether the current thread, whose `local` this is, has other tags than before. One load
/// where no process has any.
#[inline(always)]
pub fn check(local: &mut TaskLocal, scratch: Scratch, now: u64) {
    let Some(epoch) = TAG_EPOCH.get_ptr(0) else { return };
    // SAFETY: the entry of an array lives as long as the map.
    let epoch = unsafe { read_volatile(epoch) };
    if epoch == 0 {
        return;
    }
    let tags = &local.tags;
    if tags.epoch == epoch && tags.form | tags.set == 0 {
        return;
    }
    check_tags(local, scratch as u32, now, epoch);
}

/// The rest of [`check`], which the verifier proves once and not at each call.
#[unsafe(no_mangle)]
extern "C" fn check_tags(local: *mut TaskLocal, scratch: u32, now: u64, epoch: u64) -> u64 {
    // SAFETY: callers pass the current thread's own; the verifier checks it.
    let Some(local) = (unsafe { local.as_mut() }) else { return 0 };
    let task = Task::current();
    let tags = &mut local.tags;
    if tags.epoch != epoch {
        find_source(tags, task, epoch);
    }
    let set = read_set(tags, scratch, task);
    if set == tags.set || send_change(tags, scratch, task, set, now).is_ok() {
        tags.set = set;
        tags.checked_ns = now;
    }
    0
}

/// The record of the programs with this [`Scratch`].
#[inline(always)]
pub fn find_record(scratch: u32) -> Option<&'static mut TagSetRecord> {
    // SAFETY: this CPU's own, and `Scratch` says why nothing else uses it now.
    TAG_SCRATCH.get_ptr_mut(scratch).map(|record| unsafe { &mut *record })
}

/// Finds where the threads of the current task's process have their tags.
#[inline(always)]
fn find_source(tags: &mut ThreadTags, task: Task, epoch: u64) {
    tags.form = form::NONE;
    let Some(source) = TAG_SOURCES.get_ptr(task.tgid()) else {
        tags.epoch = epoch;
        return;
    };
    // SAFETY: an entry that user space removes stays readable while this runs.
    let TagSource { mark_address, mark, offset, module, form, go } = unsafe { &*source };
    // Another program, or a page that is not in memory now: it is tried again.
    if peek_user::<u64>(*mark_address) != *mark {
        return;
    }
    tags.offset = *offset;
    tags.module = *module;
    tags.form = *form;
    tags.go = go.0;
    tags.epoch = epoch;
}

/// Reads what the current thread says into the record of this [`Scratch`], and returns its id: 0 if
/// it says nothing, or nothing that can be.
#[inline(always)]
fn read_set(tags: &ThreadTags, scratch: u32, task: Task) -> u64 {
    if tags.form == form::NONE {
        return 0;
    }
    let first: u64 = peek_user(find_slot(tags, task));
    match tags.form {
        _ if first == 0 => 0,
        form::CONTEXT => read_context(first, scratch, task),
        form => read_labels(scratch, first, form, tags.go),
    }
}

/// Reads the context at an address, likewise.
#[inline(always)]
fn read_context(context: u64, scratch: u32, task: Task) -> u64 {
    let Some(record) = find_record(scratch) else { return 0 };
    // SAFETY: the helper writes as many bytes as are named.
    let failed = unsafe {
        bpf_probe_read_user(
            record.context.as_mut_ptr().cast(),
            CONTEXT_BYTES as u32,
            context as *const c_void,
        )
    };
    if failed != 0 {
        count_loss(Loss::TagsRefused);
        return 0;
    }
    let last = record.context[3];
    let is_whole = last & 0xff;
    let bytes = (last >> 16) & 0xffff;
    if is_whole == BEING_WRITTEN {
        count_loss(Loss::TagsBeingWritten);
        return 0;
    }
    if is_whole != WHOLE || bytes > MAX_ATTRIBUTES as u64 {
        count_loss(Loss::TagsRefused);
        return 0;
    }
    record.attributes_len = bytes as u32;
    if bytes != 0 && !read_attributes(record, context + CONTEXT_BYTES as u64) {
        count_loss(Loss::TagsRefused);
        return 0;
    }
    identify(record, task.tgid())
}

/// The address where the current thread has the pointer to its context; 0 if it has no such place.
#[inline(always)]
fn find_slot(tags: &ThreadTags, task: Task) -> u64 {
    let own = task.current_thread_pointer();
    if own == 0 || tags.module == 0 {
        return own.wrapping_add_signed(tags.offset);
    }
    // `struct dtv_t { void *val; void *to_free; }`, and before the first the number of them:
    // <https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/generic/dl-dtv.h;hb=glibc-2.36>
    let vector: u64 = peek_user(own + 8);
    let length: u64 = peek_user(vector.wrapping_sub(16));
    if length < tags.module {
        return 0;
    }
    let block: u64 = peek_user(vector + tags.module * 16);
    if block == 0 || block == u64::MAX { 0 } else { block.wrapping_add_signed(tags.offset) }
}

/// Reads the attributes, and ends them with zeroes up to a whole word. False if they can't be read.
#[inline(always)]
fn read_attributes(record: &mut TagSetRecord, address: u64) -> bool {
    let bytes = read_length(record);
    if bytes > MAX_ATTRIBUTES {
        return false;
    }
    // SAFETY: the index is at most the last word's; the helper writes as many bytes as are named.
    unsafe {
        *record.attributes.get_unchecked_mut(bytes / 8) = 0;
        bpf_probe_read_user(
            record.attributes.as_mut_ptr().cast(),
            bytes as u32,
            address as *const c_void,
        ) == 0
    }
}

/// The id of what was read: a hash that no program can aim at another's, as it is seeded.
#[inline(always)]
pub fn identify(record: &mut TagSetRecord, tgid: u32) -> u64 {
    let [one, two, three, last] = record.context;
    let seed = frozen(&CONFIG.stack_seed) ^ u64::from(tgid);
    // Without the flags, which say nothing of what the thread does.
    let mut id = mix(mix(mix(mix(seed, one), two), three), last & 0xffff_0000);
    let mut index = 0;
    while index < USED_WORDS && index * 8 < read_length(record) {
        // SAFETY: below the length.
        id = mix(id, unsafe { *record.attributes.get_unchecked(index) });
        index += 1;
    }
    id | 1
}

/// Bytes of the attributes, read anew each time: what the verifier concludes about a variable from
/// each comparison, it would carry along.
#[inline(always)]
pub fn read_length(record: &TagSetRecord) -> usize {
    // SAFETY: a reference can be read from.
    unsafe { read_volatile(&raw const record.attributes_len) as usize }
}

/// Sends that a thread changes to another set, and the set before it if user space has not got it.
/// What finds no room is sent at the next check: it says since when the thread's set is not known.
#[inline(always)]
fn send_change(tags: &ThreadTags, scratch: u32, task: Task, set: u64, now: u64) -> Result<(), ()> {
    if set != 0 && SENT_TAGS.get_ptr(set).is_none() {
        let Some(record) = find_record(scratch) else { return Err(()) };
        let mut bytes = read_length(record);
        if bytes > MAX_ATTRIBUTES {
            bytes = MAX_ATTRIBUTES;
        }
        let len = TagSetRecord::len_for_attributes(bytes);
        let kind = if tags.form == form::CONTEXT { kind::TAG_SET } else { kind::LABEL_SET };
        record.header = header(kind, len);
        record.id = set;
        record.ns = now;
        record.tgid = task.tgid();
        try_send(ptr::from_ref(record).cast(), len).inspect_err(|()| {
            count_loss(Loss::RingFullTags);
        })?;
        let _full = SENT_TAGS.insert(set, 1, 0);
    }
    let change = TagChangeRecord {
        header: header(kind::TAG_CHANGE, size_of::<TagChangeRecord>()),
        tid: task.tid(),
        tgid: task.tgid(),
        ns: now,
        since_ns: tags.checked_ns,
        set,
    };
    try_send((&raw const change).cast(), size_of::<TagChangeRecord>()).inspect_err(|()| {
        count_loss(Loss::RingFullTags);
    })
}

const _: () = {
    // The bytes that say whether a context is whole, and how many attributes it has, are in its last
    // word.
    assert!(offset_of!(TagSetRecord, context) % 8 == 0 && CONTEXT_BYTES == 24 + 4);
};
