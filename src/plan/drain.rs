//! The connections that Envoy drains when a listener changes: those of filter chains that are
//! changed or removed, or all of it where more than its filter chains and their matcher changes
//! (<https://www.envoyproxy.io/docs/envoy/latest/configuration/listeners/lds>).

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::listener::v3::{FilterChain, Listener};
use gatewright_core::model::Frontend;
use serde::Serialize;

/// The connections of a listener that Envoy drains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// The listener.
    pub listener: String,
    /// The filter chains; `None` for all connections.
    pub chains: Option<Vec<String>>,
}

impl Drain {
    /// What is drained where a listener changes or is removed; `None` if nothing is.
    pub fn new(before: &Frontend, after: Option<&Frontend>) -> Option<Self> {
        let old = gatewright_envoy::listener(before);
        let Some(new) = after.map(gatewright_envoy::listener) else {
            return Some(Self::of(before, None));
        };
        if without_chains(&old) != without_chains(&new) {
            return Some(Self::of(before, None));
        }
        let new = by_name(&new);
        let drained = by_name(&old)
            .into_iter()
            .filter(|(name, chain)| new.get(name) != Some(chain))
            .map(|(name, _)| name.to_owned());
        let drained: Vec<String> = drained.collect();
        (!drained.is_empty()).then(|| Self::of(before, Some(drained)))
    }
}

impl Drain {
    fn of(frontend: &Frontend, chains: Option<Vec<String>>) -> Self {
        Self {
            listener: frontend.id.to_string(),
            chains,
        }
    }
}

/// What of a listener Envoy does not change in place.
fn without_chains(listener: &Listener) -> Listener {
    Listener {
        filter_chains: Vec::new(),
        filter_chain_matcher: None,
        ..listener.clone()
    }
}

fn by_name(listener: &Listener) -> BTreeMap<&str, &FilterChain> {
    let chains = listener.filter_chains.iter();
    chains.map(|chain| (chain.name.as_str(), chain)).collect()
}
