//! Machines made of directories, after the real ones, and engines made of threads.

mod engines;
mod layouts;
mod names;

use std::{fs, path::Path};

use offwake_recording::{ContainerId, ContainerNames, PodName};

use super::{Container, ContainerRole, ContainerState};

const A: &str = "4f1c0b5a9d3e7f2846b0c8d1e5a37f904f1c0b5a9d3e7f2846b0c8d1e5a37f90";
const B: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const C: &str = "4f1c33445566778899aabbccddeeff0000112233445566778899aabbccddeeff";
const UID: &str = "1b2c3d4e-0000-4111-8222-333344445555";

fn id(text: &str) -> ContainerId {
    ContainerId::new(text).unwrap()
}

fn container(text: &str, name: Option<&str>, state: ContainerState) -> Container {
    let names = ContainerNames { name: name.map(str::to_owned), ..ContainerNames::default() };
    Container { id: id(text), names, pod_uid: None, role: ContainerRole::Workload, state }
}

fn in_pod(text: &str, name: &str, (namespace, pod, uid): (&str, &str, &str)) -> Container {
    let pod = PodName { namespace: namespace.to_owned(), name: pod.to_owned() };
    let one = container(text, Some(name), ContainerState::Running);
    let names = ContainerNames { pod: Some(pod), ..one.names };
    Container { names, pod_uid: Some(uid.to_owned()), ..one }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
