//! Two reports as one picture: as wide as it is after, red where that is longer than before.

use std::{collections::HashMap, io};

use super::{
    draw::{self, Drawn},
    dress::{Emphasis, HeaderLine, Look},
    header,
    palette::{self, Fill},
};
use crate::report::{
    diff::{Diff, Rates, SideTimes, changes},
    flame::{NodeId, Tree, View},
};

/// Changes named in the header, either way.
const TOLD: usize = 2;

/// Writes what is waited for after as a picture, coloured by what has changed.
///
/// # Errors
///
/// Those of `out`.
pub fn write(diff: &Diff<'_>, view: &View, out: &mut dyn io::Write) -> io::Result<()> {
    let mut tree = Tree::<SideTimes>::new();
    for (side, path) in diff.paths(view) {
        tree.add(&path.frames, SideTimes::on_side(side, path.blame.ns));
    }
    let drawn = Drawn::of(&tree, |times| times.after);
    let rates: HashMap<_, _> = (drawn.nodes().into_iter())
        .filter_map(|id| Some((id, diff.rates(tree.get(id)?.all))))
        .collect();
    let largest = rates.values().map(|rates| difference(*rates).abs()).fold(1.0, f64::max);
    let looks = (rates.iter())
        .filter_map(|(&id, &rates)| Some((id, look(&tree, id, rates, largest)?)))
        .collect();
    let mut lines = lines(diff);
    lines.extend(drawn.left_out().map(HeaderLine::Text));
    let title = format!("offwake: what {} waits for, compared", diff.after.meta.target);
    draw::picture(&title, &header::broken(lines), &drawn, &looks, out)
}

fn difference(Rates { before, after }: Rates) -> f64 {
    after.0 as f64 - before.0 as f64
}

fn look(tree: &Tree<SideTimes>, id: NodeId, rates: Rates, largest: f64) -> Option<Look> {
    let name = match &tree.get(id)?.frame {
        Some(frame) => frame.name.to_string(),
        None => format!("all: {} ({})", rates.after, rates.change()),
    };
    let details = format!("{}, before {}: {}", rates.after, rates.before, rates.change());
    let fill = palette::change(difference(rates) / largest);
    Some(Look { name, details, fill, emphasis: Emphasis::None })
}

fn lines(diff: &Diff<'_>) -> Vec<HeaderLine> {
    let mut lines = Vec::new();
    for (side, report) in diff.sides() {
        let (processes, window) = (header::processes(report), header::window(report));
        lines.push(HeaderLine::Text(format!("{side}: {processes}: {window}")));
        lines.extend(header::shortcomings(report));
    }
    let changes = changes(diff);
    let longer = changes.iter().filter(|change| change.difference() > 0).take(TOLD);
    let shorter = changes.iter().rev().filter(|change| change.difference() < 0).take(TOLD);
    let told: Vec<_> = (longer.chain(shorter))
        .map(|change| format!("{} {}", change.rates.change(), change.describe()))
        .collect();
    if !told.is_empty() {
        lines.push(HeaderLine::Strong(format!("mostly: {}", told.join("; "))));
    }
    lines.push(HeaderLine::Text(
        "All times are those of a second of the window. As wide as after: what was waited for only \
         before is not drawn; to see it, compare the other way round"
            .to_owned(),
    ));
    let legend: [(Fill, &str); 3] = [
        (palette::change(1.0), "longer than before"),
        (palette::change(0.0), "about the same"),
        (palette::change(-1.0), "shorter than before"),
    ];
    lines.push(HeaderLine::Legend(legend.map(|(fill, words)| (fill, words.to_owned())).into()));
    lines
}
