//! Tables as Markdown has them, readable as they stand.

/// A table that grows by rows.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { rows: vec![header.into_iter().map(Into::into).collect()] }
    }

    /// A column that a row lacks is empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        // A bar would end the cell.
        self.rows.push(cells.into_iter().map(|cell| cell.replace('|', "\\|")).collect());
    }

    /// The table, every line ended.
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
        let mut table = Table::new(["what", "ns"]);
        table.row(["a longer one".to_owned(), "1".to_owned()]);
        table.row(["a|b".to_owned()]);
        assert_eq!(
            table.markdown(),
            "| what         | ns  |\n\
             |--------------|-----|\n\
             | a longer one | 1   |\n\
             | a\\|b         |     |\n"
        );
    }
}
