//! What `gatewright version` prints.

use std::sync::LazyLock;

/// The commit of which a release is built (`make release`).
const COMMIT: Option<&str> = option_env!("GATEWRIGHT_COMMIT");

/// Returns the version and, in a release, the commit: `0.1.0 (1a2b3c4d5e6f)`.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| of(COMMIT));
    &VERSION
}

fn of(commit: Option<&str>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    match commit {
        None | Some("") => version.to_owned(),
        Some(commit) => format!("{version} ({commit})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_says_its_commit() {
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            of(Some("1a2b3c4d5e6f")),
            format!("{version} (1a2b3c4d5e6f)")
        );
        assert_eq!(of(Some("")), version, "a source without a history");
        assert_eq!(of(None), version);
    }
}
