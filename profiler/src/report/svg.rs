//! The folded stacks as a flame graph, drawn by inferno.

use std::io;

use inferno::flamegraph::{
    self, Options, TextTruncateDirection,
    color::{BasicPalette, Color, Palette, PaletteMap},
};

use super::{BlameWord, Report, folded, summary, text};
use crate::blame::Reason;

/// Writes the shown waits' blocked time as a picture.
///
/// # Errors
///
/// Those of `out`.
pub fn write(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    let paths = folded::paths(report);
    let all = paths.values().try_fold(0_u64, |all, &ns| all.checked_add(ns));
    // inferno adds up in 64 bits. No real recording comes near; one that lies can go beyond.
    let (unit, divisor) = if all.is_some() { ("ns", 1) } else { ("s", 1_000_000_000) };
    let lines: Vec<String> =
        paths.into_iter().map(|(path, ns)| format!("{path} {}", ns / divisor)).collect();
    let title = format!("offwake: what {} waited for", text::terminal(&report.meta.target));
    let mut subtitle = format!(
        "{} on {}; {}",
        report.window.duration_ns,
        text::terminal(&report.meta.host),
        summary::loss_line(report)
    );
    if let Some(warning) = report.warnings().first() {
        subtitle = format!("{subtitle}; {warning}");
    }
    if lines.is_empty() {
        return empty(out, &title, &subtitle);
    }
    let mut colors = leaf_colors();
    let mut options = Options::default();
    options.title = title;
    options.subtitle = Some(subtitle);
    options.count_name = unit.to_owned();
    options.name_type = "Frame:".to_owned();
    // It goes into an XML comment, which must hold no two hyphens.
    options.notes =
        "Up to the dashes: the waiting thread. Above: who woke it, leaf first.".to_owned();
    // A tenth of a pixel at a thousand pixels: less can't be seen, and makes files of megabytes.
    options.min_width = 0.01;
    // A name's beginning says more than its end.
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.colors = Palette::Basic(BasicPalette::Blue);
    // By name, not by chance: the same recording gives the same bytes.
    options.deterministic = true;
    options.palette_map = Some(&mut colors);
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
}

/// What a path ends in shows by its colour.
fn leaf_colors() -> PaletteMap {
    const WORK: Color = Color { r: 214, g: 69, b: 65 };
    const CPU_QUEUE: Color = Color { r: 240, g: 150, b: 60 };
    const EXTERNAL: Color = Color { r: 90, g: 170, b: 95 };
    const UNATTRIBUTED: Color = Color { r: 160, g: 160, b: 160 };
    const HOP: Color = Color { r: 235, g: 235, b: 235 };
    let external = [BlameWord::Timer, BlameWord::Disk, BlameWord::Network, BlameWord::Device];
    let mut colors = PaletteMap::default();
    colors.insert("--".to_owned(), HOP);
    colors.insert(format!("[{}]", BlameWord::Work.name()), WORK);
    colors.insert(format!("[{}]", BlameWord::CpuQueue.name()), CPU_QUEUE);
    for word in external {
        colors.insert(format!("[{}]", word.name()), EXTERNAL);
    }
    for reason in Reason::ALL {
        colors.insert(format!("[unattributed: {}]", reason.name()), UNATTRIBUTED);
    }
    colors
}

/// A picture that says that there is nothing to draw; inferno would call it an error.
fn empty(out: &mut dyn io::Write, title: &str, subtitle: &str) -> io::Result<()> {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    writeln!(
        out,
        r#"<svg version="1.1" width="1200" height="90" xmlns="http://www.w3.org/2000/svg">
<g font-family="monospace" font-size="14">
<text x="10" y="25">{}</text>
<text x="10" y="50">{}</text>
<text x="10" y="75">No wait to show.</text>
</g>
</svg>"#,
        escape(title),
        escape(subtitle)
    )
}
