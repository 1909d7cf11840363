//! Misdirected requests: those on a connection of another listener (RFC 9110, 7.4 and 15.5.20;
//! GEP-3567).
//!
//! A scope is found by the SNI where the SNI is the hostname of the connection's listener, which
//! nearly all are: nothing about the request's host is computed, and a virtual host has one domain.
//! A request for another host finds no virtual host there; a filter then looks for that host's
//! scope ([`find`]). On connections of wildcard and catch-all listeners the scope is found by the
//! host. A header has the key of the scope and the listener, and the first route of each scope
//! compares it as a whole.

use std::fmt;

use envoy_types::pb::envoy::config::accesslog::v3::{
    AccessLogFilter, AndFilter, HeaderFilter, ResponseFlagFilter,
    access_log_filter::FilterSpecifier,
};
use envoy_types::pb::envoy::config::route::v3::{HeaderMatcher, Route, RouteMatch};
use envoy_types::pb::envoy::extensions::filters::http::filter_chain::v3::{
    FilterChain, FilterChainConfig,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::ResponseMapper;

use super::find_scope::look_up;
use super::internal_headers::{HOST_HEADER, SCOPE_HEADER};
use super::proto::uint;
use super::request_match::{exact, header, matching};
use super::virtual_host::answer;
use gatewright_core::model::{FrontendId, Hostname, OtherListeners};
use gatewright_core::request_outcome::MISDIRECTED;

/// The header [`SCOPE_HEADER`] of a request: the key of a scope, for a host, and the listener of
/// its connection. Nothing follows the key if the host is the SNI and the listener's hostname.
///
/// `host` may be a command operator of Envoy, and `listener` is `None` if the host is the SNI.
pub(super) fn scope_header(
    frontend: &FrontendId,
    host: &dyn fmt::Display,
    listener: Option<&Hostname>,
) -> String {
    let key = frontend.scope_key(host);
    match listener {
        None => key,
        Some(listener) => format!("{key}:{listener}"),
    }
}

/// The route for all requests for a host that are not on a connection of this listener.
pub(super) fn unless_of(frontend: &FrontendId, host: &Hostname, listener: &Hostname) -> Route {
    let wide = Some(listener).filter(|listener| *listener != host);
    let mut matcher = header(SCOPE_HEADER, exact(&scope_header(frontend, host, wide)));
    matcher.invert_match = true;
    when(matcher)
}

/// The filter that looks for the scope of another host than the SNI, on connections whose SNI is
/// their listener's hostname. Whatever the scope is, its first route answers 421: no listener has
/// an empty hostname.
pub(super) fn find(frontend: &FrontendId) -> FilterChainConfig {
    let scope = format!("{}:", frontend.scope_key(&"%REQ(:AUTHORITY)%"));
    FilterChainConfig {
        default_filter_chain: Some(FilterChain {
            filters: look_up("other", scope).into(),
        }),
    }
}

/// The route for all requests that are not for the host that their connection was opened for.
pub(super) fn unless_own_host() -> Route {
    when(header(HOST_HEADER, exact("other")))
}

fn when(condition: HeaderMatcher) -> Route {
    let everything = answer(MISDIRECTED, 421);
    let matches = everything.r#match.unwrap_or_default();
    Route {
        r#match: Some(RouteMatch {
            headers: vec![condition],
            ..matches
        }),
        ..everything
    }
}

/// Turns the 404 for a host without a scope into 421 if another listener serves the host, or may:
/// the client then finds out with its next connection. The same holds for hosts in spellings that
/// the look-up does not match.
pub(super) fn unknown_host(elsewhere: &OtherListeners) -> ResponseMapper {
    let no_route = filter(FilterSpecifier::ResponseFlagFilter(ResponseFlagFilter {
        flags: vec!["NR".to_owned()],
    }));
    let filter = match elsewhere {
        OtherListeners::Listed(names) if !names.iter().any(Hostname::is_any) => {
            let host = FilterSpecifier::HeaderFilter(HeaderFilter {
                header: Some(header(":authority", hosts(names))),
            });
            filter(FilterSpecifier::AndFilter(AndFilter {
                filters: vec![no_route, filter(host)],
            }))
        }
        OtherListeners::Listed(_) | OtherListeners::Many => no_route,
    };
    ResponseMapper {
        filter: Some(filter),
        status_code: uint(421),
        ..Default::default()
    }
}

fn filter(specifier: FilterSpecifier) -> AccessLogFilter {
    AccessLogFilter {
        filter_specifier: Some(specifier),
    }
}

/// A matcher for hosts below these wildcards, and for those in an unusual spelling (upper case, or
/// with a port).
fn hosts(wildcards: &[Hostname]) -> envoy_types::pb::envoy::r#type::matcher::v3::StringMatcher {
    let suffixes = wildcards
        .iter()
        .map(|name| name.as_str().trim_start_matches('*').replace('.', r"\."));
    let all: Vec<String> = suffixes
        .map(|suffix| format!(".+{suffix}"))
        .chain([".*[A-Z:].*".to_owned()])
        .collect();
    matching(&all.join("|"))
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
    use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;

    use super::*;
    use crate::testdata::{frontend, host};

    /// True if a scope of `own`, of this listener, serves a request with this header.
    fn serves(own: &str, listener: &str, scope: &str) -> bool {
        let made = unless_of(&frontend(443), &host(own), &host(listener));
        let matcher = made.r#match.expect("a match").headers.remove(0);
        assert!(matcher.invert_match, "it is the route of all others");
        match matcher.header_match_specifier {
            Some(HeaderMatchSpecifier::StringMatch(text)) => {
                text.match_pattern == Some(MatchPattern::Exact(scope.to_owned()))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_scope_serves_connections_of_its_listener_alone() {
        let id = frontend(443);
        let by_sni = scope_header(&id, &"a.org", None);
        let by_host = scope_header(&id, &"a.org", Some(&host("*.org")));
        let other = scope_header(&id, &"a.org", Some(&host("")));
        let found = format!("{}:", id.scope_key(&"a.org"));
        for (listener, own) in [("a.org", &by_sni), ("*.org", &by_host), ("", &other)] {
            for scope in [&by_sni, &by_host, &other, &found] {
                assert_eq!(serves("a.org", listener, scope), scope == own, "{scope}");
            }
        }
    }

    #[test]
    fn the_key_is_what_precedes_the_first_colon() {
        let id = frontend(443);
        let key = id.scope_key(&"a.org");
        for header in [
            scope_header(&id, &"a.org", None),
            scope_header(&id, &"a.org", Some(&host("*.org"))),
            format!("{}:", id.scope_key(&"a.org:8443")),
        ] {
            assert_eq!(header.split(':').next(), Some(key.as_str()), "{header}");
        }
    }
}
