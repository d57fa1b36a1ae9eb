//! What a thread waited for that waited for memory, by the functions of its kernel stack.
//!
//! ```text
//! leaf                                                                                    root
//! folio_wait_bit_common  filemap_fault  __do_fault  handle_mm_fault  exc_page_fault
//!                        `-- a page of a mapped file is read
//! reclaim_throttle  shrink_node  try_to_free_mem_cgroup_pages  try_charge_memcg  filemap_fault
//!                                                              `-- a memory limit comes first:
//!                                                                  it is why the kernel reclaims
//! ```

use crate::blame::cause::kernel_locks::is_lock_function;

/// A wait for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MemoryWait {
    /// A page of a mapped file that is not in memory.
    MappedFile,
    /// A page that was swapped out.
    SwapIn,
    /// A page that the kernel moves to another place in memory.
    PageMigration,
    /// The thread's cgroup is at its memory limit: the thread frees some of the cgroup's memory.
    CgroupLimit,
    /// The machine has too little free memory: the thread frees some (direct reclaim).
    DirectReclaim,
    /// No free memory lies together: the thread moves pages (direct compaction).
    Compaction,
}

impl MemoryWait {
    /// Describes it.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::MappedFile => "waits for a page of a mapped file (page fault)",
            Self::SwapIn => "waits for a page from swap (page fault)",
            Self::PageMigration => "waits for a page that the kernel moves (page fault)",
            Self::CgroupLimit => "waits at its cgroup's memory limit: memory is reclaimed first",
            Self::DirectReclaim => "waits for free memory: reclaims some first (direct reclaim)",
            Self::Compaction => "waits for free memory: moves pages first (direct compaction)",
        }
    }

    /// Describes it where a disk ends it.
    pub(super) fn describe_at_disk(self) -> &'static str {
        match self {
            Self::MappedFile => "waits for the disk (page fault in a mapped file)",
            Self::SwapIn => "waits for the disk (page fault: the page is in swap)",
            Self::PageMigration | Self::CgroupLimit | Self::DirectReclaim | Self::Compaction => {
                self.describe()
            }
        }
    }
}

/// How functions begin by which a thread meets its cgroup's memory limit. Those of Linux 5.10 to 6.18:
/// `memory.max` and `memory.high`, and the OOM killer of a cgroup.
const CGROUP_LIMIT: &[&str] = &[
    "try_charge",
    "mem_cgroup_handle_over_high",
    "__mem_cgroup_handle_over_high",
    "mem_cgroup_oom_synchronize",
    "mem_cgroup_out_of_memory",
];

/// How functions begin by which a thread that wants memory reclaims some of the machine's.
const DIRECT_RECLAIM: &[&str] = &[
    "__alloc_pages_direct_reclaim",
    "__perform_reclaim",
    "throttle_direct_reclaim",
    // Not `try_to_free_mem_cgroup_pages`, which a write to `memory.reclaim` calls as well.
    "try_to_free_pages",
];

/// How functions begin by which a thread that wants memory moves pages.
const DIRECT_COMPACTION: &[&str] = &["__alloc_pages_direct_compact", "try_to_compact_pages"];

/// How functions begin that wait for a page that is being moved, also from `do_swap_page`.
const MIGRATION: &[&str] =
    &["migration_entry_wait", "softleaf_entry_wait", "pmd_migration_entry_wait"];

/// How functions begin that read a page back from swap, one of memory that is shared as well.
const SWAP_IN: &[&str] = &["do_swap_page", "swapin_", "swap_cluster_readahead", "shmem_swapin"];

/// How functions begin that read a page of a mapped file. Some filesystems have one of their own
/// around it.
const MAPPED_FILE: &[&str] = &["filemap_fault"];

/// Finds what a thread waited for that waited for memory, by the functions of its kernel stack, leaf
/// first; none if it waited for something else, a lock on the way for example.
pub(super) fn find_memory_wait(functions: &[&str]) -> Option<MemoryWait> {
    let has = |beginnings: &[&str]| {
        functions.iter().any(|name| beginnings.iter().any(|it| name.starts_with(it)))
    };
    // Who reclaims memory waits for the memory, whatever lock or disk that takes.
    if has(CGROUP_LIMIT) {
        return Some(MemoryWait::CgroupLimit);
    }
    if has(DIRECT_RECLAIM) {
        return Some(MemoryWait::DirectReclaim);
    }
    if has(DIRECT_COMPACTION) {
        return Some(MemoryWait::Compaction);
    }
    if functions.first().is_none_or(|leaf| is_lock_function(leaf)) {
        return None;
    }
    if has(MIGRATION) {
        Some(MemoryWait::PageMigration)
    } else if has(SWAP_IN) {
        Some(MemoryWait::SwapIn)
    } else if has(MAPPED_FILE) {
        Some(MemoryWait::MappedFile)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{MemoryWait, find_memory_wait};

    fn check(functions: &str, expected: Option<MemoryWait>) {
        assert_eq!(
            find_memory_wait(&functions.split_whitespace().collect::<Vec<_>>()),
            expected,
            "{functions}"
        );
    }

    #[test]
    fn page_faults_say_where_the_page_was() {
        for (functions, expected) in [
            // 5.15, 6.1 and 6.18.
            (
                "__lock_page_or_retry filemap_fault __xfs_filemap_fault __do_fault handle_mm_fault",
                MemoryWait::MappedFile,
            ),
            (
                "folio_wait_bit_common __filemap_get_folio filemap_fault ext4_filemap_fault do_fault",
                MemoryWait::MappedFile,
            ),
            (
                "folio_wait_bit_common filemap_fault __do_fault do_fault __handle_mm_fault \
                 handle_mm_fault do_user_addr_fault exc_page_fault asm_exc_page_fault",
                MemoryWait::MappedFile,
            ),
            // The file is read in while the disk's queue is full.
            (
                "blk_mq_get_tag submit_bio_noacct page_cache_ra_order filemap_fault __do_fault",
                MemoryWait::MappedFile,
            ),
            ("__lock_page_or_retry do_swap_page handle_mm_fault", MemoryWait::SwapIn),
            (
                "folio_wait_bit_common __folio_lock_or_retry do_swap_page handle_mm_fault",
                MemoryWait::SwapIn,
            ),
            ("folio_wait_bit_common shmem_swapin_folio shmem_fault", MemoryWait::SwapIn),
            (
                "migration_entry_wait_on_locked migration_entry_wait do_swap_page handle_mm_fault",
                MemoryWait::PageMigration,
            ),
            ("softleaf_entry_wait_on_locked do_swap_page", MemoryWait::PageMigration),
        ] {
            check(functions, Some(expected));
        }
    }

    #[test]
    fn a_limit_comes_before_what_is_done_to_keep_it() {
        for (functions, expected) in [
            // 5.15 and 6.1, 6.18; for a page of a file, and for memory of one's own.
            (
                "schedule_timeout reclaim_throttle shrink_node do_try_to_free_pages \
                 try_to_free_mem_cgroup_pages try_charge_memcg charge_memcg __mem_cgroup_charge \
                 filemap_add_folio filemap_fault __do_fault",
                MemoryWait::CgroupLimit,
            ),
            (
                "folio_wait_bit_common shrink_folio_list shrink_lruvec shrink_node \
                 try_to_free_mem_cgroup_pages try_charge_memcg alloc_anon_folio handle_mm_fault",
                MemoryWait::CgroupLimit,
            ),
            (
                "schedule_timeout_killable mem_cgroup_handle_over_high exit_to_user_mode_prepare",
                MemoryWait::CgroupLimit,
            ),
            ("__mem_cgroup_handle_over_high resume_user_mode_work", MemoryWait::CgroupLimit),
            ("mem_cgroup_oom_synchronize pagefault_out_of_memory", MemoryWait::CgroupLimit),
            (
                "__mutex_lock_killable_slowpath mem_cgroup_out_of_memory try_charge_memcg",
                MemoryWait::CgroupLimit,
            ),
            (
                "reclaim_throttle shrink_node try_to_free_pages __alloc_pages_slowpath.constprop.0",
                MemoryWait::DirectReclaim,
            ),
            (
                "throttle_direct_reclaim.isra.0 try_to_free_pages __alloc_frozen_pages_noprof \
                 filemap_fault",
                MemoryWait::DirectReclaim,
            ),
            (
                "folio_wait_bit_common migrate_pages compact_zone try_to_compact_pages \
                 __alloc_pages_direct_compact do_anonymous_page handle_mm_fault",
                MemoryWait::Compaction,
            ),
        ] {
            check(functions, Some(expected));
        }
    }

    #[test]
    fn other_waits_are_not_for_memory() {
        for functions in [
            // Locks on the way to a page.
            "rwsem_down_read_slowpath lock_mm_and_find_vma do_user_addr_fault exc_page_fault",
            "rwsem_down_read_slowpath down_read filemap_fault __do_fault handle_mm_fault",
            // A read, and a write that waits for the disk.
            "folio_wait_bit_common filemap_get_pages filemap_read vfs_read",
            "balance_dirty_pages balance_dirty_pages_ratelimited_flags fault_dirty_shared_page",
            "folio_wait_writeback ext4_page_mkwrite do_page_mkwrite handle_mm_fault",
            // The kernel's own thread, which nobody waits in; and who asks for a reclaim.
            "schedule_timeout kswapd kthread",
            "reclaim_throttle shrink_node balance_pgdat kswapd kthread",
            "reclaim_throttle shrink_node try_to_free_mem_cgroup_pages memory_reclaim vfs_write",
            "__mutex_lock mem_cgroup_oom_control_write cgroup_file_write",
            "",
        ] {
            check(functions, None);
        }
    }
}
