//! A Gateway or ListenerSet by itself, before its listeners meet those of others.

use std::sync::Arc;

use super::certificate::Served;
use super::client_certificate::ClientCertificate;
use super::client_validation::{ClientPolicy, Clients};
use super::gateway_exposure::{Fleet, GatewayExposure, Precedence};
use super::key::{ListenerId, ParentKey, Verdict};
use super::listener_filters::Guard;
use super::named_service::NamedService;
use super::ownership::ListenersOf;
use super::protocol::Protocol;
use super::tls_options::TlsSettings;
use crate::inputs::{AllowedRoutes, NamespaceRule, RouteKinds};
use crate::model::{Certificate, FrontendId, Hostname, ObjectName, Reason, TransportPort};

/// A Gateway or ListenerSet of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Parent {
    /// Which.
    pub key: ParentKey,
    /// Its generation.
    pub generation: i64,
    /// Its placement; one for a Gateway and all that extends it.
    pub stand: Arc<Placement>,
    /// When it was made, in seconds since the epoch.
    pub created: i64,
    /// Whether it takes part at all.
    pub accepted: Verdict,
    /// Its listeners, in their order.
    pub listeners: Vec<ParentListener>,
    /// Among whose routes a hostname has one owner.
    pub listeners_of: Arc<ListenersOf>,
    /// The certificate that a Gateway shows to backends, where it is to show them one.
    pub client: Option<Box<ClientCertificate>>,
}

/// The placement of a Gateway and the ListenerSets that extend it.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The Gateway.
    pub gateway: ObjectName,
    /// The owner of the frontends on which it is served: itself, or what many Gateways share.
    pub place: ObjectName,
    /// Its precedence there; none where it is alone.
    pub precedence: Option<Precedence>,
    /// How it is reached; as Gateways usually are where that cannot be told.
    pub reach: GatewayExposure,
    /// The Service of somebody's on which it stands, where it stands on one.
    pub service: Option<Arc<NamedService>>,
    /// Why it is served nowhere, although it is accepted: addresses that it cannot have, a Service on which it cannot stand.
    pub unusable: Option<(Reason, String)>,
    /// Whether Envoys have ports that are kept for Gateways of the dedicated fleet, and this is none of them.
    pub keeps_off: bool,
    /// Which namespaces may bring ListenerSets.
    pub admits: NamespaceRule,
    /// Among whom a hostname has one owner of those whom the Gateway's owner admits.
    pub listeners_of: Arc<ListenersOf>,
    /// The demands of its ports on clients.
    pub clients: ClientPolicy,
}

/// A listener by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentListener {
    /// Its name.
    pub name: Arc<str>,
    /// Its port.
    pub port: u16,
    /// Its hostname; any when it is not valid.
    pub hostname: Hostname,
    /// Whether its hostname is none, so that no route's hostname matches it.
    pub misnamed: bool,
    /// Its protocol; `None` when that is not supported.
    pub protocol: Option<Protocol>,
    /// Whether it is valid by itself.
    pub accepted: Verdict,
    /// Whether its references and kinds resolve.
    pub resolved: Verdict,
    /// The certificate it serves, for protocols that end TLS.
    pub served: Served,
    /// A warning: what browsers will find wrong with that certificate, though it is served.
    pub warning: Option<String>,
    /// How it speaks TLS, by its options.
    pub tls: Arc<TlsSettings>,
    /// The demand on its clients.
    pub clients: Clients,
    /// What every request passes before a route is looked for.
    pub guard: Guard,
    /// The route kinds that it takes.
    pub kinds: RouteKinds,
    /// From which namespaces, and of what kinds, as written.
    pub allowed: Arc<AllowedRoutes>,
}

impl ParentListener {
    /// Its port, of TCP where it is not known what it speaks.
    pub fn transport_port(&self) -> TransportPort {
        let transport = self.protocol.map(Protocol::transport).unwrap_or_default();
        TransportPort { number: self.port, transport }
    }

    /// Whether hostnames tell it from others on its port.
    pub(super) fn has_hostnames(&self) -> bool {
        self.protocol.is_none_or(Protocol::has_hostnames)
    }
}

impl Parent {
    /// The certificate that is shown to backends.
    pub(super) fn shown(&self) -> Option<&Arc<Certificate>> {
        self.client.as_ref()?.certificate.as_ref()
    }

    /// The id of one of its listeners.
    pub fn id(&self, listener: &ParentListener) -> ListenerId {
        ListenerId { parent: self.key.clone(), name: listener.name.clone() }
    }

    /// The frontend of one of its ports.
    pub fn frontend(&self, port: TransportPort) -> FrontendId {
        let TransportPort { number, transport } = port;
        let isolated = self.stand.reach.fleet == Fleet::Isolated;
        FrontendId { gateway: self.stand.place.clone(), port: number, transport, isolated }
    }

    /// One of its listeners.
    pub fn listener(&self, name: &str) -> Option<&ParentListener> {
        self.listeners.iter().find(|listener| &*listener.name == name)
    }
}
