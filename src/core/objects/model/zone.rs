//! Zones of nodes and endpoints.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The largest number of bytes of a label's value.
const LONGEST: usize = 63;

/// A zone: a value of the label `topology.kubernetes.io/zone`, never empty.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Zone(Arc<str>);

impl Zone {
    /// Reads a zone.
    ///
    /// # Errors
    /// When the text is no value of a label: 1 to 63 letters, digits and `-`, `_` or `.`, with a
    /// letter or digit at either end.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        let is_label = bytes.len() <= LONGEST
            && ends
                .iter()
                .all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
            && bytes
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
        if is_label {
            Ok(Self(text.into()))
        } else {
            let shown: String = text.chars().take(LONGEST + 1).collect();
            Err(format!(
                "zone {shown:?}: expected the value of a label, 1 to {LONGEST} letters, digits and -, _ or ."
            ))
        }
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Zone {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.0.as_ref().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_values_of_labels() {
        let longest = "z".repeat(LONGEST);
        for text in ["a", "eu-west-1a", "Zone_1.b", &longest] {
            assert_eq!(
                Zone::parse(text).map(String::from).as_deref(),
                Ok(text),
                "it is a label's value"
            );
        }
        let too_long = "z".repeat(LONGEST + 1);
        for text in ["", "-a", "a.", "a/b", "a b", "zoné", &too_long] {
            let refused = Zone::parse(text).expect_err(text);
            assert!(refused.starts_with("zone \""), "{refused}");
        }
    }
}
