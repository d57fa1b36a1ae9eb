//! What several measurements of one thing come to.

/// The middle one of some figures, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// `None` if there are none. Of an even number, the mean of the two in the middle.
    pub fn from_figures(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        Some(Self { median: f64::midpoint(sorted[lower], sorted[upper]), min, max })
    }

    /// What was measured once.
    pub fn single(figure: f64) -> Self {
        Self { median: figure, min: figure, max: figure }
    }

    /// `median (min–max)`, with so many digits after the point.
    pub fn format(self, digits: usize) -> String {
        let Self { median, min, max } = self;
        format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_one_in_the_middle_whatever_the_order() {
        let spread = Spread { median: 2.0, min: 1.0, max: 9.0 };
        assert_eq!(Spread::from_figures([9.0, 1.0, 2.0]), Some(spread));
    }

    #[test]
    fn an_even_number_has_its_median_between_the_two_in_the_middle() {
        assert_eq!(
            Spread::from_figures([4.0, 1.0, 3.0, 2.0]).map(|spread| spread.median),
            Some(2.5)
        );
    }

    #[test]
    fn nothing_measured_has_no_median() {
        assert_eq!(Spread::from_figures([]), None);
    }
}
