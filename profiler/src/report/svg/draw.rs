//! An outline → a picture of inferno's, dressed; or one that says that there is nothing to draw.

use std::{
    collections::{HashMap, HashSet},
    io,
};

use inferno::flamegraph::{self, Options};
use quick_xml::{
    Writer,
    events::{BytesEnd, BytesStart, Event},
};

use super::{
    dress::{self, FONT_SIZE, HeaderLine, Look},
    palette,
};
use crate::report::{flame::NodeId, text};

/// A node is drawn if it has so much of the whole: a tenth of a pixel at a thousand pixels. Less can't
/// be seen, and makes files of megabytes.
pub(super) const DRAWN: u128 = 10_000;
/// inferno's script counts in doubles, which have so many whole numbers.
const LARGEST: u128 = 1 << 53;

/// What is to be drawn: the paths of nodes from the root on, and the width of what ends there.
pub(super) type Outline = Vec<(Vec<NodeId>, u128)>;

/// The nodes of an outline.
pub(super) fn nodes(outline: &Outline) -> HashSet<NodeId> {
    outline.iter().flat_map(|(path, _)| path.iter().copied()).collect()
}

/// Writes the picture.
pub(super) fn picture(
    title: &str,
    header: &[HeaderLine],
    outline: &Outline,
    looks: &HashMap<NodeId, Look>,
    out: &mut dyn io::Write,
) -> io::Result<()> {
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
            // In the order of their numbers is also in the order of their texts, which inferno wants.
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
