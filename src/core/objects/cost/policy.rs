//! The costs of policies.

use std::sync::Arc;

use super::{
    ACCESS, ACTIVE_CHECK, BASIC_AUTH, Bytes, CA_BYTE, CLAIM, CLAIM_VALUE, CLUSTER_SETTINGS,
    CLUSTER_TLS, COMPRESSION, FETCHED_KEYS, HASH_TABLE, LIMITED_ADDRESS, LIMITED_HEADER,
    LIMITED_MATCH, LOGIN, MARKED_MATCH, MEDIA_TYPE, NETWORK, OVERRIDE, OVERRIDES, PASSIVE_CHECK,
    RATE_LIMIT, RATE_LIMITS, REGEX, REQUEST_BODY, SYSTEM_ROOTS, TEXT, TOKEN_KEY, TOKENS, USER,
    USER_TEXT, text,
};
use crate::model::{
    Access, AddressList, BackendSettings, BackendTls, BasicAuth, Bodies, Compression, FetchedKeys,
    IssuerKeys, LimitedBy, Login, RateLimits, RequiredClaim, ResponseOverrides, TokenAuth,
    TrustedRoots,
};

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
    let Access {
        policy: _,
        enforcement: _,
        addresses,
        users,
        login,
        tokens,
    } = access;
    // The proof that a token was verified.
    let reported = tokens.as_ref().filter(|_| access.only_reports());
    let reported = reported.map(|auth| CLAIM + CLAIM_VALUE * 2 + TEXT * auth.issuer.len() as u64);
    reported.unwrap_or_default()
        + ACCESS
        + NETWORK * addresses.as_ref().map_or(0, AddressList::ranges) as u64
        + users.as_ref().map_or(Bytes::default(), basic_auth)
        + login.as_ref().map_or(Bytes::default(), logged_in)
        + tokens.as_ref().map_or(Bytes::default(), token_auth)
}

fn logged_in(login: &Login) -> Bytes {
    let Login {
        issuer: _,
        authorization_endpoint,
        token_endpoint,
        end_session_endpoint,
        server: _,
        client_id,
        secret: _,
        redirect_host: _,
        redirect_path,
        logout_path,
        scopes,
        cookie_domain: _,
        forwards_access_token: _,
    } = login;
    let texts = [
        authorization_endpoint,
        token_endpoint,
        client_id,
        redirect_path,
        logout_path,
    ];
    let all = texts
        .into_iter()
        .chain(end_session_endpoint)
        .chain(&**scopes);
    LOGIN + TEXT * all.map(|text| text.len() as u64).sum::<u64>()
}

fn token_auth(auth: &TokenAuth) -> Bytes {
    let TokenAuth {
        issuer,
        audiences,
        keys,
        required_claims,
        claims,
        forward_payload: _,
        forwards_credentials: _,
    } = auth;
    let compared = match audiences.len() as u64 {
        0 => Bytes::default(),
        count => CLAIM * 2 + CLAIM_VALUE * 2 * (count + 1),
    };
    let told = REGEX * claims.len() as u64;
    let audiences: usize = 3 * audiences
        .iter()
        .map(|audience| audience.len())
        .sum::<usize>();
    let claims: usize = claims
        .iter()
        .map(|one| one.claim.len() + one.header.len())
        .sum();
    let required: Bytes = required_claims.iter().map(required_claim).sum();
    let text = issuer.len() + audiences + claims;
    let keys = match keys {
        IssuerKeys::Given(jwks) => {
            TOKEN_KEY * jwks.count() as u64 + TEXT * jwks.text().len() as u64
        }
        IssuerKeys::Fetched(FetchedKeys { url, .. }) => FETCHED_KEYS + TEXT * url.len() as u64,
    };
    TOKENS + keys + compared + told + TEXT * text as u64 + required
}

fn required_claim(required: &RequiredClaim) -> Bytes {
    let RequiredClaim {
        claim,
        value_type: _,
        values,
    } = required;
    let parts = claim.split('.').count() as u64;
    let values: Bytes = values
        .iter()
        .map(|value| CLAIM_VALUE + TEXT * value.len() as u64)
        .sum();
    CLAIM + CLAIM_VALUE * parts + TEXT * claim.len() as u64 + values
}

fn basic_auth(auth: &BasicAuth) -> Bytes {
    let users = &auth.users;
    BASIC_AUTH + USER * users.count() as u64 + USER_TEXT * users.size() as u64
}

/// The rate limits of a rule with so many matches, and with as many clients as they may count.
pub fn rate_limits(all: &RateLimits, matches: u64) -> Bytes {
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

/// The changes to bodies of a rule with so many matches and backends. Each match has the filters
/// of a compression, and all matches share the others. Each backend may have them again, for a
/// session.
pub fn bodies(bodies: &Bodies, matches: u64, backends: u64) -> Bytes {
    let Bodies {
        compression: of,
        overrides: pages,
        request,
    } = bodies;
    let compressed = of.as_deref().map_or(Bytes::default(), compression);
    let overridden = pages.as_deref().map_or(Bytes::default(), |pages| {
        LIMITED_MATCH * matches + overrides(pages)
    });
    let limited = (LIMITED_MATCH * matches + REQUEST_BODY) * u64::from(request.is_some());
    (compressed * matches + overridden + limited) * backends.max(1)
}

fn overrides(overrides: &ResponseOverrides) -> Bytes {
    let ResponseOverrides {
        policy: _,
        overrides,
    } = overrides;
    let each = overrides.iter().map(|one| {
        let media = one.content_type.as_deref().unwrap_or_default();
        OVERRIDE + text(media) + TEXT * one.body.len() as u64
    });
    OVERRIDES + each.sum()
}

fn compression(compression: &Compression) -> Bytes {
    let Compression {
        policy: _,
        types,
        min_bytes: _,
        algorithms,
    } = compression;
    let types: Bytes = types.iter().map(|one| MEDIA_TYPE + text(one)).sum();
    (COMPRESSION + types) * algorithms.len() as u64
}
