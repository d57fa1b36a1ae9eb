//! Puts the texts of a box into its rows. The script (`assets/picture.js`) does the same at every zoom.
//!
//! ```text
//! python3 19036 checkout.py             python3 19036                  checkout.py
//! 601 ms sleeps                         checkout.py                    601 ms sleeps
//!                                       601 ms sleeps                  in sell
//!
//! all have room                         a row that is free takes       none is free: the short name
//!                                       what has no room
//! ```

/// A row of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) text: String,
    /// Which of the box's texts it is of.
    pub(super) place: usize,
}

/// Puts texts into at most `rows` rows of less than `room` characters. A text that is too long goes on in the
/// next row, between two words, as long as there are more rows than texts.
///
/// `short` stands in place of the first text where that would be cut all the same.
pub(super) fn fill_rows(texts: &[&str], short: Option<&str>, rows: usize, room: usize) -> Vec<Row> {
    let filled = fill_all(texts, rows, room);
    let Some((short, (name, others))) = short.zip(texts.split_first()) else { return filled };
    let of_name: Vec<&str> =
        filled.iter().filter(|row| row.place == 0).map(|row| row.text.as_str()).collect();
    if of_name.join(" ") == *name {
        return filled;
    }
    let texts: Vec<&str> = [short].into_iter().chain(others.iter().copied()).collect();
    fill_all(&texts, rows, room)
}

fn fill_all(texts: &[&str], rows: usize, room: usize) -> Vec<Row> {
    let mut spare = rows.saturating_sub(texts.len());
    let mut filled = Vec::with_capacity(rows);
    for (place, text) in texts.iter().enumerate() {
        let mut rest = *text;
        while spare > 0
            && !fits(rest, room)
            && let Some((first, next)) = split_between_words(rest, room)
        {
            filled.push(Row { text: first.to_owned(), place });
            rest = next;
            spare -= 1;
        }
        filled.push(Row { text: shorten(rest, room), place });
    }
    filled
}

fn fits(text: &str, room: usize) -> bool {
    text.chars().count() < room
}

/// Splits a text at the last space before which there is room; none if there is no such space.
fn split_between_words(text: &str, room: usize) -> Option<(&str, &str)> {
    let end = text.char_indices().nth(room).map_or(text.len(), |(end, _)| end);
    text.get(..end)?.rsplit_once(' ').and_then(|(first, _)| {
        (!first.is_empty()).then(|| (first, text.get(first.len() + 1..).unwrap_or_default()))
    })
}

/// As much of a text as fits: its beginning, which says more than its end. A single letter says nothing.
fn shorten(text: &str, room: usize) -> String {
    match room {
        _ if fits(text, room) => text.to_owned(),
        0..4 => String::new(),
        _ => text.chars().take(room - 2).chain("..".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{fill_rows, shorten};

    #[test]
    fn names_are_shortened_to_what_fits() {
        assert_eq!(shorten("futex", 6), "futex");
        assert_eq!(shorten("futex", 5), "fut..");
        assert_eq!(shorten("futex", 4), "fu..");
        assert_eq!(shorten("futex", 3), "");
        assert_eq!(shorten("cc", 3), "cc");
    }

    fn rows(texts: &[&str], room: usize) -> Vec<(usize, String)> {
        fill_rows(texts, None, 3, room).into_iter().map(|row| (row.place, row.text)).collect()
    }

    #[test]
    fn a_row_that_is_free_takes_what_has_no_room() {
        let row = |place, text: &str| (place, text.to_owned());
        let texts = ["python3 19036 checkout.py", "601 ms sleeps"];
        let wide = [row(0, "python3 19036 checkout.py"), row(1, "601 ms sleeps")];
        assert_eq!(rows(&texts, 26), wide);
        let narrow = [row(0, "python3 19036"), row(0, "checkout.py"), row(1, "601 ms sleeps")];
        assert_eq!(rows(&texts, 25), narrow);
        assert_eq!(rows(&texts, 14), narrow);
        // One row is free, and the name has it already.
        assert_eq!(rows(&texts, 13)[1..], [row(0, "19036 check.."), row(1, "601 ms slee..")]);
        let full = ["postgres 38", "4.06 s waits for cron", "in secure_read"];
        assert_eq!(rows(&full, 15)[1], row(1, "4.06 s waits .."));
        assert_eq!(rows(&["unsplittable"], 8), [row(0, "unspli..")]);
    }

    #[test]
    fn a_name_that_would_be_cut_gives_way_to_what_tells_it_from_others() {
        let first = |texts: &[&str], room| {
            let rows = fill_rows(texts, Some("1: checkout.py"), 3, room);
            rows.into_iter().map(|row| row.text).next().unwrap()
        };
        let texts = ["1: python3 19036 checkout.py", "4.06 s waits for postgres", "in sell"];
        assert_eq!(first(&texts, 29), texts[0]);
        assert_eq!(first(&texts, 28), "1: checkout.py");
        assert_eq!(first(&texts, 12), "1: checkou..");
        // A row is free.
        assert_eq!(first(&texts[..2], 26), "1: python3 19036");
    }

    proptest! {
        #[test]
        fn nothing_is_cut_while_a_row_is_free(
            texts in prop::collection::vec("[a-zé]{1,6}( [a-zé]{1,6}){0,5}", 1..4), room in 8_usize..40,
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let rows = fill_rows(&texts, None, 3, room);
            prop_assert!(rows.len() <= 3);
            prop_assert!(rows.iter().all(|row| row.text.chars().count() <= room));
            let is_cut = rows.iter().any(|row| row.text.ends_with(".."));
            prop_assert!(!is_cut || rows.len() == 3, "{:?}", rows);
            if !is_cut {
                for (place, text) in texts.iter().enumerate() {
                    let own = rows.iter().filter(|row| row.place == place);
                    let joined: Vec<&str> = own.map(|row| row.text.as_str()).collect();
                    prop_assert_eq!(joined.join(" "), *text);
                }
            }
        }
    }
}
