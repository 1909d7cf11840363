//! GatewayClass, Gateway and ListenerSet; the listeners of both are one type.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::kind::GATEWAY_GROUP;
use super::manifest::Specified;
use super::schema::{self, same_shape};
use super::{
    Address, AddressRequest, FrontendTls, ListenerFilter, LocalRef, Meta, NamespaceRule,
    ParametersRef, ParseError, Selector, SetKey, SetKind,
};
use crate::gateway_api::gatewayclasses::GatewayClassSpec;
use crate::gateway_api::gateways::{self as gw, GatewaySpec};
use crate::gateway_api::listenersets::ListenerSetSpec;
use crate::model::{Hostname, HostnameError, ObjectName};

/// A GatewayClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayClass {
    /// Its metadata.
    pub meta: Meta,
    /// `spec.controllerName`.
    pub controller: String,
    /// `spec.parametersRef`.
    pub parameters: Option<ParametersRef>,
}

impl GatewayClass {
    pub(super) fn read(meta: Meta, spec: GatewayClassSpec) -> Result<Self, ParseError> {
        let parameters = spec.parameters_ref.map(|r| ParametersRef {
            group: r.group,
            kind: r.kind,
            namespace: r.namespace.map(Arc::from),
            name: Arc::from(r.name),
        });
        Ok(Self {
            meta,
            controller: spec.controller_name,
            parameters,
        })
    }
}

/// A Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Its metadata.
    pub meta: Meta,
    /// `metadata.uid`; empty where a manifest has none.
    pub uid: Box<str>,
    /// `spec.gatewayClassName`.
    pub class: String,
    /// `spec.addresses`.
    pub requests: Vec<AddressRequest>,
    /// Of these the addresses that may be reachable from anywhere.
    pub addresses: Vec<Address>,
    /// The namespaces that may attach ListenerSets.
    pub allowed_listeners: NamespaceRule,
    /// Its own listeners: each shared, so that a changed listener leaves the others as they are.
    pub listeners: Vec<Arc<Listener>>,
    /// Why nothing of the Gateway may be served, if its specification has such a field.
    pub unsupported: Option<String>,
    /// The client certificate for connections to backends
    /// (`spec.tls.backend.clientCertificateRef`).
    pub client_certificate: Option<LocalRef>,
    /// `spec.tls.frontend`: client certificate validation.
    pub frontend_tls: Option<Box<FrontendTls>>,
    /// `spec.infrastructure`.
    pub infrastructure: Option<Box<Infrastructure>>,
    /// True if routes come to it that want default Gateways (`spec.defaultScope: All`).
    pub is_default: bool,
    /// True if it has the label of Gateways that are made for TenantGateways.
    pub is_derived: bool,
}

/// The label of Gateways that are made for TenantGateways, with the namespace of these.
pub const DERIVED_GATEWAY: &str = "cozystack.io/gateway";

/// `spec.infrastructure` of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Infrastructure {
    /// Labels of the objects that are made for the Gateway.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the objects that are made for the Gateway.
    pub annotations: BTreeMap<String, String>,
    /// `parametersRef`, in its own namespace.
    pub parameters: Option<ParametersRef>,
}

/// A ListenerSet of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSet {
    /// Its kind.
    pub kind: SetKind,
    /// Its metadata.
    pub meta: Meta,
    /// The Gateway it extends; `None` when the parent is no Gateway.
    pub parent: Option<ObjectName>,
    /// Its listeners.
    pub listeners: Vec<Arc<Listener>>,
}

/// A listener of a Gateway or ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name, unique within its parent.
    pub name: Arc<str>,
    /// Its port.
    pub port: u16,
    /// Its protocol, as written.
    pub protocol: String,
    /// Its hostname, or the error in it.
    pub hostname: Result<Hostname, HostnameError>,
    /// Its TLS settings.
    pub tls: Option<ListenerTls>,
    /// The routes that may attach; usually shared with the other listeners of the parent.
    pub allowed: Arc<AllowedRoutes>,
    /// The filters that every request passes before a route is looked for, in this order.
    pub filters: Vec<ListenerFilter>,
    /// Why it is not served: a newer or laxer schema admitted a listener that we cannot read.
    pub unreadable: Option<Box<str>>,
}

/// TLS settings of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// Decides whether TLS is terminated or passed through.
    pub mode: TlsMode,
    /// Certificates.
    pub certificates: Vec<LocalRef>,
    /// `options`, as written.
    pub options: BTreeMap<String, String>,
}

/// The TLS mode of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Terminates TLS.
    Terminate,
    /// Passes TLS through.
    Passthrough,
}

/// The routes that may attach to a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedRoutes {
    /// Group and kind; `None` allows all kinds of the listener's protocol.
    pub kinds: Option<Vec<(String, String)>>,
    /// The namespaces of the routes.
    pub namespaces: NamespaceRule,
}

impl Gateway {
    pub(super) fn read(
        meta: Meta,
        Specified { metadata, spec }: Specified<GatewaySpec>,
    ) -> Result<Self, ParseError> {
        let requests = spec
            .addresses
            .unwrap_or_default()
            .into_iter()
            .map(AddressRequest::read);
        let requests: Vec<AddressRequest> = requests.collect();
        let unscoped = requests.iter().filter(|request| request.is_unscoped());
        let addresses = unscoped.map(|request| request.address.clone()).collect();
        let (of_backends, of_frontends) = spec
            .tls
            .map(|tls| (tls.backend, tls.frontend))
            .unwrap_or_default();
        let frontend_tls = of_frontends
            .map(|tls| FrontendTls::read(&meta, tls))
            .transpose()?
            .map(Box::new);
        let client_certificate = of_backends
            .and_then(|tls| tls.client_certificate_ref)
            .map(|r| {
                let namespace = r
                    .namespace
                    .map_or_else(|| meta.name.namespace.clone(), Arc::from);
                LocalRef {
                    group: r.group.unwrap_or_default(),
                    kind: r.kind.unwrap_or_else(|| "Secret".to_owned()),
                    name: ObjectName::new(namespace, r.name),
                }
            });
        let allowed_listeners = match spec
            .allowed_listeners
            .and_then(|allowed| allowed.namespaces)
        {
            None => NamespaceRule::None,
            Some(rule) => match rule.from {
                Some(gw::GatewayAllowedListenersNamespacesFrom::All) => NamespaceRule::All,
                Some(gw::GatewayAllowedListenersNamespacesFrom::Same) => NamespaceRule::Same,
                Some(gw::GatewayAllowedListenersNamespacesFrom::Selector) => {
                    NamespaceRule::Selector(Box::new(selector(rule.selector)?))
                }
                Some(gw::GatewayAllowedListenersNamespacesFrom::None) | None => NamespaceRule::None,
            },
        };
        let listeners = read_listeners(&meta, spec.listeners)?;
        let infrastructure = spec.infrastructure.map(|infrastructure| {
            let parameters = infrastructure.parameters_ref.map(|r| ParametersRef {
                group: r.group,
                kind: r.kind,
                namespace: Some(meta.name.namespace.clone()),
                name: Arc::from(r.name),
            });
            let labels = infrastructure.labels.unwrap_or_default();
            Box::new(Infrastructure {
                labels,
                annotations: infrastructure.annotations.unwrap_or_default(),
                parameters,
            })
        });
        Ok(Self {
            meta,
            is_derived: metadata
                .labels
                .is_some_and(|labels| labels.contains_key(DERIVED_GATEWAY)),
            uid: metadata.uid.unwrap_or_default().into(),
            class: spec.gateway_class_name,
            requests,
            addresses,
            allowed_listeners,
            listeners,
            unsupported: None,
            client_certificate,
            frontend_tls,
            infrastructure,
            is_default: spec.default_scope == Some(gw::GatewayDefaultScope::All),
        })
    }
}

impl ListenerSet {
    /// Reads a `ListenerSet` of `gateway.networking.k8s.io`.
    pub(super) fn read(meta: Meta, spec: ListenerSetSpec) -> Result<Self, ParseError> {
        let parent = spec.parent_ref;
        let group = parent.group.as_deref().unwrap_or(GATEWAY_GROUP);
        let parent_kind = parent.kind.as_deref().unwrap_or("Gateway");
        let namespace = parent
            .namespace
            .map_or_else(|| meta.name.namespace.clone(), Arc::from);
        let name = (group == GATEWAY_GROUP && parent_kind == "Gateway")
            .then(|| ObjectName::new(namespace, parent.name));
        // The generated types of a Gateway's and a ListenerSet's listeners differ by name only.
        let listeners = read_listeners(&meta, same_shape(spec.listeners)?)?;
        Ok(Self {
            kind: SetKind::Stable,
            meta,
            parent: name,
            listeners,
        })
    }

    /// Its key.
    pub fn key(&self) -> SetKey {
        SetKey {
            name: self.meta.name.clone(),
            kind: self.kind,
        }
    }
}

fn read_listeners(
    meta: &Meta,
    listeners: Vec<gw::GatewayListeners>,
) -> Result<Vec<Arc<Listener>>, ParseError> {
    let mut others: Option<Arc<AllowedRoutes>> = None;
    let listeners = schema::exact(listeners.into_iter().map(|listener| {
        let mut listener = Listener::read(meta, listener)?;
        match &others {
            Some(others) if *others == listener.allowed => listener.allowed = others.clone(),
            _ => others = Some(listener.allowed.clone()),
        }
        Ok::<_, ParseError>(Arc::new(listener))
    }))?;
    let mut names: Vec<&str> = listeners.iter().map(|listener| &*listener.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ParseError::Schema(format!(
            "spec.listeners: two listeners are named {:?}",
            pair[0]
        ))),
        None if listeners.is_empty() => Err(ParseError::Schema(
            "spec.listeners: at least one is needed".to_owned(),
        )),
        None if listeners.len() > 64 => Err(ParseError::Schema(
            "spec.listeners: more than 64; put the others into a ListenerSet".to_owned(),
        )),
        None => Ok(listeners),
    }
}

impl Listener {
    fn read(meta: &Meta, listener: gw::GatewayListeners) -> Result<Self, ParseError> {
        let tls = listener.tls.map(|tls| ListenerTls {
            mode: match tls.mode {
                Some(gw::GatewayListenersTlsMode::Passthrough) => TlsMode::Passthrough,
                Some(gw::GatewayListenersTlsMode::Terminate) | None => TlsMode::Terminate,
            },
            certificates: tls
                .certificate_refs
                .unwrap_or_default()
                .into_iter()
                .map(|r| LocalRef {
                    group: r.group.unwrap_or_default(),
                    kind: r.kind.unwrap_or_else(|| "Secret".to_owned()),
                    name: ObjectName::new(
                        r.namespace
                            .map_or_else(|| meta.name.namespace.clone(), Arc::from),
                        r.name.as_str(),
                    ),
                })
                .collect(),
            options: tls.options.unwrap_or_default(),
        });
        let mut allowed = AllowedRoutes {
            kinds: None,
            namespaces: NamespaceRule::Same,
        };
        if let Some(routes) = listener.allowed_routes {
            allowed.kinds = routes.kinds.filter(|kinds| !kinds.is_empty()).map(|kinds| {
                fn group(group: Option<String>) -> String {
                    group.unwrap_or_else(|| GATEWAY_GROUP.to_owned())
                }
                kinds
                    .into_iter()
                    .map(|k| (group(k.group), k.kind))
                    .collect()
            });
            if let Some(rule) = routes.namespaces {
                allowed.namespaces = match rule.from {
                    Some(gw::GatewayListenersAllowedRoutesNamespacesFrom::All) => {
                        NamespaceRule::All
                    }
                    Some(gw::GatewayListenersAllowedRoutesNamespacesFrom::Selector) => {
                        NamespaceRule::Selector(Box::new(selector(rule.selector)?))
                    }
                    Some(gw::GatewayListenersAllowedRoutesNamespacesFrom::Same) | None => {
                        NamespaceRule::Same
                    }
                };
            }
        }
        let hostname = schema::hostname(
            &format!("spec.listeners[{}].hostname", listener.name),
            listener.hostname.as_deref(),
        )?;
        Ok(Self {
            port: schema::port(
                listener.port,
                &format!("spec.listeners[{}].port", listener.name),
            )?,
            name: Arc::from(listener.name),
            protocol: listener.protocol,
            hostname,
            tls,
            allowed: Arc::new(allowed),
            filters: super::listener_filter::read(&meta.name.namespace, listener.filters)?,
            unreadable: None,
        })
    }
}

fn selector<T: Serialize>(selector: Option<T>) -> Result<Selector, ParseError> {
    let selector: Option<gw::GatewayListenersAllowedRoutesNamespacesSelector> =
        same_shape(selector)?;
    let selector = selector.ok_or_else(|| {
        ParseError::Schema("namespaces: from Selector needs a selector".to_owned())
    })?;
    Ok(Selector {
        labels: selector.match_labels.unwrap_or_default(),
        expressions: selector
            .match_expressions
            .unwrap_or_default()
            .into_iter()
            .map(|e| (e.key, e.operator, e.values.unwrap_or_default()))
            .collect(),
    })
}
