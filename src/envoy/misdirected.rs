//! Misdirected requests: those on a connection of another listener (RFC 9110, 7.4 and 15.5.20;
//! GEP-3567).

use envoy_types::pb::envoy::config::accesslog::v3::{
    AccessLogFilter, AndFilter, HeaderFilter, ResponseFlagFilter,
    access_log_filter::FilterSpecifier,
};
use envoy_types::pb::envoy::config::route::v3::{HeaderMatcher, Route, RouteMatch};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    LocalReplyConfig, ResponseMapper,
};

use super::internal_headers::{HOST_HEADER, LISTENER_HEADER};
use super::proto::uint;
use super::request_match::{exact, header, matching};
use super::virtual_host::answer;
use gatewright_core::model::{Hostname, OtherListeners};
use gatewright_core::request_outcome::{MISDIRECTED, SEVERAL_HOSTS};

/// The route for all requests that are not on a connection of this listener.
pub(super) fn unless_of(listener: &Hostname) -> Route {
    let mut matcher = header(LISTENER_HEADER, exact(&listener.to_string()));
    matcher.invert_match = true;
    when(matcher, MISDIRECTED, 421)
}

/// The route for all requests that are not for the host that their connection was opened for.
pub(super) fn unless_own_host() -> Route {
    when(header(HOST_HEADER, exact("other")), MISDIRECTED, 421)
}

/// The route for all requests with several Host headers (RFC 9112, 3.2), which Envoy joins by
/// commas. No exact hostname matches them, but a wildcard does.
pub(super) fn if_several_hosts() -> Route {
    when(
        header(":authority", matching("[^,]*,.*")),
        SEVERAL_HOSTS,
        400,
    )
}

fn when(condition: HeaderMatcher, why: &str, status: u16) -> Route {
    let everything = answer(why, status);
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
pub(super) fn local_replies(elsewhere: &OtherListeners) -> LocalReplyConfig {
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
    let mapper = ResponseMapper {
        filter: Some(filter),
        status_code: uint(421),
        ..Default::default()
    };
    LocalReplyConfig {
        mappers: vec![mapper],
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
