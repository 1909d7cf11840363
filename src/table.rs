//! Tables in the output of commands.

use std::io::IsTerminal;

use comfy_table::{ContentArrangement, Table, presets};
use gatewright_core::printable::printable;
use terminal_size::{Width, terminal_size_of};

/// What a cell says of its row, which a terminal shows by a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Something fails.
    Bad,
    /// Something is not known, or deserves a look.
    Doubtful,
}

/// The end of a colour while rows are arranged: a character without width (WORD JOINER).
const END: char = '\u{2060}';
/// The characters without width that stand for colours. An author's cell has none.
const MARKS: [char; 3] = [END, '\u{2061}', '\u{2062}'];

impl Tone {
    /// What stands for the colour while rows are arranged.
    fn mark(self) -> char {
        match self {
            Self::Bad => MARKS[1],
            Self::Doubtful => MARKS[2],
        }
    }

    /// The control sequence of the colour.
    fn colour(self) -> &'static str {
        match self {
            Self::Bad => "\u{1b}[31m",
            Self::Doubtful => "\u{1b}[33m",
        }
    }
}

/// Formats rows in columns. Cells are wrapped so that a row fits the terminal, if standard output
/// is one: what other programs read has a line for each row.
pub fn table<const N: usize>(rows: &[[String; N]]) -> String {
    toned(rows, |_| None)
}

/// The same, with the colour of a cell in some of the rows, on a terminal and without `NO_COLOR`.
/// The function says which, by the number of a row.
pub fn toned<const N: usize>(
    rows: &[[String; N]],
    tone: impl Fn(usize) -> Option<(usize, Tone)>,
) -> String {
    let width = terminal_size_of(std::io::stdout()).map(|(Width(width), _)| width);
    if has_colours() {
        formatted(rows, width, tone)
    } else {
        formatted(rows, width, |_| None)
    }
}

/// Returns names in a cell: the first ones, and the number of the others. `beyond` are further ones
/// whose names are not known; only their number without any name.
pub fn list(names: &[String], beyond: usize, most: usize) -> String {
    // The last name takes no more room than a number in its place.
    let shown = if beyond == 0 && names.len() <= most.saturating_add(1) {
        names.len()
    } else {
        names.len().min(most)
    };
    let text = names[..shown].join(", ");
    match names.len() - shown + beyond {
        0 => text,
        more if text.is_empty() => more.to_string(),
        more => format!("{text} and {more} more"),
    }
}

/// True if standard output is a terminal whose user has not asked for plain text
/// (<https://no-color.org>).
fn has_colours() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Formats rows in columns, within a number of terminal cells if there is one.
fn formatted<const N: usize>(
    rows: &[[String; N]],
    width: Option<u16>,
    tone: impl Fn(usize) -> Option<(usize, Tone)>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width);
    }
    for (number, row) in rows.iter().enumerate() {
        let tone = tone(number);
        table.add_row(row.iter().enumerate().map(|(column, text)| {
            let cell = harmless(text).replace(MARKS, "");
            match tone.filter(|(of, _)| *of == column) {
                Some((_, tone)) => format!("{}{cell}{END}", tone.mark()),
                None => cell,
            }
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for line in table.lines() {
        text += line.trim_end();
        text.push('\n');
    }
    for tone in [Tone::Bad, Tone::Doubtful] {
        text = text.replace(tone.mark(), tone.colour());
    }
    text.replace(END, "\u{1b}[39m")
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
        let text = formatted(&rows(), None, |_| None);
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
        let text = formatted(&rows(), Some(40), |_| None);
        assert!(
            text.lines().all(|line| line.chars().count() <= 40),
            "{text}"
        );
        assert!(text.lines().count() > 2, "{text}");
    }

    #[test]
    fn wide_characters_take_two_cells_and_control_characters_none_of_their_effect() {
        let rows = [["名前", "x"], ["ab\u{1b}[2J", "y"]].map(|row| row.map(str::to_owned));
        let text = formatted(&rows, None, |_| None);
        assert_eq!(text, "名前         x\nab\\u{1b}[2J  y\n");
    }

    #[test]
    fn a_colour_is_of_one_cell_and_takes_no_room() {
        let tone = |row| (row == 1).then_some((0, Tone::Bad));
        let text = formatted(&rows(), None, tone);
        assert!(text.contains("\u{1b}[31m"), "{text:?}");
        let plain = formatted(&rows(), None, |_| None);
        let lengths = |text: &str| -> Vec<usize> {
            let columns = text.lines().map(|line| line.replace("\u{1b}[31m", ""));
            columns
                .map(|line| line.replace("\u{1b}[39m", "").len())
                .collect()
        };
        assert_eq!(lengths(&text), lengths(&plain), "{text:?}");
    }

    #[test]
    fn a_long_list_ends_with_the_number_of_the_others() {
        let names = |count: usize| (0..count).map(|at| format!("n{at}")).collect::<Vec<_>>();
        for (count, beyond, expected) in [
            (1, 0, "n0"),
            (3, 0, "n0, n1, n2"),
            (4, 0, "n0, n1 and 2 more"),
            (2, 5, "n0, n1 and 5 more"),
            (9, 5, "n0, n1 and 12 more"),
            (0, 5, "5"),
        ] {
            assert_eq!(
                list(&names(count), beyond, 2),
                expected,
                "{count}, {beyond}"
            );
        }
    }
}
