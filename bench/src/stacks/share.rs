//! Parts of a whole, as the tables show them.

use std::ops::AddAssign;

/// How much of a whole has a property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub part: u64,
    pub whole: u64,
}

impl Share {
    /// The whole if `is_part`, and nothing of it otherwise.
    pub fn all_or_nothing(whole: u64, is_part: bool) -> Self {
        Self { part: if is_part { whole } else { 0 }, whole }
    }

    /// A cell of a table. What is not all is never rounded to 100 %.
    pub fn cell(self) -> String {
        if self.whole == 0 {
            return "none seen".to_owned();
        }
        let percent = self.part as f64 / self.whole as f64 * 100.0;
        match percent {
            _ if self.part == self.whole => "100 %".to_owned(),
            percent if percent > 99.9 => "> 99.9 %".to_owned(),
            percent => format!("{percent:.1} %"),
        }
    }
}

impl AddAssign for Share {
    fn add_assign(&mut self, other: Self) {
        self.part += other.part;
        self.whole += other.whole;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_all_is_never_shown_as_all() {
        let cell = |part, whole| Share { part, whole }.cell();
        assert_eq!(cell(7, 7), "100 %");
        assert_eq!(cell(99_999, 100_000), "> 99.9 %");
        assert_eq!(cell(1, 3), "33.3 %");
        assert_eq!(cell(0, 0), "none seen");
    }
}
