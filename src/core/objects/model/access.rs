//! Access: the effect of AccessPolicies.

use serde::Deserialize;

/// The effect of a policy on requests that it does not admit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum Enforcement {
    /// They are refused.
    #[default]
    Enforce,
    /// They pass, and their lines in the access log name the policy.
    Report,
}
