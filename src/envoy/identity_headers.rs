//! The removal of headers by which a client says who it is.
//!
//! As an early header mutation it costs a request 4,900 instructions, and then holds for all hosts
//! of a chain, and no route can match such a header. As an HTTP filter it costs 11,800, follows the
//! choice of the route, and hosts can switch it off. So chains without such hosts have the first
//! ([`gatewright_core::model::IdentityRemoval`]).
//!
//! Envoy itself writes `X-Forwarded-For` and `X-Forwarded-Proto`, which stay. Of a trusted proxy
//! `X-Forwarded-Port` stays as well.

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
use envoy_types::pb::xds::r#type::matcher::v3::Matcher;

use super::proto::{always, any, disabled, extension, xds_extension};
use super::request_match::matching;
use gatewright_core::model::{IDENTITY_NAMES, IDENTITY_PREFIXES, WRITTEN_FORWARDED};

/// The filter's name, under which virtual hosts disable it.
pub(super) const FILTER: &str = "gatewright.identity_headers";

/// The same, with what stays of a trusted proxy.
const TRUSTED: [&str; 3] = ["for", "proto", "port"];

/// The removal behind a number of trusted proxies.
pub(super) fn removal(hops: u8) -> HeaderMutation {
    let kept: &[&str] = if hops > 0 {
        &TRUSTED
    } else {
        &WRITTEN_FORWARDED
    };
    let remove = RemoveOnMatch {
        key_matcher: Some(matching(&removed(kept))),
    };
    HeaderMutation {
        action: Some(Action::RemoveOnMatch(remove)),
    }
}

/// The same as a filter.
pub(super) fn filter(hops: u8) -> Filter {
    Filter {
        mutations: Some(Mutations {
            request_mutations: vec![removal(hops)],
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// A regular expression for the names of all headers that are removed.
///
/// One for all, since Envoy goes through all headers of a request for each, or looks for each name:
/// with 22 names and five expressions it took twice as long. RE2 joins what neighbours begin with,
/// so that in order of names the next letter alone says how it goes on. Its size is over 300
/// instructions of RE2, more than Envoy accepts by default: see `REGEX_INSTRUCTIONS`.
fn removed(kept: &[&str]) -> String {
    let names = IDENTITY_NAMES.iter().map(|name| (*name).to_owned());
    let prefixes = IDENTITY_PREFIXES.iter().map(|prefix| format!("{prefix}.*"));
    let mut all: Vec<String> = names
        .chain(prefixes)
        .chain([format!("x-forwarded-(?:{})", other_than(kept))])
        .collect();
    all.sort();
    all.join("|")
}

/// The filter on plain HTTP, where a virtual host says so when it runs.
pub(super) fn late_filter(hops: u8) -> ExtensionWithMatcher {
    ExtensionWithMatcher {
        extension_config: Some(extension(
            "envoy.filters.http.header_mutation",
            &filter(hops),
        )),
        xds_matcher: Some(Matcher::default()),
        ..Default::default()
    }
}

/// The configuration of a virtual host that keeps the headers.
pub(super) fn keep() -> FilterConfig {
    disabled()
}

/// The same on plain HTTP.
pub(super) fn keep_late() -> ExtensionWithMatcherPerRoute {
    let skip = xds_extension("skip", any(&SkipFilter {}));
    ExtensionWithMatcherPerRoute {
        xds_matcher: Some(always(skip)),
    }
}

/// A regular expression for texts other than these words, none of which begins with another one:
/// RE2 has no negation.
fn other_than(words: &[&str]) -> String {
    let mut all = vec![format!("[^{}].*", letters_after("", words))];
    for word in words {
        for end in 1..word.len() {
            let begun = &word[..end];
            let other = format!("{begun}(?:[^{}].*)?", letters_after(begun, words));
            if !all.contains(&other) {
                all.push(other);
            }
        }
        all.push(format!("{word}.+"));
    }
    all.join("|")
}

/// The letters by which words go on after a beginning that they share.
fn letters_after(begun: &str, words: &[&str]) -> String {
    let mut letters = String::new();
    let rests = words.iter().filter_map(|word| word.strip_prefix(begun));
    for letter in rests.filter_map(|rest| rest.chars().next()) {
        if !letters.contains(letter) {
            letters.push(letter);
        }
    }
    letters
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_core::model::is_identity_header;

    #[test]
    fn every_name_of_the_identity_is_removed_unless_envoy_writes_it() {
        let removed = regex::Regex::new(&format!("^(?:{})$", removed(&WRITTEN_FORWARDED)))
            .expect("a regular expression");
        for name in IDENTITY_NAMES {
            assert!(removed.is_match(name), "{name}");
        }
        for name in [
            "forwarded",
            "x-forwarded",
            "x-original-",
            "x-client-cert-hash",
            "ssl-client-subject-dn",
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
            assert!(removed.is_match(name), "{name}");
            assert!(is_identity_header(name), "{name}");
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
            "x-client-ip-country",
            "x-original",
            "client",
            "proxy-authorization",
            "x-proxy",
            ":authority",
        ] {
            assert!(!removed.is_match(name), "{name}");
            assert!(!is_identity_header(name), "{name}");
        }
    }

    #[test]
    fn the_port_of_a_trusted_proxy_is_kept_and_nothing_that_looks_like_it() {
        let removed = regex::Regex::new(&format!("^(?:{})$", removed(&TRUSTED)))
            .expect("a regular expression");
        for name in ["for", "proto", "port"] {
            let name = format!("x-forwarded-{name}");
            assert!(!removed.is_match(&name), "{name}");
        }
        for name in [
            "p", "po", "por", "ports", "pr", "prot", "protocol", "prefix", "pa", "pot", "host",
        ] {
            let name = format!("x-forwarded-{name}");
            assert!(removed.is_match(&name), "{name}");
        }
    }
}
