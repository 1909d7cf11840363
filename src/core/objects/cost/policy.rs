//! The costs of policies.

use std::sync::Arc;

use super::{
    ACCESS, ACTIVE_CHECK, Bytes, CA_BYTE, CLUSTER_SETTINGS, CLUSTER_TLS, HASH_TABLE, MARKED_MATCH,
    PASSIVE_CHECK, RuleSize, SYSTEM_ROOTS,
};
use crate::model::{BackendSettings, BackendTls, TrustedRoots};
use crate::settings::{Access, TokenAuth};

/// TLS of each cluster that verifies backends like this.
pub fn tls(tls: &BackendTls) -> Bytes {
    let roots = match &tls.roots {
        TrustedRoots::Bundle(pem) => CA_BYTE * pem.len() as u64,
        TrustedRoots::File(_) => SYSTEM_ROOTS,
    };
    CLUSTER_TLS + roots
}

/// The settings of each cluster with so many endpoints.
pub fn settings(settings: &BackendSettings, endpoints: u64) -> Bytes {
    let active = ACTIVE_CHECK * u64::from(settings.active.is_some());
    let passive = PASSIVE_CHECK * u64::from(settings.passive.is_some());
    let table = HASH_TABLE * u64::from(settings.hash().is_some());
    CLUSTER_SETTINGS + table + (active + passive) * endpoints
}

/// The AccessPolicies of a rule with so many matches and backends. A match has the filters of its
/// own, unless the matches of a rule share them; and so may each backend, for a rewrite of its path
/// or a session.
pub fn guarded(
    policies: &[Arc<Access>],
    matches: usize,
    backends: usize,
    is_shared: bool,
) -> Bytes {
    if policies.is_empty() {
        return Bytes::default();
    }
    let matches = matches as u64;
    let filters: Bytes = policies.iter().map(|one| access(one)).sum();
    let filters = filters * backends.max(1) as u64;
    if is_shared {
        filters + MARKED_MATCH * matches
    } else {
        filters * matches
    }
}

fn access(access: &Access) -> Bytes {
    let once = RuleSize {
        matches: 1,
        backends: 1,
    };
    let reported = access.jwt.as_ref().filter(|_| access.only_reports());
    ACCESS
        + access.cost_of_settings(once)
        + reported.map_or(Bytes::default(), TokenAuth::cost_of_proof)
}
