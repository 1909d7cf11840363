//! Facts among the events: what is told beside objects.

use crate::translate::Change;

/// What a fact is about: a later one of the same replaces it.
pub(super) fn subject(fact: &Change) -> String {
    match fact {
        Change::Challenge(hostname, _) => hostname.to_string(),
        Change::Awaited(secret, _) => format!("awaited {secret}"),
        Change::Unexposed(gateway, _) => format!("Service of {gateway}"),
        Change::TlsChallenges(_) => "TLS-ALPN-01".to_owned(),
        Change::Trouble(secret, _) => secret.to_string(),
        Change::Recorded(..) | Change::Put(_) | Change::Delete(_) => unreachable!("no event of these tests"),
    }
}
