//! Colours: the terminal's own sixteen without a background, so that they suit a light one and a dark one.

use ratatui::style::{Color, Modifier, Style};

/// Whether the screen has colours. What they tell is also told by words or characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// With colours.
    Colours,
    /// Without colours: `NO_COLOR` is set, or the terminal has none.
    Plain,
}

/// The role of a text on screen, which decides its style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Text,
    Title,
    FocusedTitle,
    Columns,
    Selected,
    Loud,
    Faint,
    OnCpu,
    Runnable,
    Attributed,
    External,
    Unattributed,
}

impl Paint {
    pub(super) fn style(self, role: Role) -> Style {
        let plain = Style::new();
        let colour = |colour| match self {
            Self::Colours => plain.fg(colour),
            Self::Plain => plain,
        };
        match role {
            Role::Text => plain,
            Role::Title => plain.add_modifier(Modifier::BOLD),
            Role::FocusedTitle => plain.add_modifier(Modifier::BOLD | Modifier::REVERSED),
            Role::Columns => plain.add_modifier(Modifier::UNDERLINED),
            Role::Selected => plain.add_modifier(Modifier::REVERSED),
            Role::Loud => colour(Color::Red).add_modifier(Modifier::BOLD),
            Role::Faint | Role::Unattributed => plain.add_modifier(Modifier::DIM),
            Role::OnCpu => colour(Color::Green),
            Role::Runnable => colour(Color::Magenta),
            Role::Attributed => colour(Color::Red),
            Role::External => colour(Color::Blue),
        }
    }
}
