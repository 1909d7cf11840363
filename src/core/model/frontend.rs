//! A frontend: one port of one Gateway, or one that many share, which becomes one Envoy listener.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{ClientValidation, FrontendId, Hostname, OtherListeners, SecretName, TableId, TlsParams, WeightedTarget};

/// One Envoy listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frontend {
    /// Which port of which Gateway.
    pub id: FrontendId,
    /// The addresses to bind, sorted; never empty. The first is the listener's address, the others its additional ones.
    pub addresses: Vec<IpAddr>,
    /// The port to bind: the Gateway's own, or the one that a Service leads to.
    pub port: u16,
    /// By what name this installation knows requests that it has passed on before (`CDN-Loop`, RFC 8586).
    pub cdn_id: Arc<str>,
    /// What is spoken there.
    pub kind: FrontendKind,
}

/// What is spoken on a frontend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FrontendKind {
    /// Plain HTTP, routed by one table.
    Http {
        /// The table.
        table: TableId,
    },
    /// TLS: the SNI chooses the chain.
    Tls {
        /// The chains by name: one per class, plus one per wildcard or catch-all listener.
        chains: BTreeMap<ChainName, Chain>,
        /// Which SNI goes to which chain. The most specific entry wins; [`Hostname::any`] also takes connections
        /// without SNI; a name that no entry covers is closed.
        gate: BTreeMap<Hostname, ChainName>,
    },
    /// TCP: every connection goes to weighted backends. An invalid share closes it, and so does everything where there is
    /// no share.
    Tcp {
        /// The backends.
        shares: Vec<WeightedTarget>,
    },
    /// UDP: every session goes to the [`super::Cluster::Udp`] of the frontend, whose endpoints have the weights.
    Udp,
}

/// Name of a chain within its frontend.
pub type ChainName = Arc<str>;

/// The chain to which connections go that ask for nothing but a TLS-ALPN-01 challenge (RFC 8737), where a frontend has
/// it: those for names whose TLS ends here, offering `acme-tls/1` alone.
pub const TLS_CHALLENGES: &str = "acme-tls";

/// One filter chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Chain {
    /// How TLS is ended here; `None` passes the bytes through.
    pub tls: Option<Termination>,
    /// What happens to the connection then.
    pub handler: Handler,
}

/// TLS termination by a chain: all that only a chain can hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Termination {
    /// Where the certificate comes from.
    pub certificate: CertificateSource,
    /// ALPN protocols in order of preference.
    pub alpn: Vec<String>,
    /// Chain-wide TLS parameters; left at the default when certificates come by SNI, since each brings its own.
    pub params: TlsParams,
    /// How certificates of clients are checked; `None` asks for none.
    pub clients: Option<ClientValidation>,
}

/// Where a chain's certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CertificateSource {
    /// Fetched at the first handshake under the SNI.
    BySni,
    /// Always this one, by a regular SDS subscription.
    Fixed(SecretName),
}

/// What a chain does with its connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Handler {
    /// HTTP, routed by the [`super::Scope`] that the request's host names.
    Scopes {
        /// The wildcard or catch-all listener whose connections these are. `None`: each connection is the listener's
        /// that has the SNI as its hostname.
        listener: Option<Hostname>,
        /// Wildcards of listeners that serve hosts without a scope.
        elsewhere: OtherListeners,
    },
    /// HTTP, routed by one table.
    Table(TableId),
    /// TCP to the [`super::Cluster::Sni`] that the SNI names.
    TcpBySni,
    /// TCP to weighted backends. An invalid share resets the connection.
    Tcp(Vec<WeightedTarget>),
}
