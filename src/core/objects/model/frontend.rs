//! A frontend: a port of one Gateway, or one that many Gateways share, which becomes one Envoy
//! Listener.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{
    AccessLog, ClientAddress, ClientValidation, FrontendId, Hostname, IdentityRemoval,
    OtherListeners, SecretName, TableId, TlsParams, Tracing, WeightedTarget,
};

/// One Envoy Listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frontend {
    /// The port of the Gateway.
    pub id: FrontendId,
    /// The addresses to bind, sorted; never empty. The first is the listener's address, the others
    /// its additional ones.
    pub addresses: Vec<IpAddr>,
    /// The port to bind: the Gateway's own, or the target of a Service.
    pub port: u16,
    /// The identifier in `CDN-Loop` (RFC 8586) of requests that this installation has forwarded.
    pub cdn_id: Arc<str>,
    /// Whose word is taken for the address of a client. UDP has none of it.
    pub clients: ClientAddress,
    /// The access log of its requests, if it has one.
    pub access_log: Option<Arc<AccessLog>>,
    /// The tracing of its requests, if it has one.
    pub tracing: Option<Arc<Tracing>>,
    /// The protocol, with its routing.
    pub kind: FrontendKind,
}

/// The protocol of a frontend, with its routing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FrontendKind {
    /// Plain HTTP, routed by the [`super::Scope`] of the request's host, or that of the wildcard or
    /// catch-all over it.
    Http,
    /// TLS: the SNI chooses the chain.
    Tls {
        /// The chains by name: one per class, plus one per wildcard or catch-all listener.
        chains: BTreeMap<ChainName, Chain>,
        /// The chain for each SNI. The most specific entry wins; [`Hostname::any`] also takes
        /// connections without SNI; connections with a name that no entry covers are closed.
        sni_matcher: BTreeMap<Hostname, ChainName>,
    },
    /// TCP: every connection goes to weighted backends. A connection for an invalid share is
    /// closed; without shares, every connection is.
    Tcp {
        /// The backends.
        shares: Vec<WeightedTarget>,
    },
    /// HTTP/3: QUIC, each host with a filter chain of its own. Requests have the scopes of the
    /// frontend of TCP on the same port.
    Http3 {
        /// The certificate of each host.
        hosts: BTreeMap<Hostname, SecretName>,
        /// Other listeners of the port, whose hosts have no scope: requests for them are answered
        /// 421.
        elsewhere: OtherListeners,
    },
    /// UDP: every session goes to the [`super::Cluster::Udp`] of the frontend, whose endpoints have
    /// weights.
    Udp,
}

/// Name of a chain within its frontend.
pub type ChainName = Arc<str>;

/// The name of the chain of a host with HTTP/3.
pub fn http3_chain(hostname: &Hostname) -> ChainName {
    format!("http3:{hostname}").into()
}

/// The name of the chain for connections that offer `acme-tls/1` alone, to validate a TLS-ALPN-01
/// challenge (RFC 8737) for a name whose TLS is terminated here. Not every frontend has it.
pub const TLS_CHALLENGES: &str = "acme-tls";

/// One filter chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Chain {
    /// TLS termination; `None` passes the bytes through.
    pub tls: Option<Termination>,
    /// The handling of the connection's bytes after that.
    pub handler: Handler,
}

/// TLS termination by a chain: all TLS settings that only a chain can hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Termination {
    /// The source of the certificate.
    pub certificate: CertificateSource,
    /// ALPN protocols in order of preference.
    pub alpn: Vec<String>,
    /// TLS parameters of the chain; the default if certificates are selected by SNI, since each
    /// brings its own.
    pub params: TlsParams,
    /// Validation of client certificates; `None` requests none.
    pub clients: Option<ClientValidation>,
}

/// The source of a chain's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CertificateSource {
    /// Requested at the first handshake, under the SNI.
    BySni,
    /// Always the same one, by a regular SDS subscription.
    Fixed(SecretName),
    /// The same, for a host whose TLS sessions are resumed by tickets.
    Resumed {
        /// The certificate.
        certificate: SecretName,
        /// The keys of the tickets.
        tickets: SecretName,
    },
}

/// The handling of a chain's connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Handler {
    /// HTTP, routed by the [`super::Scope`] of the request's host.
    Scopes {
        /// The wildcard or catch-all listener that the connections belong to. `None`: each
        /// connection belongs to the listener whose hostname is the SNI.
        listener: Option<Hostname>,
        /// Other listeners of the port, whose hosts have no scope: requests for them are answered
        /// 421.
        elsewhere: OtherListeners,
        /// When headers that identify a client are removed.
        identity_headers: IdentityRemoval,
    },
    /// HTTP, routed by one table.
    Table(TableId),
    /// TCP to the [`super::Cluster::Sni`] of the SNI.
    TcpBySni,
    /// TCP to weighted backends. An invalid share resets the connection.
    Tcp(Vec<WeightedTarget>),
}
