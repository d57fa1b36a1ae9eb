//! What is wanted, and what there is → one of them.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{Container, Role, State, Wanted};
use crate::{recording::PodName, report::text};

/// Names that an error lists; the rest is counted.
const LISTED: usize = 12;
/// Characters of one of them.
const LONGEST: usize = 80;

/// What is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// This container.
    Container(Container),
    /// All containers of this pod.
    Pod {
        /// Its unique id.
        uid: String,
        /// What people call it, if that is known.
        name: Option<PodName>,
    },
}

/// Why it is not known which one is meant.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotFound {
    /// Nothing is called so.
    #[error("there is no {wanted}; {candidates}")]
    Unknown {
        /// What was wanted.
        wanted: String,
        /// What there is, in words.
        candidates: String,
    },
    /// Several are.
    #[error("{wanted} may be any of {candidates}; say more digits of one's id, or its whole name")]
    Ambiguous {
        /// What was wanted.
        wanted: String,
        /// Which they are, in words.
        candidates: String,
    },
    /// It is one, and has no processes.
    #[error("{0} is not running ({1}); start it first")]
    NotRunning(String, String),
}

/// Finds the one that is meant. A whole name comes before a whole id, and that before the beginning of
/// an id. Among those of one name, the only one that runs is meant: Kubernetes and Podman keep the dead.
/// Digits with which several ids begin are nobody's, as with `docker`: the one that runs may be another
/// than who typed them had in mind.
///
/// # Errors
///
/// If it is none, or none that runs, or any of several.
pub fn resolve(wanted: &Wanted, known: &[Container]) -> Result<Resolved, NotFound> {
    let workloads = || known.iter().filter(|container| container.role == Role::Workload);
    match wanted {
        Wanted::Container(name) => {
            let named = workloads().filter(|one| one.names.name.as_deref() == Some(name)).collect();
            let whole = || workloads().filter(|one| one.id.as_str() == name).collect();
            let begun =
                || workloads().filter(|one| one.id.as_str().starts_with(name.as_str())).collect();
            let found = [who_runs(named), whole(), begun()];
            let found = found.into_iter().find(|group| !group.is_empty()).unwrap_or_default();
            let known = || workloads().collect();
            only(wanted, &found, known).map(Resolved::Container)
        }
        Wanted::Pod { pod, container: None } => the_pod(wanted, pod, known),
        Wanted::Pod { pod, container: Some(name) } => {
            let (uid, _) = pod_of(wanted, pod, known)?;
            let inside = || workloads().filter(|one| one.pod_uid.as_ref() == Some(&uid));
            let named = inside().filter(|one| one.names.name.as_deref() == Some(name)).collect();
            let known = || inside().collect();
            only(wanted, &who_runs(named), known).map(Resolved::Container)
        }
    }
}

fn the_pod(wanted: &Wanted, pod: &str, known: &[Container]) -> Result<Resolved, NotFound> {
    let (uid, name) = pod_of(wanted, pod, known)?;
    let inside = |one: &&Container| one.pod_uid.as_ref() == Some(&uid);
    if known.iter().filter(inside).any(|one| one.state == State::Running) {
        Ok(Resolved::Pod { uid, name })
    } else {
        let why = "none of its containers does".to_owned();
        Err(NotFound::NotRunning(short(&wanted.to_string()), why))
    }
}

/// The unique id of a pod, and its name.
fn pod_of(
    wanted: &Wanted,
    pod: &str,
    known: &[Container],
) -> Result<(String, Option<PodName>), NotFound> {
    let mut pods = BTreeMap::<&String, Option<&PodName>>::new();
    for container in known {
        if let Some(uid) = &container.pod_uid {
            let name = pods.entry(uid).or_default();
            *name = name.or(container.names.pod.as_ref());
        }
    }
    let words = |uid: &str, name: Option<&PodName>| match name {
        Some(name) => short(&format!("{name} (pod/{uid})")),
        None => short(&format!("pod/{uid}")),
    };
    let found: Vec<_> = (pods.iter())
        .filter(|(uid, name)| uid.as_str() == pod || name.is_some_and(|name| name.name == pod))
        .collect();
    match found.as_slice() {
        [(uid, name)] => Ok(((**uid).clone(), name.cloned())),
        [] => Err(NotFound::Unknown {
            wanted: short(&wanted.to_string()),
            candidates: listed("pods", pods.iter().map(|(uid, name)| words(uid, *name))),
        }),
        several => Err(NotFound::Ambiguous {
            wanted: short(&wanted.to_string()),
            candidates: list(several.iter().map(|(uid, name)| words(uid, **name))),
        }),
    }
}

/// Of those with one name, the ones that run, or all if none does.
fn who_runs(named: Vec<&Container>) -> Vec<&Container> {
    let running: Vec<_> = named.iter().copied().filter(|one| one.state == State::Running).collect();
    if running.is_empty() { named } else { running }
}

/// The only one that was found.
fn only<'a>(
    wanted: &Wanted,
    found: &[&Container],
    known: impl FnOnce() -> Vec<&'a Container>,
) -> Result<Container, NotFound> {
    match found {
        [] => {
            // Those that run come first: they are what can be had.
            let (running, stopped): (Vec<_>, Vec<_>) =
                known().into_iter().partition(|one| one.state == State::Running);
            Err(NotFound::Unknown {
                wanted: short(&wanted.to_string()),
                candidates: listed("containers", running.into_iter().chain(stopped).map(candidate)),
            })
        }
        [one] => match &one.state {
            State::Running => Ok((*one).clone()),
            State::Stopped(why) => {
                let state = why.as_deref().map_or_else(|| "it has no processes".to_owned(), short);
                Err(NotFound::NotRunning(format!("container {}", words(one)), state))
            }
        },
        several => Err(NotFound::Ambiguous {
            wanted: short(&wanted.to_string()),
            candidates: list(several.iter().copied().map(candidate)),
        }),
    }
}

/// `web 4f1c0b5a9d3e (stopped)`
fn candidate(container: &Container) -> String {
    match container.state {
        State::Running => words(container),
        State::Stopped(_) => format!("{} (stopped)", words(container)),
    }
}

/// `web 4f1c0b5a9d3e`
fn words(container: &Container) -> String {
    let (label, id) = (container.names.label(&container.id), container.id.short());
    short(&if label == id { label } else { format!("{label} {id}") })
}

fn listed(what: &str, words: impl Iterator<Item = String>) -> String {
    let list = list(words);
    if list.is_empty() { format!("there are no {what}") } else { format!("there are: {list}") }
}

fn list(words: impl Iterator<Item = String>) -> String {
    let words: Vec<_> = words.collect();
    let mut list = words.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    if words.len() > LISTED {
        list.push_str(&format!(" and {} more", words.len() - LISTED));
    }
    list
}

/// Names are other people's: they may be long, and hold what a terminal acts on.
fn short(text: &str) -> String {
    text::cut(&text::terminal(text), LONGEST)
}
