//! Paths of the admin socket with a query.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// Returns a path of an admin socket, with those of these fields that have a value.
pub fn path_with<const N: usize>(path: &str, fields: [(&str, Option<String>); N]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_writes_stays_in_its_field() {
        assert_eq!(path_with("/stats", [("filter", None)]), "/stats");
        assert_eq!(
            path_with("/stats", [("filter", Some("a&b=c d".to_owned()))]),
            "/stats?filter=a%26b%3Dc%20d"
        );
    }
}
