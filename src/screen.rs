//! A text that is printed again and again in the same place of a terminal.

use std::io::{self, IsTerminal, Write};

use terminal_size::{Height, terminal_size_of};

/// The terminal of standard output.
#[derive(Default)]
pub struct Screen {
    is_cleared: bool,
}

impl Screen {
    /// The screen, if standard output is a terminal.
    pub fn of_terminal() -> Option<Self> {
        io::stdout().is_terminal().then(Self::default)
    }

    /// Prints a text over the last one. Lines that do not fit are counted.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn draw(&mut self, text: &str) -> io::Result<()> {
        let height = terminal_size_of(io::stdout()).map_or(24, |(_, Height(rows))| rows);
        let mut out = io::stdout().lock();
        if !self.is_cleared {
            // What was there is still above.
            write!(out, "{}", "\n".repeat(usize::from(height)))?;
            self.is_cleared = true;
        }
        out.write_all(frame(text, usize::from(height)).as_bytes())?;
        out.flush()
    }
}

/// The output that replaces a whole screen without flicker: each line ends by erasing the rest of
/// an older one.
fn frame(text: &str, height: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let room = height.saturating_sub(1).max(1);
    let shown = if lines.len() > room {
        room.saturating_sub(1)
    } else {
        lines.len()
    };
    let mut frame = "\x1b[H".to_owned();
    for line in &lines[..shown] {
        frame += line;
        frame += "\x1b[K\n";
    }
    if shown < lines.len() {
        frame += &format!("... and {} more lines\x1b[K\n", lines.len() - shown);
    }
    frame + "\x1b[J"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_takes_the_place_of_the_last_one() {
        assert_eq!(frame("a\nb\n", 24), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }

    #[test]
    fn lines_that_do_not_fit_are_counted() {
        let frame = frame("a\nb\nc\nd\ne\n", 4);
        assert_eq!(
            frame,
            "\x1b[Ha\x1b[K\nb\x1b[K\n... and 3 more lines\x1b[K\n\x1b[J"
        );
    }
}
