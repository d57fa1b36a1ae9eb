//! PostgreSQL: transactions that are open for too long, and what they keep: a row, the connection of a pooler.

use std::{
    fs,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Result, ensure};
use regex::Regex;

use super::{
    parties::Party,
    scene::{Scene, source_path},
    services::wait_for_operations,
    trouble::{ClientLog, Trouble},
};
use crate::{programs, wait_until::wait_until};

/// The server, and the programs that use it.
struct Shop {
    server: u32,
    job: u32,
    clients: u32,
    directory: PathBuf,
    log: PathBuf,
}

/// One client, and what it waits for.
pub fn start_row_lock(scene: &Scene) -> Result<Trouble> {
    let shop = start(scene, 1)?;
    let truth = format!(
        "python3 {} (cron_tx.py) sleeps in call_payment_api while its transaction holds the row \
         product.id=1; its session is idle in transaction meanwhile. The target, python3 {} \
         (checkout.py), waits in checkout for its own session, and that for the row.",
        shop.job, shop.clients
    );
    finish(shop.clients, &shop, 1, truth)
}

/// Ten clients, and the server as a whole.
pub fn start_clients(scene: &Scene) -> Result<Trouble> {
    let shop = start(scene, 10)?;
    let truth = format!(
        "python3 {} (cron_tx.py) sleeps in call_payment_api while its transaction holds the row \
         product.id=1, for which the sessions of ten threads of python3 {} (checkout.py) wait. The \
         target is the whole server: postgres {} and its children.",
        shop.job, shop.clients, shop.server
    );
    finish(shop.server, &shop, 8, truth)
}

/// One client, and a whole machine of which the rest is idle.
pub fn start_mixed_host(scene: &Scene) -> Result<Trouble> {
    let mut idle = Vec::new();
    for server in [programs::redis()?, programs::nginx()?] {
        idle.extend(server.pids()?);
        scene.undo_at_end("an idle server", move || {
            drop(server);
            Ok(())
        });
    }
    let shop = start(scene, 1)?;
    let truth = format!(
        "python3 {} (cron_tx.py) sleeps in call_payment_api while its transaction holds the row \
         product.id=1, for which python3 {} (checkout.py) waits. The target is the whole machine, on \
         which redis and nginx are idle ({idle:?}).",
        shop.job, shop.clients
    );
    let mut trouble = finish(shop.clients, &shop, 1, truth)?.beside_others();
    trouble.target = vec!["--all".to_owned()];
    trouble.parties.innocents.extend(idle.into_iter().map(Party::Process));
    Ok(trouble)
}

fn start(scene: &Scene, clients: u32) -> Result<Shop> {
    let server = programs::postgres()?;
    let directory = server.directory().to_owned();
    let pid = server.pid();
    scene.undo_at_end("PostgreSQL", move || {
        drop(server);
        Ok(())
    });
    query(&directory, &fs::read_to_string(source_path("postgres-row-lock/schema.sql"))?)?;
    let job = scene.start_python("postgres-row-lock/cron_tx.py", [&directory])?;
    let log = scene.path("log");
    let arguments = [directory.as_os_str(), log.as_os_str(), clients.to_string().as_ref()]
        .map(ToOwned::to_owned);
    let clients = scene.start_python("postgres-row-lock/checkout.py", arguments)?;
    wait_until("somebody to wait for the row", || {
        Ok((count_waiting(&directory)? > 0).then_some(()))
    })?;
    Ok(Shop { server: pid, job, clients, directory, log })
}

fn finish(target: u32, shop: &Shop, least_waiting: usize, truth: String) -> Result<Trouble> {
    let postgres = Regex::new("^postgres")?;
    let directory = shop.directory.clone();
    Ok(Trouble::for_process(target, truth)
        .cause(&[r"cron_tx\.py", "sleeps in call_payment_api"])
        .context(&["waits for a lock of another postgres"])
        .culprits([Party::Process(shop.job)])
        .involved([Party::Named(postgres)])
        .innocents([Party::Process(shop.clients)])
        .log(ClientLog { path: shop.log.clone(), least: Duration::from_millis(150) })
        .proof(move || {
            wait_until("a session that holds the row, and enough that wait for it", || {
                let sessions = query(&directory, SESSIONS)?;
                let count =
                    |part: &str| sessions.lines().filter(|line| line.contains(part)).count();
                let is_proved =
                    count("idle in transaction") == 1 && count("waits") >= least_waiting;
                Ok(is_proved.then_some(sessions))
            })
        }))
}

/// Two clients of a pooler with one connection.
pub fn start_pooled(scene: &Scene) -> Result<Trouble> {
    let server = programs::postgres()?;
    let directory = server.directory().to_owned();
    scene.undo_at_end("PostgreSQL", move || {
        drop(server);
        Ok(())
    });
    let text = fs::read_to_string(source_path("pooled-transaction/pgbouncer.ini"))?;
    let settings = directory.join("pgbouncer.ini");
    fs::write(&settings, text.replace("DIRECTORY", &directory.to_string_lossy()))?;
    // It refuses to run as root.
    let owner = fs::metadata(&directory)?;
    let mut pooler = Command::new("/usr/sbin/pgbouncer");
    pooler.uid(owner.uid()).gid(owner.gid()).arg("--quiet").arg(&settings);
    let pooler = scene.start(&mut pooler)?;
    let socket = directory.join(".s.PGSQL.6432");
    wait_until("the pooler to listen", || Ok(socket.exists().then_some(())))?;
    let orders = scene.start_python("pooled-transaction/orders.py", [&directory])?;
    let log = scene.path("log");
    let cart = scene.start_python("pooled-transaction/cart.py", [&directory, &log])?;
    let log = ClientLog { path: log, least: Duration::from_millis(100) };
    wait_for_operations(&log, 2)?;
    let truth = format!(
        "python3 {orders} (orders.py) sleeps 300 ms in call_payment_api in the middle of its transaction, \
         for which pgbouncer {pooler} keeps its only connection to PostgreSQL. The target, python3 {cart} \
         (cart.py), waits in load_cart for pgbouncer, which has taken its query."
    );
    Ok(Trouble::for_process(cart, truth)
        .cause(&[r"orders\.py", "sleeps in call_payment_api"])
        .context(&["waits for pgbouncer", "load_cart"])
        .culprits([Party::Process(orders)])
        .involved([Party::Process(pooler), Party::Named(Regex::new("^postgres")?)])
        .log(log)
        .proof(move || {
            wait_until("a session that is idle in its transaction", || {
                let sessions = query(&directory, SESSIONS)?;
                Ok(sessions.contains("idle in transaction").then_some(sessions))
            })
        }))
}

/// Who holds what and waits for whom, by PostgreSQL itself, all at one moment.
const SESSIONS: &str = "SELECT pid || ' is idle in transaction after ' || query FROM pg_stat_activity \
     WHERE state = 'idle in transaction' UNION ALL \
     SELECT pid || ' waits for a ' || wait_event || ' of ' || pg_blocking_pids(pid)::text \
     FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

fn count_waiting(directory: &Path) -> Result<u64> {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    Ok(query(directory, waiting)?.parse()?)
}

fn query(directory: &Path, sql: &str) -> Result<String> {
    let mut psql = Command::new("psql");
    psql.args(["-AtqX", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-h"]);
    let output = psql.arg(directory).args(["-c", sql]).output()?;
    ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
