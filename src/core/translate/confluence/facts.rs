//! Facts among the events: what is told beside objects.

use crate::translate::{Change, Fact};

/// What a fact is about: a later one of the same replaces it.
pub(super) fn subject(fact: &Change) -> String {
    match fact {
        Change::Fact(Fact::Challenge(hostname, _)) => hostname.to_string(),
        Change::Fact(Fact::Awaited(secret, _)) => format!("awaited {secret}"),
        Change::Fact(Fact::Unexposed(gateway, _)) => format!("Service of {gateway}"),
        Change::Fact(Fact::TlsChallenges(_)) => "TLS-ALPN-01".to_owned(),
        Change::Fact(Fact::Trouble(secret, _)) => secret.to_string(),
        Change::Fact(Fact::Recorded(..)) | Change::Object(_) => unreachable!("no event of these tests"),
    }
}
