//! Headings, paragraphs and tables, and the two ways to write them: for a terminal and as Markdown.

use std::fmt::Write;

/// What a person reads, before it is text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    blocks: Vec<Block>,
}

#[derive(Clone, Debug, PartialEq)]
enum Block {
    Heading(String),
    Paragraph(String),
    Table(Table),
}

/// Rows under a header. The first column is left-aligned, as are columns that hold text; numbers align right.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl Document {
    /// Starts a section.
    pub fn heading(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Heading(text.into()));
    }

    /// Adds a sentence or more.
    pub fn paragraph(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Paragraph(text.into()));
    }

    /// Adds a table, unless it has no rows.
    pub fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.blocks.push(Block::Table(table));
        }
    }

    /// For a terminal: aligned columns, nothing but the text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (index, block) in self.blocks.iter().enumerate() {
            match block {
                Block::Heading(heading) => {
                    let gap = if index > 0 { "\n" } else { "" };
                    let _ = writeln!(text, "{gap}{}", printable(heading));
                }
                Block::Paragraph(paragraph) => {
                    for line in wrapped(&printable(paragraph), 110) {
                        let _ = writeln!(text, "  {line}");
                    }
                }
                Block::Table(table) => table.write_text(&mut text),
            }
        }
        text
    }

    /// Markdown, to paste into an issue.
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        for block in &self.blocks {
            match block {
                Block::Heading(heading) => {
                    let _ = writeln!(text, "### {}\n", escaped(heading));
                }
                Block::Paragraph(paragraph) => {
                    let _ = writeln!(text, "{}\n", escaped(paragraph));
                }
                Block::Table(table) => table.write_markdown(&mut text),
            }
        }
        text
    }
}

impl Table {
    /// A table with these column names.
    pub fn new<const N: usize>(header: [&str; N]) -> Table {
        Table { header: header.map(str::to_owned).to_vec(), ..Table::default() }
    }

    /// Adds a column name.
    pub fn column(&mut self, name: impl Into<String>) {
        self.header.push(name.into());
    }

    /// Adds a row, one cell a column.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The mark that stands for these notes beside a number, such as ` [a]`; each distinct note is listed once below the
    /// table.
    pub fn mark<N: ToString>(&mut self, notes: impl IntoIterator<Item = N>) -> String {
        let mut marks = Vec::new();
        for note in notes {
            let note = note.to_string();
            let index = self.notes.iter().position(|known| *known == note).unwrap_or_else(|| {
                self.notes.push(note);
                self.notes.len() - 1
            });
            marks.push(letter(index));
        }
        marks.sort_unstable();
        marks.dedup();
        if marks.is_empty() { String::new() } else { format!(" [{}]", marks.join(",")) }
    }

    fn write_text(&self, text: &mut String) {
        let columns = self.header.len();
        let cell = |row: &[String], column: usize| row.get(column).map_or(0, |cell| number_width(cell));
        let note =
            |row: &[String], column: usize| row.get(column).map_or(0, |cell| cell.chars().count() - number_width(cell));
        let width: Vec<usize> =
            (0..columns).map(|column| self.rows.iter().map(|row| cell(row, column)).max().unwrap_or(0)).collect();
        let marks: Vec<usize> =
            (0..columns).map(|column| self.rows.iter().map(|row| note(row, column)).max().unwrap_or(0)).collect();
        let right: Vec<bool> = (0..columns).map(|column| column > 0 && self.is_numeric(column)).collect();
        for (index, row) in std::iter::once(&self.header).chain(&self.rows).enumerate() {
            let mut line = String::from(" ");
            for column in 0..columns {
                let content = row.get(column).map_or("", String::as_str);
                let full = (width[column] + marks[column]).max(self.header[column].chars().count());
                // Numbers align at their last digit; a mark hangs to the right of it.
                let hang = if index == 0 { 0 } else { marks[column] - note(row, column) };
                let length = content.chars().count() + hang;
                let space = " ".repeat(full.saturating_sub(length));
                let hang = " ".repeat(hang);
                let _ = if right[column] {
                    write!(line, " {space}{content}{hang} ")
                } else {
                    write!(line, " {content}{space}{hang} ")
                };
            }
            let _ = writeln!(text, "{}", printable(line.trim_end()));
        }
        for (index, note) in self.notes.iter().enumerate() {
            let _ = writeln!(text, "    [{}] {}", letter(index), printable(note));
        }
    }

    fn write_markdown(&self, text: &mut String) {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
            format!("| {} |", cells.join(" | "))
        };
        let rule: Vec<&str> = (0..self.header.len())
            .map(|column| if column > 0 && self.is_numeric(column) { "---:" } else { "---" })
            .collect();
        let _ = writeln!(text, "{}\n|{}|", line(&self.header), rule.join("|"));
        for row in &self.rows {
            let _ = writeln!(text, "{}", line(row));
        }
        text.push('\n');
        for (index, note) in self.notes.iter().enumerate() {
            let _ = writeln!(text, "- [{}] {}", letter(index), escaped(note));
        }
        if !self.notes.is_empty() {
            text.push('\n');
        }
    }

    fn is_numeric(&self, column: usize) -> bool {
        self.rows.iter().filter_map(|row| row.get(column)).all(|cell| {
            cell.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '−' | '+' | '<')) || cell.is_empty()
        })
    }
}

/// Characters of a cell before its mark.
fn number_width(cell: &str) -> usize {
    cell.find(" [").map_or(cell, |end| &cell[..end]).chars().count()
}

fn letter(index: usize) -> String {
    let letters = u8::try_from(index % 26).unwrap_or(0);
    let letter = char::from(b'a' + letters);
    if index < 26 { letter.to_string() } else { format!("{letter}{}", index / 26) }
}

/// Text without control characters: a record may come from anywhere, and a terminal obeys them.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '�' } else { c }).collect()
}

/// Markdown that shows host-provided text as it is.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '|' | '*' | '_' | '`' | '<' | '>' | '\\' | '[' | ']') {
            out.push('\\');
        }
        out.push(if c.is_control() { ' ' } else { c });
    }
    out
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    {
        let mut line = String::new();
        for word in text.split(' ') {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["kernel", "1 thread", "note"]);
        let mark = table.mark(["busy"]);
        table.row(vec!["copy_avx2".into(), format!("22.1{mark}"), "x".into()]);
        table.row(vec!["read_avx2".into(), "9.3".into(), "y|z".into()]);
        table
    }

    #[test]
    fn text_aligns_numbers_and_hangs_marks() {
        let mut document = Document::default();
        document.heading("Bandwidth");
        document.table(table());
        let expected = "Bandwidth\n  kernel     1 thread  note\n  copy_avx2  22.1 [a]  x\n  read_avx2   9.3      y|z\n    [a] busy\n";
        assert_eq!(document.to_text(), expected);
    }

    #[test]
    fn markdown_escapes_what_the_host_said() {
        let mut document = Document::default();
        document.table(table());
        let text = document.to_markdown();
        assert!(text.contains("| read\\_avx2 | 9.3 | y\\|z |"), "{text}");
        assert!(text.contains("- [a] busy"), "{text}");
    }

    #[test]
    fn notes_are_listed_once() {
        let mut table = table();
        assert_eq!(table.mark(["busy", "late"]), " [a,b]");
        assert_eq!(table.mark(Vec::<String>::new()), "");
        assert_eq!(table.notes, ["busy", "late"]);
    }
}
