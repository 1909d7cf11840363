//! Settings of long tests, from environment variables.

use anyhow::{Context, Result};

/// Returns the number in an environment variable, or the usual one.
///
/// # Errors
/// When the variable has no number.
pub fn setting(name: &str, usual: u64) -> Result<u64> {
    std::env::var(name).ok().map_or(Ok(usual), |text| {
        text.parse().with_context(|| format!("{name}={text}"))
    })
}
