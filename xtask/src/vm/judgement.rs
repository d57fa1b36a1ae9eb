//! What is right about a kernel, and what is wrong.

use std::time::Duration;

use super::{
    cpus::Cpus,
    doctor::Findings,
    features::{self, Feature, TASK_REGISTERS},
    kernel::Kernel,
    live_tests::{self, Selection},
    release::Release,
    task::Task,
    transcript::{Ended, Transcript},
};
/// How a test went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The test passed, in so many seconds of the guest's time.
    Passed(u64),
    /// The test was not run, for this reason.
    Skipped(String),
    /// The test failed.
    Failed,
}

/// All about a kernel.
pub struct Judgement {
    pub release: Release,
    pub cpus: Cpus,
    pub selection: Selection,
    pub package: String,
    pub findings: Findings,
    /// Each test's title and how it went.
    pub tests: Vec<(String, Verdict)>,
    /// Everything that is wrong, each with its reason. None: the kernel is as it should be.
    pub faults: Vec<String>,
}

const DOCTOR: &str = "doctor";
const PROFILE: &str = "profile";

/// Looking at a kernel and loading every program, which takes the emulated verifier a while.
const DOCTOR_LIMIT: Duration = Duration::from_secs(120);

/// What is to be done on a kernel with these CPUs.
pub fn tasks(release: Release, cpus: Cpus, selection: Selection) -> Vec<Task> {
    let offwake = |name: &str, command: &str| Task {
        name: name.to_owned(),
        limit: DOCTOR_LIMIT,
        command: command.to_owned(),
    };
    let mut tasks = vec![offwake(DOCTOR, "offwake doctor")];
    if is_refused(release) {
        tasks.push(offwake(PROFILE, "offwake profile --all -d 100ms"));
    } else {
        tasks.extend(live_tests::select(release, cpus, selection).map(|test| test.task(cpus)));
    }
    tasks
}

/// A guest's name for people: `6.12`, or `6.12 with 1 CPU`.
pub fn title(release: Release, cpus: Cpus) -> String {
    match cpus {
        Cpus::USUAL => release.to_string(),
        cpus => format!("{release} with {cpus}"),
    }
}

/// Whether offwake is not made for a kernel, and has to say so.
fn is_refused(release: Release) -> bool {
    release < TASK_REGISTERS.since
}

impl Judgement {
    /// Judges what a guest reported, or the reason why it stopped reporting.
    pub fn from_transcript(
        kernel: &Kernel,
        cpus: Cpus,
        selection: Selection,
        transcript: &anyhow::Result<Transcript>,
    ) -> Self {
        let mut judgement = Self {
            release: kernel.release,
            cpus,
            selection,
            package: kernel.package.clone(),
            findings: Findings::default(),
            tests: Vec::new(),
            faults: Vec::new(),
        };
        match transcript {
            Err(error) => judgement.faults.push(format!("{error:#}")),
            Ok(transcript) if is_refused(kernel.release) => judgement.check_refusal(transcript),
            Ok(transcript) => judgement.check_tests(transcript),
        }
        judgement
    }

    /// What it is about, for people.
    pub fn title(&self) -> String {
        title(self.release, self.cpus)
    }

    /// Checks that offwake refuses every command in one line that says why.
    fn check_refusal(&mut self, transcript: &Transcript) {
        let Feature { name, since } = TASK_REGISTERS;
        let reason = format!("no {name}, which Linux {since} brought");
        let skipped = || Verdict::Skipped(TASK_REGISTERS.lack());
        let tests = live_tests::select(self.release, self.cpus, self.selection);
        self.tests = tests.map(|test| (test.title(), skipped())).collect();
        for task in [DOCTOR, PROFILE] {
            let Some(ended) = self.find_ended(transcript, task) else { continue };
            if ended.status != 1 || !ended.output.contains(&reason) {
                self.faults.push(format!(
                    "`offwake {task}` is not refused with \"{reason}\" and status 1, but {}: {}",
                    ended.status, ended.output
                ));
            } else if task == PROFILE && ended.output.trim_end().lines().count() != 1 {
                self.faults.push(format!("it is not refused in one line: {}", ended.output));
            }
        }
    }

    fn check_tests(&mut self, transcript: &Transcript) {
        if let Some(ended) = self.find_ended(transcript, DOCTOR) {
            self.findings = Findings::read(&ended.output);
            self.faults.extend(features::surprises(self.release, &self.findings));
            if ended.status != 0 {
                self.faults.push(format!("`offwake doctor` failed: {}", ended.output));
            }
        }
        for test in live_tests::select(self.release, self.cpus, self.selection) {
            let title = test.title();
            let verdict = match self.find_ended(transcript, &title) {
                Some(ended) if live_tests::has_passed(ended.status, &ended.output) => {
                    Verdict::Passed(ended.seconds)
                }
                Some(ended) => {
                    self.faults.push(format!("{title}: {}", ended.output));
                    Verdict::Failed
                }
                None => Verdict::Failed,
            };
            self.tests.push((title, verdict));
        }
    }

    /// How a task ended. A task that never ended is a fault.
    fn find_ended<'a>(&mut self, transcript: &'a Transcript, task: &str) -> Option<&'a Ended> {
        let ended = transcript.ended.get(task);
        if ended.is_none() {
            self.faults.push(format!("{task} was never done"));
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use super::{super::live_tests::TESTS, *};

    fn judge(release: Release, transcript: Transcript) -> Judgement {
        Judgement::from_transcript(&kernel(release), Cpus::USUAL, Selection::All, &Ok(transcript))
    }

    fn kernel(release: Release) -> Kernel {
        Kernel {
            release,
            package: "linux-image".to_owned(),
            image: PathBuf::new(),
            modules: Vec::new(),
        }
    }

    fn transcript(ended: &[(&str, i32, &str)]) -> Transcript {
        let ended = ended.iter().map(|(name, status, output)| {
            let output = (*output).to_owned();
            ((*name).to_owned(), Ended { status: *status, seconds: 1, output })
        });
        Transcript { ended: ended.collect::<BTreeMap<_, _>>(), current: None, is_over: true }
    }

    #[test]
    fn a_kernel_that_is_too_old_must_refuse_in_one_line() {
        let line = "offwake: the kernel has no bpf_task_pt_regs, which Linux 5.15 brought\n";
        let faults =
            |said: &[(&str, i32, &str)]| judge(Release::new(5, 10), transcript(said)).faults.len();
        assert_eq!(faults(&[("doctor", 1, line), ("profile", 1, line)]), 0);
        assert_eq!(faults(&[("doctor", 1, line), ("profile", 0, line)]), 1);
        assert_eq!(faults(&[("doctor", 1, line), ("profile", 1, &line.repeat(2))]), 1);
        assert_eq!(faults(&[("doctor", 1, line), ("profile", 1, "cannot load\n")]), 1);
        assert_eq!(faults(&[("doctor", 1, line)]), 1);
    }

    #[test]
    fn a_test_that_was_never_done_has_failed() {
        let judgement = judge(Release::new(6, 12), transcript(&[]));
        assert!(judgement.tests.iter().all(|(_, verdict)| *verdict == Verdict::Failed));
        assert!(judgement.faults.len() > judgement.tests.len());
    }

    #[test]
    fn on_a_kernel_that_is_too_old_every_test_is_skipped_by_name() {
        let older = Release::new(5, 10);
        let judgement = judge(older, transcript(&[]));
        let why = "no bpf_task_pt_regs, which came with 5.15".to_owned();
        // One needs modules of another kernel.
        let selected = TESTS.len() - 1;
        assert_eq!(judgement.tests.len(), selected);
        assert!(judgement.tests.iter().all(|(_, v)| *v == Verdict::Skipped(why.clone())));
        assert_eq!(tasks(older, Cpus::USUAL, Selection::All).len(), 2);
        assert_eq!(tasks(TASK_REGISTERS.since, Cpus::USUAL, Selection::All).len(), 1 + selected);
    }

    #[test]
    fn a_guest_with_other_cpus_is_asked_for_its_own_tests_alone() {
        let release = Release::new(6, 12);
        let cpus = Cpus::OTHERS[2];
        let judgement = Judgement::from_transcript(
            &kernel(release),
            cpus,
            Selection::All,
            &Ok(transcript(&[])),
        );
        assert_eq!(judgement.title(), "6.12 with 2 of 240 CPUs");
        assert_eq!(judgement.tests.len() + 1, tasks(release, cpus, Selection::All).len());
        assert!(judgement.tests.len() < TESTS.len());
    }
}
