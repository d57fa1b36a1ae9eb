//! Servers that are slow, or wait for others that are.

use std::{ffi::OsStr, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};

use super::{
    parties::Party,
    scene::{Scene, source_path},
    trouble::{ClientLog, Trouble},
};
use crate::{programs, wait_until::wait_until};

/// Clients that ask a server on a Unix socket or at `HOST:PORT`, and log how long each answer takes.
pub fn start_clients(
    scene: &Scene,
    address: &OsStr,
    number: u32,
    least: Duration,
) -> Result<(u32, ClientLog)> {
    let log = ClientLog { path: scene.path("log"), least };
    let number = number.to_string();
    let arguments = [address, log.path.as_os_str(), number.as_ref()];
    let clients = scene.start_python("http_clients.py", arguments)?;
    wait_for_operations(&log, 4)?;
    Ok((clients, log))
}

/// Waits until so many operations have been logged.
pub fn wait_for_operations(log: &ClientLog, number: usize) -> Result<()> {
    wait_until("operations to be logged", || {
        let logged = if log.path.exists() { log.read_from(0)?.count() } else { 0 };
        Ok((logged >= number).then_some(()))
    })
}

/// A queue in redis that is filled too slowly.
pub fn start_redis_queue(scene: &Scene) -> Result<Trouble> {
    let server = programs::redis()?;
    let (pid, socket) = (server.pid(), server.directory().join("socket"));
    scene.undo_at_end("redis", move || {
        drop(server);
        Ok(())
    });
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(100) };
    let worker = scene.start_python("redis-queue/worker.py", [&socket, &log.path])?;
    let feed = ClientLog { path: scene.path("feed"), least: Duration::from_millis(150) };
    let importer = scene.start_python("redis-queue/importer.py", [&socket, &feed.path])?;
    wait_for_operations(&log, 4)?;
    let truth = format!(
        "The target, python3 {worker} (worker.py), waits in next_order for redis-server {pid}, which has \
         nothing for it: python3 {importer} (importer.py) sleeps 150 ms in read_feed before each order."
    );
    Ok(Trouble::for_process(worker, truth)
        .cause(&[r"importer\.py", "sleeps in read_feed"])
        .context(&["redis-server", "next_order"])
        .culprits([Party::Process(importer)])
        // It has a timer of its own ten times a second. An order that comes as that is due may be said to
        // have waited for it (docs/blame.md): up to a tenth of the time on a busy machine.
        .involved([Party::Process(pid)])
        .log(log)
        .culprit_log(feed))
}

/// A script in redis that takes long.
pub fn start_redis(scene: &Scene) -> Result<Trouble> {
    let server = programs::redis()?;
    let (pid, socket) = (server.pid(), server.directory().join("socket"));
    scene.undo_at_end("redis", move || {
        drop(server);
        Ok(())
    });
    let script = source_path("redis-slow-script/top_sellers.lua");
    let report = scene.start_python("redis-slow-script/report.py", [&socket, &script])?;
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(4) };
    let web = scene.start_python("redis-slow-script/web.py", [&socket, &log.path])?;
    wait_for_operations(&log, 4)?;
    let truth = format!(
        "redis-server {pid} works in a Lua script (evalGenericCommand) that python3 {report} \
         (report.py) has it run again and again. The target, python3 {web} (web.py), waits in \
         load_session for its GET."
    );
    Ok(Trouble::for_process(web, truth)
        .cause(&["redis-server", "(?i)evalGenericCommand|lua"])
        .context(&["load_session"])
        .culprits([Party::Process(pid)])
        .innocents([Party::Process(report)])
        .log(log)
        .proof(move || ask_redis_for_its_times(&socket)))
}

/// By its own count, a script takes long and a GET does not.
fn ask_redis_for_its_times(socket: &Path) -> Result<String> {
    let mut cli = Command::new("redis-cli");
    let said = cli.arg("-s").arg(socket).args(["info", "commandstats"]).output()?;
    let stats = String::from_utf8_lossy(&said.stdout).into_owned();
    let each = |command: &str| -> Result<f64> {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:")));
        let each =
            line.and_then(|line| line.split(',').find_map(|f| f.strip_prefix("usec_per_call=")));
        Ok(each.with_context(|| format!("no {command} in {stats}"))?.parse()?)
    };
    let (script, get) = (each("eval")?, each("get")?);
    ensure!(script > 10_000.0 && get < script / 100.0, "scripts {script} us, GETs {get} us");
    Ok(format!("by redis itself, an EVAL takes {script} us and a GET {get} us"))
}

/// nginx before an application that computes.
pub fn start_nginx(scene: &Scene) -> Result<Trouble> {
    let (upstream, front) = (scene.path("upstream"), scene.path("front"));
    let renders = ClientLog { path: scene.path("renders"), least: Duration::from_millis(30) };
    let arguments = [&upstream, &renders.path];
    let application = scene.start_python("nginx-slow-upstream/upstream.py", arguments)?;
    let configuration = fs::read_to_string(source_path("nginx-slow-upstream/nginx.conf"))?;
    let directory = scene.path("");
    let configuration = configuration.replace("DIRECTORY", &directory.to_string_lossy());
    fs::write(scene.path("nginx.conf"), configuration)?;
    // nginx's worker is another user.
    scene.execute(Command::new("chmod").arg("a+w").arg(&upstream))?;
    let mut nginx = Command::new("/usr/sbin/nginx");
    nginx.arg("-p").arg(&directory).arg("-c").arg(scene.path("nginx.conf"));
    let nginx = scene.start(nginx.arg("-e").arg(scene.path("errors")))?;
    wait_until("nginx to listen", || Ok(front.exists().then_some(())))?;
    let (clients, log) = start_clients(scene, front.as_os_str(), 3, Duration::from_millis(100))?;
    let worker = first_child(nginx)?;
    let truth = format!(
        "python3 {application} (upstream.py) computes in render_invoice, one request at a time. The \
         target, nginx's worker {worker}, waits for it; the clients are threads of python3 {clients}."
    );
    Ok(Trouble::for_process(worker, truth)
        .cause(&[r"upstream\.py", "render_invoice"])
        .culprits([Party::Process(application)])
        .innocents([Party::Process(clients), Party::Process(nginx)])
        .log(log)
        .culprit_log(renders))
}

/// The first process that this one started and that is there.
pub fn first_child(pid: u32) -> Result<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(path)?;
    Ok(children.split_whitespace().next().context("it has no children")?.parse()?)
}

/// A server that answers at once, in two writes.
pub fn start_delayed_ack(scene: &Scene) -> Result<Trouble> {
    let port = scene.path("port");
    let stock = scene.start_python("delayed-ack/stock.py", [&port])?;
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(30) };
    let shop = scene.start_python("delayed-ack/shop.py", [&port, &log.path])?;
    wait_for_operations(&log, 4)?;
    let before = count_delayed_acks()?;
    let truth = format!(
        "python3 {stock} (stock.py) answers at once, the head first and then the body, which TCP holds \
         back until the head is acknowledged. The kernel of the target, python3 {shop} (shop.py), does \
         that some 40 ms later."
    );
    Ok(Trouble::for_process(shop, truth)
        .cause(&["(?i)delayed ACK"])
        .context(&["count_stock", r"stock\.py"])
        // It answers each question, which takes it 3 % of the time on a busy machine.
        .involved([Party::Process(stock)])
        .log(log)
        .proof(move || {
            let delayed = count_delayed_acks()?.saturating_sub(before);
            ensure!(delayed >= 10, "only {delayed} ACKs were delayed");
            Ok(format!("by the kernel's count, {delayed} ACKs were delayed meanwhile"))
        }))
}

/// How many acknowledgements the kernel has delayed since it started (`TcpExt: DelayedACKs`).
fn count_delayed_acks() -> Result<u64> {
    let netstat = fs::read_to_string("/proc/net/netstat")?;
    let mut of_tcp = netstat.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = of_tcp.next().zip(of_tcp.next()).context("no TcpExt in netstat")?;
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let (_, count) = pairs.find(|(name, _)| *name == "DelayedACKs").context("no DelayedACKs")?;
    Ok(count.parse()?)
}

/// A service whose pool of threads is busy with a slow backend.
pub fn start_executor(scene: &Scene) -> Result<Trouble> {
    let (front, backend) = (scene.path("front"), scene.path("backend"));
    let look_ups = ClientLog { path: scene.path("look-ups"), least: Duration::from_millis(200) };
    let prices = scene.start_python("full-executor/prices.py", [&backend, &look_ups.path])?;
    let service = scene.start_python("full-executor/service.py", [&front, &backend])?;
    let (clients, log) = start_clients(scene, front.as_os_str(), 16, Duration::from_millis(400))?;
    let truth = format!(
        "The four pool threads of the target, python3 {service} (service.py), wait in fetch_price for \
         python3 {prices} (prices.py), which sleeps 200 ms in look_up_price for each request; its \
         other threads wait for the pool. The clients are 16 threads of python3 {clients}."
    );
    Ok(Trouble::for_process(service, truth)
        .cause(&[r"prices\.py", "sleeps in look_up_price"])
        .context(&["fetch_price"])
        .culprits([Party::Process(prices)])
        .involved([Party::Process(service)])
        .log(log)
        .culprit_log(look_ups))
}

/// An event loop that is blocked.
pub fn start_node(scene: &Scene) -> Result<Trouble> {
    let front = scene.path("front");
    let mut node = Command::new("node");
    let hashes = ClientLog { path: scene.path("hashes"), least: Duration::from_millis(30) };
    node.arg(source_path("node-blocked-loop/server.js")).args([&front, &hashes.path]);
    let node = scene.start_and_wait(&mut node)?;
    let (clients, log) = start_clients(scene, front.as_os_str(), 3, Duration::from_millis(100))?;
    let truth = format!(
        "The event loop of node {node} (server.js) is blocked in hashPassword, in \
         crypto.pbkdf2Sync. The target, three threads of python3 {clients} (http_clients.py), waits \
         for it in ask."
    );
    Ok(Trouble::for_process(clients, truth)
        .cause(&[r"server\.js", "(?i)pbkdf2|hashPassword"])
        .context(&[r"http_clients\.py .* waits for node"])
        .culprits([Party::Process(node)])
        .log(log)
        .culprit_log(hashes))
}

/// A client that polls with timeouts of its own until the answer comes.
pub fn start_polling_client(scene: &Scene) -> Result<Trouble> {
    let socket = scene.path("stock");
    let stock = ClientLog { path: scene.path("reserved"), least: Duration::from_millis(600) };
    let server = scene.start_python("polling-client/stock.py", [&socket, &stock.path])?;
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(500) };
    let mut script = Command::new("sh");
    script.arg(source_path("polling-client/order.sh")).args([&socket, &log.path]);
    let script = scene.start_and_wait(&mut script)?;
    wait_for_operations(&log, 2)?;
    let truth = format!(
        "The target, sh {script} (order.sh), waits for its children, curl, each of which waits for \
         python3 {server} (stock.py), which sleeps in reserve_stock."
    );
    Ok(Trouble::for_process(script, truth)
        .cause(&[r"stock\.py", "sleeps in reserve_stock"])
        .context(&["curl"])
        .culprits([Party::Process(server)])
        .log(log)
        .culprit_log(stock))
}
