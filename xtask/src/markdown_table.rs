//! Tables as Markdown has them, readable as they stand.

/// A table that grows by rows.
pub struct MarkdownTable {
    rows: Vec<Vec<String>>,
}

impl MarkdownTable {
    /// A table that has a header and no rows yet.
    pub fn new(header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { rows: vec![header.into_iter().map(Into::into).collect()] }
    }

    /// Appends a row. A column that the row lacks is empty.
    pub fn push_row(&mut self, cells: impl IntoIterator<Item = String>) {
        // A bar would end the cell.
        self.rows.push(cells.into_iter().map(|cell| cell.replace('|', "\\|")).collect());
    }

    /// The table as Markdown, every line ended by a newline.
    pub fn markdown(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
            })
            .collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            text.push('|');
            for (column, &width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                text.push_str(&format!(" {cell:<width$} |"));
            }
            text.push('\n');
            if number == 0 {
                text.push('|');
                for &width in &widths {
                    text.push_str(&format!("{}|", "-".repeat(width + 2)));
                }
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = MarkdownTable::new(["what", "ns"]);
        table.push_row(["a longer one".to_owned(), "1".to_owned()]);
        table.push_row(["a|b".to_owned()]);
        assert_eq!(
            table.markdown(),
            "| what         | ns  |\n\
             |--------------|-----|\n\
             | a longer one | 1   |\n\
             | a\\|b         |     |\n"
        );
    }
}
