//! Colours: the terminal's own sixteen without a background, so that they suit a light one and a dark one.

use ratatui::style::{Color, Modifier, Style};

/// Whether the screen has colours. What they tell is also told by words or characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourMode {
    /// With colours.
    Colours,
    /// Without colours: `NO_COLOR` is set, or the terminal has none.
    Plain,
}

/// The role of a text on screen, which decides its style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextRole {
    Text,
    Title,
    FocusedTitle,
    Columns,
    Selected,
    Loud,
    Cause,
    Faint,
    OnCpu,
    Runnable,
    Attributed,
    External,
    Unattributed,
}

impl ColourMode {
    pub(super) fn style(self, role: TextRole) -> Style {
        let plain = Style::new();
        let colour = |colour| match self {
            Self::Colours => plain.fg(colour),
            Self::Plain => plain,
        };
        match role {
            TextRole::Text => plain,
            TextRole::Title => plain.add_modifier(Modifier::BOLD),
            TextRole::FocusedTitle => plain.add_modifier(Modifier::BOLD | Modifier::REVERSED),
            TextRole::Columns => plain.add_modifier(Modifier::UNDERLINED),
            TextRole::Selected => plain.add_modifier(Modifier::REVERSED),
            TextRole::Loud => colour(Color::Red).add_modifier(Modifier::BOLD),
            TextRole::Cause => colour(Color::Cyan).add_modifier(Modifier::BOLD),
            TextRole::Faint | TextRole::Unattributed => plain.add_modifier(Modifier::DIM),
            TextRole::OnCpu => colour(Color::Green),
            TextRole::Runnable => colour(Color::Magenta),
            TextRole::Attributed => colour(Color::Red),
            TextRole::External => colour(Color::Blue),
        }
    }
}
