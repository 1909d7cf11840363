//! The address of a client behind load balancers: whose word a frontend takes for it.

use std::sync::Arc;

use ipnet::IpNet;
use serde::Deserialize;

/// Whose word a frontend takes for the address of a client. By default nobody's: the client is the
/// peer of the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientAddress {
    /// The senders of PROXY protocol headers; `None` if no connection begins with one.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// The number of proxies in front whose entries of `X-Forwarded-For` are trusted.
    pub hops: u8,
}

/// The PROXY protocol, version 1 or 2, at a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProxyProtocol {
    /// Decides whether a connection may begin without a header.
    pub mode: ProxyProtocolMode,
    /// The networks of the senders, never empty. The frontend closes all other connections.
    pub from: Arc<[IpNet]>,
}

/// Decides whether a connection of a sender of PROXY protocol headers may begin without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum ProxyProtocolMode {
    /// Closes a connection without a header.
    Required,
    /// Takes the sender for the client of a connection without a header.
    Optional,
}
