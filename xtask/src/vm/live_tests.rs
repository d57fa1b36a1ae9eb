//! Which of the tests against the running kernel are run on other kernels too: those whose truth does
//! not hang on how fast a machine is.

use std::{collections::BTreeSet, time::Duration};

use super::{cpus::Cpus, kernel, release::Release, task::Task};

/// What one may take on an emulated machine that shares its CPU.
const LIMIT: Duration = Duration::from_secs(180);

/// A test of `tests/tests`.
pub struct LiveTest {
    /// The program that it is in.
    program: &'static str,
    /// The test's name in that program.
    name: &'static str,
    files: Files,
    guests: Guests,
    releases: Releases,
}

/// Which of a kernel's tests are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every test: somebody asked for this kernel.
    All,
    /// What `cargo xtask test` has time for: on two CPUs all tests on all kernels took 14 minutes.
    WithinTests,
}

/// The kernels on which `cargo xtask test` runs a test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Releases {
    /// The test is about what differs from kernel to kernel, or the first that would notice.
    Each,
    /// The test is about what the kernel half does alike on all of them.
    Oldest,
    /// The test takes modules that no other kernel has, or lets be loaded, also when somebody asks for it.
    OldestAlone,
}

/// The guests that a test is run on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guests {
    /// The test is run on guests with the usual CPUs alone.
    WithUsualCpus,
    /// The test is run on all of them.
    All,
}

/// Where the files lie that a test works on.
#[derive(Clone, Copy)]
enum Files {
    /// Files are in memory, where no read or write waits.
    InMemory,
    /// Files are on the guest's disk.
    OnDisk,
}

impl Files {
    /// A folder of the guest.
    fn folder(self) -> &'static str {
        match self {
            Self::InMemory => "/scratch",
            Self::OnDisk => "/disk",
        }
    }
}

/// A test that each kernel has to pass within `cargo xtask test`.
const fn test(program: &'static str, name: &'static str) -> LiveTest {
    let (files, guests, releases) = (Files::InMemory, Guests::WithUsualCpus, Releases::Each);
    LiveTest { program, name, files, guests, releases }
}

const fn test_on_oldest(program: &'static str, name: &'static str) -> LiveTest {
    LiveTest { releases: Releases::Oldest, ..test(program, name) }
}

/// The tests in the order in which they run, each with the part of the kernel that it is about.
pub const TESTS: [LiveTest; 22] = [
    // What is kept for each CPU that is there, and that may come.
    LiveTest {
        guests: Guests::All,
        ..test("cpus", "rings_are_as_large_as_promised_and_nothing_is_lost")
    },
    // Registers and arguments of syscalls, copies of user stacks.
    test("causes", "a_futex_waiter_waits_for_who_wakes_it"),
    test_on_oldest("causes", "a_mutex_is_waited_for_until_its_holder_lets_go"),
    // Files and their inodes.
    test_on_oldest("causes", "a_client_waits_for_its_server_over_pipes"),
    test("causes", "epoll_waits_for_who_writes_to_the_pipe"),
    // Interrupts and softirqs.
    test_on_oldest("causes", "a_sleeper_waits_for_nobody"),
    test("causes", "a_timer_that_fires_over_a_hog_does_not_accuse_it"),
    // Which device an interrupt belongs to.
    LiveTest { files: Files::OnDisk, ..test("chains", "a_read_by_io_uring_waits_for_the_disk") },
    LiveTest {
        files: Files::OnDisk,
        ..test_on_oldest("chains", "an_fsync_waits_for_the_disk_behind_the_journal")
    },
    // Life and death of threads.
    test_on_oldest("causes", "a_parent_waits_for_its_child"),
    // The survey, and what it finds asleep.
    test_on_oldest("causes", "a_thread_that_is_stuck_all_along_has_a_ledger_that_closes"),
    // Calls of threads that sleep, and memory beside their futexes.
    test("open_chains", "two_threads_that_want_each_others_mutex_are_a_deadlock"),
    // One wake after the other.
    test_on_oldest("chains", "everybody_that_a_broadcast_wakes_waits_for_the_broadcaster"),
    // Kernel stacks, and which of their frames are the tracing's.
    test_on_oldest("stacks", "what_the_tracing_does_is_no_part_of_a_stack"),
    // Cgroups.
    test("targets", "a_cgroup_brings_its_subtree_and_nothing_else"),
    // CPU quotas, which are seen in another way before 6.18.
    test("quotas", "a_thread_under_a_quota_is_throttled_by_it"),
    test_on_oldest("quotas", "a_client_of_a_throttled_server_waits_for_the_quota"),
    // Locks of files, whose fields have other names since 6.9.
    test_on_oldest("evidence", "who_has_a_file_lock_is_known_whenever_somebody_is_refused_it"),
    // Maps and rings.
    test_on_oldest("loss", "a_ring_that_is_full_is_counted_and_dated"),
    test("loss", "without_task_storage_a_map_stands_in"),
    // CPUs that go and come back: not every machine lets one go, these do.
    test_on_oldest("faults", "machine::a_cpu_that_goes_and_comes_back_is_seen_again"),
    // A file system over the network, whose client and server are modules.
    LiveTest {
        releases: Releases::OldestAlone,
        ..test("faults", "nfs::a_program_whose_server_is_stopped_costs_the_names_of_its_functions")
    },
];

impl LiveTest {
    /// The program that it is in.
    pub fn program(&self) -> &'static str {
        self.program
    }

    /// `program::name`
    pub fn title(&self) -> String {
        format!("{}::{}", self.program, self.name)
    }

    /// The test as a task of a guest with these CPUs.
    pub fn task(&self, cpus: Cpus) -> Task {
        let Self { program, name, files, .. } = self;
        Task {
            name: self.title(),
            limit: LIMIT,
            command: format!(
                "cd /tests && CARGO_TARGET_DIR={} {} ./{program} --exact {name} --test-threads=1",
                files.folder(),
                cpus.variable()
            ),
        }
    }
}

/// The tests for a guest with this kernel and these CPUs.
pub fn select(
    release: Release,
    cpus: Cpus,
    selection: Selection,
) -> impl Iterator<Item = &'static LiveTest> {
    const ALL: &[LiveTest] = &TESTS;
    let is_for_cpus = move |test: &&LiveTest| cpus == Cpus::USUAL || test.guests == Guests::All;
    let is_for_release = move |test: &&LiveTest| match selection {
        Selection::All => {
            test.releases != Releases::OldestAlone || release == kernel::OLDEST_THAT_RECORDS
        }
        Selection::WithinTests => {
            test.releases == Releases::Each || release <= kernel::OLDEST_THAT_RECORDS
        }
    };
    ALL.iter().filter(is_for_cpus).filter(is_for_release)
}

/// The tests for an emulated arm64 machine: not those about a disk, and CPUs come and go here otherwise.
pub fn tests_on_arm64() -> impl Iterator<Item = &'static LiveTest> {
    const ALL: &[LiveTest] = &TESTS;
    let is_in_memory = |test: &&LiveTest| matches!(test.files, Files::InMemory);
    ALL.iter().filter(is_in_memory).filter(|test| !["cpus", "faults"].contains(&test.program))
}

/// The programs that the tests are in.
pub fn programs() -> BTreeSet<&'static str> {
    TESTS.iter().map(|test| test.program).collect()
}

/// Whether a test ran, and well: a name that is no test's is a success of none, and so is one that finds
/// that it can't.
pub fn has_passed(status: i32, output: &str) -> bool {
    status == 0 && output.contains("test result: ok. 1 passed;") && !output.contains("NOT RUN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_with_other_cpus_run_the_tests_of_cpus_alone() {
        let select = |cpus| select(kernel::OLDEST_THAT_RECORDS, cpus, Selection::WithinTests);
        assert_eq!(select(Cpus::USUAL).count(), TESTS.len());
        let others: Vec<&str> = select(Cpus::OTHERS[0]).map(|test| test.program).collect();
        assert_eq!(others, ["cpus"]);
    }

    #[test]
    fn a_newer_kernel_runs_some_of_them_unless_somebody_asks_for_it() {
        let count = |selection| select(Release::new(6, 12), Cpus::USUAL, selection).count();
        assert_eq!(count(Selection::All), TESTS.len() - 1);
        assert_eq!(count(Selection::WithinTests), 9);
    }

    #[test]
    fn a_test_that_is_not_there_has_not_passed() {
        assert!(has_passed(0, "test result: ok. 1 passed; 0 failed; 0 ignored\n"));
        assert!(!has_passed(0, "test result: ok. 0 passed; 0 failed; 0 ignored\n"));
        assert!(!has_passed(0, "NOT RUN: why\ntest result: ok. 1 passed; 0 failed; 0 ignored\n"));
        assert!(!has_passed(101, "test result: FAILED. 0 passed; 1 failed\n"));
    }
}
