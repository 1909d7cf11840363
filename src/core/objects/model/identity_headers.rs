//! Headers by which a client says who it is. Backends read them as the words of a proxy that they
//! trust, and any client can write them.
//!
//! Envoy itself writes `X-Forwarded-For` and `X-Forwarded-Proto`, which are none of them.

use serde::Deserialize;

/// What becomes of headers of a request that say who the client is, and that Envoy does not write
/// itself: `Forwarded`, `X-Real-IP` and others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum IdentityHeaders {
    /// They are removed: any client can write them.
    #[default]
    Remove,
    /// Backends get them: all clients are proxies that write them.
    Keep,
}

/// When a chain removes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdentityRemoval {
    /// Before anything reads the request, for all of its hosts.
    Early,
    /// Behind the choice of the route, which may match them, and not for hosts that keep them.
    Late,
}

/// Addresses of clients, what they asked a proxy for, their certificates (RFC 9440), and what
/// backends take for a setting of their own.
pub const IDENTITY_NAMES: [&str; 23] = [
    "forwarded",
    "x-forwarded",
    "x-real-ip",
    "x-originating-ip",
    "x-rewrite-url",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-remote-ip",
    "x-remote-addr",
    "x-azure-clientip",
    "x-azure-socketip",
    "true-client-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "fastly-client-ip",
    "fly-client-ip",
    "client-ip",
    "proxy-client-ip",
    "wl-proxy-client-ip",
    "client-cert",
    "client-cert-chain",
    "x-client-cert",
    // The environment variable HTTP_PROXY of programs behind CGI (CVE-2016-5385).
    "proxy",
];

/// Prefixes of further names.
pub const IDENTITY_PREFIXES: [&str; 4] = [
    "x-original-",
    "x-client-cert-",
    "ssl-client-",
    "x-ssl-client-",
];

/// What Envoy writes of `x-forwarded-*`.
pub const WRITTEN_FORWARDED: [&str; 2] = ["for", "proto"];

/// True for the name of a header, in any case, that says who a client is.
pub fn is_identity_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let forwarded = name.strip_prefix("x-forwarded-");
    IDENTITY_NAMES.contains(&name.as_str())
        || IDENTITY_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
        || forwarded.is_some_and(|rest| !WRITTEN_FORWARDED.contains(&rest))
}
