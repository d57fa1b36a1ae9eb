//! The network, in namespaces of one's own.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};

use super::{
    parties::Party,
    scene::{Scene, python},
    services::wait_for_operations,
    trouble::{ClientLog, Trouble},
};
use crate::wait_until::wait_until;

const CLIENT: &str = "10.111.0.1";
const SERVER: &str = "10.111.0.2";
const RESOLVER: &str = "127.0.5.3";

/// A server beyond a pair of virtual Ethernet devices.
pub fn start_network_server(scene: &Scene) -> Result<Trouble> {
    let id = std::process::id();
    let (here, there) = (format!("incident-{id}-a"), format!("incident-{id}-b"));
    for namespace in [&here, &there] {
        ip(&["netns", "add", namespace])?;
        let namespace = namespace.clone();
        scene.undo_at_end(format!("network namespace {namespace}"), move || {
            ip(&["netns", "delete", &namespace])
        });
    }
    let pair = ["type", "veth", "peer", "name", "veth0", "netns", &there];
    ip(&[&["link", "add", "veth0", "netns", &here], &pair[..]].concat())?;
    for (namespace, address) in [(&here, CLIENT), (&there, SERVER)] {
        ip(&["-n", namespace, "address", "add", &format!("{address}/24"), "dev", "veth0"])?;
        ip(&["-n", namespace, "link", "set", "veth0", "up"])?;
    }
    let prices = ClientLog { path: scene.path("prices"), least: Duration::from_millis(25) };
    let server = python("network-server/basket.py");
    let mut server = within(&there, &server);
    let server = scene.start_and_wait(server.args([SERVER, "8080"]).arg(&prices.path))?;
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(25) };
    let client = python("http_clients.py");
    let mut client = within(&here, &client);
    client.arg(format!("{SERVER}:8080")).arg(&log.path).arg("1");
    let client = scene.start_and_wait(&mut client)?;
    wait_for_operations(&log, 4)?;
    let truth = format!(
        "python3 {server} (basket.py) in network namespace {there} computes in price_basket for each \
         request. The target, python3 {client} (http_clients.py) in namespace {here}, waits for it \
         in ask."
    );
    Ok(Trouble::for_process(client, truth)
        .cause(&[r"basket\.py", "price_basket"])
        .context(&[r"http_clients\.py .* in ask"])
        .culprits([Party::Process(server)])
        .log(log)
        .culprit_log(prices))
}

fn ip(arguments: &[&str]) -> Result<()> {
    let said = Command::new("ip").args(arguments).output().context("cannot run ip")?;
    let error = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "ip {arguments:?}: {error}");
    Ok(())
}

/// A command as `ip` runs it in a network namespace: `ip` becomes it.
fn within(namespace: &str, command: &Command) -> Command {
    let mut within = Command::new("ip");
    within.args(["netns", "exec", namespace]);
    within.arg(command.get_program()).args(command.get_args());
    within
}

/// A name server that never answers.
pub fn start_silent_resolver(scene: &Scene) -> Result<Trouble> {
    let settings = scene.path("resolv.conf");
    fs::write(&settings, format!("nameserver {RESOLVER}\noptions timeout:1 attempts:2\n"))?;
    let ignored = scene.path("ignored");
    let server = scene
        .start_python("silent-resolver/silent.py", [RESOLVER.as_ref(), ignored.as_os_str()])?;
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(1500) };
    let mailer = python("silent-resolver/mailer.py");
    let mut unshare = Command::new("unshare");
    // A namespace of mounts, in which this is the file that the C library reads.
    unshare.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\""]);
    unshare.arg(&settings).arg(mailer.get_program()).args(mailer.get_args()).arg(&log.path);
    let mailer = scene.start_and_wait(&mut unshare)?;
    wait_for_operations(&log, 1)?;
    let truth = format!(
        "The target, python3 {mailer} (mailer.py), waits in find_mail_server, in getaddrinfo, for \
         the name server {RESOLVER} (python3 {server}, silent.py), which never answers: each query \
         ends with a timeout of a second."
    );
    Ok(Trouble::for_process(mailer, truth)
        .cause(&[r"no answer from the name server 127\.0\.5\.3"])
        .context(&[r"find_mail_server", r"silent\.py"])
        .culprits([Party::Process(server)])
        .log(log)
        .proof(move || {
            let count = || Ok::<_, anyhow::Error>(fs::read_to_string(&ignored)?.lines().count());
            let before = count()?;
            let queries = wait_until("queries to come in", || {
                Ok(Some(count()? - before).filter(|queries| *queries >= 2))
            })?;
            Ok(format!("the name server has ignored {queries} queries since"))
        }))
}
