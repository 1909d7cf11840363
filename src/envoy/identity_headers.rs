//! Headers by which a client says who it is. Backends read them as the words of a proxy that they
//! trust, and any client can write them: an HTTP filter removes them before anything but the choice
//! of the route.
//!
//! Envoy itself writes `X-Forwarded-For` and `X-Forwarded-Proto`, which stay.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{
    HeaderMutation,
    header_mutation::{Action, RemoveOnMatch},
};
use envoy_types::pb::envoy::config::route::v3::FilterConfig;
use envoy_types::pb::envoy::extensions::common::matching::v3::{
    ExtensionWithMatcher, ExtensionWithMatcherPerRoute,
};
use envoy_types::pb::envoy::extensions::filters::common::matcher::action::v3::SkipFilter;
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as Filter, Mutations,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use envoy_types::pb::xds::r#type::matcher::v3::Matcher;

use super::proto::{always, any, extension, xds_extension};
use super::request_match::matching;

/// The filter's name, under which virtual hosts disable it.
pub(super) const FILTER: &str = "gatewright.identity_headers";

/// Addresses of clients, what they asked a proxy for, and their certificates (RFC 9440).
const NAMES: [&str; 22] = [
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
];

/// Prefixes of further names.
const PREFIXES: [&str; 4] = [
    "x-original-",
    "x-client-cert-",
    "ssl-client-",
    "x-ssl-client-",
];

/// What Envoy writes of `x-forwarded-*`.
const WRITTEN: [&str; 2] = ["for", "proto"];

/// The filter.
pub(super) fn filter() -> Filter {
    let names = NAMES.iter().map(|name| Action::Remove((*name).to_owned()));
    let prefixes = PREFIXES.iter().map(|prefix| matched(beginning(prefix)));
    let all = names
        .chain(prefixes)
        .chain([matched(matching(&forwarded()))]);
    let request_mutations = all
        .map(|action| HeaderMutation {
            action: Some(action),
        })
        .collect();
    Filter {
        mutations: Some(Mutations {
            request_mutations,
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The filter on plain HTTP, where a virtual host says so when it runs.
pub(super) fn late_filter() -> ExtensionWithMatcher {
    ExtensionWithMatcher {
        extension_config: Some(extension("envoy.filters.http.header_mutation", &filter())),
        xds_matcher: Some(Matcher::default()),
        ..Default::default()
    }
}

/// Removes the headers whose name matches.
fn matched(name: StringMatcher) -> Action {
    Action::RemoveOnMatch(RemoveOnMatch {
        key_matcher: Some(name),
    })
}

fn beginning(prefix: &str) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(MatchPattern::Prefix(prefix.to_owned())),
        ..Default::default()
    }
}

/// The configuration of a virtual host that keeps the headers.
pub(super) fn keep() -> FilterConfig {
    FilterConfig {
        disabled: true,
        ..Default::default()
    }
}

/// The same on plain HTTP.
pub(super) fn keep_late() -> ExtensionWithMatcherPerRoute {
    let skip = xds_extension("skip", any(&SkipFilter {}));
    ExtensionWithMatcherPerRoute {
        xds_matcher: Some(always(skip)),
    }
}

/// A regular expression for the headers `x-forwarded-*` that Envoy does not write.
fn forwarded() -> String {
    format!("x-forwarded-(?:{})", other_than(&WRITTEN))
}

/// A regular expression for texts other than these words, no two of which begin with the same
/// letter: RE2 has no negation.
fn other_than(words: &[&str]) -> String {
    let first: String = words.iter().map(|word| &word[..1]).collect();
    let begun = words.iter().flat_map(|word| {
        let begins = (1..word.len())
            .map(move |end| format!("{}(?:[^{}].*)?", &word[..end], &word[end..=end]));
        begins.chain([format!("{word}.+")])
    });
    [format!("[^{first}].*")]
        .into_iter()
        .chain(begun)
        .collect::<Vec<_>>()
        .join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_identity_is_removed_unless_envoy_writes_it() {
        let forwarded =
            regex::Regex::new(&format!("^(?:{})$", forwarded())).expect("a regular expression");
        fn is_removed(name: &str, forwarded: &regex::Regex) -> bool {
            NAMES.contains(&name)
                || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || forwarded.is_match(name)
        }
        for name in [
            "forwarded",
            "x-real-ip",
            "x-forwarded-host",
            "x-forwarded-port",
            "x-forwarded-client-cert",
            "x-forwarded-prefix",
            "x-forwarded-fo",
            "x-forwarded-fork",
            "x-forwarded-p",
            "x-forwarded-protocol",
            "x-forwarded-proton",
            "x-forwarded-server",
            "x-original-url",
            "x-original-forwarded-for",
            "true-client-ip",
            "client-ip",
            "proxy-client-ip",
            "wl-proxy-client-ip",
            "client-cert",
            "client-cert-chain",
            "x-ssl-client-verify",
        ] {
            assert!(is_removed(name, &forwarded), "{name}");
        }
        for name in [
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-envoy-external-address",
            "x-request-id",
            "authorization",
            "cookie",
            "host",
            "origin",
            "x-user",
            "x-client-version",
        ] {
            assert!(!is_removed(name, &forwarded), "{name}");
        }
    }
}
