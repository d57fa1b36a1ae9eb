//! Colours: the terminal's own sixteen without a background, so that they suit a light one and a dark one.

use ratatui::style::{Color, Modifier, Style};

/// Whether there are colours. What they say is said by words or characters as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// There are.
    Colours,
    /// `NO_COLOR`, or a terminal that has none.
    Plain,
}

/// What something on screen is.
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
