//! One criterion of a selection each: which threads meet it.

use std::collections::{BTreeMap, HashSet};

use offwake_recording::{
    CgroupInfo, ContainerId, Recording, TraceId,
    units::{CgroupId, Tgid, Tid},
};

use crate::{
    tags::ThreadTags,
    text,
    timeline::{Thread, Timeline},
};

use super::{
    Children, ContainerQuery, SelectionError,
    candidates::Candidates,
    distinct, family,
    identity::{Process, threads_of_event},
    words::{describe_children, describe_processes, join_numbers},
};

/// Bytes of a thread's name in the kernel, without its NUL: longer names are cut there.
const COMM_BYTES: usize = 15;

/// Which threads meet a criterion.
pub(super) struct Matches {
    /// Whether each thread of the timeline does.
    pub threads: Vec<bool>,
    /// The criterion in words.
    pub words: String,
}

impl Matches {
    fn new(words: String, timeline: &Timeline, is_match: impl FnMut(&Thread) -> bool) -> Self {
        Self { threads: timeline.threads.iter().map(is_match).collect(), words }
    }
}

pub(super) fn processes(
    recording: &Recording,
    timeline: &Timeline,
    wanted: &[Tgid],
    children: Children,
) -> Result<Matches, SelectionError> {
    let wanted = distinct(wanted);
    let known: HashSet<Tgid> = timeline.threads.iter().map(|thread| thread.tgid).collect();
    if let Some(missing) = wanted.iter().find(|tgid| !known.contains(tgid)) {
        let there = (timeline.threads.iter())
            .filter(|thread| thread.tid.0 == thread.tgid.0)
            .map(|thread| (thread.tgid.to_string(), named(thread.tgid, thread)));
        return Err(SelectionError::NoMatch {
            wanted: format!("process with the PID {missing}"),
            candidates: Candidates::new("processes", &missing.to_string(), there),
        });
    }
    let members = family::members(recording, timeline, &wanted, children);
    let others = members.iter().filter(|process| !wanted.contains(&process.tgid)).count();
    let words = describe_processes(&wanted, children) + &describe_children(others);
    Ok(Matches::new(words, timeline, |thread| {
        members.contains(&Process::from_thread(timeline, thread))
    }))
}

pub(super) fn threads(timeline: &Timeline, wanted: &[Tid]) -> Result<Matches, SelectionError> {
    let wanted = distinct(wanted);
    let known: HashSet<Tid> = timeline.threads.iter().map(|thread| thread.tid).collect();
    if let Some(missing) = wanted.iter().find(|tid| !known.contains(tid)) {
        let there = (timeline.threads.iter())
            .map(|thread| (thread.tid.to_string(), named(thread.tid, thread)));
        return Err(SelectionError::NoMatch {
            wanted: format!("thread with the TID {missing}"),
            candidates: Candidates::new("threads", &missing.to_string(), there),
        });
    }
    let words = format!("tid {}", join_numbers(&wanted));
    Ok(Matches::new(words, timeline, |thread| wanted.contains(&thread.tid)))
}

/// `4242 nginx`
fn named(number: impl ToString, thread: &Thread) -> String {
    match thread.names.last() {
        Some(name) => format!("{} {}", number.to_string(), name.comm),
        None => number.to_string(),
    }
}

pub(super) fn comms(timeline: &Timeline, wanted: &[String]) -> Result<Matches, SelectionError> {
    for name in wanted {
        if !timeline.threads.iter().any(|thread| bears(thread, name)) {
            let names = timeline.threads.iter().flat_map(|thread| &thread.names);
            let there = names.map(|name| (name.comm.to_string(), name.comm.to_string()));
            return Err(SelectionError::NoMatch {
                wanted: format!("thread with the name {}", shorten(name)),
                candidates: Candidates::new("threads' names", name, there),
            });
        }
    }
    let words = format!("comm {}", wanted.join(","));
    Ok(Matches::new(words, timeline, |thread| wanted.iter().any(|name| bears(thread, name))))
}

fn bears(thread: &Thread, wanted: &str) -> bool {
    thread.names.iter().any(|name| {
        let comm = name.comm.as_bytes();
        comm == wanted.as_bytes() || wanted.as_bytes().get(..COMM_BYTES) == Some(comm)
    })
}

pub(super) fn cgroup(
    recording: &Recording,
    timeline: &Timeline,
    path: &str,
) -> Result<Matches, SelectionError> {
    let wanted = inside_hierarchy(path);
    let is_inside = |cgroup: &CgroupInfo| is_at_or_below(&cgroup.path, &wanted);
    let groups: HashSet<CgroupId> =
        recording.cgroups.values().filter(|one| is_inside(one)).map(|one| one.id).collect();
    if groups.is_empty() {
        let there = recording.cgroups.values().map(|one| (one.path.clone(), one.path.clone()));
        return Err(SelectionError::NoMatch {
            wanted: format!("cgroup {}", shorten(&wanted)),
            candidates: Candidates::new("cgroups", &wanted, there),
        });
    }
    Ok(in_cgroups(recording, timeline, &groups, format!("cgroup {wanted}")))
}

/// A path as `/proc/PID/cgroup` has it: the place where the hierarchy is mounted is left out.
fn inside_hierarchy(path: &str) -> String {
    const MOUNTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let inside = (MOUNTS.iter())
        .find_map(|mount| path.strip_prefix(mount).filter(|rest| is_end_of_name(rest)))
        .unwrap_or(path);
    format!("/{}", inside.trim_matches('/'))
}

fn is_end_of_name(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

fn is_at_or_below(path: &str, above: &str) -> bool {
    let above = above.trim_end_matches('/');
    path.strip_prefix(above).is_some_and(is_end_of_name)
}

pub(super) fn trace(
    recording: &Recording,
    timeline: &Timeline,
    wanted: TraceId,
) -> Result<Matches, SelectionError> {
    let threads = ThreadTags::new(recording).threads_of(wanted);
    if threads.is_empty() {
        let traces = recording.tag_sets.values().filter_map(|set| set.trace);
        let there = traces.map(|trace| (trace.to_string(), trace.to_string()));
        return Err(SelectionError::NoMatch {
            wanted: format!("trace {wanted}"),
            candidates: Candidates::new("traces", &wanted.to_string(), there),
        });
    }
    Ok(Matches::new(format!("trace {wanted}"), timeline, |thread| threads.contains(&thread.tid)))
}

pub(super) fn container(
    recording: &Recording,
    timeline: &Timeline,
    query: &ContainerQuery,
) -> Result<Matches, SelectionError> {
    let known: BTreeMap<&ContainerId, &CgroupInfo> = (recording.cgroups.values())
        .filter_map(|cgroup| Some((cgroup.container.as_ref()?, cgroup)))
        .collect();
    let label = |(id, cgroup): (&&ContainerId, &&CgroupInfo)| {
        let label = cgroup.names.label(id);
        if label == id.short() { label } else { format!("{label} {}", id.short()) }
    };
    let found = find_containers(query, &known);
    if found.is_empty() {
        let name = match query {
            ContainerQuery::Container(name) => name,
            ContainerQuery::Pod { pod, .. } => pod,
        };
        let there = known.iter().map(|(id, cgroup)| (cgroup.names.label(id), label((id, cgroup))));
        return Err(SelectionError::NoMatch {
            wanted: shorten(&query.to_string()),
            candidates: Candidates::new("containers", name, there),
        });
    }
    // Several containers with one name followed one another; several ids that begin alike did not.
    if let (ContainerQuery::Container(_), How::ByFirstDigits, [_, _, ..]) =
        (query, found.how, found.ids.as_slice())
    {
        let ids = known.iter().filter(|(id, _)| found.ids.contains(id));
        return Err(SelectionError::Ambiguous {
            wanted: shorten(&query.to_string()),
            candidates: ids.map(label).map(|one| shorten(&one)).collect::<Vec<_>>().join(", "),
        });
    }
    let groups = (recording.cgroups.values())
        .filter(|cgroup| {
            let is_own = cgroup.container.as_ref().is_some_and(|id| found.ids.contains(&id));
            // What runs in a container of the container belongs to it as well.
            let mut parts = cgroup.path.split('/').filter_map(ContainerId::in_directory_name);
            is_own || parts.any(|id| found.ids.contains(&&id))
        })
        .map(|cgroup| cgroup.id)
        .collect();
    Ok(in_cgroups(recording, timeline, &groups, query.to_string()))
}

/// How containers were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    ByName,
    ByFirstDigits,
}

struct FoundContainers<'a> {
    ids: Vec<&'a ContainerId>,
    how: How,
}

impl FoundContainers<'_> {
    fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Finds the containers that a query means. A whole name comes before a whole id, and that before the
/// beginning of an id.
fn find_containers<'a>(
    query: &ContainerQuery,
    known: &BTreeMap<&'a ContainerId, &'a CgroupInfo>,
) -> FoundContainers<'a> {
    let find = |is_meant: &dyn Fn(&ContainerId, &CgroupInfo) -> bool| -> Vec<&'a ContainerId> {
        known.iter().filter(|(id, cgroup)| is_meant(id, cgroup)).map(|(&id, _)| id).collect()
    };
    match query {
        ContainerQuery::Container(name) => {
            let named = find(&|_, cgroup| cgroup.names.name.as_ref() == Some(name));
            let whole = || find(&|id, _| id.as_str() == name);
            let named = if named.is_empty() { whole() } else { named };
            if !named.is_empty() {
                return FoundContainers { ids: named, how: How::ByName };
            }
            let ids = find(&|id, _| id.as_str().starts_with(name.as_str()));
            FoundContainers { ids, how: How::ByFirstDigits }
        }
        ContainerQuery::Pod { pod, container } => {
            let ids = find(&|_, cgroup| {
                let names = &cgroup.names;
                names.pod.as_ref().is_some_and(|known| known.name == *pod)
                    && (container.is_none() || names.name == *container)
            });
            FoundContainers { ids, how: How::ByName }
        }
    }
}

/// The threads that were in one of these cgroups whenever they were looked at.
fn in_cgroups(
    recording: &Recording,
    timeline: &Timeline,
    groups: &HashSet<CgroupId>,
    words: String,
) -> Matches {
    let is_inside = |thread: &Thread| thread.cgroup.is_some_and(|id| groups.contains(&id));
    let mut matches = Matches::new(words, timeline, is_inside);
    let events = recording.thread_events.iter();
    for thread_event in events.filter(|thread_event| groups.contains(&thread_event.cgroup)) {
        for index in threads_of_event(timeline, thread_event) {
            if let Some(matching) = matches.threads.get_mut(index) {
                *matching = true;
            }
        }
    }
    matches
}

fn shorten(name: &str) -> String {
    const MAX_CHARS: usize = 80;
    text::cut_chars(&text::terminal(name), MAX_CHARS)
}

#[cfg(test)]
mod tests {
    use super::{inside_hierarchy, is_at_or_below};

    #[test]
    fn a_path_is_meant_from_the_hierarchys_root_or_in_the_file_system() {
        for (path, inside) in [
            ("/sys/fs/cgroup/a/b", "/a/b"),
            ("/sys/fs/cgroup/unified/a/", "/a"),
            ("/sys/fs/cgroup", "/"),
            ("/sys/fs/cgroups/a", "/sys/fs/cgroups/a"),
            ("a/b", "/a/b"),
            ("/", "/"),
        ] {
            assert_eq!(inside_hierarchy(path), inside, "{path}");
        }
    }

    #[test]
    fn what_is_below_a_cgroup_is_in_it_and_its_neighbour_is_not() {
        assert!(is_at_or_below("/a/b", "/a") && is_at_or_below("/a", "/a"));
        assert!(is_at_or_below("/a", "/") && is_at_or_below("/", "/"));
        assert!(!is_at_or_below("/ab", "/a") && !is_at_or_below("/", "/a"));
    }
}
