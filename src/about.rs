//! What a program says of itself at `/about`, for support bundles.

use std::path::Path;

use serde_json::{Value, json};

use crate::version::version;

/// The answer: the version, the command, the directory of manifests if it has one, and the
/// configuration.
pub(crate) fn about(
    command: &str,
    manifests: Option<&Path>,
    configuration: &impl serde::Serialize,
) -> Value {
    json!({
        "version": version(),
        "command": command,
        "manifests": manifests.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned())),
        "configuration": configuration,
    })
}
