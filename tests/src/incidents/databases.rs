//! Databases whose locks only the functions of a stack tell.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Result, ensure};

use super::{
    parties::Party,
    scene::{Scene, source_path},
    services::wait_for_operations,
    trouble::{ClientLog, Trouble},
};
use crate::{programs, wait_until::wait_until};

/// A row of MariaDB's.
pub fn start_mariadb(scene: &Scene) -> Result<Trouble> {
    let server = programs::mariadb()?;
    let (pid, socket) = (server.pid(), server.directory().join("socket"));
    scene.undo_at_end("MariaDB", move || {
        drop(server);
        Ok(())
    });
    query(&socket, &fs::read_to_string(source_path("mariadb-row-lock/schema.sql"))?)?;
    let job = scene.start_python("mariadb-row-lock/cron_tx.py", [&socket])?;
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(150) };
    let shop = scene.start_python("mariadb-row-lock/checkout.py", [&socket, &log.path])?;
    wait_for_operations(&log, 2)?;
    let truth = format!(
        "python3 {job} (cron_tx.py) sleeps in call_payment_api while its transaction holds the row \
         product.id=1. The target, python3 {shop} (checkout.py), waits in checkout for its session of \
         mariadbd {pid}, and that for the row."
    );
    Ok(Trouble::for_process(shop, truth)
        .cause(&[r"cron_tx\.py", "sleeps in call_payment_api"])
        .context(&["row lock", r"checkout\.py"])
        .culprits([Party::Process(job)])
        .involved([Party::Process(pid)])
        .log(log)
        .proof(move || {
            wait_until("a session to wait for the row", || {
                let waits = query(&socket, LOCK_WAITS)?;
                Ok(waits.contains("LOCK WAIT").then_some(waits))
            })
        }))
}

/// Who waits for whom, by InnoDB itself. It answers from a copy, which it makes anew only if nobody has asked
/// for a tenth of a second: who asks more often never sees a change.
const LOCK_WAITS: &str = "DO SLEEP(0.2); \
     SELECT r.trx_state, r.trx_query, 'waits for', b.trx_mysql_thread_id \
     FROM information_schema.innodb_lock_waits w \
     JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id \
     JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id";

fn query(socket: &Path, sql: &str) -> Result<String> {
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "--user=root", "--batch", "--skip-column-names", "--socket"]);
    let output = client.arg(socket).arg("--execute").arg(sql).output()?;
    ensure!(output.status.success(), "mariadb: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The file of a SQLite database.
pub fn start_sqlite(scene: &Scene) -> Result<Trouble> {
    let database = scene.path_on_disk("shop.db");
    let import = scene.start_python("sqlite-lock/import_prices.py", [&database])?;
    let log = ClientLog { path: scene.path("log"), least: Duration::from_millis(2) };
    let desk = scene.start_python("sqlite-lock/booking.py", [&database, &log.path])?;
    wait_for_operations(&log, 2)?;
    let truth = format!(
        "python3 {import} (import_prices.py) holds the lock of {} while it sleeps 500 ms in \
         fetch_prices. The target, python3 {desk} (booking.py), asks for it again and again in \
         save_booking, and SQLite sleeps in between.",
        database.display()
    );
    Ok(Trouble::for_process(desk, truth)
        .cause(&[r"import_prices\.py", "fetch_prices"])
        .context(&["lock of the SQLite database", "save_booking"])
        .culprits([Party::Process(import)])
        .log(log)
        .proof(move || find_writer(&database, import)))
}

/// By the kernel's list, the import has the file's lock for writing, and keeps it.
fn find_writer(database: &PathBuf, import: u32) -> Result<String> {
    use std::os::unix::fs::MetadataExt as _;
    let inode = fs::metadata(database)?.ino();
    wait_until("the lock to be held", || {
        let locks = fs::read_to_string("/proc/locks")?;
        let held = locks.lines().find(|line| {
            line.contains(&format!(":{inode} ")) && line.contains(&format!(" WRITE {import} "))
        });
        Ok(held.map(str::to_owned))
    })
}
