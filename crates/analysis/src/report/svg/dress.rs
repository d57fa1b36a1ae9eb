//! inferno's picture, with what it has no options for.
//!
//! inferno is given numbers instead of names. It lays the frames out and brings search and zoom; what
//! each frame says, its colour, and the header are put in here. So no name from another process goes
//! through the lines that inferno parses, and a frame's hover text is its own: inferno's attributes are
//! those of a function, wherever it is.

use std::io;

use quick_xml::{
    Reader, Writer,
    events::{BytesEnd, BytesStart, BytesText, Event},
};

use super::palette::{self, Fill, PAPER};
use crate::report::text;

/// Pixels of a header's line.
const LINE: usize = 17;
/// Where the header begins: below the title.
const HEADER: usize = 46;
/// inferno's: pixels at the left and right of the frames, and a character's width.
const MARGIN: usize = 10;
pub(super) const FONT_SIZE: usize = 12;
const CHARACTER: f64 = FONT_SIZE as f64 * 0.61;
const WIDTH: f64 = 1180.0;

/// What one frame shows.
pub(super) struct Look {
    pub(super) name: String,
    /// Beside the name when the mouse is on it.
    pub(super) details: String,
    pub(super) fill: Fill,
    pub(super) emphasis: Emphasis,
}

/// Whether a frame stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emphasis {
    None,
    /// A stack is best known by it.
    Label,
}

/// A line of the header.
pub(super) enum HeaderLine {
    Text(String),
    /// What is to be seen first.
    Strong(String),
    Legend(Vec<(Fill, String)>),
}

/// Writes a picture of inferno's with what its frames and its header show. A frame's name is the
/// place of its look; the first is the root's.
pub(super) fn dress(
    picture: &[u8],
    header: &[HeaderLine],
    looks: &[Option<&Look>],
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut reader = Reader::from_reader(picture);
    let mut dresser =
        Dresser { out: Writer::new(out), header, looks, in_frames: false, frame: Frame::default() };
    loop {
        match reader.read_event().map_err(io::Error::other)? {
            Event::Eof => return Ok(()),
            event => dresser.take(event)?,
        }
    }
}

/// The frame that is being read.
#[derive(Default)]
struct Frame<'l> {
    look: Option<&'l Look>,
    /// Percent of the picture's.
    width: f64,
    part: Part,
}

/// The element that is being read.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Other,
    Title,
    Text,
}

struct Dresser<'l, W: io::Write> {
    out: Writer<W>,
    header: &'l [HeaderLine],
    looks: &'l [Option<&'l Look>],
    in_frames: bool,
    frame: Frame<'l>,
}

impl<W: io::Write> Dresser<'_, W> {
    fn take(&mut self, event: Event<'_>) -> io::Result<()> {
        if self.in_frames { self.take_frame(event) } else { self.take_rest(event) }
    }

    fn take_rest(&mut self, event: Event<'_>) -> io::Result<()> {
        let height = self.header.len() * LINE + LINE;
        let event = match event {
            Event::Start(start) if start.name().as_ref() == b"svg" => {
                if attribute(&start, "id").as_deref() != Some("frames") {
                    return self.put(Event::Start(taller(&start, height)));
                }
                self.in_frames = true;
                let mut frames = start.into_owned();
                frames.push_attribute(("y", &*height.to_string()));
                header(&mut self.out, self.header)?;
                Event::Start(frames)
            }
            Event::Start(start) if start.name().as_ref() == b"text" => {
                let is_below =
                    matches!(attribute(&start, "id").as_deref(), Some("details" | "matched"));
                Event::Start(if is_below { lower(&start, height) } else { start })
            }
            Event::Empty(rect) if rect.name().as_ref() == b"rect" => {
                let rect = taller(&rect, height);
                Event::Empty(with(&rect, |key, value| {
                    if key == "fill" { PAPER.light.to_string() } else { value }
                }))
            }
            Event::End(end) if end.name().as_ref() == b"style" => {
                self.put(Event::Text(BytesText::from_escaped(palette::style())))?;
                Event::End(end)
            }
            other => other,
        };
        self.put(event)
    }

    /// `<g><title>17 (20,000,000 ns, 1.00%)</title><rect …/><text …>17</text></g>`
    fn take_frame(&mut self, event: Event<'_>) -> io::Result<()> {
        match event {
            Event::End(end) if end.name().as_ref() == b"svg" => {
                self.in_frames = false;
                self.put(Event::End(end))
            }
            Event::Start(start) => {
                self.frame.part = match start.name().as_ref() {
                    b"title" => Part::Title,
                    b"text" => Part::Text,
                    _ => {
                        self.frame = Frame::default();
                        Part::Other
                    }
                };
                let mut start = start.into_owned();
                if self.frame.part == Part::Text
                    && self.frame.look.is_some_and(|look| look.emphasis == Emphasis::Label)
                {
                    start.push_attribute(("class", "label"));
                }
                self.put(Event::Start(start))
            }
            Event::Text(text) if self.frame.part == Part::Title => {
                let place = std::str::from_utf8(&text).ok().and_then(place_of);
                self.frame.look = place.and_then(|place| *self.looks.get(place)?);
                let title = self.frame.look.map(title).unwrap_or_default();
                self.put(Event::Text(BytesText::new(&title)))
            }
            Event::Empty(rect) => {
                let look = self.frame.look;
                let mut width = 0.0;
                let rect = with(&rect, |key, value| match (key, look) {
                    ("fill", Some(look)) => look.fill.light.to_string(),
                    ("width", _) => {
                        width = value.trim_end_matches('%').parse().unwrap_or_default();
                        value
                    }
                    _ => value,
                });
                self.frame.width = width;
                self.put(Event::Empty(rect))
            }
            Event::Text(_) => Ok(()),
            Event::End(end) => {
                if self.frame.part == Part::Text
                    && let Some(look) = self.frame.look
                {
                    let room = self.frame.width / 100.0 * WIDTH / CHARACTER;
                    let name = shortened(&look.name, room as usize);
                    self.put(Event::Text(BytesText::new(&name)))?;
                }
                self.frame.part = Part::Other;
                self.put(Event::End(end))
            }
            other => self.put(other),
        }
    }

    fn put(&mut self, event: Event<'_>) -> io::Result<()> {
        self.out.write_event(event)
    }
}

/// inferno's script takes the last brackets off, and shows the rest in the frame.
fn title(look: &Look) -> String {
    let details: String = (look.details.chars())
        .map(|c| match c {
            '(' => '[',
            ')' => ']',
            c => c,
        })
        .collect();
    text::xml(&format!("{} ({details})", look.name))
}

fn place_of(title: &str) -> Option<usize> {
    match title.split_once(' ')? {
        ("all", _) => Some(0),
        (place, _) => place.parse().ok(),
    }
}

/// As inferno shortens names.
fn shortened(name: &str, room: usize) -> String {
    let name = text::xml(name);
    match room {
        0..3 => String::new(),
        _ if name.chars().count() < room => name,
        _ => name.chars().take(room - 2).chain("..".chars()).collect(),
    }
}

/// What is behind everything.
pub(super) fn paper<W: io::Write>(out: &mut Writer<W>, height: &str) -> io::Result<()> {
    out.write_event(Event::Start(BytesStart::new("style")))?;
    out.write_event(Event::Text(BytesText::from_escaped(palette::style())))?;
    out.write_event(Event::End(BytesEnd::new("style")))?;
    let fill = PAPER.light.to_string();
    let mut rect = BytesStart::new("rect");
    for (key, value) in [("width", "100%"), ("height", height), ("fill", &*fill)] {
        rect.push_attribute((key, value));
    }
    out.write_event(Event::Empty(rect))
}

/// Writes the header's lines.
pub(super) fn header<W: io::Write>(out: &mut Writer<W>, lines: &[HeaderLine]) -> io::Result<()> {
    for (line, n) in lines.iter().zip(0..) {
        let y = HEADER + n * LINE;
        match line {
            HeaderLine::Text(line) => text_at(out, MARGIN, y, "note", line)?,
            HeaderLine::Strong(line) => text_at(out, MARGIN, y, "strong", line)?,
            HeaderLine::Legend(entries) => legend(out, y, entries)?,
        }
    }
    Ok(())
}

fn legend<W: io::Write>(
    out: &mut Writer<W>,
    y: usize,
    entries: &[(Fill, String)],
) -> io::Result<()> {
    let mut x = MARGIN;
    for (fill, words) in entries {
        let (left, top, color) =
            (x.to_string(), (y - FONT_SIZE + 1).to_string(), fill.light.to_string());
        let mut rect = BytesStart::new("rect");
        for (key, value) in
            [("x", &*left), ("y", &*top), ("width", "14"), ("height", "14"), ("fill", &*color)]
        {
            rect.push_attribute((key, value));
        }
        // A frame's text is read on the frame's colour; this one stands beside it.
        out.write_event(Event::Start(BytesStart::new("g")))?;
        out.write_event(Event::Empty(rect))?;
        out.write_event(Event::End(BytesEnd::new("g")))?;
        text_at(out, x + 20, y, "note", words)?;
        x += 44 + (words.chars().count() as f64 * 7.3) as usize;
    }
    Ok(())
}

pub(super) fn text_at<W: io::Write>(
    out: &mut Writer<W>,
    x: usize,
    y: usize,
    class: &str,
    words: &str,
) -> io::Result<()> {
    let (x, y) = (x.to_string(), y.to_string());
    let mut start = BytesStart::new("text");
    for (key, value) in [("class", class), ("x", &*x), ("y", &*y)] {
        start.push_attribute((key, value));
    }
    out.write_event(Event::Start(start))?;
    out.write_event(Event::Text(BytesText::new(&text::xml(words))))?;
    out.write_event(Event::End(BytesEnd::new("text")))
}

fn taller(start: &BytesStart<'_>, by: usize) -> BytesStart<'static> {
    with(start, |key, value| match key {
        "height" => value.parse().map_or(value, |height: usize| (height + by).to_string()),
        "viewBox" => match value.rsplit_once(' ') {
            Some((before, height)) => {
                let height: usize = height.parse().unwrap_or_default();
                format!("{before} {}", height + by)
            }
            None => value,
        },
        _ => value,
    })
}

fn lower(start: &BytesStart<'_>, by: usize) -> BytesStart<'static> {
    with(start, |key, value| match key {
        "y" => value.parse().map_or(value, |y: f64| format!("{:.2}", y + by as f64)),
        _ => value,
    })
}

/// The element with other values. Those of inferno's are numbers and colours, with nothing escaped.
fn with(
    start: &BytesStart<'_>,
    mut value_of: impl FnMut(&str, String) -> String,
) -> BytesStart<'static> {
    let name = String::from_utf8_lossy(start.name().as_ref()).into_owned();
    let mut other = BytesStart::new(name);
    for attribute in start.attributes().flatten() {
        let key = String::from_utf8_lossy(attribute.key.as_ref());
        let value = String::from_utf8_lossy(&attribute.value).into_owned();
        other.push_attribute((&*key, &*value_of(&key, value)));
    }
    other
}

fn attribute(start: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = start.try_get_attribute(name).ok()??;
    Some(String::from_utf8_lossy(&attribute.value).into_owned())
}
