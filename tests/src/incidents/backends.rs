//! What stands behind a service, and does not answer in time.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};

use super::{
    parties::Party,
    scene::{Scene, source_path},
    services::{first_child, start_clients},
    trouble::{ClientLog, Trouble},
};
use crate::{programs, wait_until::wait_until};

/// redis, stopped within the recording.
pub fn start_stopped_cache(scene: &Scene) -> Result<Trouble> {
    let server = programs::redis()?;
    let (pid, socket) = (server.pid(), server.directory().join("socket"));
    scene.undo_at_end("redis", move || {
        // What is stopped does not end by itself.
        server.signal(libc::SIGCONT)?;
        drop(server);
        Ok(())
    });
    let web = scene.start_python("stopped-cache/web.py", [&socket])?;
    let truth = format!(
        "redis-server {pid} is stopped by a SIGSTOP. The target, python3 {web} (web.py), waits for its \
         answer in load_session."
    );
    Ok(Trouble::for_process(web, truth)
        .cause(&["redis-server", "is stopped"])
        .context(&["load_session"])
        .culprits([Party::Process(pid)])
        .once_recorded(move || {
            // SAFETY: takes plain integers; the server has not been reaped.
            let sent = unsafe { libc::kill(pid.cast_signed(), libc::SIGSTOP) };
            ensure!(sent == 0, "cannot stop redis: {}", std::io::Error::last_os_error());
            Ok(())
        })
        .proof(move || {
            wait_until("all threads of redis to be stopped", || {
                let states = thread_states(pid)?;
                Ok(states.iter().all(|state| state.starts_with('T')).then(|| states.join(", ")))
            })
        }))
}

/// The states of a process's threads, as the kernel has them.
fn thread_states(pid: u32) -> Result<Vec<String>> {
    let mut states = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        states.push(state.context("no state")?.trim().to_owned());
    }
    ensure!(!states.is_empty(), "process {pid} has no threads");
    Ok(states)
}

/// A pool of one PHP process behind nginx.
pub fn start_php_pool(scene: &Scene) -> Result<Trouble> {
    let directory = scene.path("");
    let directory = directory.to_string_lossy().trim_end_matches('/').to_owned();
    let copy = |name: &str| -> Result<_> {
        let text = fs::read_to_string(source_path("php-fpm-pool").join(name))?;
        fs::write(scene.path(name), text.replace("DIRECTORY", &directory))?;
        Ok(scene.path(name))
    };
    copy("report.php")?;
    // The pool's process is another user.
    let rates = scene.path("rates");
    fs::write(&rates, "")?;
    fs::set_permissions(&rates, fs::Permissions::from_mode(0o666))?;
    let mut fpm = Command::new(find_php_fpm()?);
    fpm.args(["--nodaemonize", "--fpm-config"]).arg(copy("pool.conf")?);
    let fpm = scene.start(&mut fpm)?;
    let pool = scene.path("fpm");
    wait_until("the pool to listen", || Ok(pool.exists().then_some(())))?;
    let child = wait_until("the pool's process", || Ok(first_child(fpm).ok()))?;
    let mut nginx = Command::new("/usr/sbin/nginx");
    nginx.arg("-p").arg(scene.path("")).arg("-c").arg(copy("nginx.conf")?);
    let nginx = scene.start(nginx.arg("-e").arg(scene.path("errors")))?;
    let front = scene.path("front");
    wait_until("nginx to listen", || Ok(front.exists().then_some(())))?;
    let (clients, log) = start_clients(scene, front.as_os_str(), 3, Duration::from_millis(800))?;
    let worker = first_child(nginx)?;
    let rates = ClientLog { path: rates, least: Duration::from_millis(390) };
    let truth = format!(
        "The pool of php-fpm {fpm} has one process, {child}, which sleeps 400 ms in fetch_rates \
         (usleep) for each request; the requests of three threads of python3 {clients} \
         (http_clients.py) queue for it behind the target, nginx's worker {worker}."
    );
    Ok(Trouble::for_process(worker, truth)
        .cause(&["php-fpm", r"(?i)\bsleeps in .*(usleep|fetch_rates)"])
        .known_miss(
            "frames of PHP are not read, and Debian's php-fpm has no symbols for its own: the process and \
             that it sleeps are named, the function is not",
            &["php-fpm", r"(?i)\bsleeps"],
        )
        .culprits([Party::Process(child)])
        .involved([Party::Process(worker)])
        .log(log)
        .culprit_log(rates))
}

/// Debian puts the version into the name.
fn find_php_fpm() -> Result<PathBuf> {
    let programs = fs::read_dir("/usr/sbin")?.flatten().map(|entry| entry.path());
    let is_fpm = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm"))
    };
    programs.filter(is_fpm).max().context("no php-fpm in /usr/sbin")
}
