//! A flame graph in pixels and colours, as SVG.
//!
//! What a reader without scripts shows is complete: all frames in their places, with as much of their
//! names as fits, and a title each. The script (`assets/picture.js`) makes the picture as wide as the
//! window, and brings zoom and search. It has all that it needs from the document:
//!
//! ```text
//! <svg>
//!   <style>, <rect> behind everything, <text id="title">, header
//!   <text id="details">, "unzoom", "search", "matched": where the script writes
//!   <svg id="frames" total_samples="30000000">
//!     <g>
//!       <title>name (details)</title>
//!       <rect x="12.5000%" … fg:x="3750000" fg:w="9000000"/>
//!       <text … fg:short="n">name</text>          what stands there if the name is too long
//!       <text … fg:text="another line">another l..</text>    in pictures of hops, one for each row
//!     </g>
//!   </svg>
//!   <script>
//! </svg>
//! ```
//!
//! `fg:x` and `fg:w` are where a frame begins and how wide it is, in nanoseconds. Their names and those
//! of the elements are inferno's, for tools that read its pictures.

use std::{io, ops::Range};

use quick_xml::{
    Writer,
    events::{BytesCData, BytesEnd, BytesStart, BytesText, Event},
};

use super::{
    palette::{self, BACKGROUND, Fill},
    rows,
};
use crate::{report::flame::PlacedFrame, text};

/// The picture, where no script makes it as wide as the window.
const WIDTH: usize = 1200;
/// At the left and right of the frames.
const MARGIN: usize = 10;
/// Of all texts but the title.
const FONT_SIZE: usize = 12;
/// A character of a monospaced font.
const CHARACTER: f64 = FONT_SIZE as f64 * 0.61;
/// From a frame's left edge to its name.
const INDENT: f64 = 3.0;
/// Above the header: the title and the buttons beside it.
const TITLE: usize = 24;
/// Where the header's first line is.
const HEADER: usize = 46;
/// A line of the header.
const LINE: usize = 17;
/// Above the frames: the title and a space.
const ABOVE: usize = 3 * FONT_SIZE;
/// Below the frames: the line of details and a space.
const BELOW: usize = 2 * FONT_SIZE + 10;
/// Pixels of a legend's colour, either way.
const SWATCH: usize = 14;

/// The script counts in doubles, which have so many whole numbers.
const LARGEST: u128 = 1 << 53;

const SCRIPT: &str = include_str!("assets/picture.js");

/// A flame graph, ready to be drawn.
pub(super) struct Picture {
    pub(super) title: String,
    pub(super) header: Vec<HeaderLine>,
    /// As in a layout: the root first, each before those below it.
    pub(super) frames: Vec<PictureFrame>,
    pub(super) rows: RowKind,
}

/// How many lines of text the frames have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowKind {
    OneLine,
    ThreeLines,
}

impl RowKind {
    /// Returns the number of lines.
    fn lines(self) -> usize {
        match self {
            Self::OneLine => 1,
            Self::ThreeLines => 3,
        }
    }

    /// Returns the pixels from one frame to the one below it.
    fn height(self) -> usize {
        match self {
            Self::OneLine => 16,
            Self::ThreeLines => 49,
        }
    }
}

/// Where a frame is. `x` and `width` are in the unit of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// How many frames are above it.
    pub(super) depth: usize,
    pub(super) x: u128,
    pub(super) width: u128,
}

impl From<PlacedFrame> for Place {
    fn from(PlacedFrame { depth, x, width, .. }: PlacedFrame) -> Self {
        Self { depth, x, width }
    }
}

/// A line of the header.
pub(super) enum HeaderLine {
    Text(String),
    /// What is to be seen first.
    Strong(String),
    Legend(Vec<(Fill, String)>),
}

/// One frame.
pub(super) struct PictureFrame {
    pub(super) place: Place,
    /// In the frame, and at the beginning of its title.
    pub(super) name: String,
    /// In the frame where there is no room for the name.
    pub(super) short_name: Option<String>,
    /// Lines in the frame, below its name.
    pub(super) lines: Vec<String>,
    /// The rest of its title.
    pub(super) details: String,
    pub(super) fill: Fill,
    /// Whether a stack is best known by it: it stands out.
    pub(super) is_label: bool,
}

impl Picture {
    /// Writes the picture, or one that says that there is nothing to draw.
    pub(super) fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut svg = Svg(Writer::new(out));
        match self.frames.first() {
            Some(root) => self.write_graph(&mut svg, root.place.width),
            None => self.write_nothing(&mut svg),
        }
    }

    fn write_graph(&self, svg: &mut Svg<'_>, total: u128) -> io::Result<()> {
        let rows = self.frames.iter().map(|frame| frame.place.depth + 1).max().unwrap_or(0);
        let top = self.header.len() * LINE + LINE;
        let row = self.rows.height();
        let height = top + ABOVE + rows * row + BELOW;
        svg.open(&[
            ("version", "1.1"),
            ("width", &WIDTH.to_string()),
            ("height", &height.to_string()),
            ("viewBox", &format!("0 0 {WIDTH} {height}")),
            ("xmlns", "http://www.w3.org/2000/svg"),
            ("xmlns:fg", "http://github.com/jonhoo/inferno"),
        ])?;
        svg.comment("Frames and their colours: docs/pictures.md of offwake.")?;
        svg.background(height)?;
        let (left, right) = (MARGIN.to_string(), (WIDTH - MARGIN).to_string());
        let (title, below) = (TITLE.to_string(), (height - BELOW / 2).to_string());
        svg.text(&[("id", "title"), ("x", "50%"), ("y", &title)], &text::xml(&self.title))?;
        svg.text(&[("id", "details"), ("x", &left), ("y", &below)], " ")?;
        svg.text(
            &[("id", "unzoom"), ("class", "hidden"), ("x", &left), ("y", &title)],
            "Reset Zoom",
        )?;
        svg.text(&[("id", "search"), ("x", &right), ("y", &title)], "Search")?;
        svg.text(&[("id", "matched"), ("x", &right), ("y", &below)], " ")?;
        svg.header(&self.header)?;
        let scale = Scale::new(total);
        let frames = BytesStart::new("svg").with_attributes([
            ("id", "frames"),
            ("x", &left),
            ("y", &top.to_string()),
            ("width", &(WIDTH - 2 * MARGIN).to_string()),
            ("total_samples", &scale.whole.to_string()),
        ]);
        svg.0.write_event(Event::Start(frames))?;
        for frame in &self.frames {
            let top = ABOVE + frame.place.depth * row;
            // One pixel stays free between two rows.
            svg.frame(frame, (top..top + row - 1, self.rows), &scale)?;
        }
        svg.0.write_event(Event::End(BytesEnd::new("svg")))?;
        svg.0.create_element("script").write_cdata_content(BytesCData::new(SCRIPT))?;
        svg.close()
    }

    fn write_nothing(&self, svg: &mut Svg<'_>) -> io::Result<()> {
        let height = 80 + 20 * self.header.len();
        svg.open(&[
            ("version", "1.1"),
            ("width", &WIDTH.to_string()),
            ("height", &height.to_string()),
            ("xmlns", "http://www.w3.org/2000/svg"),
        ])?;
        svg.background(height)?;
        svg.line(MARGIN, TITLE, "title", &self.title)?;
        svg.header(&self.header)?;
        svg.line(MARGIN, 64 + 20 * self.header.len(), "note", "No wait to show.")?;
        svg.close()
    }
}

/// From the unit of the data to percent, and to what the script can count in.
struct Scale {
    divisor: u128,
    /// The width of the whole, in what the script counts in.
    whole: u128,
}

impl Scale {
    fn new(total: u128) -> Self {
        let divisor = total / LARGEST + 1;
        Self { divisor, whole: total / divisor }
    }

    /// What the script counts in.
    fn count(&self, value: u128) -> u128 {
        value / self.divisor
    }

    fn percent(&self, count: u128) -> f64 {
        count as f64 * (100.0 / self.whole as f64)
    }
}

/// The document that is being written.
struct Svg<'o>(Writer<&'o mut dyn io::Write>);

impl Svg<'_> {
    fn open(&mut self, attributes: &[(&str, &str)]) -> io::Result<()> {
        let start = BytesStart::new("svg").with_attributes(attributes.iter().copied());
        self.0.write_event(Event::Start(start))
    }

    fn close(&mut self) -> io::Result<()> {
        self.0.write_event(Event::End(BytesEnd::new("svg")))
    }

    fn comment(&mut self, words: &str) -> io::Result<()> {
        self.0.write_event(Event::Comment(BytesText::from_escaped(words)))
    }

    fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) -> io::Result<()> {
        let element = BytesStart::new(name).with_attributes(attributes.iter().copied());
        self.0.write_event(Event::Empty(element))
    }

    /// A text without what XML does not allow.
    fn text(&mut self, attributes: &[(&str, &str)], words: &str) -> io::Result<()> {
        let element = self.0.create_element("text").with_attributes(attributes.iter().copied());
        element.write_text_content(BytesText::new(words))?;
        Ok(())
    }

    /// A line of words, whatever they hold.
    fn line(&mut self, x: usize, y: usize, class: &str, words: &str) -> io::Result<()> {
        let attributes = [("class", class), ("x", &x.to_string()), ("y", &y.to_string())];
        self.text(&attributes, &text::xml(words))
    }

    /// A line of words, further to the right for each space that it begins with. Not every reader draws
    /// those: librsvg leaves out even ones that do not break.
    fn indented_line(&mut self, y: usize, class: &str, words: &str) -> io::Result<()> {
        let trimmed = words.trim_start();
        let spaces = words.chars().count() - trimmed.chars().count();
        let x = MARGIN + (spaces as f64 * CHARACTER) as usize;
        self.line(x, y, class, trimmed)
    }

    /// The style, and what is behind everything.
    fn background(&mut self, height: usize) -> io::Result<()> {
        let style = palette::style_sheet();
        self.0.create_element("style").write_text_content(BytesText::from_escaped(style))?;
        let fill = BACKGROUND.light.to_string();
        self.empty("rect", &[("width", "100%"), ("height", &height.to_string()), ("fill", &fill)])
    }

    fn header(&mut self, lines: &[HeaderLine]) -> io::Result<()> {
        for (line, nth) in lines.iter().zip(0..) {
            let y = HEADER + nth * LINE;
            match line {
                HeaderLine::Text(line) => self.indented_line(y, "note", line)?,
                HeaderLine::Strong(line) => self.indented_line(y, "strong", line)?,
                HeaderLine::Legend(entries) => self.legend(y, entries)?,
            }
        }
        Ok(())
    }

    fn legend(&mut self, y: usize, entries: &[(Fill, String)]) -> io::Result<()> {
        let mut x = MARGIN;
        let (top, size) = ((y - FONT_SIZE + 1).to_string(), SWATCH.to_string());
        for (fill, words) in entries {
            // A frame's text is read on the frame's colour. This one stands beside it, so that the
            // style must not take it for one.
            self.0.write_event(Event::Start(BytesStart::new("g")))?;
            self.empty(
                "rect",
                &[
                    ("x", &x.to_string()),
                    ("y", &top),
                    ("width", &size),
                    ("height", &size),
                    ("fill", &fill.light.to_string()),
                ],
            )?;
            self.0.write_event(Event::End(BytesEnd::new("g")))?;
            self.line(x + 20, y, "note", words)?;
            x += 44 + (words.chars().count() as f64 * 7.3) as usize;
        }
        Ok(())
    }

    /// A frame in a row of these pixels.
    fn frame(
        &mut self,
        frame: &PictureFrame,
        (row, kind): (Range<usize>, RowKind),
        scale: &Scale,
    ) -> io::Result<()> {
        let start = scale.count(frame.place.x);
        let end = scale.count(frame.place.x + frame.place.width);
        let x = scale.percent(start);
        let width = scale.percent(end) - x;
        let room = width / 100.0 * (WIDTH - 2 * MARGIN) as f64 / CHARACTER;
        let name = text::xml(&frame.name);
        self.0.write_event(Event::Start(BytesStart::new("g")))?;
        let title = title(&name, &frame.details);
        self.0.create_element("title").write_text_content(BytesText::new(&title))?;
        self.empty(
            "rect",
            &[
                ("x", &format!("{x:.4}%")),
                ("y", &row.start.to_string()),
                ("width", &format!("{width:.4}%")),
                ("height", &row.len().to_string()),
                ("fill", &frame.fill.light.to_string()),
                ("fg:x", &start.to_string()),
                ("fg:w", &(end - start).to_string()),
            ],
        )?;
        let text_x = format!("{:.4}%", x + 100.0 * INDENT / WIDTH as f64);
        let lines: Vec<String> = frame.lines.iter().map(|line| text::xml(line)).collect();
        let texts: Vec<&str> = [&name].into_iter().chain(&lines).map(String::as_str).collect();
        let short = frame.short_name.as_deref().map(text::xml);
        let filled = rows::fill_rows(&texts, short.as_deref(), kind.lines(), room as usize);
        for nth in 0..kind.lines() {
            let text_y = (row.start + FONT_SIZE + nth * (LINE - 2)).to_string();
            let mut place = vec![("x", &*text_x), ("y", &*text_y)];
            // The script puts the lines into the rows at every zoom; the name it has from the title.
            match (nth, &short) {
                (0, Some(short)) => place.push(("fg:short", short.as_str())),
                (0, None) => {}
                _ => place.push(("fg:text", lines.get(nth - 1).map_or("", String::as_str))),
            }
            let shown = filled.get(nth);
            if frame.is_label && shown.is_some_and(|row| row.place == 0) {
                place.push(("class", "label"));
            }
            self.text(&place, shown.map_or("", |row| &row.text))?;
        }
        self.0.write_event(Event::End(BytesEnd::new("g")))
    }
}

/// The script takes the last brackets off to have the name, so that there are none in the details.
fn title(name: &str, details: &str) -> String {
    let details = text::xml(details).replace('(', "[").replace(')', "]");
    format!("{name} ({details})")
}

#[cfg(test)]
mod tests {
    use super::{SCRIPT, title};

    #[test]
    fn the_last_brackets_of_a_title_are_those_of_the_details() {
        let title = title("poll (a)", "1 ms, ended by interrupt (timer)");
        assert_eq!(title.rsplit_once(" (").unwrap().0, "poll (a)");
    }

    /// The script would end there.
    #[test]
    fn the_script_can_stand_in_the_document() {
        for forbidden in ["]]>", "</", "innerHTML", "eval("] {
            assert!(!SCRIPT.contains(forbidden), "{forbidden}");
        }
    }
}
