//! The kind of a change.

use gatewright_core::inputs::ChangeKind;
use gatewright_core::translate::{Change, Fact};

/// Returns the kind of a change.
pub(crate) fn kind_of_change(change: &Change) -> ChangeKind {
    match change {
        Change::Object(object) => object.key().kind.change(),
        Change::Fact(
            Fact::Challenge(..)
            | Fact::TlsChallenges(_)
            | Fact::IssuanceProblem(..)
            | Fact::ExpectedIssuer(..)
            | Fact::TrustBundles(_)
            | Fact::TicketKeys(_),
        ) => ChangeKind::Certificate,
        Change::Fact(Fact::Resolved(..)) => ChangeKind::Endpoints,
        Change::Fact(Fact::ServiceProblem(..) | Fact::EnvoysProblem(..)) => ChangeKind::Gateway,
        Change::Fact(
            Fact::Recorded(..)
            | Fact::Granted(..)
            | Fact::Governed(..)
            | Fact::Withheld(..)
            | Fact::Definitions(_),
        ) => ChangeKind::Decision,
    }
}
