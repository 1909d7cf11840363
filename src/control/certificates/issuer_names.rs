//! The names of issuers that people write.

use gatewright_core::wanted::INTERNAL_CA;

/// Returns the message for a name that no issuer has, beside those of the installation that may be
/// named in its place.
pub fn unknown_issuer<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().chain([INTERNAL_CA]).collect();
    format!(
        "no issuer is called {name:?}: there are {}",
        known.join(", ")
    )
}
