//! Finds the container or pod that a query means, among those that there are.

use std::collections::BTreeMap;

use offwake_analysis::text;
use offwake_recording::PodName;
use thiserror::Error;

use super::{Container, ContainerQuery, ContainerRole, ContainerState};

/// How many names an error lists; the rest is counted.
const MAX_LISTED: usize = 12;
/// Characters of one such name.
const MAX_NAME: usize = 80;

/// What a query means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// One container.
    Container(Container),
    /// All containers of a pod.
    Pod {
        /// The pod's unique id.
        uid: String,
        /// What people call the pod, if that is known.
        name: Option<PodName>,
    },
}

/// Why no container or pod could be found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// No container or pod has this name or id.
    #[error("there is no {wanted}; {candidates}")]
    Unknown {
        /// The query in words.
        wanted: String,
        /// The containers or pods that there are, in words.
        candidates: String,
    },
    /// Several containers or pods do.
    #[error("{wanted} may be any of {candidates}; say more digits of one's id, or its whole name")]
    Ambiguous {
        /// The query in words.
        wanted: String,
        /// The containers or pods that it could be, in words.
        candidates: String,
    },
    /// The container or pod has no processes.
    #[error("{0} is not running ({1}); start it first")]
    NotRunning(String, String),
}

/// Finds the container or pod that a query means. A whole name comes before a whole id, and that
/// before the beginning of an id. Among those of one name, the only one that runs is meant:
/// Kubernetes and Podman keep the dead. Digits with which several ids begin mean none of them, as
/// with `docker`: the one that runs may not be the one that the user had in mind.
///
/// # Errors
///
/// If it is none, or none that runs, or any of several.
pub fn resolve(query: &ContainerQuery, known: &[Container]) -> Result<Resolved, ResolveError> {
    let workloads = || known.iter().filter(|container| container.role == ContainerRole::Workload);
    match query {
        ContainerQuery::Container(name) => {
            let named = workloads().filter(|one| one.names.name.as_deref() == Some(name)).collect();
            let by_id = || workloads().filter(|one| one.id.as_str() == name).collect();
            let by_prefix =
                || workloads().filter(|one| one.id.as_str().starts_with(name.as_str())).collect();
            let found = [prefer_running(named), by_id(), by_prefix()];
            let found = found.into_iter().find(|group| !group.is_empty()).unwrap_or_default();
            let known = || workloads().collect();
            expect_one(query, &found, known).map(Resolved::Container)
        }
        ContainerQuery::Pod { pod, container: None } => resolve_pod(query, pod, known),
        ContainerQuery::Pod { pod, container: Some(name) } => {
            let (uid, _) = find_pod(query, pod, known)?;
            let inside = || workloads().filter(|one| one.pod_uid.as_ref() == Some(&uid));
            let named = inside().filter(|one| one.names.name.as_deref() == Some(name)).collect();
            let known = || inside().collect();
            expect_one(query, &prefer_running(named), known).map(Resolved::Container)
        }
    }
}

fn resolve_pod(
    query: &ContainerQuery,
    pod: &str,
    known: &[Container],
) -> Result<Resolved, ResolveError> {
    let (uid, name) = find_pod(query, pod, known)?;
    let inside = |one: &&Container| one.pod_uid.as_ref() == Some(&uid);
    if known.iter().filter(inside).any(|one| one.state == ContainerState::Running) {
        Ok(Resolved::Pod { uid, name })
    } else {
        let why = "none of its containers does".to_owned();
        Err(ResolveError::NotRunning(shorten(&query.to_string()), why))
    }
}

/// Finds a pod: its unique id, and its name.
fn find_pod(
    query: &ContainerQuery,
    pod: &str,
    known: &[Container],
) -> Result<(String, Option<PodName>), ResolveError> {
    let mut pods = BTreeMap::<&String, Option<&PodName>>::new();
    for container in known {
        if let Some(uid) = &container.pod_uid {
            let name = pods.entry(uid).or_default();
            *name = name.or(container.names.pod.as_ref());
        }
    }
    let words = |uid: &str, name: Option<&PodName>| match name {
        Some(name) => shorten(&format!("{name} (pod/{uid})")),
        None => shorten(&format!("pod/{uid}")),
    };
    let found: Vec<_> = (pods.iter())
        .filter(|(uid, name)| uid.as_str() == pod || name.is_some_and(|name| name.name == pod))
        .collect();
    match found.as_slice() {
        [(uid, name)] => Ok(((**uid).clone(), name.cloned())),
        [] => Err(ResolveError::Unknown {
            wanted: shorten(&query.to_string()),
            candidates: describe_all("pods", pods.iter().map(|(uid, name)| words(uid, *name))),
        }),
        several => Err(ResolveError::Ambiguous {
            wanted: shorten(&query.to_string()),
            candidates: join_names(several.iter().map(|(uid, name)| words(uid, **name))),
        }),
    }
}

/// Of containers with one name, those that run, or all of them if none does.
fn prefer_running(named: Vec<&Container>) -> Vec<&Container> {
    let running: Vec<_> =
        named.iter().copied().filter(|one| one.state == ContainerState::Running).collect();
    if running.is_empty() { named } else { running }
}

/// Expects exactly one container, and that it runs.
fn expect_one<'a>(
    query: &ContainerQuery,
    found: &[&Container],
    known: impl FnOnce() -> Vec<&'a Container>,
) -> Result<Container, ResolveError> {
    match found {
        [] => {
            // Those that run come first, as only they can be profiled.
            let (running, stopped): (Vec<_>, Vec<_>) =
                known().into_iter().partition(|one| one.state == ContainerState::Running);
            Err(ResolveError::Unknown {
                wanted: shorten(&query.to_string()),
                candidates: describe_all(
                    "containers",
                    running.into_iter().chain(stopped).map(describe_candidate),
                ),
            })
        }
        [one] => match &one.state {
            ContainerState::Running => Ok((*one).clone()),
            ContainerState::Stopped(why) => {
                let state =
                    why.as_deref().map_or_else(|| "it has no processes".to_owned(), shorten);
                Err(ResolveError::NotRunning(format!("container {}", describe(one)), state))
            }
        },
        several => Err(ResolveError::Ambiguous {
            wanted: shorten(&query.to_string()),
            candidates: join_names(several.iter().copied().map(describe_candidate)),
        }),
    }
}

/// `web 4f1c0b5a9d3e (stopped)`
fn describe_candidate(container: &Container) -> String {
    match container.state {
        ContainerState::Running => describe(container),
        ContainerState::Stopped(_) => format!("{} (stopped)", describe(container)),
    }
}

/// `web 4f1c0b5a9d3e`
fn describe(container: &Container) -> String {
    let (label, id) = (container.names.label(&container.id), container.id.short());
    shorten(&if label == id { label } else { format!("{label} {id}") })
}

fn describe_all(what: &str, words: impl Iterator<Item = String>) -> String {
    let list = join_names(words);
    if list.is_empty() { format!("there are no {what}") } else { format!("there are: {list}") }
}

fn join_names(words: impl Iterator<Item = String>) -> String {
    let words: Vec<_> = words.collect();
    let mut list = words.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>().join(", ");
    if words.len() > MAX_LISTED {
        list.push_str(&format!(" and {} more", words.len() - MAX_LISTED));
    }
    list
}

/// Shortens a name and escapes it: it is another program's, and may be long or hold what a terminal
/// acts on.
fn shorten(text: &str) -> String {
    text::cut_chars(&text::terminal(text), MAX_NAME)
}
