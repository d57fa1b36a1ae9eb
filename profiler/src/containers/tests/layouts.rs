//! Where runtimes leave what, found without asking any of them.

use std::{fs, path::Path};

use offwake_recording::units::{CgroupId, Tgid};

use super::{A, B, C, UID, write};
use crate::containers::{
    ContainerLocation, ContainerQuery, FoundContainer, Host, Resolved, RestartWatcher,
};

fn find(root: &Path, wanted: &str) -> Result<(String, String), String> {
    let found = Host::below(root).find(&ContainerQuery::parse(wanted).unwrap());
    let FoundContainer { resolved, location } = found.map_err(|error| error.to_string())?;
    let what = match resolved {
        Resolved::Container(one) => {
            let image = one.names.image.clone().unwrap_or_default();
            format!("{} {image}", one.names.label(&one.id)).trim_end().to_owned()
        }
        Resolved::Pod { uid, name } => name.map_or(uid, |name| name.to_string()),
    };
    let place = match location {
        ContainerLocation::Cgroup(path) => {
            let unified = root.join("sys/fs/cgroup/unified");
            path.strip_prefix(unified).unwrap().display().to_string()
        }
        ContainerLocation::Processes(processes) => format!("{processes:?}"),
    };
    Ok((what, place))
}

fn cgroup(root: &Path, path: &str) {
    fs::create_dir_all(root.join("sys/fs/cgroup/unified").join(path)).unwrap();
}

fn ok(what: &str, place: &str) -> Result<(String, String), String> {
    Ok((what.to_owned(), place.to_owned()))
}

/// containerd's `DefaultCRIAnnotations`
/// (<https://github.com/containerd/containerd/blob/v2.0.0/internal/cri/annotations/annotations.go>).
fn containerd_bundle(root: &Path, id: &str, name: &str, kind: &str) {
    let config = root
        .join("run/containerd/io.containerd.runtime.v2.task/k8s.io")
        .join(id)
        .join("config.json");
    let json = serde_json::json!({
        "ociVersion": "1.2.0", "hostname": "cart-7d9f", "root": { "path": "rootfs" },
        "annotations": {
            "io.kubernetes.cri.container-type": kind,
            "io.kubernetes.cri.container-name": name,
            "io.kubernetes.cri.image-name": "registry.k8s.io/web:1",
            "io.kubernetes.cri.sandbox-id": C,
            "io.kubernetes.cri.sandbox-name": "cart-7d9f",
            "io.kubernetes.cri.sandbox-namespace": "shop",
            "io.kubernetes.cri.sandbox-uid": UID,
        },
    });
    write(&config, &json.to_string());
}

#[test]
fn containerds_pods_are_found_by_its_bundles_with_systemds_cgroups() {
    let machine = tempfile::tempdir().unwrap();
    let root = machine.path();
    let uid = UID.replace('-', "_");
    let pod = format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice");
    for (id, name, kind) in [(A, "web", "container"), (B, "log", "container"), (C, "", "sandbox")] {
        containerd_bundle(root, id, name, kind);
        cgroup(root, &format!("{pod}/cri-containerd-{id}.scope"));
    }
    let web =
        ok("shop/cart-7d9f/web registry.k8s.io/web:1", &format!("{pod}/cri-containerd-{A}.scope"));
    for wanted in ["web", "4f1c0", "pod/cart-7d9f/web", &format!("pod/{UID}/web")] {
        assert_eq!(find(root, wanted), web, "{wanted}");
    }
    assert_eq!(find(root, "pod/cart-7d9f"), ok("shop/cart-7d9f", &pod));
    let unknown = find(root, "db").unwrap_err();
    assert!(
        unknown.contains("shop/cart-7d9f/log 001122334455") && !unknown.contains(&C[..12]),
        "{unknown}"
    );
}

#[test]
fn pods_without_a_runtime_that_tells_are_found_by_the_kubelets_directories() {
    let machine = tempfile::tempdir().unwrap();
    let pod = format!("kubepods/besteffort/pod{UID}");
    cgroup(machine.path(), &format!("{pod}/{A}"));
    assert_eq!(find(machine.path(), &format!("pod/{UID}")), ok(UID, &pod));
    assert_eq!(find(machine.path(), "4f1c0b5a9d3e"), ok("4f1c0b5a9d3e", &format!("{pod}/{A}")));
    let unknown = find(machine.path(), "pod/web").unwrap_err();
    assert_eq!(unknown, format!("there is no pod web; there are: pod/{UID}"));
}

#[test]
fn crios_containers_are_found_by_its_state_directories() {
    let machine = tempfile::tempdir().unwrap();
    let root = machine.path();
    // As `specAddAnnotations` writes them
    // (<https://github.com/cri-o/cri-o/blob/v1.31.0/internal/factory/container/container.go>).
    let labels = serde_json::json!({
        "io.kubernetes.container.name": "web", "io.kubernetes.pod.name": "cart-7d9f",
        "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": UID,
    });
    let config = serde_json::json!({ "annotations": {
        "io.kubernetes.cri-o.ContainerType": "container",
        "io.kubernetes.cri-o.ContainerName": format!("k8s_web_cart-7d9f_shop_{UID}_0"),
        "io.kubernetes.cri-o.ImageName": "quay.io/web:2",
        "io.kubernetes.cri-o.Labels": labels.to_string(),
    } });
    let state = root.join("run/containers/storage/overlay-containers");
    write(&state.join(A).join("userdata/config.json"), &config.to_string());
    let pod = format!("kubepods.slice/kubepods-pod{}.slice", UID.replace('-', "_"));
    cgroup(root, &format!("{pod}/crio-{A}.scope/container"));
    cgroup(root, &format!("{pod}/crio-conmon-{B}.scope"));
    let web = ok("shop/cart-7d9f/web quay.io/web:2", &format!("{pod}/crio-{A}.scope"));
    assert_eq!(find(root, "pod/cart-7d9f/web"), web);
    assert!(find(root, &B[..12]).is_err());
}

#[test]
fn podmans_containers_are_found_by_its_list() {
    let machine = tempfile::tempdir().unwrap();
    let root = machine.path();
    let stored = |id: &str, name: &str, metadata: serde_json::Value| serde_json::json!({ "id": id, "names": [name], "image": B, "metadata": metadata.to_string() });
    let list = serde_json::json!([
        stored(
            A,
            "web",
            serde_json::json!({ "image-name": "docker.io/library/nginx:1", "name": "web" })
        ),
        stored(B, "old", serde_json::json!({ "image-name": "i", "name": "old" })),
        // CRI-O's own.
        stored(C, "k8s_x", serde_json::json!({ "pod-name": "p", "image-name": "i" })),
    ]);
    let path = "var/lib/containers/storage/overlay-containers/containers.json";
    write(&root.join(path), &list.to_string());
    cgroup(root, &format!("machine.slice/libpod-{A}.scope/container"));
    cgroup(root, &format!("machine.slice/libpod-conmon-{A}.scope"));
    let web = ok("web docker.io/library/nginx:1", &format!("machine.slice/libpod-{A}.scope"));
    assert_eq!(find(root, "web"), web);
    let old = find(root, "old").unwrap_err();
    assert_eq!(
        old,
        "container old 001122334455 is not running (it has no processes); start it first"
    );
    assert!(find(root, "k8s_x").is_err());
}

#[test]
fn a_container_of_a_v1_host_is_its_processes() {
    let machine = tempfile::tempdir().unwrap();
    let root = machine.path();
    let container = root.join("sys/fs/cgroup/pids/docker").join(A);
    write(&container.join("cgroup.procs"), "12\n40\n");
    write(&container.join("inner/cgroup.procs"), "41\n");
    let processes = format!("{:?}", [12, 40, 41].map(Tgid));
    assert_eq!(find(root, "4f1c0b5a9d3e"), ok("4f1c0b5a9d3e", &processes));
    // On a hybrid host the v2 hierarchy has it too, and later processes as well.
    cgroup(root, &format!("docker/{A}"));
    assert_eq!(find(root, "4f1c0b5a9d3e"), ok("4f1c0b5a9d3e", &format!("docker/{A}")));
}

#[test]
fn files_that_are_not_what_they_seem_do_no_harm() {
    let machine = tempfile::tempdir().unwrap();
    let root = machine.path();
    let bundles = root.join("run/containerd/io.containerd.runtime.v2.task/k8s.io");
    write(&root.join("secret.json"), r#"{"annotations":{"nerdctl/name":"secret"}}"#);
    fs::create_dir_all(bundles.join(A)).unwrap();
    std::os::unix::fs::symlink(root.join("secret.json"), bundles.join(A).join("config.json"))
        .unwrap();
    let deep = "[".repeat(100_000);
    let names = [
        "{",
        "[]",
        "null",
        r#"{"annotations":[]}"#,
        r#"{"annotations":{"nerdctl/name":7}}"#,
        &deep,
    ];
    for text in names {
        write(&bundles.join(B).join("config.json"), text);
        cgroup(root, &format!("system.slice/nerdctl-{A}.scope"));
        assert!(find(root, "secret").is_err());
        assert_eq!(find(root, &A[..12]).unwrap().0, A[..12]);
        write(&root.join("var/lib/containers/storage/overlay-containers/containers.json"), text);
        assert!(find(root, "secret").is_err());
    }
}

#[test]
fn a_container_that_starts_again_is_found_again() {
    use std::os::unix::fs::MetadataExt as _;

    let machine = tempfile::tempdir().unwrap();
    let root = machine.path().to_owned();
    let path = root.join("sys/fs/cgroup/unified/docker").join(A);
    fs::create_dir_all(&path).unwrap();
    let id = |path: &Path| CgroupId(fs::metadata(path).unwrap().ino());
    let host = Host::below(&root);
    let FoundContainer { resolved, .. } =
        host.find(&ContainerQuery::Container(A.to_owned())).unwrap();
    let follower = RestartWatcher::start(host, &resolved, path.clone(), id(&path));
    // Another directory, so that its number is another one for certain.
    let new = path.with_file_name("new");
    fs::create_dir(&new).unwrap();
    let restarted = id(&new);
    fs::rename(&path, path.with_file_name("old")).unwrap();
    fs::rename(&new, &path).unwrap();
    let found = follower.wait_for_restart();
    assert_eq!(found, Some(restarted));
}
