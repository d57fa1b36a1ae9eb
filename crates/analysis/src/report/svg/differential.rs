//! Two reports as one picture: as wide as it is after, red where that is longer than before.

use std::io;

use super::{
    header,
    palette::{self, Fill},
    picture::{HeaderLine, Picture, PictureFrame, RowKind},
};
use crate::report::{
    diff::{Diff, Rates, SideTimes, changes},
    flame::{Layout, PlacedFrame, Tree, View},
};

/// Changes named in the header, either way.
const CHANGES: usize = 2;

/// Writes what is waited for after as a picture, coloured by what has changed.
///
/// # Errors
///
/// Those of `out`.
pub fn write(diff: &Diff<'_>, view: &View, out: &mut dyn io::Write) -> io::Result<()> {
    let mut tree = Tree::<SideTimes>::new();
    for (side, path) in diff.paths(view) {
        tree.add(path.frames, SideTimes::on_side(side, path.blame.ns));
    }
    let layout = Layout::new(&tree, |times| times.after);
    let rates: Vec<_> = (layout.frames.iter())
        .filter_map(|&place| Some((place, diff.rates(tree.get(place.node)?.total))))
        .collect();
    let largest = rates.iter().map(|(_, rates)| difference(*rates).abs()).fold(1.0, f64::max);
    let frames = (rates.into_iter())
        .filter_map(|(place, rates)| picture_frame(place, rates, largest, &tree))
        .collect();
    let mut header = header_lines(diff);
    header.extend(layout.describe_omitted().map(HeaderLine::Text));
    let title = format!("offwake: what {} waits for, compared", diff.after.meta.target);
    let header = header::break_lines(header);
    Picture { title, header, frames, rows: RowKind::OneLine }.write(out)
}

fn difference(Rates { before, after }: Rates) -> f64 {
    after.ns as f64 - before.ns as f64
}

fn picture_frame(
    place: PlacedFrame,
    rates: Rates,
    largest: f64,
    tree: &Tree<SideTimes>,
) -> Option<PictureFrame> {
    let name = match &tree.get(place.node)?.frame {
        Some(frame) => frame.name.to_string(),
        None => format!("all: {} ({})", rates.after, rates.change()),
    };
    let details = format!("{}, before {}: {}", rates.after, rates.before, rates.change());
    let fill = palette::change_fill(difference(rates) / largest);
    let place = place.into();
    Some(PictureFrame {
        place,
        name,
        short_name: None,
        lines: Vec::new(),
        details,
        fill,
        is_label: false,
    })
}

fn header_lines(diff: &Diff<'_>) -> Vec<HeaderLine> {
    let mut lines = Vec::new();
    for (side, report) in diff.sides() {
        let (processes, window) =
            (header::describe_processes(report), header::describe_window(report));
        lines.push(HeaderLine::Text(format!("{side}: {processes}: {window}")));
        lines.extend(header::list_caveats(report));
    }
    let changes = changes(diff);
    let longer = changes.iter().filter(|change| change.difference() > 0).take(CHANGES);
    let shorter = changes.iter().rev().filter(|change| change.difference() < 0).take(CHANGES);
    let named: Vec<_> = (longer.chain(shorter))
        .map(|change| format!("{} {}", change.rates.change(), change.describe()))
        .collect();
    if !named.is_empty() {
        lines.push(HeaderLine::Strong(format!("mostly: {}", named.join("; "))));
    }
    lines.push(HeaderLine::Text(format!(
        "All times are those of {}. As wide as after: what was waited for only \
         before is not drawn; to see it, compare the other way round",
        diff.unit()
    )));
    let legend: [(Fill, &str); 3] = [
        (palette::change_fill(1.0), "longer than before"),
        (palette::change_fill(0.0), "about the same"),
        (palette::change_fill(-1.0), "shorter than before"),
    ];
    lines.push(HeaderLine::Legend(legend.map(|(fill, words)| (fill, words.to_owned())).into()));
    lines
}
