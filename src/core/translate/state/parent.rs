//! A Gateway or ListenerSet by itself, before its listeners compete with those of others.

use std::sync::Arc;

use super::named_service::NamedService;
use crate::key::{ListenerId, ParentKey, Verdict};
use crate::rule::certificate::Served;
use crate::rule::certificate_warning::CertificateWarning;
use crate::rule::client_certificate::ClientCertificate;
use crate::rule::client_validation::{ClientPolicy, Clients};
use crate::rule::gateway_exposure::{Fleet, GatewayExposure, GatewayPrecedence};
use crate::rule::host_option::HostOption;
use crate::rule::listener_filters::Guard;
use crate::rule::protocol::Protocol;
use crate::rule::tls_options::TlsSettings;
use gatewright_objects::inputs::{AllowedRoutes, NamespaceRule, RouteKinds};
use gatewright_objects::model::{
    Certificate, FrontendId, Hostname, ObjectName, Reason, TransportPort, ValidationMode,
};
use gatewright_objects::ownership::ListenersOf;

/// A Gateway or ListenerSet of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Parent {
    /// Its key.
    pub key: ParentKey,
    /// Its generation.
    pub generation: i64,
    /// Its placement; a Gateway and the ListenerSets that extend it share one.
    pub placement: Arc<GatewayPlacement>,
    /// Its creation time, in seconds since the epoch.
    pub created: i64,
    /// Ok if it is accepted; if not, its listeners claim nothing.
    pub accepted: Verdict,
    /// Its listeners, in their order.
    pub listeners: Vec<ParentListener>,
    /// The listeners among whose routes a hostname has one owner.
    pub listeners_of: Arc<ListenersOf>,
    /// The client certificate for connections to backends, if a Gateway refers to one.
    pub client: Option<Box<ClientCertificate>>,
    /// Ok if it is a default Gateway, where it is to be one.
    pub default: Option<Verdict>,
}

/// The placement of a Gateway and the ListenerSets that extend it.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayPlacement {
    /// The Gateway.
    pub gateway: ObjectName,
    /// The owner of its frontends: the Gateway itself, or the shared fleet.
    pub frontend_owner: ObjectName,
    /// Its precedence among Gateways with the same frontends; `None` if it has its own.
    pub precedence: Option<GatewayPrecedence>,
    /// Its exposure; the default one if its parameters are invalid.
    pub exposure: GatewayExposure,
    /// The Service that it stands on, if it names one.
    pub service: Option<Arc<NamedService>>,
    /// Why it is served nowhere, although it is accepted: addresses that it cannot have, or a
    /// Service that it cannot stand on.
    pub unusable: Option<(Reason, String)>,
    /// True if Envoys have ports that are reserved for Gateways of the dedicated fleet, and this
    /// Gateway is not one of them.
    pub avoids_reserved_ports: bool,
    /// The namespaces that may attach ListenerSets.
    pub admits: NamespaceRule,
    /// The listeners among whose admitted ListenerSets a hostname has one owner.
    pub listeners_of: Arc<ListenersOf>,
    /// The demands on clients, by port.
    pub clients: ClientPolicy,
}

/// A listener by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentListener {
    /// Its name.
    pub name: Arc<str>,
    /// Its port.
    pub port: u16,
    /// Its hostname; the empty one if it is invalid.
    pub hostname: Hostname,
    /// True if its hostname is invalid, so that it matches no route's hostname.
    pub misnamed: bool,
    /// Its protocol; `None` if it is not supported.
    pub protocol: Option<Protocol>,
    /// Ok if it is valid by itself.
    pub accepted: Verdict,
    /// Ok if its references and kinds resolve.
    pub resolved: Verdict,
    /// The certificate that it serves, if it terminates TLS.
    pub served: Served,
    /// Warnings about that certificate, which is served all the same.
    pub warnings: Vec<CertificateWarning>,
    /// TLS settings, from its options.
    pub tls: Arc<TlsSettings>,
    /// The demand on its clients.
    pub clients: Clients,
    /// HTTP/3, from its options.
    pub http3: HostOption,
    /// Session tickets, from its options.
    pub tickets: HostOption,
    /// The filters that every request passes before a route is looked for.
    pub guard: Guard,
    /// The route kinds that may attach.
    pub kinds: RouteKinds,
    /// `allowedRoutes` as written.
    pub allowed: Arc<AllowedRoutes>,
}

impl ParentListener {
    /// True if all its clients have certificates that were verified.
    pub fn verifies_clients(&self) -> bool {
        match &self.clients {
            Clients::Checked(validation) => validation.mode == ValidationMode::AllowValidOnly,
            Clients::Anybody | Clients::Nobody => false,
        }
    }

    /// Its port; with transport TCP if its protocol is unknown.
    pub fn transport_port(&self) -> TransportPort {
        let transport = self.protocol.map(Protocol::transport).unwrap_or_default();
        TransportPort {
            number: self.port,
            transport,
        }
    }

    /// True if listeners on its port are distinguished by hostname.
    pub(crate) fn has_hostnames(&self) -> bool {
        self.protocol.is_none_or(Protocol::has_hostnames)
    }

    /// True if it terminates TLS for more than one hostname: it has a filter chain of its own, and
    /// routes may have narrower hostnames.
    pub(crate) fn terminates_many(&self) -> bool {
        self.protocol.is_some_and(Protocol::terminates) && !self.hostname.is_exact()
    }
}

impl Parent {
    /// True if routes come to it that want default Gateways.
    pub(crate) fn is_default(&self) -> bool {
        matches!(self.default, Some(Ok(())))
    }

    /// The client certificate for connections to backends.
    pub(crate) fn client_certificate(&self) -> Option<&Arc<Certificate>> {
        self.client.as_ref()?.certificate.as_ref()
    }

    /// The certificates in use.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        let served = self
            .listeners
            .iter()
            .filter_map(|listener| listener.served.certificate());
        served.chain(self.client_certificate()).map(Arc::as_ref)
    }

    /// The id of one of its listeners.
    pub fn id(&self, listener: &ParentListener) -> ListenerId {
        ListenerId {
            parent: self.key.clone(),
            name: listener.name.clone(),
        }
    }

    /// The frontend of one of its ports.
    pub fn frontend(&self, port: TransportPort) -> FrontendId {
        let TransportPort { number, transport } = port;
        let isolated = self.placement.exposure.fleet == Fleet::Isolated;
        FrontendId {
            gateway: self.placement.frontend_owner.clone(),
            port: number,
            transport,
            isolated,
        }
    }

    /// One of its listeners.
    pub fn listener(&self, name: &str) -> Option<&ParentListener> {
        self.listeners
            .iter()
            .find(|listener| &*listener.name == name)
    }
}
