//! Which one is meant.

use proptest::prelude::*;

use super::{A, B, C, UID, container, in_pod};
use crate::containers::{
    Container, ContainerQuery, ContainerRole, ContainerState, ResolveError, Resolved, resolve,
};

fn stopped() -> ContainerState {
    ContainerState::Stopped(Some("exited".to_owned()))
}

fn which(wanted: &str, known: &[Container]) -> Result<String, ResolveError> {
    resolve(&ContainerQuery::parse(wanted).unwrap(), known).map(|resolved| match resolved {
        Resolved::Container(one) => one.id.to_string(),
        Resolved::Pod { uid, .. } => format!("pod {uid}"),
    })
}

#[test]
fn a_name_comes_before_an_id_and_digits_say_which_if_only_one_begins_so() {
    let known = [
        container(A, Some("web"), ContainerState::Running),
        container(B, Some("4f1c"), ContainerState::Running),
        container(C, None, ContainerState::Running),
    ];
    assert_eq!(which("web", &known).as_deref(), Ok(A));
    assert_eq!(which("4f1c", &known).as_deref(), Ok(B));
    assert_eq!(which("4f1c0", &known).as_deref(), Ok(A));
    assert_eq!(which(C, &known).as_deref(), Ok(C));
    assert_eq!(which("0", &known).as_deref(), Ok(B));
}

#[test]
fn what_could_be_several_or_none_lists_what_there_is_in_one_line() {
    let known = [
        container(A, Some("web"), ContainerState::Running),
        container(B, Some("db\n\u{1b}[31m"), stopped()),
        container(C, None, ContainerState::Running),
    ];
    let said = |wanted| which(wanted, &known).unwrap_err().to_string();
    assert_eq!(
        said("4f"),
        "container 4f may be any of web 4f1c0b5a9d3e, 4f1c33445566; say more digits of one's id, or its whole name"
    );
    assert_eq!(
        said("none"),
        "there is no container none; there are: web 4f1c0b5a9d3e, 4f1c33445566, db\\x0a\\x1b[31m 001122334455 (stopped)"
    );
    assert_eq!(
        said("00"),
        "container db\\x0a\\x1b[31m 001122334455 is not running (exited); start it first"
    );
    let nothing = which("web", &[]).unwrap_err().to_string();
    assert_eq!(nothing, "there is no container web; there are no containers");
    let many: Vec<_> = (10..99)
        .map(|n| container(&format!("{n}{}", &A[2..]), None, ContainerState::Running))
        .collect();
    let said = which("none", &many).unwrap_err().to_string();
    assert!(said.ends_with(" and 77 more") && said.len() < 400, "{said}");
}

#[test]
fn a_name_of_several_means_the_one_that_runs() {
    let attempts =
        [container(A, Some("web"), stopped()), container(B, Some("web"), ContainerState::Running)];
    assert_eq!(which("web", &attempts).as_deref(), Ok(B));
    let dead = [container(A, Some("web"), stopped()), container(B, Some("web"), stopped())];
    assert!(matches!(which("web", &dead), Err(ResolveError::Ambiguous { .. })));
    let alive = dead.map(|one| Container { state: ContainerState::Running, ..one });
    assert!(matches!(which("web", &alive), Err(ResolveError::Ambiguous { .. })));
}

#[test]
fn a_pod_is_found_by_name_or_unique_id_and_its_containers_in_it() {
    let other = UID.replace('1', "2");
    let shop = ("shop", "cart", UID);
    let sandbox = Container { role: ContainerRole::Sandbox, ..in_pod(C, "POD", shop) };
    let mut known = vec![in_pod(A, "web", shop), in_pod(B, "log", shop), sandbox];
    let pod = format!("pod {UID}");
    assert_eq!(which("pod/cart", &known).as_ref(), Ok(&pod));
    assert_eq!(which(&format!("pod/{UID}"), &known).as_ref(), Ok(&pod));
    assert_eq!(which("pod/cart/log", &known).as_deref(), Ok(B));
    assert_eq!(which("web", &known).as_deref(), Ok(A));
    let said = |wanted, known: &[Container]| which(wanted, known).unwrap_err().to_string();
    assert_eq!(
        said("pod/cart/none", &known),
        "there is no container none of pod cart; there are: shop/cart/web 4f1c0b5a9d3e, shop/cart/log 001122334455"
    );
    assert!(said("pod/none", &known).ends_with(&format!("there are: shop/cart (pod/{UID})")));
    assert!(said("POD", &known).starts_with("there is no container POD"));
    known.push(in_pod(&B.replace('0', "1"), "web", ("test", "cart", &other)));
    assert!(matches!(which("pod/cart", &known), Err(ResolveError::Ambiguous { .. })));
    assert_eq!(which(&format!("pod/{UID}/web"), &known).as_deref(), Ok(A));
    let gone: Vec<_> = known.into_iter().map(|one| Container { state: stopped(), ..one }).collect();
    assert!(matches!(which(&format!("pod/{UID}"), &gone), Err(ResolveError::NotRunning(..))));
}

#[test]
fn digits_of_several_ids_are_nobodys_whoever_runs() {
    let known = [container(A, Some("web"), stopped()), container(C, None, ContainerState::Running)];
    let said = which("4f", &known).unwrap_err().to_string();
    assert_eq!(
        said,
        "container 4f may be any of web 4f1c0b5a9d3e (stopped), 4f1c33445566; say more digits of one's id, or its whole name"
    );
    assert_eq!(which("4f1c3", &known).as_deref(), Ok(C));
}

fn any_container() -> impl Strategy<Value = Container> {
    let name = prop::option::of("[ab4]{1,2}");
    ("[04]{2}", name, any::<bool>(), prop::option::of(0..2_u8)).prop_map(
        |(digits, name, runs, pod)| {
            let state = if runs { ContainerState::Running } else { stopped() };
            let one = container(&format!("{digits}{}", &A[2..]), name.as_deref(), state);
            Container { pod_uid: pod.map(|pod| format!("{pod}")), ..one }
        },
    )
}

proptest! {
    /// Whatever there is, only one that runs and that is called so is ever taken.
    #[test]
    fn nothing_is_taken_that_was_not_named(
        known in prop::collection::vec(any_container(), 0..6), name in "[ab04]{1,3}",
    ) {
        if let Ok(Resolved::Container(found)) = resolve(&ContainerQuery::Container(name.clone()), &known) {
            prop_assert_eq!(&found.state, &ContainerState::Running);
            let is_named = found.names.name.as_deref() == Some(&name);
            prop_assert!(is_named || found.id.as_str().starts_with(&name));
            let alike = known.iter().filter(|one| {
                if is_named {
                    one.state == ContainerState::Running && one.names.name == found.names.name
                } else {
                    one.id.as_str().starts_with(&name)
                }
            });
            prop_assert_eq!(alike.count(), 1);
        }
    }

    /// Names of any kind do no harm, and an error is one line.
    #[test]
    fn any_text_is_a_name_or_an_error_in_one_line(text in ".{0,200}", name in ".{0,200}") {
        if let Some(wanted) = ContainerQuery::parse(&text) {
            let known = [container(A, Some(&name), stopped()), in_pod(B, &name, (&name, &name, UID))];
            if let Err(error) = resolve(&wanted, &known) {
                let said = error.to_string();
                prop_assert!(!said.chars().any(char::is_control) && said.len() < 4_000);
            }
        }
    }
}
