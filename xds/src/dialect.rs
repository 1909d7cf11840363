//! How the two protocols read requests into a [`Session`] and write its responses.

use std::sync::Arc;
use std::time::Instant;

use crate::session::{Outgoing, Protocol, Refusal, Session};
use crate::subscription::Item;
use crate::view::Tables;
use crate::wire::{DeltaRequest, DeltaResponse, Node};
use crate::Kind;

/// One of the two protocols, for one stream.
pub(crate) trait Dialect: Send + 'static {
    type Request: prost::Message + Default + 'static;
    type Response: prost::Message + Default + 'static;

    const PROTOCOL: Protocol;

    fn new() -> Self;
    fn node(request: &mut Self::Request) -> Option<Node>;
    fn type_url(request: &Self::Request) -> &str;
    fn read(&mut self, session: &mut Session, kind: Kind, request: Self::Request, tables: &Tables, now: Instant) -> Result<(), Refusal>;
    /// `None` when the protocol has no way to say it; the client then answers nothing.
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

    fn read(&mut self, session: &mut Session, kind: Kind, request: DeltaRequest, tables: &Tables, now: Instant) -> Result<(), Refusal> {
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
                Item::Upsert(r) | Item::Fallback(r) => response.resources.push(r.delta_bytes()),
                Item::Remove(name) => response.removed_resources.push(Arc::clone(name).to_string()),
            }
        }
        Some(response)
    }
}
