//! The two variants of the protocol: parsing of requests into a [`Session`], and encoding of its
//! responses.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::session::{Outgoing, Protocol, Refusal, Session};
use crate::subscription::Item;
use crate::tables::Tables;
use crate::wire::{DeltaRequest, DeltaResponse, Node, SotwRequest, SotwResponse, encode_absent};
use crate::{Kind, Resource};

/// One of the two variants of the protocol, with its state for one stream.
pub(crate) trait Dialect: Send + 'static {
    type Request: prost::Message + Default + 'static;
    type Response: prost::Message + Default + 'static;

    const PROTOCOL: Protocol;

    fn new() -> Self;
    fn node(request: &mut Self::Request) -> Option<Node>;
    fn type_url(request: &Self::Request) -> &str;
    fn read(
        &mut self,
        session: &mut Session,
        kind: Kind,
        request: Self::Request,
        tables: &Tables,
        now: Instant,
    ) -> Result<(), Refusal>;
    /// Encodes a response; `None` if the protocol cannot express it, so that the client will not
    /// answer.
    fn write(&mut self, out: &Outgoing, system_version: u64) -> Option<Self::Response>;
}

/// Incremental xDS.
pub(crate) struct Delta;

impl Dialect for Delta {
    type Request = DeltaRequest;
    type Response = DeltaResponse;

    const PROTOCOL: Protocol = Protocol::Delta;

    fn new() -> Self {
        Delta
    }

    fn node(request: &mut DeltaRequest) -> Option<Node> {
        request.node.take()
    }

    fn type_url(request: &DeltaRequest) -> &str {
        &request.type_url
    }

    fn read(
        &mut self,
        session: &mut Session,
        kind: Kind,
        request: DeltaRequest,
        tables: &Tables,
        now: Instant,
    ) -> Result<(), Refusal> {
        session.delta(kind, request, tables, now)
    }

    fn write(&mut self, out: &Outgoing, system_version: u64) -> Option<DeltaResponse> {
        let mut response = DeltaResponse {
            system_version_info: system_version.to_string(),
            type_url: out.kind.type_url().to_owned(),
            nonce: out.nonce.to_string(),
            ..Default::default()
        };
        for item in &out.items {
            match item {
                Item::Upsert(r) | Item::Fallback(r) | Item::Part { sent: r, .. } => {
                    response.resources.push(r.delta_bytes())
                }
                Item::Remove(name) | Item::Withhold(name) => response
                    .removed_resources
                    .push(Arc::clone(name).to_string()),
                Item::Absent(name) => response.resources.push(encode_absent(name)),
            }
        }
        Some(response)
    }
}

/// State-of-the-world xDS, translated into the incremental terms of [`Session`].
///
/// <https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#basic-protocol-overview>
pub(crate) struct Sotw {
    kinds: [Contents; Kind::COUNT],
}

/// The resources of one kind that a client has.
#[derive(Default)]
struct Contents {
    /// The resources after the last accepted response.
    held: BTreeMap<Arc<str>, Arc<Resource>>,
    /// The changes of the response in flight; `None` is a removal.
    tentative: Vec<(Arc<str>, Option<Arc<Resource>>)>,
    /// The nonce of the last response.
    nonce: Option<u64>,
}

impl Contents {
    fn adopt(&mut self) {
        for (name, resource) in std::mem::take(&mut self.tentative) {
            match resource {
                Some(resource) => self.held.insert(name, resource),
                None => self.held.remove(&name),
            };
        }
    }
}

/// Returns the version of a set of resources: equal sets have equal versions in every process.
fn version<'a>(resources: impl Iterator<Item = &'a Arc<Resource>>) -> String {
    let mut hash = Sha256::new();
    for resource in resources {
        hash.update(resource.name());
        hash.update([0]);
        hash.update(resource.version());
        hash.update([0]);
    }
    hash.finalize()[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl Dialect for Sotw {
    type Request = SotwRequest;
    type Response = SotwResponse;

    const PROTOCOL: Protocol = Protocol::Sotw;

    fn new() -> Self {
        Sotw {
            kinds: Default::default(),
        }
    }

    fn node(request: &mut SotwRequest) -> Option<Node> {
        request.node.take()
    }

    fn type_url(request: &SotwRequest) -> &str {
        &request.type_url
    }

    fn read(
        &mut self,
        session: &mut Session,
        kind: Kind,
        request: SotwRequest,
        tables: &Tables,
        now: Instant,
    ) -> Result<(), Refusal> {
        let SotwRequest {
            version_info,
            node: _,
            resource_names,
            type_url: _,
            response_nonce,
            error_detail,
        } = request;
        let contents = &mut self.kinds[kind as usize];
        if !response_nonce.is_empty() {
            let nonce = response_nonce.parse::<u64>().ok();
            // A request with the nonce of an older response is stale as a whole: the answer to the
            // newest follows.
            if nonce.is_none() || nonce != contents.nonce {
                return Ok(());
            }
            if session.unanswered(kind).any(|n| Some(n) == nonce) {
                match &error_detail {
                    None => contents.adopt(),
                    Some(_) => contents.tentative.clear(),
                }
                session.answer(
                    kind,
                    &response_nonce,
                    error_detail.map(|e| e.message),
                    tables,
                    now,
                );
            }
        }
        let before = session.subscription(kind);
        let first = before.is_none();
        let mut subscribe = Vec::new();
        let mut unsubscribe = Vec::new();
        if let Some(before) = before {
            let wanted: HashSet<&str> = resource_names.iter().map(String::as_str).collect();
            // An empty list is a wildcard only as long as no name was ever requested.
            let everything = wanted.contains("*") || (wanted.is_empty() && !before.explicit);
            match (before.wildcard, everything) {
                (true, false) => unsubscribe.push("*".to_owned()),
                (false, true) if kind.allows_wildcard() => subscribe.push("*".to_owned()),
                _ => {}
            }
            unsubscribe.extend(
                before
                    .named
                    .keys()
                    .filter(|n| !wanted.contains(&***n))
                    .map(|n| n.to_string()),
            );
            subscribe.extend(
                wanted
                    .into_iter()
                    .filter(|n| *n != "*" && !before.named.contains_key(*n))
                    .map(str::to_owned),
            );
        } else {
            subscribe.clone_from(&resource_names);
        }
        if !unsubscribe.is_empty() {
            let (named, wildcard): (HashSet<&str>, bool) = (
                resource_names.iter().map(String::as_str).collect(),
                resource_names.iter().any(|n| n == "*"),
            );
            contents
                .held
                .retain(|name, _| wildcard || named.contains(&**name));
            contents
                .tentative
                .retain(|(name, _)| wildcard || named.contains(&**name));
        }
        if !first && subscribe.is_empty() && unsubscribe.is_empty() {
            return Ok(());
        }
        session.delta(
            kind,
            DeltaRequest {
                subscribe,
                unsubscribe,
                ..Default::default()
            },
            tables,
            now,
        )?;
        let Some(sub) = session
            .subscription(kind)
            .filter(|_| first && !version_info.is_empty())
        else {
            return Ok(());
        };
        // A client that reconnects sends the version of all its resources.
        let subscribed: BTreeMap<Arc<str>, Arc<Resource>> = tables
            .table(kind)
            .resources()
            .filter(|r| sub.wants(r.name(), Some(r)))
            .map(|r| (r.shared_name().clone(), r.clone()))
            .collect();
        if version(subscribed.values()) == version_info {
            contents.held = subscribed;
            session.mark_held(kind, tables);
        } else {
            session.mark_older(kind);
        }
        Ok(())
    }

    fn write(&mut self, out: &Outgoing, _system_version: u64) -> Option<SotwResponse> {
        let contents = &mut self.kinds[out.kind as usize];
        contents.tentative = out
            .items
            .iter()
            .map(|i| (i.name().clone(), i.resource().cloned()))
            .collect();
        let partial = !out.kind.full_state();
        if partial && !out.items.iter().any(|i| i.resource().is_some()) {
            // "No explicit mechanism to determine that a resource does not exist."
            contents.adopt();
            return None;
        }
        let mut all = contents.held.clone();
        for (name, resource) in &contents.tentative {
            match resource {
                Some(resource) => all.insert(name.clone(), resource.clone()),
                None => all.remove(name),
            };
        }
        contents.nonce = Some(out.nonce);
        let resources = if partial {
            out.items
                .iter()
                .filter_map(|i| i.resource())
                .map(|r| r.any_bytes())
                .collect()
        } else {
            all.values().map(|r| r.any_bytes()).collect()
        };
        Some(SotwResponse {
            version_info: version(all.values()),
            resources,
            type_url: out.kind.type_url().to_owned(),
            nonce: out.nonce.to_string(),
        })
    }
}
