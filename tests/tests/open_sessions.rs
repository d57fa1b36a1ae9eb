//! Sessions of a server that still wait when the recording ends: PostgreSQL's, which say in their
//! titles what they do.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use offwake_tests::{offwake::Offwake, process::Process, programs, wait_until::wait_until};

/// A client of PostgreSQL's that does what is written to it.
struct Session {
    client: Process,
    /// The server's process for it.
    backend: u32,
}

impl Session {
    fn start(server: &Path, name: &str) -> Result<Self> {
        let mut psql = psql(server);
        psql.env("PGAPPNAME", name).stdin(Stdio::piped()).stdout(Stdio::null());
        let client = Process(psql.spawn().context("cannot start psql")?);
        let sql = format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{name}'");
        let backend = wait_until("a session", || Ok(query(server, &sql)?.parse().ok()))?;
        Ok(Self { client, backend })
    }

    /// Writes a statement, and waits until the session does this (`state`, `wait_event_type`).
    fn execute(&mut self, server: &Path, sql: &str, wanted: &str) -> Result<()> {
        self.client.write(format!("{sql}\n").as_bytes())?;
        let state = format!(
            "SELECT state || ', ' || coalesce(wait_event_type, '') FROM pg_stat_activity \
             WHERE pid = {}",
            self.backend
        );
        wait_until(sql, || Ok((query(server, &state)? == wanted).then_some(())))
    }
}

fn psql(server: &Path) -> Command {
    let mut psql = Command::new("psql");
    psql.args(["-AtqX", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", "postgres", "-h"]);
    psql.arg(server);
    psql
}

fn query(server: &Path, sql: &str) -> Result<String> {
    let output = psql(server).args(["-c", sql]).output()?;
    ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// As the recording begins, one session is idle and the other one in a transaction. Then they
/// change places: the first one takes a row, and the other one ends what it did. What they said at
/// first is true of neither.
#[test]
fn the_session_that_began_its_transaction_within_the_recording_may_have_the_row() -> Result<()> {
    const IDLE: &str = "idle, Client";
    const OPEN: &str = "idle in transaction, Client";
    let postgres = programs::postgres()?;
    let server = postgres.directory();
    query(
        server,
        "CREATE TABLE product (id int, stock int); INSERT INTO product VALUES (1, 9), (2, 9)",
    )?;
    for names in [["left", "right"], ["right", "left"]] {
        let [mut holder, mut beside] = {
            let [holder, beside] = names.map(|name| Session::start(server, name));
            [holder?, beside?]
        };
        let mut waiter = Session::start(server, "waiter")?;
        holder.execute(server, "SELECT 1;", IDLE)?;
        waiter.execute(server, "SELECT 1;", IDLE)?;
        let takes = |id: u32| format!("UPDATE product SET stock = stock - 1 WHERE id = {id};");
        beside.execute(server, &format!("BEGIN; {}", takes(2)), OPEN)?;
        let target = waiter.client.pid().to_string();
        let mut offwake =
            Offwake::profile()?.args(["-d", "3", "-p", &target, "-o", "x.json"]).start()?;
        offwake.wait_until_recording()?;
        beside.execute(server, "COMMIT;", IDLE)?;
        holder.execute(server, &format!("BEGIN; {}", takes(1)), OPEN)?;
        waiter.execute(server, &takes(1), "active, Lock")?;
        let outcome = offwake.outcome()?;
        ensure!(outcome.status.success(), "{outcome}");
        let screen = outcome.terminal();
        println!("{screen}");
        let text = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        for wanted in [
            format!("postgres {} \"UPDATE waiting\" has not answered", waiter.backend),
            format!("maybe postgres {} \"idle in transaction\": asleep as long", holder.backend),
        ] {
            ensure!(text.contains(&wanted), "{names:?}: no {wanted:?}: {screen}");
        }
        let told = format!("{:?}", outcome.report("x.json")?.findings.first());
        let other = beside.backend.to_string();
        ensure!(!told.contains(&other) && !text.contains(&other), "{names:?}: {other}: {screen}");
        for session in [&mut waiter, &mut holder, &mut beside] {
            session.client.end()?;
        }
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name IN \
                        ('left', 'right', 'waiter')";
        wait_until("the sessions to end", || Ok((query(server, sessions)? == "0").then_some(())))?;
    }
    Ok(())
}
