//! What a command does for a while, on a terminal.

use std::io::{self, IsTerminal, Write};

/// Says on standard error, if it is a terminal, what is being done. The next step takes the place
/// of it; the empty one leaves nothing.
pub fn progress(step: &str) {
    if io::stderr().is_terminal() {
        let dots = if step.is_empty() { "" } else { " ..." };
        // Standard error may be closed.
        let _ = write!(io::stderr(), "\r\x1b[K{step}{dots}");
    }
}
