//! An outline → a picture of inferno's, dressed; or one that says that there is nothing to draw.

use std::{
    collections::{HashMap, HashSet},
    io,
    ops::AddAssign,
};

use inferno::flamegraph::{self, Options, TextTruncateDirection};
use quick_xml::{
    Writer,
    events::{BytesEnd, BytesStart, Event},
};

use super::{
    dress::{self, FONT_SIZE, HeaderLine, Look},
    palette,
};
use crate::report::{
    flame::{NodeId, Tree},
    text,
};

/// A node is drawn if it has so much of the whole: a tenth of a pixel at a thousand pixels. Less can't
/// be seen, and makes files of megabytes.
const NARROWEST: u128 = 10_000;
/// So much is drawn however high it stands.
const WIDE: u128 = 100;
/// Frames that fit into a window one above the other. Chains go far deeper, and a few narrow ones
/// would move all that is wide out of sight.
const ROWS: usize = 56;
/// inferno's script counts in doubles, which have so many whole numbers.
const LARGEST: u128 = 1 << 53;

/// What is to be drawn: the paths of nodes from the root on, and the width of what ends there.
type Outline = Vec<(Vec<NodeId>, u128)>;

/// What of a tree is drawn.
pub(super) struct Drawn {
    pub(super) outline: Outline,
    /// What has less than this part of the whole is not in it: one in so many.
    narrowest: u128,
}

impl Drawn {
    /// All that can be seen, or less if it would not fit into a window.
    pub(super) fn of<W: AddAssign + Copy + Default>(
        tree: &Tree<W>,
        width: impl Fn(&W) -> u128,
    ) -> Self {
        let all = width(&tree.root().all);
        let mut narrowest = NARROWEST;
        loop {
            let outline = tree.outline(all / narrowest, &width);
            let rows = outline.iter().map(|(path, _)| path.len()).max().unwrap_or_default();
            if rows <= ROWS || narrowest <= WIDE {
                return Self { outline, narrowest };
            }
            narrowest = (narrowest / 2).max(WIDE);
        }
    }

    /// Its nodes.
    pub(super) fn nodes(&self) -> HashSet<NodeId> {
        self.outline.iter().flat_map(|(path, _)| path.iter().copied()).collect()
    }

    /// What is not drawn, in words, if it could be seen.
    pub(super) fn left_out(&self) -> Option<String> {
        let percent = 100.0 / self.narrowest as f64;
        (self.narrowest < NARROWEST)
            .then(|| format!("not drawn, for room: frames of less than {percent:.2}%"))
    }
}

/// Writes the picture.
pub(super) fn picture(
    title: &str,
    header: &[HeaderLine],
    drawn: &Drawn,
    looks: &HashMap<NodeId, Look>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let outline = &drawn.outline;
    let all: u128 = outline.iter().map(|(_, width)| width).sum();
    let scale = all / LARGEST + 1;
    if all == 0 {
        return nothing(title, header, out);
    }
    let mut numbers = HashMap::new();
    let mut numbered = Vec::new();
    let mut number = |id| {
        *numbers.entry(id).or_insert_with(|| {
            numbered.push(looks.get(&id));
            numbered.len() - 1
        })
    };
    let lines: Vec<String> = (outline.iter())
        .map(|(path, width)| {
            // The order of the numbers is that of the texts as well, which inferno wants.
            let numbers = path.iter().map(|&id| format!("{:010}", number(id)));
            // The root comes by itself.
            format!("{} {}", numbers.skip(1).collect::<Vec<_>>().join(";"), width / scale)
        })
        .collect();
    let mut options = Options::default();
    options.title = text::xml(title);
    options.name_type = "Frame:".to_owned();
    options.notes = "Frames and their colours: docs/pictures.md of offwake.".to_owned();
    options.font_size = FONT_SIZE;
    // What is too narrow is left out already.
    options.min_width = 0.0;
    options.search_color = search_color()?;
    // A name's beginning says more than its end.
    options.text_truncate_direction = TextTruncateDirection::Right;
    // The paths are in the order in which they are to be drawn.
    options.no_sort = true;
    options.deterministic = true;
    let mut picture = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut picture)?;
    dress::dress(&picture, header, &numbered, out)
}

fn search_color() -> io::Result<flamegraph::color::SearchColor> {
    palette::FOUND.to_string().parse().map_err(io::Error::other)
}

/// A picture that says that there is nothing to draw; inferno would call it an error.
fn nothing(title: &str, header: &[HeaderLine], out: &mut dyn io::Write) -> io::Result<()> {
    let mut svg = Writer::new(out);
    let height = (80 + 20 * header.len()).to_string();
    let mut start = BytesStart::new("svg");
    for (key, value) in [
        ("version", "1.1"),
        ("width", "1200"),
        ("height", &*height),
        ("xmlns", "http://www.w3.org/2000/svg"),
        ("font-family", "monospace"),
        ("font-size", "12"),
    ] {
        start.push_attribute((key, value));
    }
    svg.write_event(Event::Start(start))?;
    dress::paper(&mut svg, &height)?;
    dress::text_at(&mut svg, 10, 24, "title", title)?;
    dress::header(&mut svg, header)?;
    dress::text_at(&mut svg, 10, 64 + 20 * header.len(), "note", "No wait to show.")?;
    svg.write_event(Event::End(BytesEnd::new("svg")))
}
