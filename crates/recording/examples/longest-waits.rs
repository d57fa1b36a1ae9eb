//! Prints the longest waits of a recording: who waited, for how long, who ended the wait, and where it waited.
//!
//! ```sh
//! cargo run --package offwake-recording --example longest-waits -- profiler/tests/data/demo.offwake
//! ```

use std::{cmp::Reverse, env, fs::File, io::Write as _};

use offwake_recording::{Recording, StackRef, Wait, stream, units::Tid};

/// The most memory that a recording may take.
const MAX_MEMORY: usize = 4 << 30;
/// The waits that are printed.
const PRINTED: usize = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = env::args_os().nth(1).ok_or("usage: longest-waits RECORDING")?;
    let recording = stream::read(&File::open(path)?, MAX_MEMORY)?;
    let mut waits: Vec<Wait> = recording.waits.iter().collect();
    waits.sort_by_key(|wait| Reverse(wait.on.since(wait.off)));

    let mut out = std::io::stdout().lock();
    for wait in waits.iter().take(PRINTED) {
        let waker = match &wait.wake {
            Some(wake) => format!("woken by {}", thread_name(&recording, wake.current.tid)),
            None => "waker unknown".to_owned(),
        };
        let waited = wait.on.since(wait.off);
        writeln!(out, "{waited:>8}  {}, {waker}", thread_name(&recording, wait.tid))?;
        for stack in [wait.kernel_stack, wait.user_stack] {
            let StackRef::Id(id) = stack else { continue };
            for frame in recording.stacks.frames_of(id) {
                writeln!(out, "            {}", frame.names().next().unwrap_or("[unknown]"))?;
            }
        }
    }
    Ok(())
}

/// The name that a thread had last. Names come from other programs, so control characters are replaced.
fn thread_name(recording: &Recording, tid: Tid) -> String {
    let named = recording.thread_events.iter().rfind(|event| event.tid == tid);
    let name = named.map_or("?", |event| event.comm.as_str());
    format!("{} ({tid})", name.replace(char::is_control, "?"))
}
