//! Requests as a table in plain text.

use std::io;

use offwake_recording::units::Nanos;

use crate::text;

use super::{Excess, Latencies, RequestBand, RequestClass, Requests, SlowRequests};

/// The most classes that the text has.
const MAX_CLASSES: usize = 10;

/// The text has no class that takes a smaller part of the time of all requests.
const MIN_SHARE: f64 = 0.01;

/// How many culprits the text names of what slow requests have more.
const MAX_EXCESS: usize = 5;

impl Requests {
    /// Writes the classes, the slowest band of each against its fast half, and all bands.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_text(&self, out: &mut dyn io::Write) -> io::Result<()> {
        if self.classes.is_empty() {
            writeln!(out, "no requests: {}", self.why_none())?;
            return Ok(());
        }
        let all: Nanos = self.classes.iter().map(|class| class.ns).sum();
        let is_shown = |class: &&RequestClass| class.ns.0 as f64 >= all.0 as f64 * MIN_SHARE;
        let shown: Vec<_> = self.classes.iter().take(MAX_CLASSES).filter(is_shown).collect();
        for (n, class) in shown.iter().enumerate() {
            if n > 0 {
                writeln!(out)?;
            }
            class.write_text(self.window.duration_ns, out)?;
        }
        let more = (self.classes.len() - shown.len()) as u64 + self.summed_up.classes;
        if more > 0 {
            writeln!(out, "\n{more} more kinds of requests took less time: -o x.requests.json")?;
        }
        if self.not_told_apart > 0 {
            writeln!(
                out,
                "\nnot counted: {} times something came for an event loop, and nothing tells for which of its requests",
                self.not_told_apart
            )?;
        }
        Ok(())
    }

    /// Says why there are no requests.
    fn why_none(&self) -> String {
        match self.not_told_apart {
            0 => "nobody was seen to ask the target for anything and to wait for its answer, nor the target anybody"
                .to_owned(),
            count => format!(
                "event loops were woken {count} times, and nothing tells for which of their requests"
            ),
        }
    }
}

impl RequestClass {
    fn write_text(&self, window: Nanos, out: &mut dyn io::Write) -> io::Result<()> {
        let Self { count, unfinished, .. } = self;
        let (server, end) = (&self.server, text::terminal(&self.serving_end));
        let cut = match unfinished {
            0 => String::new(),
            cut => format!(", {cut} unfinished"),
        };
        writeln!(out, "requests of {server} ({end}), {count} in {window}{cut}")?;
        writeln!(
            out,
            "  {:<9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "", "mean", "p50", "p90", "p99", "p99.9", "max"
        )?;
        write_latencies("latency", &self.latency, out)?;
        write_latencies("service", &self.service, out)?;
        match &self.slow {
            Some(slow) => slow.write_text(&self.latency, out)?,
            None => writeln!(out, "  too few to compare slow ones with fast ones")?,
        }
        for band in &self.bands {
            band.write_text(out)?;
        }
        if !self.roles_known {
            writeln!(
                out,
                "  nothing tells who asks and who serves at a {}: these may be waits for the next request,\n  and requests in which the server was woken by others meanwhile are missing",
                text::terminal(&self.serving_end)
            )?;
        }
        if self.start_unseen > 0 {
            writeln!(
                out,
                "  {} of them began before they are counted from: the server was awake as they came",
                self.start_unseen
            )?;
        }
        if self.seen_by_server > 0 {
            writeln!(
                out,
                "  {} of them as the server saw them: until it waited for its next request",
                self.seen_by_server
            )?;
        }
        Ok(())
    }
}

fn write_latencies(name: &str, times: &Latencies, out: &mut dyn io::Write) -> io::Result<()> {
    let Latencies { mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns } = *times;
    write!(out, "  {name:<9}")?;
    for time in [mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns] {
        write!(out, "{:>10}", time.to_string())?;
    }
    writeln!(out)
}

impl SlowRequests {
    fn write_text(&self, latency: &Latencies, out: &mut dyn io::Write) -> io::Result<()> {
        let Self { from_percentile: from, count, mean_ns, fast_mean_ns, excess } = self;
        let more = *mean_ns - *fast_mean_ns;
        writeln!(
            out,
            "  the slow ones (p{from} and above: {count}, {mean_ns} on average) have {more} more than the fast half:"
        )?;
        for one in excess.iter().take(MAX_EXCESS) {
            writeln!(out, "  {:>10}  {}", one.excess_ns.to_string(), one.culprit.text)?;
        }
        if let Some(Excess { without, .. }) = excess.first() {
            let (least, now) = (without.p99_ns, latency.p99_ns);
            writeln!(out, "  without the first, p99 would be at least {least} instead of {now}")?;
        }
        Ok(())
    }
}

impl RequestBand {
    fn write_text(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let Self { name, count, mean_ns, culprits, .. } = self;
        write!(out, "  {name:<9} {count:>8} ×{:>10}", mean_ns.to_string())?;
        match culprits.first() {
            Some(first) => writeln!(out, "  {} {}", first.mean_ns, first.text),
            None => writeln!(out),
        }
    }
}
