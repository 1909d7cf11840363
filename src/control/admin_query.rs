//! Paths of the admin socket with a query.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Returns a path with those of these fields that have a value.
pub(crate) fn path_with<const N: usize>(path: &str, fields: [(&str, Option<String>); N]) -> String {
    let fields: Vec<String> = fields
        .into_iter()
        .filter_map(|(field, value)| {
            let value = value?;
            let value = utf8_percent_encode(&value, NON_ALPHANUMERIC);
            Some(format!("{field}={value}"))
        })
        .collect();
    if fields.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{}", fields.join("&"))
    }
}
