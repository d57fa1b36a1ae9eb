//! The lines of findings as terminals, texts to be pasted and the heads of pictures have them.

use crate::findings::{Finding, FindingKind, FindingLine, SameCauseSum};

use super::first_screen::SHOWN;
use crate::text;

/// How the lines of findings are laid out.
#[derive(Clone, Copy)]
pub(crate) struct LineLayout {
    /// The most columns.
    pub(crate) width: usize,
    pub(crate) detail: DetailPlace,
}

/// Where a first line says how often and how long.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetailPlace {
    /// At the end of the columns, below those of other findings.
    RightEdge,
    /// Behind the text: the eye loses its way where lines are long.
    BehindText,
}

/// The word in front of what goes on as long as nobody does something about it, before how long that has been.
pub(crate) fn leading_word(finding: &Finding) -> Option<&'static str> {
    match finding.kind {
        FindingKind::Deadlock => Some("DEADLOCK"),
        FindingKind::Throttled => Some("THROTTLED"),
        _ if finding.still_waiting => Some("STILL WAITING"),
        _ => None,
    }
}

/// A line of a finding as it is printed, and the one that it is of.
pub(crate) struct PrintedLine<'f> {
    pub(crate) line: &'f FindingLine,
    pub(crate) text: String,
}

/// The lines of a finding, the `number`th of its list, as they are printed: a function for which
/// there is no room has a line of its own, and so have the last words of a text that is too long.
pub(crate) fn lines(number: usize, finding: &Finding, layout: LineLayout) -> Vec<PrintedLine<'_>> {
    let mut lines = Vec::new();
    for line in &finding.lines {
        let before = match line.depth {
            0 => beginning(number, line, finding),
            depth => format!("{:indent$}└ ", "", indent = 7 + 2 * usize::from(depth)),
        };
        let mut behind = mark(line, finding);
        let indent = before.chars().count();
        let room = layout.width.saturating_sub(indent);
        let with_detail =
            |text: &str, room| with_detail(text, line, finding, (room, layout.detail));
        let mut push = |text: String| lines.push(PrintedLine { line, text });
        let whole = line.whole_text();
        let [taken, marked, detail] =
            [&whole, &behind, &line.detail].map(|text| text.chars().count());
        // How often and how long says more of a first line than the mark, unless that is about others.
        if line.depth == 0 && taken + marked + 3 + detail > room && !is_of_several(finding) {
            behind = String::new();
        }
        if whole.chars().count() + behind.chars().count() <= room {
            push(format!("{before}{}", with_detail(&(whole + &behind), room)));
            continue;
        }
        let (first, second) = match line.split(room) {
            Some((first, second)) => (text::cut_chars(&first, room), second),
            None => text::split_at_space(&whole, room),
        };
        let has_room = first.chars().count() + 3 + detail <= room;
        push(format!("{before}{}", with_detail(&first, room)));
        let indent = indent.min(11 + 2 * usize::from(line.depth));
        let room = layout.width.saturating_sub(indent);
        let left = room.saturating_sub(behind.chars().count());
        let mut second = format!("{}{behind}", text::cut_chars(&second, left));
        second.drain(..second.len() - second.trim_start().len());
        if !has_room {
            second = with_detail(&second, room);
        }
        push(format!("{:indent$}{second}", ""));
    }
    lines
}

/// What stands before the text of a finding's first line: its number and share, and that it is still going on.
fn beginning(number: usize, line: &FindingLine, finding: &Finding) -> String {
    let share = percent(line.share);
    match leading_word(finding) {
        None => format!("{number:<2}{share:>5}  "),
        Some(word) => format!("{number:<2}{share:>5}  {word} {}  ", line.detail),
    }
}

/// The lines of a finding where there is little room: one for who waits, and at most two for the cause, which is
/// beside the left edge however many hops there are between.
pub(crate) fn brief_lines(
    number: usize,
    finding: &Finding,
    layout: LineLayout,
    most: usize,
) -> Vec<PrintedLine<'_>> {
    const INDENT: usize = 4;
    let mut lines = Vec::new();
    if let Some(line) = finding.lines.first() {
        let before = beginning(number, line, finding);
        let room = layout.width.saturating_sub(before.chars().count());
        let text = text::cut_chars(&line.whole_text(), room);
        let text = with_detail(&text, line, finding, (room, layout.detail));
        lines.push(PrintedLine { line, text: before + &text });
    }
    let Some(line) = finding.lines.iter().find(|line| line.is_cause && line.depth > 0) else {
        return lines;
    };
    let room = layout.width.saturating_sub(INDENT + 2);
    // How long at a time comes last.
    let line_without = FindingLine { addition: None, ..line.clone() };
    let (whole, mut behind) = (line_without.whole_text(), mark(line, finding));
    // Who it is says more than what else it is the cause of.
    if behind.chars().count() > room / 2 {
        behind.truncate(behind.find([',', '(']).unwrap_or(behind.len()));
    }
    let behind = behind.trim_end();
    let left = room.saturating_sub(behind.chars().count());
    let (first, second) = match whole.chars().count() <= left || most <= 2 {
        true => (text::cut_chars(&whole, left) + behind, None),
        false => {
            let (first, second) =
                line_without.split(room).unwrap_or_else(|| text::split_at_space(&whole, room));
            (text::cut_chars(&first, room), Some(text::cut_chars(&second, left) + behind))
        }
    };
    lines.push(PrintedLine { line, text: format!("{:INDENT$}└ {first}", "") });
    lines.extend(second.map(|text| PrintedLine {
        line,
        text: format!("{:indent$}{}", "", text.trim_start(), indent = INDENT + 2),
    }));
    lines
}

/// Keeps `most` lines of a finding. The cause stays: hops before it are left out instead, and
/// counted. A first line and a cause of two lines each need one line more.
pub(crate) fn fit(mut lines: Vec<PrintedLine<'_>>, most: usize) -> Vec<PrintedLine<'_>> {
    let is_cause = |printed: &PrintedLine<'_>| printed.line.is_cause && printed.line.depth > 0;
    let cause = lines.iter().position(is_cause).unwrap_or(0);
    let end = cause + lines.iter().filter(|&printed| is_cause(printed)).count();
    if end <= most {
        lines.truncate(most);
        return lines;
    }
    lines.truncate(end);
    let first_hop = lines.iter().position(|printed| printed.line.depth > 0).unwrap_or(cause);
    // A line says how many hops are left out.
    let room = most.saturating_sub(end - cause + 1);
    let is_second_of_its_hop = |lines: &[PrintedLine<'_>], at: usize| {
        at > 0 && lines.get(at - 1).is_some_and(|one| std::ptr::eq(one.line, lines[at].line))
    };
    let mut from = room.clamp(first_hop, cause);
    while from > first_hop && from < cause && is_second_of_its_hop(&lines, from) {
        from -= 1;
    }
    let hops = (from..cause).filter(|&at| !is_second_of_its_hop(&lines, at)).count();
    if cause - from > 1 {
        let line = lines[from].line;
        let indent = 7 + 2 * usize::from(line.depth);
        let text = match hops {
            1 => format!("{:indent$}└ … 1 more hop", ""),
            _ => format!("{:indent$}└ … {hops} more hops", ""),
        };
        lines.splice(from..cause, [PrintedLine { line, text }]);
    }
    lines
}

/// Puts how often and how long behind a first line, if there is room for it.
fn with_detail(
    text: &str,
    line: &FindingLine,
    finding: &Finding,
    (room, place): (usize, DetailPlace),
) -> String {
    let (taken, detail) = (text.chars().count(), line.detail.chars().count());
    if line.depth > 0 || leading_word(finding).is_some() || taken + 3 + detail > room {
        return text.to_owned();
    }
    let gap = match place {
        _ if detail == 0 => 0,
        DetailPlace::RightEdge => room - taken - detail,
        DetailPlace::BehindText => 3,
    };
    format!("{text}{:gap$}{}", "", line.detail)
}

/// The share of a line that is a part of its finding alone, and the mark of the cause.
pub(crate) fn mark(line: &FindingLine, finding: &Finding) -> String {
    let is_all = (line.share - finding.share).abs() < 0.01;
    let sum = sum_in_parentheses(finding);
    match (line.is_cause, line.depth) {
        (true, 0) => match finding.same_cause_as {
            Some(number) => format!("  ← the cause of {number}"),
            None if !sum.is_empty() => format!("  ← cause{sum}"),
            // Who waits for a disk, say, is the end of its chain.
            None if finding.kind == FindingKind::Wait && finding.is_cause_known() => {
                "  ← cause".to_owned()
            }
            None => String::new(),
        },
        (false, 0) => String::new(),
        (true, _) if finding.still_waiting => match finding.same_cause_as {
            Some(number) => format!("  ← same cause as {number}"),
            None => format!("  ← cause{sum}"),
        },
        (true, _) if !finding.is_cause_known() => "  ← the cause is not known".to_owned(),
        (true, _) => match finding.same_cause_as {
            Some(number) => format!("  ← same cause as {number}, {}", percent(line.share)),
            None => format!("  ← cause, {}{sum}", percent(line.share)),
        },
        (false, _) if is_all || line.share == 0.0 => String::new(),
        (false, _) => format!("  {}", percent(line.share)),
    }
}

/// Returns whether a finding has its cause together with others.
pub(super) fn is_of_several(finding: &Finding) -> bool {
    finding.same_cause_as.is_some() || finding.with_same_cause.is_some()
}

/// What a finding and others with its cause add up to: `74% with 2 and 4`. Others that no screen shows are
/// counted: `74% with 2 and 3 smaller`. None where they add less than is shown: `98% with 2` is no news of a
/// cause with 98%.
pub(super) fn describe_sum(finding: &Finding) -> Option<String> {
    let sum = finding.with_same_cause.as_ref()?;
    let share = percent(sum.share);
    (share != percent(finding.cause.share)).then(|| format!("{share} with {}", list_others(sum)))
}

/// Puts [`describe_sum`] behind a cause: ` (74% with 2 and 4)`.
fn sum_in_parentheses(finding: &Finding) -> String {
    describe_sum(finding).map(|sum| format!(" ({sum})")).unwrap_or_default()
}

/// `2`, `2 and 4`, `2, 4 and 3 smaller`
fn list_others(sum: &SameCauseSum) -> String {
    let mut names: Vec<String> =
        sum.findings.iter().filter(|&&number| number <= SHOWN).map(usize::to_string).collect();
    match sum.findings.len() - names.len() {
        0 => {}
        smaller => names.push(format!("{smaller} smaller")),
    }
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// `70%`, and `0.5%` below one per cent.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 0.95 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

#[cfg(test)]
mod tests {
    use super::{FindingLine, PrintedLine, fit};

    /// Prints hops of as many lines as given, the last of which is the cause, and what is kept.
    fn kept(lines_of_hops: &[usize], most: usize) -> Vec<String> {
        let last = lines_of_hops.len() - 1;
        let hops: Vec<_> = (0_u16..)
            .zip(lines_of_hops)
            .map(|(depth, _)| FindingLine {
                depth,
                text: String::new(),
                function: None,
                addition: None,
                detail: String::new(),
                share: 0.5,
                is_cause: usize::from(depth) == last,
            })
            .collect();
        let printed = (hops.iter().zip(lines_of_hops))
            .flat_map(|(line, &count)| {
                (0..count).map(move |n| PrintedLine { line, text: format!("{}.{n}", line.depth) })
            })
            .collect();
        fit(printed, most).into_iter().map(|printed| printed.text.trim().to_owned()).collect()
    }

    #[test]
    fn the_cause_is_always_printed() {
        assert_eq!(kept(&[1, 1, 1], 4), ["0.0", "1.0", "2.0"]);
        assert_eq!(kept(&[1, 1, 1, 1, 1], 4), ["0.0", "1.0", "└ … 2 more hops", "4.0"]);
        assert_eq!(kept(&[2, 2, 1], 4), ["0.0", "0.1", "└ … 1 more hop", "2.0"]);
        assert_eq!(kept(&[1, 2, 2], 4), ["0.0", "└ … 1 more hop", "2.0", "2.1"]);
        assert_eq!(kept(&[2, 1, 2], 4), ["0.0", "0.1", "1.0", "2.0", "2.1"]);
        assert_eq!(kept(&[2, 2, 2, 2], 4), ["0.0", "0.1", "└ … 2 more hops", "3.0", "3.1"]);
        assert_eq!(kept(&[1, 1, 2, 1, 1, 1], 6).last().map(String::as_str), Some("5.0"));
    }
}
