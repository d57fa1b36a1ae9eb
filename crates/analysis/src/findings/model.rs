//! Findings as every output has them.

use offwake_recording::units::{Nanos, Tgid, Tid};
use schemars::JsonSchema;
use serde::Serialize;
use strum::IntoStaticStr;

use super::{
    blocked_loops::EventLoop, coroutines::Coroutines, hop_tree::HopTree, io_limits::FindingIoLimit,
};

/// What kind of trouble a finding is. Earlier kinds come first on every screen.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FindingKind {
    /// Threads wait for each other, and will for ever.
    Deadlock,
    /// Threads are stuck in waits that had not ended when the window did.
    StillWaiting,
    /// Threads were not allowed to run: their cgroup had used up its quota.
    Throttled,
    /// Threads could have run, and other threads had the CPUs, for much of the time.
    CpuStarvation,
    /// Threads waited.
    Wait,
    /// Threads ran.
    OnCpu,
    /// Threads slept on purpose.
    Sleep,
}

/// Everything that a screen shows first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Findings {
    /// What holds the target up, the most important first.
    #[serde(rename = "findings")]
    pub list: Vec<Finding>,
    /// What the target's threads did with their time.
    pub activity: TargetActivity,
    /// What the target is, if it is one process, as an engineer would call it: `python3 web2.py`.
    #[serde(skip)]
    pub target_program: Option<String>,
    /// The same time as the findings', all paths of it: what pictures are drawn of.
    #[serde(skip)]
    pub hop_tree: HopTree,
}

/// What the target's threads did with their time, as findings count it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TargetActivity {
    /// The time in which they ran, or waited for a CPU or anything else, but for something to do:
    /// what the shares of findings are of.
    pub active_ns: Nanos,
    /// How many threads that time is of, added up.
    pub active_threads: u64,
    /// The time in which they ran.
    pub on_cpu_ns: Nanos,
    /// How many other threads did nothing but wait for something to do.
    pub idle_threads: u64,
    /// The time in which they waited for something to do, those and others.
    pub idle_ns: Nanos,
    /// Of that, the time of waits that had not ended when the window did: such a thread may have had
    /// something to do, and nothing says so.
    pub open_ns: Nanos,
    /// How many findings there are that matter less than those that are listed.
    pub findings_left_out: u64,
    /// What runs on the target's threads, if nothing is seen of it as it waits.
    #[serde(skip)]
    pub coroutines: Option<Coroutines>,
}

/// One thing that holds the target up.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// What kind of trouble it is.
    pub kind: FindingKind,
    /// The part of the target's active time (`activity.active_ns`), from 0 to 1.
    pub share: f64,
    /// The time that it took, added up over all threads.
    pub ns: Nanos,
    /// How many threads that was.
    pub threads: u64,
    /// How many waits it is; 0 for time on a CPU or in its queue.
    pub count: u64,
    /// The longest of them.
    pub longest_ns: Nanos,
    /// Whether these waits had not ended when the window did.
    pub still_waiting: bool,
    /// The chain from those who waited to the cause: the path on which most of the time was spent.
    pub chain: Vec<FindingHop>,
    /// What the end of the chain did.
    pub cause: FindingCause,
    /// The number of a finding before this one in the list that has the same cause, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_cause_as: Option<usize>,
    /// What it and the findings after it with the same cause add up to, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_same_cause: Option<SameCauseSum>,
    /// The finding in one line.
    pub text: String,
    /// The finding as a tree, the waiter first: what screens show.
    pub lines: Vec<FindingLine>,
    /// The disk that it is about, if it is about one that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<FindingDisk>,
}

/// What the findings with one cause add up to. Each is about other waits, or about other threads, so that no
/// time is counted twice.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SameCauseSum {
    /// The numbers of those that come after the first one in the list, counted from 1.
    pub findings: Vec<usize>,
    /// The part of the target's active time (`activity.active_ns`) that all of them lost to the cause, from 0
    /// to 1.
    pub share: f64,
    /// How much time.
    pub ns: Nanos,
}

/// A disk that threads waited for.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FindingDisk {
    /// The kernel's name of the filesystem's block device: `sda1`; empty if it is on several.
    pub device: String,
    /// What kind of filesystem it is: `ext4`.
    pub filesystem: String,
    /// Where that is mounted.
    pub mount_point: String,
    /// The whole disks below the device; none if they are not known.
    pub disks: Vec<String>,
    /// The file, if it was one that the waits were on.
    pub file: Option<String>,
    /// The I/O limit that those who waited for it are under, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<FindingIoLimit>,
    /// Which other programs read and wrote most on the same disk meanwhile, or waited most for it.
    pub others: Vec<DiskUser>,
}

/// A program that used a disk, or waited for it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DiskUser {
    /// The program.
    pub program: String,
    /// The process, if it was one only.
    pub pid: Option<Tgid>,
    /// The block device, if it is another one on the same disk.
    pub device: Option<String>,
    /// How many threads of it waited.
    pub threads: u64,
    /// How long its threads waited for it, added up.
    pub ns: Nanos,
    /// How many bytes of reads it submitted; none if that was not counted.
    pub read_bytes: Option<u64>,
    /// How many bytes it wrote, at least: the larger one of what it made dirty in the page cache, and of
    /// what it submitted itself. None if that was not counted.
    pub written_bytes: Option<u64>,
}

impl Finding {
    /// Returns whether the end of the chain is known. Time that belongs to no thread can have a cause
    /// all the same: a process was stopped, or TCP held data back.
    #[must_use]
    pub fn is_cause_known(&self) -> bool {
        matches!(self.cause.reason, None | Some("stopped" | "tcp_timer"))
    }
}

/// Threads of one program on a chain.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FindingHop {
    /// The program: `postgres`.
    pub program: String,
    /// What an interpreter runs, or the file that a single process was started on: `web2.py`.
    pub script: Option<String>,
    /// The process, if it was one only.
    pub pid: Option<Tgid>,
    /// The title that the process gave itself: `UPDATE waiting`.
    pub title: Option<String>,
    /// The thread's own name, if it was one only and has one.
    pub thread_name: Option<String>,
    /// The label of the container.
    pub container: Option<String>,
    /// How many processes; 1 if nearly all of the time is one's.
    pub processes: u64,
    /// How many threads of these; 1 if nearly all of the time is one's.
    pub threads: u64,
    /// The function in which they slept or worked.
    pub function: Option<String>,
    /// What they were in words: `waits for its client`.
    pub what: String,
    /// The time that went through here.
    pub ns: Nanos,
    /// The thread, in chains of waits that had not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<Tid>,
    /// How they slept while others waited for them, if a sleep is what these waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sleep: Option<FindingSleep>,
    /// The very thing that they waited on, if nearly all of the time was on one that is known: `tcp 10.0.0.2:5432`,
    /// `/srv/jobs`, `futex 0x7f01`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_on: Option<String>,
    /// The function of their language's library in which theirs waited: `Queue.get`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library_function: Option<String>,
    /// The event loop that they blocked: they waited in the middle of one of its tasks, so that no other went on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_loop: Option<EventLoop>,
    /// What is said of them behind the function: `380 ms at a time while 5 threads wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addition: Option<String>,
}

impl FindingHop {
    /// Says of the threads that they blocked their event loop, if they did.
    pub(super) fn with_blocked_loop(self, blocked_loop: Option<EventLoop>) -> Self {
        let words = blocked_loop.map(|it| it.describe_blocked().to_owned());
        let addition = match (self.addition, words) {
            (Some(addition), Some(words)) => Some(format!("{addition}, {words}")),
            (addition, words) => addition.or(words),
        };
        Self { blocked_loop, addition, ..self }
    }
}

/// Sleeps of threads that others waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FindingSleep {
    /// How many of their sleeps in this place began and ended in the window.
    pub count: u64,
    /// The shortest of these.
    pub shortest_ns: Nanos,
    /// The longest of these.
    pub longest_ns: Nanos,
    /// How many threads waited meanwhile, if all threads of the finding are known to have waited at once.
    pub waiting_threads: Option<u64>,
}

/// What the end of a chain did.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FindingCause {
    /// `work`, `cpu_queue`, `timer`, `disk`, `network`, `device`, `throttled`, `unattributed`.
    pub kind: &'static str,
    /// Why it is not known, if it is not.
    pub reason: Option<&'static str>,
    /// The part of the target's active time, from 0 to 1.
    pub share: f64,
    /// How much time.
    pub ns: Nanos,
    /// The cause in words: `python3 812 cron_tx.py sleeps in call_payment_api (cron_tx.py:9)`.
    pub text: String,
}

/// One line of a finding.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FindingLine {
    /// How far it is indented: hops from the waiter.
    pub depth: u16,
    /// What it says, but for the function.
    pub text: String,
    /// The function in which the threads slept or worked.
    pub function: Option<String>,
    /// What else it says, behind the function: `380 ms at a time while 5 threads wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addition: Option<String>,
    /// How often and how long: `169×, max 394 ms`. It may be left out where there is no room.
    pub detail: String,
    /// The part of the target's active time, from 0 to 1.
    pub share: f64,
    /// Whether it is the cause: the end of the path on which most of the time was spent.
    pub is_cause: bool,
}

impl FindingLine {
    /// A line below a finding's first one that names no function.
    pub(super) fn without_function(text: String, share: f64, is_cause: bool) -> Self {
        Self {
            depth: 1,
            text,
            function: None,
            addition: None,
            detail: String::new(),
            share,
            is_cause,
        }
    }

    /// Returns what it says, with the function and all else.
    pub(crate) fn whole_text(&self) -> String {
        match &self.function {
            Some(function) => format!("{} in {}", self.text, self.with_addition(function)),
            None => self.with_addition(&self.text),
        }
    }

    /// Divides what it says into two lines, of which the first has room for so many characters: what stands behind the
    /// function comes into the second one, and the function as well if it has to.
    pub(crate) fn split(&self, room: usize) -> Option<(String, String)> {
        let function = self.function.as_ref().map(|function| format!("in {function}"));
        let with_function = match &function {
            Some(function) => format!("{} {function}", self.text),
            None => self.text.clone(),
        };
        match (&self.addition, function) {
            (Some(addition), _) if with_function.chars().count() <= room => {
                Some((with_function, addition.clone()))
            }
            (_, Some(function)) => Some((self.text.clone(), self.with_addition(&function))),
            (_, None) => None,
        }
    }

    fn with_addition(&self, text: &str) -> String {
        match &self.addition {
            Some(addition) => format!("{text}, {addition}"),
            None => text.to_owned(),
        }
    }
}
