//! The colours of pictures, in light and in dark.
//!
//! The classes have those that Okabe and Ito chose to be told apart by the colour-blind, and differ
//! in lightness as well: <https://jfly.uni-koeln.de/color/>. Frames below what they are blamed on have
//! a tint of the class that most of their time is of, so that a column shows from afar what it waited
//! for.

use std::fmt;

use crate::report::{Class, flame::FrameKind};

/// A colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Rgb(pub(super) u8, pub(super) u8, pub(super) u8);

/// As SVG has it.
impl fmt::Display for Rgb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

impl Rgb {
    /// `percent` of `self`, the rest of `other`.
    const fn over(self, other: Self, percent: u8) -> Self {
        const fn mix(a: u8, b: u8, percent: u8) -> u8 {
            ((a as u16 * percent as u16 + b as u16 * (100 - percent as u16)) / 100) as u8
        }
        Self(
            mix(self.0, other.0, percent),
            mix(self.1, other.1, percent),
            mix(self.2, other.2, percent),
        )
    }
}

/// What is behind the frames.
pub(super) const PAPER: Fill = Fill { light: Rgb(255, 255, 255), dark: Rgb(24, 26, 27) };
const INK: Fill = Fill { light: Rgb(0, 0, 0), dark: Rgb(232, 230, 227) };
/// What a search finds. inferno puts it in the place of a frame's own.
pub(super) const FOUND: Rgb = Rgb(0, 220, 130);

/// A colour in light and in dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fill {
    pub(super) light: Rgb,
    pub(super) dark: Rgb,
}

impl Fill {
    const fn same(color: Rgb) -> Self {
        Self { light: color, dark: color }
    }

    const fn tint(base: Rgb, light: u8, dark: u8) -> Self {
        Self { light: base.over(PAPER.light, light), dark: base.over(PAPER.dark, dark) }
    }
}

/// The class that most of a frame's time is of, if there is one.
pub(super) type Dominant = Option<Class>;

/// A class in its full colour, as in the legend.
pub(super) const fn strong(class: Class) -> Fill {
    Fill::same(base(Some(class)))
}

const fn base(dominant: Dominant) -> Rgb {
    match dominant {
        Some(Class::Work) => Rgb(213, 94, 0),
        Some(Class::CpuQueue) => Rgb(240, 228, 66),
        Some(Class::External) => Rgb(86, 180, 233),
        Some(Class::Unattributed) => Rgb(204, 121, 167),
        Some(Class::Idle) => Rgb(150, 150, 150),
        None => Rgb(170, 160, 130),
    }
}

/// A frame below what it is blamed on.
pub(super) const fn quiet(kind: FrameKind, dominant: Dominant) -> Fill {
    let base = base(dominant);
    match kind {
        FrameKind::User => Fill::tint(base, 24, 34),
        FrameKind::Kernel => Fill::tint(base, 38, 24),
        FrameKind::Separator => Fill { light: Rgb(200, 200, 200), dark: Rgb(80, 80, 80) },
        FrameKind::Group | FrameKind::Waiter | FrameKind::Waker | FrameKind::Holder => {
            Fill::tint(base, 55, 50)
        }
        FrameKind::Leaf(class) => strong(class),
    }
}

/// Steps of longer or shorter, either way.
const STEPS: u8 = 5;
/// Percent of colour that a step adds.
const STEP: u8 = 13;

/// Longer is red, shorter is blue; both are Okabe's and Ito's as well. `share` is that of the largest
/// change, and below 0 where it became shorter.
pub(super) fn change(share: f64) -> Fill {
    const LONGER: Rgb = base(Some(Class::Work));
    const SHORTER: Rgb = Rgb(0, 114, 178);
    let steps = (share.abs() * f64::from(STEPS)).round().clamp(0.0, f64::from(STEPS)) as u8;
    if steps == 0 {
        return Fill { light: Rgb(240, 240, 240), dark: Rgb(70, 70, 70) };
    }
    let strength = 15 + STEP * steps;
    Fill::tint(if share > 0.0 { LONGER } else { SHORTER }, strength, strength)
}

/// Every fill that a frame may have.
fn fills() -> Vec<Fill> {
    let kinds = [FrameKind::User, FrameKind::Kernel, FrameKind::Separator, FrameKind::Waiter];
    let dominants = Class::ALL.map(Some).into_iter().chain([None]);
    let mut fills: Vec<_> =
        dominants.flat_map(|dominant| kinds.map(|kind| quiet(kind, dominant))).collect();
    fills.extend(Class::ALL.map(strong));
    fills.extend(
        (-i16::from(STEPS)..=i16::from(STEPS))
            .map(|step| change(f64::from(step) / f64::from(STEPS))),
    );
    fills.sort_unstable();
    fills.dedup();
    fills
}

/// Black or white: what is read on a colour.
fn ink_on(color: Rgb) -> Rgb {
    let (black, white) = (Rgb(0, 0, 0), Rgb(255, 255, 255));
    if contrast(black, color) >= contrast(white, color) { black } else { white }
}

/// Of WCAG 2: <https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio>.
fn contrast(one: Rgb, other: Rgb) -> f64 {
    let luminance = |Rgb(r, g, b): Rgb| {
        let linear = |channel: u8| {
            let c = f64::from(channel) / 255.0;
            if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// The style of a picture. Frames have the colours for light as attributes, which every reader
/// knows; dark goes by them, so that what a search has coloured stays as it is.
pub(super) fn style() -> String {
    let light = INK.light;
    let mut style = format!(
        "text {{ fill:{light}; }}\n#search {{ opacity:0.7; }}\n.label, .strong {{ font-weight:bold; }}\n\
         #frames rect {{ stroke:{}; stroke-width:0.3; }}\n\
         #frames > *:hover rect {{ stroke:{light}; stroke-width:1; }}\n",
        PAPER.light
    );
    for fill in fills() {
        let ink = ink_on(fill.light);
        if ink != light {
            style.push_str(&format!("rect[fill=\"{}\"] + text {{ fill:{ink}; }}\n", fill.light));
        }
    }
    style.push_str("@media (prefers-color-scheme: dark) {\n");
    style.push_str(&format!("text {{ fill:{}; }}\n", INK.dark));
    style.push_str(&format!("#frames rect {{ stroke:{}; }}\n", PAPER.dark));
    style.push_str(&format!("#frames > *:hover rect {{ stroke:{}; }}\n", INK.dark));
    style.push_str(&format!("rect[fill=\"{}\"] {{ fill:{}; }}\n", PAPER.light, PAPER.dark));
    style.push_str(&format!("rect[fill=\"{FOUND}\"] + text {{ fill:{}; }}\n", ink_on(FOUND)));
    for fill in fills() {
        let (light, dark, ink) = (fill.light, fill.dark, ink_on(fill.dark));
        style.push_str(&format!("rect[fill=\"{light}\"] {{ fill:{dark}; }} "));
        style.push_str(&format!("rect[fill=\"{light}\"] + text {{ fill:{ink}; }}\n"));
    }
    style.push_str("}\n");
    style
}
