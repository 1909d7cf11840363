//! Decides which kinds an API server does not serve. A server that has just started adds its kinds
//! one after the other, so a kind counts as missing only after several answers without it. Pure.

use std::collections::BTreeMap;

use gatewright_core::inputs::Kind;

/// The number of consecutive answers without a kind after which it is missing, for a kind that was
/// not seen yet.
const NEW: u32 = 2;
/// The number of consecutive answers without a kind after which it is missing, for a kind that is
/// being watched.
const WATCHED: u32 = 4;

/// The number of consecutive answers without each kind, and the number at which it is missing.
#[derive(Debug, Default)]
pub(crate) struct MissingKinds(BTreeMap<Kind, (u32, u32)>);

impl MissingKinds {
    /// Takes in an answer without this kind. `ready` is whether the server reported before that it
    /// is ready: a kube-apiserver does so when the definitions that it had are in its discovery
    /// (`/readyz`: crd-informer-synced, start-apiextensions-controllers). Returns whether the kind
    /// is missing.
    pub(crate) fn lacks(&mut self, kind: Kind, is_watched: bool, ready: bool) -> bool {
        let enough = if is_watched { WATCHED } else { NEW };
        let (times, enough) = self.0.entry(kind).or_insert((0, enough));
        // A kind that was decided to be missing stays missing until it is served.
        if ready && *times < *enough {
            *times += 1;
        }
        times >= enough
    }

    /// Takes in that the kind is served.
    pub(crate) fn has(&mut self, kind: Kind) {
        self.0.remove(&kind);
    }

    /// Returns whether a kind is undecided, so that the server must be asked again soon.
    pub(crate) fn is_unsure(&self) -> bool {
        self.0.values().any(|(times, enough)| times < enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_absent_when_a_server_that_is_up_lacks_it_again_and_again() {
        let mut missing_kinds = MissingKinds::default();
        for _ in 0..9 {
            assert!(
                !missing_kinds.lacks(Kind::Gateway, false, false),
                "a server that comes up says nothing"
            );
        }
        assert!(missing_kinds.is_unsure());
        assert!(!missing_kinds.lacks(Kind::Gateway, false, true));
        assert!(missing_kinds.lacks(Kind::Gateway, false, true));
        assert!(!missing_kinds.is_unsure());
        assert!(
            missing_kinds.lacks(Kind::Gateway, false, false),
            "it is known, and a restart of the server does not change it"
        );
        missing_kinds.has(Kind::Gateway);
        assert!(!missing_kinds.lacks(Kind::Gateway, true, true));
    }

    #[test]
    fn a_kind_that_was_watched_is_given_up_more_slowly() {
        let mut missing_kinds = MissingKinds::default();
        let lacks: Vec<bool> = (0..5)
            .map(|time| missing_kinds.lacks(Kind::Gateway, time == 0, true))
            .collect();
        assert_eq!(lacks, [false, false, false, true, true]);
    }
}
