//! Tables in the output of commands.

use comfy_table::{ContentArrangement, Table, presets};
use gatewright_core::printable::printable;
use terminal_size::{Width, terminal_size_of};

/// Formats rows in columns. Cells are wrapped so that a row fits the terminal, if standard output
/// is one: what other programs read has a line for each row.
pub fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = terminal_size_of(std::io::stdout()).map(|(Width(width), _)| width);
    formatted(rows, width)
}

/// Formats rows in columns, within a number of terminal cells if there is one.
fn formatted<const N: usize>(rows: &[[String; N]], width: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width);
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| harmless(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for line in table.lines() {
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Escapes characters by which the author of an object could write over a terminal. A cell may have
/// several lines, which stay in its column.
fn harmless(cell: &str) -> String {
    let lines: Vec<_> = cell.split('\n').map(printable).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<[String; 2]> {
        let message = "a message of some words that is longer than a line";
        vec![
            ["OBJECT", "MESSAGE"].map(str::to_owned),
            ["gateway a/x".to_owned(), message.to_owned()],
        ]
    }

    #[test]
    fn a_row_is_a_line_for_other_programs() {
        let text = formatted(&rows(), None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "OBJECT       MESSAGE");
        assert_eq!(
            lines[1],
            "gateway a/x  a message of some words that is longer than a line"
        );
        assert_eq!(lines.len(), 2, "{text}");
    }

    #[test]
    fn a_row_fits_the_terminal() {
        let text = formatted(&rows(), Some(40));
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
        assert!(text.lines().count() > 2, "{text}");
    }

    #[test]
    fn wide_characters_take_two_cells_and_control_characters_none_of_their_effect() {
        let rows = [["名前", "x"], ["ab\u{1b}[2J", "y"]].map(|row| row.map(str::to_owned));
        let text = formatted(&rows, None);
        assert_eq!(text, "名前         x\nab\\u{1b}[2J  y\n");
    }
}
