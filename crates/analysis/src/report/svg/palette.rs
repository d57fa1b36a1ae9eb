//! The colours of pictures, in light and in dark.
//!
//! Each cause has a colour of its own: a sleep is sky blue, a disk is green. Four colours are those of
//! Okabe and Ito (<https://jfly.uni-koeln.de/color/>). A search found five more that the colour-blind
//! tell from these and from each other (`docs/decisions/0006-pictures.md`). Frames on the way to a
//! cause have a tint of the class that most of their time is of, so that a column shows from afar what
//! it waited for.

use std::fmt;

use crate::{blame::BlameClass, report::flame::FrameKind};

/// What does not depend on a colour.
const STYLE: &str = include_str!("assets/picture.css");

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
pub(super) const BACKGROUND: Fill = Fill { light: Rgb(255, 255, 255), dark: Rgb(24, 26, 27) };
/// Text on the background.
const TEXT: Fill = Fill { light: Rgb(0, 0, 0), dark: Rgb(232, 230, 227) };
/// A frame that a search matches, whatever its own colour.
const MATCH: Rgb = Rgb(0, 220, 130);

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

    const fn tint(base: Self, light: u8, dark: u8) -> Self {
        Self {
            light: base.light.over(BACKGROUND.light, light),
            dark: base.dark.over(BACKGROUND.dark, dark),
        }
    }
}

/// The class that most of a frame's time is of, if there is one.
pub(super) type Dominant = Option<BlameClass>;

/// A class in its full colour, as in the legend.
pub(super) const fn class_fill(class: BlameClass) -> Fill {
    base_fill(Some(class))
}

const fn base_fill(dominant: Dominant) -> Fill {
    match dominant {
        Some(BlameClass::Work) => LONGER,
        Some(BlameClass::CpuQueue) => Fill::same(Rgb(240, 228, 66)),
        Some(BlameClass::Throttled) => Fill { light: Rgb(102, 0, 0), dark: Rgb(153, 0, 0) },
        Some(BlameClass::Timer) => Fill::same(Rgb(86, 180, 233)),
        Some(BlameClass::Disk) => Fill::same(Rgb(153, 221, 102)),
        Some(BlameClass::Network) => Fill { light: Rgb(0, 0, 136), dark: Rgb(34, 34, 255) },
        Some(BlameClass::Device) => Fill { light: Rgb(102, 0, 238), dark: Rgb(153, 17, 170) },
        Some(BlameClass::HeldBack) => Fill { light: Rgb(119, 34, 119), dark: Rgb(85, 17, 85) },
        Some(BlameClass::Unattributed) => Fill::same(Rgb(204, 121, 167)),
        // Near to the paper: there is nothing to see.
        Some(BlameClass::Idle) => Fill { light: Rgb(215, 215, 215), dark: Rgb(90, 90, 90) },
        None => Fill::same(Rgb(170, 160, 130)),
    }
}

/// A frame below what it is blamed on.
pub(super) const fn frame_fill(kind: FrameKind, dominant: Dominant) -> Fill {
    let base = base_fill(dominant);
    match kind {
        FrameKind::User => Fill::tint(base, 24, 34),
        FrameKind::Kernel => Fill::tint(base, 38, 24),
        FrameKind::Separator => Fill { light: Rgb(200, 200, 200), dark: Rgb(80, 80, 80) },
        FrameKind::Marker => Fill::tint(base, 46, 42),
        FrameKind::Group | FrameKind::Waiter | FrameKind::Waker | FrameKind::Holder => {
            Fill::tint(base, 55, 50)
        }
        FrameKind::Leaf(class) => class_fill(class),
    }
}

const LONGER: Fill = Fill::same(Rgb(213, 94, 0));
const SHORTER: Fill = Fill::same(Rgb(0, 114, 178));
/// Steps of longer or shorter, either way.
const STEPS: u8 = 5;
/// Percent of colour that a step adds.
const STEP: u8 = 13;

/// Longer is red, shorter is blue; both are Okabe's and Ito's as well. `share` is that of the largest
/// change, and below 0 where it became shorter.
pub(super) fn change_fill(share: f64) -> Fill {
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
    let dominants = BlameClass::ALL.map(Some).into_iter().chain([None]);
    let mut fills: Vec<_> =
        dominants.flat_map(|dominant| kinds.map(|kind| frame_fill(kind, dominant))).collect();
    fills.extend(BlameClass::ALL.map(class_fill));
    fills.extend(
        (-i16::from(STEPS)..=i16::from(STEPS))
            .map(|step| change_fill(f64::from(step) / f64::from(STEPS))),
    );
    fills.sort_unstable();
    fills.dedup();
    fills
}

/// The text on a colour: black or white, whichever is read more easily.
fn text_color_on(color: Rgb) -> Rgb {
    let (black, white) = (Rgb(0, 0, 0), Rgb(255, 255, 255));
    if contrast(black, color) >= contrast(white, color) { black } else { white }
}

/// The contrast ratio of WCAG 2: <https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio>.
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

/// The style sheet of a picture. Frames have their colours for light as attributes, which every
/// reader knows. The colours for dark go by these attributes. What a search matches has a class, which
/// comes before both.
pub(super) fn style_sheet() -> String {
    let mut style = String::from("\n");
    style.push_str(STYLE);
    style.push_str(&page_colors(TEXT.light, BACKGROUND.light));
    for fill in fills() {
        let text = text_color_on(fill.light);
        if text != TEXT.light {
            style.push_str(&format!("rect[fill=\"{}\"] ~ text {{ fill:{text}; }}\n", fill.light));
        }
    }
    style.push_str("@media (prefers-color-scheme: dark) {\n");
    style.push_str(&format!(":root {{ background:{}; }}\n", BACKGROUND.dark));
    style.push_str(&page_colors(TEXT.dark, BACKGROUND.dark));
    let (light, dark) = (BACKGROUND.light, BACKGROUND.dark);
    style.push_str(&format!("rect[fill=\"{light}\"] {{ fill:{dark}; }}\n"));
    for fill in fills() {
        let (light, dark, text) = (fill.light, fill.dark, text_color_on(fill.dark));
        style.push_str(&format!("rect[fill=\"{light}\"] {{ fill:{dark}; }} "));
        style.push_str(&format!("rect[fill=\"{light}\"] ~ text {{ fill:{text}; }}\n"));
    }
    style.push_str("}\n");
    style.push_str(&format!("#frames .match rect {{ fill:{MATCH}; }}\n"));
    style.push_str(&format!("#frames .match text {{ fill:{}; }}\n", text_color_on(MATCH)));
    style
}

/// Texts beside frames, and the lines between frames.
fn page_colors(text: Rgb, background: Rgb) -> String {
    format!(
        "text {{ fill:{text}; }}\n#frames rect {{ stroke:{background}; }}\n\
         #frames > :hover rect {{ stroke:{text}; }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What WCAG asks of small text.
    const LEGIBLE: f64 = 4.5;

    #[test]
    fn every_frame_can_be_read_in_light_and_in_dark() {
        for fill in fills() {
            for color in [fill.light, fill.dark] {
                let seen = contrast(text_color_on(color), color);
                assert!(seen >= LEGIBLE, "{color}: {seen}");
            }
        }
        for (ink, paper) in [(TEXT.light, BACKGROUND.light), (TEXT.dark, BACKGROUND.dark)] {
            assert!(contrast(ink, paper) >= LEGIBLE);
        }
        assert!(contrast(text_color_on(MATCH), MATCH) >= LEGIBLE);
    }

    /// The dark colours go by the light ones.
    #[test]
    fn no_two_fills_are_the_same_in_light_alone() {
        let fills = fills();
        for (n, fill) in fills.iter().enumerate() {
            let mut rest = fills[n + 1..].iter();
            assert!(rest.all(|other| other.light != fill.light), "{fill:?}");
            assert_ne!(fill.light, MATCH);
        }
    }

    /// What somebody sees who lacks one kind of cone: Machado, Oliveira and Fernandes 2009, table 1,
    /// severity 1.0, <https://doi.org/10.1109/TVCG.2009.113>. Applied to linear light.
    const BLINDNESS: [(&str, [[f64; 3]; 3]); 4] = [
        ("none", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "protanopia",
            [
                [0.152286, 1.052583, -0.204868],
                [0.114503, 0.786281, 0.099216],
                [-0.003882, -0.048116, 1.051998],
            ],
        ),
        (
            "deuteranopia",
            [
                [0.367322, 0.860646, -0.227968],
                [0.280085, 0.672501, 0.047413],
                [-0.011820, 0.042940, 0.968881],
            ],
        ),
        (
            "tritanopia",
            [
                [1.255528, -0.076749, -0.178779],
                [-0.078411, 0.930809, 0.147602],
                [0.004733, 0.691367, 0.303900],
            ],
        ),
    ];

    /// How far apart two colours are seen: the distance in CIELAB.
    fn distance(one: Rgb, other: Rgb, blindness: &[[f64; 3]; 3]) -> f64 {
        let lab = |Rgb(r, g, b): Rgb| {
            let linear = [r, g, b].map(|channel| {
                let c = f64::from(channel) / 255.0;
                if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
            });
            let apply = |matrix: &[[f64; 3]; 3], v: [f64; 3]| {
                matrix.map(|row| (0..3).map(|n| row[n] * v[n]).sum::<f64>().clamp(0.0, 1.0))
            };
            let seen = apply(blindness, linear);
            let to_xyz = [
                [0.4124 / 0.9505, 0.3576 / 0.9505, 0.1805 / 0.9505],
                [0.2126, 0.7152, 0.0722],
                [0.0193 / 1.089, 0.1192 / 1.089, 0.9505 / 1.089],
            ];
            let [x, y, z] = apply(&to_xyz, seen)
                .map(|t| if t > 0.008856 { t.cbrt() } else { t * 7.787 + 16.0 / 116.0 });
            [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
        };
        let (one, other) = (lab(one), lab(other));
        (0..3).map(|n| (one[n] - other[n]).powi(2)).sum::<f64>().sqrt()
    }

    /// Far more than can just be told apart (2.3), for they lie far from each other.
    const APART: f64 = 18.0;

    /// Boxes on the way to a cause have words as well.
    const TINTS_APART: f64 = 11.0;

    #[test]
    fn the_colour_blind_tell_the_classes_apart() {
        let dominants: Vec<_> = BlameClass::ALL.map(Some).into_iter().chain([None]).collect();
        for (name, blindness) in BLINDNESS {
            for (n, &one) in dominants.iter().enumerate() {
                for &other in &dominants[n + 1..] {
                    let tint = |dominant| frame_fill(FrameKind::Waiter, dominant);
                    let full = (base_fill(one), base_fill(other), APART);
                    for (a, b, apart) in [full, (tint(one), tint(other), TINTS_APART)] {
                        for (a, b) in [(a.light, b.light), (a.dark, b.dark)] {
                            let seen = distance(a, b, &blindness);
                            assert!(seen >= apart, "{one:?} and {other:?}, {name}: {seen}");
                        }
                    }
                }
            }
        }
    }

    /// The page's style sheet.
    const PAGE_STYLE: &str = include_str!("../html/assets/style.css");

    /// A colour of the page in light and in dark: its first and its last value.
    fn page_fill(name: &str) -> Fill {
        let key = format!("--{name}: #");
        let colors = PAGE_STYLE.match_indices(&key).map(|(at, _)| {
            let digits = &PAGE_STYLE[at + key.len()..][..6];
            let channel = |n| u8::from_str_radix(&digits[n..n + 2], 16).unwrap();
            Rgb(channel(0), channel(2), channel(4))
        });
        let colors: Vec<_> = colors.collect();
        Fill { light: colors[0], dark: colors[colors.len() - 1] }
    }

    /// The share of a class's colour in a box on the way to a cause, in light and in dark.
    fn page_shares() -> (u8, u8) {
        let shares = PAGE_STYLE.match_indices("--share: ").map(|(at, key)| {
            let (share, _) = PAGE_STYLE[at + key.len()..].split_once('%').unwrap();
            share.parse().unwrap()
        });
        let shares: Vec<u8> = shares.collect();
        (shares[0], shares[shares.len() - 1])
    }

    #[test]
    fn the_page_has_the_colours_of_pictures_and_they_can_be_read() {
        let names = [
            (BlameClass::Work, "work"),
            (BlameClass::CpuQueue, "queue"),
            (BlameClass::Throttled, "throttled"),
            (BlameClass::Timer, "timer"),
            (BlameClass::Disk, "disk"),
            (BlameClass::Network, "network"),
            (BlameClass::Device, "device"),
            (BlameClass::HeldBack, "held-back"),
            (BlameClass::Unattributed, "unattributed"),
        ];
        for (class, name) in names {
            assert_eq!(page_fill(name), class_fill(class), "{name}");
        }
        let (ink, (light, dark)) = (page_fill("ink"), page_shares());
        for name in names.map(|(_, name)| name).into_iter().chain(["idle", "asleep"]) {
            let color = page_fill(name);
            let deep = format!(".c-{name}");
            let deep_rule =
                PAGE_STYLE.lines().find(|line| line.starts_with(".box:is(.k5, .k6):is("));
            let is_deep = deep_rule.unwrap().contains(&deep);
            let text = if is_deep { Rgb(255, 255, 255) } else { Rgb(16, 16, 16) };
            let (white, black) = (Rgb(255, 255, 255), Rgb(0, 0, 0));
            for (text, paper) in [
                (text, color.light),
                (text, color.dark),
                (ink.light, color.light.over(white, light)),
                (ink.dark, color.dark.over(black, dark)),
            ] {
                let seen = contrast(text, paper);
                assert!(seen >= LEGIBLE, "{name}: {text} on {paper}: {seen}");
            }
        }
    }

    #[test]
    fn the_colour_blind_tell_longer_from_shorter() {
        for (name, blindness) in BLINDNESS {
            for share in [0.2, 0.6, 1.0] {
                let (longer, shorter, same) =
                    (change_fill(share), change_fill(-share), change_fill(0.0));
                for (a, b) in [(longer, shorter), (longer, same), (shorter, same)] {
                    let seen = distance(a.light, b.light, &blindness);
                    let apart = if share < 0.5 { APART / 2.0 } else { APART };
                    assert!(seen >= apart, "{share}, {name}: {a:?} {b:?} {seen}");
                }
            }
        }
    }
}
