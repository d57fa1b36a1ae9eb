//! Requests in plain text: a few lines behind the summary, or all that is known.

use std::io;

use offwake_recording::units::Nanos;

use crate::text;

use super::{
    ChangedPercentile, Latencies, Meanwhile, NotToldApartReason, RequestBand, RequestClass,
    Requests, RequestsNotToldApart, SlowRequests, UnansweredRequests,
};

/// The most classes that the text has.
const MAX_CLASSES: usize = 10;

/// The text has no class that takes a smaller part of the time of all requests.
const MIN_SHARE: f64 = 0.01;

/// How many culprits the text names of what slow requests have more.
const MAX_EXCESS: usize = 5;

/// The most classes that a summary ends with.
const MAX_CLASSES_OF_SUMMARY: usize = 2;

/// A summary has no class of fewer requests.
const FEWEST_OF_SUMMARY: u64 = 20;

/// How many culprits a summary names.
const MAX_EXCESS_OF_SUMMARY: usize = 3;

/// The columns of a line, unless a screen has fewer.
const WIDTH: usize = 100;

/// So many characters of where a server is asked are shown, whatever else is on the line.
const FEWEST_CHARS: usize = 16;

impl Requests {
    /// Writes how long the requests took that most of the time went to, and what the slow ones have that the fast
    /// ones do not; why those of a server can't be told apart, if they can't; nothing if there are few requests, or if
    /// nothing tells who asks and who serves.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_summary(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let is_shown =
            |class: &&RequestClass| class.roles_known && class.count >= FEWEST_OF_SUMMARY;
        for class in self.classes.iter().filter(is_shown).take(MAX_CLASSES_OF_SUMMARY) {
            writeln!(out)?;
            class.write_head(self.window.duration_ns, WIDTH, out)?;
            write_latencies("latency", &class.latency, out)?;
            if let Some(slow) = &class.slow {
                slow.write_text(&class.latency, MAX_EXCESS_OF_SUMMARY, WIDTH, out)?;
            }
        }
        let untold = self.not_told_apart_by_server.iter();
        for untold in untold.filter(|one| self.is_worth_a_line(one)).take(MAX_CLASSES_OF_SUMMARY) {
            writeln!(out)?;
            write_hanging(out, "", &untold.describe(), WIDTH)?;
        }
        Ok(())
    }

    /// Returns whether a summary says of a server that its requests can't be told apart: most of them.
    fn is_worth_a_line(&self, untold: &RequestsNotToldApart) -> bool {
        let found = self.classes.iter().filter(|class| class.program == untold.program);
        let found: u64 = found.map(|class| class.count).sum();
        untold.reason != NotToldApartReason::SidesUnknown
            && untold.count >= FEWEST_OF_SUMMARY
            && untold.count > found
    }

    /// Writes the classes, the slowest band of each against its fast half, and all bands.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_text(&self, out: &mut dyn io::Write) -> io::Result<()> {
        self.write_lines(WIDTH, out)
    }

    /// Returns what [`write_text`](Self::write_text) writes, in lines of at most so many columns.
    #[must_use]
    pub fn text_lines(&self, width: usize) -> Vec<String> {
        let mut text = Vec::new();
        // Memory refuses nothing.
        let _written = self.write_lines(width, &mut text);
        String::from_utf8_lossy(&text).lines().map(|line| text::cut_chars(line, width)).collect()
    }

    fn write_lines(&self, width: usize, out: &mut dyn io::Write) -> io::Result<()> {
        if let Some(reason) = self.why_none() {
            write_hanging(out, "", &format!("no requests: {reason}"), width)?;
        }
        let all: Nanos = self.classes.iter().map(|class| class.ns).sum();
        let is_shown = |class: &&RequestClass| class.ns.0 as f64 >= all.0 as f64 * MIN_SHARE;
        let shown: Vec<_> = self.classes.iter().take(MAX_CLASSES).filter(is_shown).collect();
        for (n, class) in shown.iter().enumerate() {
            if n > 0 {
                writeln!(out)?;
            }
            class.write_text(self.window.duration_ns, width, out)?;
        }
        let more = (self.classes.len() - shown.len()) as u64 + self.summed_up.classes;
        if more > 0 {
            writeln!(out, "\n{more} more kinds of requests took less time: -o x.requests.json")?;
        }
        if !self.unanswered.is_empty() {
            writeln!(out)?;
        }
        for unanswered in &self.unanswered {
            unanswered.write_line(self.window.duration_ns, width, out)?;
        }
        let untold = self.not_told_apart_by_server.iter().take(MAX_CLASSES);
        for (n, untold) in untold.enumerate() {
            if n == 0 {
                writeln!(out)?;
            }
            write_hanging(out, "", &untold.describe(), width)?;
        }
        Ok(())
    }

    /// Says why there are no requests with an answer, if there are none.
    #[must_use]
    pub fn why_none(&self) -> Option<String> {
        if !self.classes.is_empty() {
            return None;
        }
        let unfinished = self.unanswered.iter().map(|of_class| of_class.unfinished).sum::<u64>()
            + self.summed_up.unfinished;
        if unfinished > 0 {
            return Some(match unfinished {
                1 => "the only one was not answered in the time that was recorded".to_owned(),
                many => format!("none of {many} was answered in the time that was recorded"),
            });
        }
        Some(match self.not_told_apart {
            0 => "nobody was seen to ask the target for anything and to wait for its answer, nor the target anybody"
                .to_owned(),
            count => format!(
                "event loops were woken {} times, and nothing tells for which of their requests",
                with_commas(count)
            ),
        })
    }
}

impl UnansweredRequests {
    fn write_line(&self, window: Nanos, width: usize, out: &mut dyn io::Write) -> io::Result<()> {
        let behind =
            format!(", {} unfinished, none answered in {window}", with_commas(self.unfinished));
        write_server(&self.server, &self.asked_for(), &behind, width, out)
    }
}

/// Writes who is asked, where and what for, with what is said of the requests.
fn write_server(
    server: &str,
    asked_for: &str,
    behind: &str,
    width: usize,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let before = format!("requests of {server} (");
    // How many there are says more than all of a long path.
    let room = width.saturating_sub(before.chars().count() + behind.chars().count() + 1);
    let end = text::cut_path(&text::terminal(asked_for), room.max(FEWEST_CHARS));
    writeln!(out, "{}", text::cut_chars(&format!("{before}{end}){behind}"), width))
}

impl RequestClass {
    fn write_head(&self, window: Nanos, width: usize, out: &mut dyn io::Write) -> io::Result<()> {
        let cut = match self.unfinished {
            0 => String::new(),
            cut => format!(", {} unfinished", with_commas(cut)),
        };
        let behind = format!(", {} in {window}{cut}", with_commas(self.count));
        write_server(&self.server, &self.asked_for(), &behind, width, out)?;
        writeln!(
            out,
            "  {:<9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "", "mean", "p50", "p90", "p99", "p99.9", "max"
        )
    }

    fn write_text(&self, window: Nanos, width: usize, out: &mut dyn io::Write) -> io::Result<()> {
        self.write_head(window, width, out)?;
        write_latencies("latency", &self.latency, out)?;
        write_latencies("service", &self.service, out)?;
        match &self.slow {
            Some(slow) => slow.write_text(&self.latency, MAX_EXCESS, width, out)?,
            None => writeln!(out, "  too few to compare slow ones with fast ones")?,
        }
        for band in &self.bands {
            band.write_text(width, out)?;
        }
        if !self.roles_known {
            let unknown = format!(
                "nothing tells who asks and who serves ({}): these may be waits for the next request, and requests in which the server was woken by others meanwhile are missing",
                text::terminal(&self.serving_end)
            );
            write_hanging(out, "  ", &unknown, width)?;
        }
        if self.start_unseen > 0 {
            let unseen = format!(
                "{} came while the server was awake: they count from when the client fell asleep, or from the answer before",
                with_commas(self.start_unseen)
            );
            write_hanging(out, "  ", &unseen, width)?;
        }
        if self.seen_by_server > 0 {
            let seen = format!(
                "{} of them as the server saw them: until it waited for its next request",
                self.seen_by_server
            );
            write_hanging(out, "  ", &seen, width)?;
        }
        Ok(())
    }
}

/// Writes how much of something there is; where its text is too long for a line, it goes on below itself.
fn write_hanging(
    out: &mut dyn io::Write,
    before: &str,
    text: &str,
    width: usize,
) -> io::Result<()> {
    let indent = before.chars().count() + 2;
    let mut before = before.to_owned();
    let mut rest = text.to_owned();
    while !rest.is_empty() {
        let room = width.saturating_sub(before.chars().count()).max(FEWEST_CHARS);
        let (line, behind) = text::split_at_space(&rest, room);
        writeln!(out, "{before}{line}")?;
        before = " ".repeat(indent);
        rest = behind;
    }
    Ok(())
}

/// `21,344`
pub(super) fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = (0..digits.len())
        .filter(|n| (digits.len() - n).is_multiple_of(3) || *n == 0)
        .map(|n| {
            let length = match (digits.len() - n) % 3 {
                0 => 3,
                first => first,
            };
            digits.get(n..n + length).unwrap_or_default()
        })
        .collect();
    groups.join(",")
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
    fn write_text(
        &self,
        latency: &Latencies,
        most: usize,
        width: usize,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let Self { from_percentile: from, count, mean_ns, fast_mean_ns, excess } = self;
        let more = *mean_ns - *fast_mean_ns;
        let count = with_commas(*count);
        let begin = format!("the slow ones (p{from} and above: {count}, {mean_ns} on average)");
        if excess.is_empty() {
            let text = format!("{begin} have nothing that stands out");
            return write_hanging(out, "  ", &text, width);
        }
        let text = format!("{begin} have {more} more than the fast half:");
        write_hanging(out, "  ", &text, width)?;
        for one in excess.iter().take(most) {
            let meanwhile = &one.culprit.meanwhile;
            let behind = if meanwhile.is_empty() { "" } else { ", while" };
            let text = format!("{}{behind}", one.culprit.text);
            write_hanging(out, &format!("  {:>10}  ", one.excess_ns.to_string()), &text, width)?;
            if let Some(held_up) = &one.culprit.held_up {
                write_hanging(out, &" ".repeat(16), &format!("held up: {held_up}"), width)?;
            }
            for Meanwhile { text, mean_ns } in meanwhile {
                write_hanging(out, &format!("  {:>22}  ", mean_ns.to_string()), text, width)?;
            }
        }
        let changed = excess.first().and_then(|first| first.changed_percentile(latency));
        if let Some(changed) = changed {
            let text = format!("without the first of these, {}", changed.describe(latency));
            write_hanging(out, "  ", &text, width)?;
        }
        Ok(())
    }
}

impl ChangedPercentile {
    /// `p99 would be at least 2.41 ms instead of 32.1 ms`
    #[must_use]
    pub fn describe(&self, latency: &Latencies) -> String {
        let Self { name, now, least } = self;
        let unchanged = match *name {
            "p99" => String::new(),
            _ => format!(", and p99 would stay near {}", latency.p99_ns),
        };
        format!("{name} would be at least {least} instead of {now}{unchanged}")
    }
}

impl RequestBand {
    fn write_text(&self, width: usize, out: &mut dyn io::Write) -> io::Result<()> {
        let Self { name, count, mean_ns, culprits, .. } = self;
        let band = format!("  {name:<9} {count:>8} ×{:>10}", mean_ns.to_string());
        match culprits.first() {
            Some(first) => {
                let culprit = format!("{} {}", first.mean_ns, first.text);
                write_hanging(out, &format!("{band}  "), &culprit, width)
            }
            None => writeln!(out, "{band}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{WIDTH, with_commas, write_hanging};

    #[test]
    fn numbers_have_commas() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (21_344, "21,344"), (1_234_567, "1,234,567")]
        {
            assert_eq!(with_commas(number), text);
        }
    }

    #[test]
    fn long_culprits_go_on_below() {
        let mut out = Vec::new();
        let text = "python3 9560 report_job.py sleeps in build_report (report_job.py:5), 400 ms at a time while 1 thread waits";
        write_hanging(&mut out, "     16.1 ms  ", text, WIDTH).unwrap();
        let expected = "     16.1 ms  python3 9560 report_job.py sleeps in build_report (report_job.py:5), 400 ms at a time
                while 1 thread waits
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
