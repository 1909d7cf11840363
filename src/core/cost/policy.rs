//! The costs of policies.

use super::{
    ACCESS, ACTIVE_CHECK, Bytes, CA_BYTE, CLUSTER_SETTINGS, CLUSTER_TLS, HASH_TABLE,
    LIMITED_ADDRESS, LIMITED_HEADER, LIMITED_MATCH, NETWORK, PASSIVE_CHECK, RATE_LIMIT,
    RATE_LIMITS, SYSTEM_ROOTS, text,
};
use crate::model::{
    Access, AddressList, BackendSettings, BackendTls, LimitedBy, RateLimits, TrustedRoots,
};

/// TLS of each cluster that verifies backends like this.
pub(crate) fn tls(tls: &BackendTls) -> Bytes {
    let roots = match &tls.roots {
        TrustedRoots::Bundle(pem) => CA_BYTE * pem.len() as u64,
        TrustedRoots::File(_) => SYSTEM_ROOTS,
    };
    CLUSTER_TLS + roots
}

/// The settings of each cluster with so many endpoints.
pub(crate) fn settings(settings: &BackendSettings, endpoints: u64) -> Bytes {
    let active = ACTIVE_CHECK * u64::from(settings.active.is_some());
    let passive = PASSIVE_CHECK * u64::from(settings.passive.is_some());
    let table = HASH_TABLE * u64::from(settings.hash().is_some());
    CLUSTER_SETTINGS + table + (active + passive) * endpoints
}

/// An AccessPolicy before each match of a rule.
pub(crate) fn access(access: &Access) -> Bytes {
    let Access {
        policy: _,
        addresses,
    } = access;
    ACCESS + NETWORK * addresses.as_ref().map_or(0, AddressList::len) as u64
}

/// The rate limits of a rule with so many matches, and with as many clients as they may count.
pub(crate) fn rate_limits(all: &RateLimits, matches: u64) -> Bytes {
    let RateLimits { policy: _, limits } = all;
    let clients = u64::from(all.buckets());
    let each = limits.iter().map(|limit| {
        RATE_LIMIT
            + match &limit.by {
                LimitedBy::Everyone => Bytes::default(),
                LimitedBy::ClientAddress { .. } => LIMITED_ADDRESS * clients,
                LimitedBy::Header { name, .. } => text(name) + LIMITED_HEADER * clients,
            }
    });
    RATE_LIMITS + LIMITED_MATCH * matches + each.sum()
}
