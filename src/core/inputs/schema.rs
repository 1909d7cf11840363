//! What the schema of the Gateway API refuses and its generated types admit: sizes of lists. Patterns are in `text.rs`.
//!
//! A manifest may come from a file that no API server has seen.

use super::ParseError;

/// Says what is wrong with `field`.
fn refuse<T>(field: &str, text: &str) -> Result<T, ParseError> {
    Err(ParseError::Schema(format!("{field}: {text}")))
}

/// A list no longer than the schema allows (`maxItems`).
pub(super) fn at_most<T>(field: &str, most: usize, list: Vec<T>) -> Result<Vec<T>, ParseError> {
    if list.len() > most {
        return refuse(field, &format!("{} items, at most {most} are allowed", list.len()));
    }
    Ok(list)
}
