//! Containers that wait for each other.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context as _, Result};

use super::{
    parties::Party,
    scene::{Scene, source_path},
    services::wait_for_operations,
    trouble::{ClientLog, Trouble},
};
use crate::docker::{Engine, IMAGE};

/// A shop that asks a container for prices, over pipes in a volume that they share.
pub fn start(scene: &Scene) -> Result<Trouble> {
    let volume = scene.path("volume");
    fs::create_dir(&volume)?;
    for pipe in ["question", "answer"] {
        scene.execute(Command::new("mkfifo").arg(volume.join(pipe)))?;
    }
    for script in ["shop.sh", "prices.sh"] {
        fs::copy(source_path(&format!("containers/{script}")), volume.join(script))?;
    }
    let log = ClientLog { path: volume.join("log"), least: Duration::from_millis(15) };
    let counts = ClientLog { path: volume.join("counts"), least: Duration::from_millis(15) };
    let engine = Engine::start()?;
    let host = engine.host();
    // From here on it is ended on every way out, and first its containers.
    scene.undo_at_end("the container engine", move || {
        engine.docker(&["rm", "--force", "shop", "prices"])?;
        engine.end()
    });
    let mount = format!("{}:/volume", volume.display());
    let mut pids = Vec::new();
    for name in ["prices", "shop"] {
        let docker = |arguments: &[&str]| {
            scene.execute(Command::new("docker").args(["-H", &host]).args(arguments))
        };
        let script = format!("/volume/{name}.sh");
        let (options, shell) = (["--detach", "--network=none", "--name"], ["/bin/sh", &script]);
        let container = [name, "--volume", &mount, IMAGE];
        docker(&[&["run"], &options[..], &container[..], &shell[..]].concat())?;
        pids.push(docker(&["inspect", "--format", "{{.State.Pid}}", name])?);
    }
    wait_for_operations(&log, 3)?;
    let prices = pids.first().context("no container")?;
    let culprit = Party::Process(prices.parse()?);
    let truth = format!(
        "sh {prices} (prices.sh) in container prices counts for each question. The target, container shop \
         (sh {}, shop.sh), waits for its answer.",
        pids.last().context("no container")?
    );
    let mut trouble = Trouble::for_process(0, truth)
        .cause(&[r"prices\.sh in prices\b", "runs on a CPU"])
        .context(&[r"shop\.sh in shop\b"])
        .culprits([culprit])
        .log(log)
        .culprit_log(counts);
    trouble.target = ["--container", "shop"].map(str::to_owned).to_vec();
    trouble.environment = vec![("DOCKER_HOST", host)];
    Ok(trouble)
}
