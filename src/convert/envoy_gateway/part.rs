//! A part of an AccessPolicy.

use serde_json::Value;

/// What a part of a SecurityPolicy becomes: a field of an AccessPolicy, or the setting for which
/// its targets are closed, and why.
pub(super) type Part = Result<Option<Value>, (&'static str, String)>;
