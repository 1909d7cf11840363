//! The SNI matcher: the matcher from SNI to filter chain, and which connections are closed at once.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::extensions::matching::common_inputs::network::v3::{
    ApplicationProtocolInput, ServerNameInput,
};
use envoy_types::pb::google::protobuf::StringValue;
use envoy_types::pb::xds::r#type::matcher::v3::{
    Matcher,
    matcher::{
        MatcherTree, MatcherType, OnMatch,
        matcher_tree::{MatchMap, TreeType},
        on_match,
    },
};

use super::proto::{any, xds_extension};
use super::{DomainMatcher, ServerNameMatcher};
use gatewright_core::model::{Chain, ChainName, Hostname, TLS_CHALLENGES};

/// The ALPN list of a TLS-ALPN-01 validation connection (RFC 8737, 3), in Envoy's notation.
const ACME_TLS: &str = "'acme-tls/1'";

/// The `filter_chain_matcher` of a TLS frontend: a trie over the SNI, about 20 bytes a name.
///
/// A connection whose SNI no entry covers finds no chain and is closed before anything is allocated
/// for it. The entry of [`Hostname::any`] is the matcher's no-match action, which also takes
/// connections without SNI. `None` if there are no entries.
///
/// With a chain for TLS-ALPN-01, each chain that terminates TLS has one more matcher in front,
/// regardless of the number of names.
pub(super) fn matcher(
    sni_matcher: &BTreeMap<Hostname, ChainName>,
    chains: &BTreeMap<ChainName, Chain>,
) -> Option<Matcher> {
    let challenges = chains.get_key_value(TLS_CHALLENGES).map(|(name, _)| name);
    let mut names: BTreeMap<&ChainName, Vec<String>> = BTreeMap::new();
    let mut catch_all = None;
    for (hostname, chain) in sni_matcher {
        if hostname.is_any() {
            catch_all = Some(Box::new(lead(chain, &challenges, chains)));
        } else {
            names
                .entry(chain)
                .or_default()
                .push(hostname.as_str().to_owned());
        }
    }
    if names.is_empty() && catch_all.is_none() {
        return None;
    }
    let domain_matchers: Vec<DomainMatcher> = names
        .into_iter()
        .map(|(chain, domains)| DomainMatcher {
            domains,
            on_match: Some(lead(chain, &challenges, chains)),
        })
        .collect();
    let tree = (!domain_matchers.is_empty()).then(|| {
        MatcherType::MatcherTree(MatcherTree {
            input: Some(xds_extension(
                "envoy.matching.inputs.server_name",
                any(&ServerNameInput {}),
            )),
            tree_type: Some(TreeType::CustomMatch(xds_extension(
                "envoy.matching.custom_matchers.domain_matcher",
                any(&ServerNameMatcher { domain_matchers }),
            ))),
        })
    });
    Some(Matcher {
        on_no_match: catch_all,
        matcher_type: tree,
    })
}

fn lead(
    chain: &ChainName,
    challenges: &Option<&std::sync::Arc<str>>,
    chains: &BTreeMap<std::sync::Arc<str>, Chain>,
) -> OnMatch {
    match *challenges {
        Some(challenges) if chains.get(chain).is_some_and(|chain| chain.tls.is_some()) => {
            fork(challenges, chain)
        }
        _ => to(chain),
    }
}

/// The action that selects a chain: its name in a `StringValue` (Envoy's `filter_chain_matcher`).
fn to(chain: &ChainName) -> OnMatch {
    let name = StringValue {
        value: chain.to_string(),
    };
    OnMatch {
        on_match: Some(on_match::OnMatch::Action(xds_extension(chain, any(&name)))),
        ..Default::default()
    }
}

/// Matches validation connections to one chain, all others to another.
fn fork(challenges: &ChainName, others: &ChainName) -> OnMatch {
    // One entry: a protobuf map with more has no stable encoding.
    let map = MatchMap {
        map: [(ACME_TLS.to_owned(), to(challenges))].into(),
    };
    let tree = MatcherTree {
        input: Some(xds_extension(
            "envoy.matching.inputs.application_protocol",
            any(&ApplicationProtocolInput {}),
        )),
        tree_type: Some(TreeType::ExactMatchMap(map)),
    };
    let matcher = Matcher {
        matcher_type: Some(MatcherType::MatcherTree(tree)),
        on_no_match: Some(Box::new(to(others))),
    };
    OnMatch {
        on_match: Some(on_match::OnMatch::Matcher(Box::new(matcher))),
        ..Default::default()
    }
}

/// The names of a matcher made by [`matcher`], by chain, for tests.
#[cfg(test)]
fn opened(matcher: &Matcher) -> Vec<(String, Vec<String>)> {
    use prost::{Message, Name};

    let Some(MatcherType::MatcherTree(tree)) = &matcher.matcher_type else {
        return Vec::new();
    };
    let Some(TreeType::CustomMatch(custom)) = &tree.tree_type else {
        panic!("a custom match")
    };
    let config = custom.typed_config.as_ref().expect("a configuration");
    assert_eq!(config.type_url, ServerNameMatcher::type_url());
    let names = ServerNameMatcher::decode(config.value.as_slice()).expect("a domain matcher");
    fn chain(on_match: &OnMatch) -> String {
        match &on_match.on_match {
            Some(on_match::OnMatch::Action(action)) => action.name.clone(),
            _ => panic!("an action"),
        }
    }
    names
        .domain_matchers
        .into_iter()
        .map(|m| (chain(m.on_match.as_ref().expect("an action")), m.domains))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata::host;

    fn sni_matcher(entries: &[(&str, &str)]) -> BTreeMap<Hostname, ChainName> {
        entries
            .iter()
            .map(|(name, chain)| (host(name), ChainName::from(*chain)))
            .collect()
    }

    #[test]
    fn names_are_grouped_by_chain_in_a_stable_order() {
        let entries = sni_matcher(&[("b.org", "https"), ("a.org", "https"), ("*.w.org", "wild")]);
        let made = matcher(&entries, &BTreeMap::new()).expect("a matcher");
        fn texts(names: &[&str]) -> Vec<String> {
            names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()
        }
        let expected = [
            ("https".to_owned(), texts(&["a.org", "b.org"])),
            ("wild".to_owned(), texts(&["*.w.org"])),
        ];
        assert_eq!(opened(&made), expected);
        assert!(
            made.on_no_match.is_none(),
            "a name that nobody owns is closed"
        );
    }

    #[test]
    fn the_catch_all_is_the_no_match_action() {
        let made = matcher(
            &sni_matcher(&[("", "any"), ("a.org", "https")]),
            &BTreeMap::new(),
        )
        .expect("a matcher");
        assert!(made.on_no_match.is_some());
        assert_eq!(opened(&made).len(), 1);
        let only = matcher(&sni_matcher(&[("", "any")]), &BTreeMap::new()).expect("a matcher");
        assert!(only.on_no_match.is_some() && only.matcher_type.is_none());
    }

    #[test]
    fn an_empty_gate_has_no_matcher() {
        assert_eq!(matcher(&BTreeMap::new(), &BTreeMap::new()), None);
    }
}
