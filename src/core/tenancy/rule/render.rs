//! The parts from which objects of a TenantGateway are rendered: shared if they are the same for
//! every host.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::desired::{Desired, Owner, Plain};
use super::names::{self, GATEWAY_GROUP, GATEWAY_LABEL, NAMESPACE_NAME, NO_LABEL, PLAIN};
use super::selection::Takes;
use super::solving::Solving;
use crate::Ports;
use crate::settings::Settings;
use gatewright_objects::inputs::{
    Address, AddressRequest, AllowedRoutes, Gateway, Listener, ListenerSet, ListenerTls, LocalRef,
    Meta, Mode, NamespaceRule, Selector, SetKind, TenantGateway, TlsMode,
};
use gatewright_objects::model::{Hostname, ObjectName};

pub use gatewright_objects::inputs::HOST_LABEL;

/// The parts that the objects of one TenantGateway have in common.
#[derive(PartialEq)]
pub(crate) struct GatewayTemplate {
    pub(crate) owner: Arc<Owner>,
    /// True if its class is ours. With other classes every TLS listener has both route kinds:
    /// Cilium before 1.20 merges listeners of one port (cilium#45559).
    pub(crate) own: bool,
    /// The forwarding of challenges to us by routes, if it is used.
    pub(crate) solving: Option<Arc<Solving>>,
    ports: Ports,
    /// The namespaces whose HTTPRoutes the plain-HTTP listener accepts.
    open: Vec<String>,
    class: String,
    addresses: Vec<Address>,
    terminating: Arc<AllowedRoutes>,
    passing: Arc<AllowedRoutes>,
    /// Plain-HTTP listeners, then the wildcard listeners of the apex, if there are any.
    head: Vec<Arc<Listener>>,
    /// Passthrough listeners.
    tail: Vec<Arc<Listener>>,
    /// The Secret of wildcard listeners; `None` if every host has its own.
    wildcard_secret: Option<ObjectName>,
    /// The hostname of the apex's wildcard listener, if there is one.
    wildcard: Option<Hostname>,
}

impl GatewayTemplate {
    /// Builds the template of a validated TenantGateway.
    pub(crate) fn new(
        tenant: &TenantGateway,
        apex: &Hostname,
        mode: Mode,
        own: bool,
        solving: Option<Arc<Solving>>,
        settings: &Settings,
    ) -> Self {
        let ports = settings.ports;
        let wildcard_secret = (!mode.per_host()).then(|| {
            let name = match (&tenant.spec.wildcard_secret_ref, mode) {
                (Some(secret), Mode::ExistingSecret) => secret.name.clone(),
                _ => names::wildcard_certificate(&tenant.name.name),
            };
            ObjectName::new(tenant.name.namespace.clone(), name)
        });
        let namespace = &tenant.name.namespace;
        let open = open(
            namespace,
            settings,
            solving.as_deref().map(Solving::namespace),
        );
        let mut template = Self {
            owner: Owner::of(tenant),
            own,
            ports,
            class: class(tenant, settings).to_owned(),
            addresses: tenant
                .addresses()
                .unwrap_or_default()
                .into_iter()
                .map(Address::Ip)
                .collect(),
            terminating: Arc::new(allowed(own, &TERMINATING_KINDS, namespace, Takes::Attached)),
            passing: Arc::new(allowed(own, &PASSTHROUGH_KINDS, namespace, Takes::Attached)),
            head: plain(&open, settings, own.then_some(apex)),
            open,
            solving,
            tail: Vec::new(),
            wildcard: wildcard_secret.as_ref().and_then(|_| below("*", apex)),
            wildcard_secret,
        };
        if let Some(secret) = &template.wildcard_secret {
            let head = [
                ("https", template.wildcard.as_ref()),
                ("https-apex", Some(apex)),
            ];
            let head = head
                .into_iter()
                .filter_map(|(name, host)| Some(template.terminating(name, host?, secret.clone())));
            let head: Vec<_> = head.map(Arc::new).collect();
            template.head.extend(head);
        }
        for service in tenant.passthrough() {
            if let Some(hostname) = below(&service, apex) {
                let listener = template.passing(&names::passthrough_listener(&service), &hostname);
                template.tail.push(Arc::new(listener));
            }
        }
        template
    }

    /// The number of the Gateway's listeners that do not depend on claims.
    pub(crate) fn fixed(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// True if a hostname belongs to a passthrough service.
    pub(crate) fn passes_through(&self, hostname: &Hostname) -> bool {
        self.tail
            .iter()
            .any(|listener| listener.hostname.as_ref() == Ok(hostname))
    }

    fn terminating(&self, name: &str, hostname: &Hostname, secret: ObjectName) -> Listener {
        let certificate = LocalRef {
            group: String::new(),
            kind: "Secret".to_owned(),
            name: secret,
        };
        Listener {
            name: Arc::from(name),
            port: self.ports.https,
            protocol: "HTTPS".to_owned(),
            hostname: Ok(hostname.clone()),
            tls: Some(ListenerTls {
                mode: TlsMode::Terminate,
                certificates: vec![certificate],
                options: BTreeMap::new(),
            }),
            allowed: self.terminating.clone(),
            filters: Vec::new(),
            unreadable: None,
        }
    }

    fn passing(&self, name: &str, hostname: &Hostname) -> Listener {
        Listener {
            name: Arc::from(name),
            port: self.ports.https,
            protocol: "TLS".to_owned(),
            hostname: Ok(hostname.clone()),
            tls: Some(ListenerTls {
                mode: TlsMode::Passthrough,
                certificates: Vec::new(),
                options: BTreeMap::new(),
            }),
            allowed: self.passing.clone(),
            filters: Vec::new(),
            unreadable: None,
        }
    }

    /// Metadata of an object that is not stored yet: it is as old as its TenantGateway.
    fn written(&self, name: ObjectName) -> Meta {
        Meta {
            name,
            generation: 1,
            created: self.owner.created,
        }
    }

    /// The listener of one hostname; `takes` are the namespaces that it selects.
    pub(crate) fn listener(
        &self,
        names: &names::OfHost,
        hostname: &Hostname,
        takes: Takes<'_>,
    ) -> Listener {
        let secret = self.wildcard_secret.clone().unwrap_or_else(|| {
            ObjectName::new(self.owner.name.namespace.clone(), names.certificate.clone())
        });
        let listener = Listener {
            name: names.listener.clone(),
            ..self.terminating("", hostname, secret)
        };
        self.narrowed(listener, takes)
    }

    /// The same listener with a selector for `takes`.
    fn narrowed(&self, listener: Listener, takes: Takes<'_>) -> Listener {
        if takes == Takes::Attached {
            return listener;
        }
        let of: &[&str] = if listener.protocol == "TLS" {
            &PASSTHROUGH_KINDS
        } else {
            &TERMINATING_KINDS
        };
        let allowed = Arc::new(allowed(self.own, of, &self.owner.name.namespace, takes));
        Listener {
            allowed,
            ..listener
        }
    }

    /// The Gateway: `items` between its fixed listeners. `sole_namespace` returns the only
    /// namespace that may attach to a fixed listener.
    pub(crate) fn gateway(
        &self,
        items: Vec<Arc<Listener>>,
        sets: bool,
        sole_namespace: &dyn Fn(&Hostname) -> Option<Arc<str>>,
    ) -> Desired {
        let fixed = |listener: &Arc<Listener>| {
            let hostname = listener
                .hostname
                .as_ref()
                .ok()
                .filter(|_| listener.tls.is_some());
            let Some(hostname) = hostname else {
                return listener.clone();
            };
            let sole_namespace = sole_namespace(hostname);
            match Takes::of(sole_namespace.as_deref(), self.own) {
                Takes::Attached => listener.clone(),
                takes => Arc::new(self.narrowed(Listener::clone(listener), takes)),
            }
        };
        let mut listeners = Vec::with_capacity(self.fixed() + items.len());
        listeners.extend(self.head.iter().map(fixed));
        listeners.extend(items);
        listeners.extend(self.tail.iter().map(fixed));
        let gateway = Gateway {
            meta: self.written(self.owner.name.clone()),
            uid: Box::default(),
            class: self.class.clone(),
            requests: self
                .addresses
                .iter()
                .cloned()
                .map(AddressRequest::anywhere)
                .collect(),
            addresses: self.addresses.clone(),
            allowed_listeners: if sets {
                NamespaceRule::Same
            } else {
                NamespaceRule::None
            },
            listeners,
            unsupported: None,
            client_certificate: None,
            frontend_tls: None,
            infrastructure: None,
            is_default: false,
            is_derived: true,
        };
        Desired::gateway(&self.owner, gateway)
    }

    /// An overflow ListenerSet of the Gateway.
    pub(crate) fn overflow(&self, name: &str, listeners: Vec<Arc<Listener>>) -> Desired {
        let name = ObjectName::new(self.owner.name.namespace.clone(), name);
        let set = ListenerSet {
            kind: SetKind::Stable,
            meta: self.written(name),
            parent: Some(self.owner.name.clone()),
            listeners,
        };
        Desired::listener_set(&self.owner, set)
    }

    /// The hostname of the apex's wildcard listener, if there is one.
    pub(crate) fn wildcard(&self) -> Option<&Hostname> {
        self.wildcard.as_ref()
    }

    /// The namespaces whose HTTPRoutes the plain-HTTP listener accepts.
    pub(crate) fn open(&self) -> &[String] {
        &self.open
    }

    /// The attachment of routes to plain HTTP.
    pub(crate) fn plain(&self) -> Plain {
        Plain {
            own: self.own,
            ports: self.ports,
        }
    }
}

/// The route kinds of a listener that terminates TLS, and of one that passes it through, if the
/// class is ours.
const TERMINATING_KINDS: [&str; 2] = ["HTTPRoute", "GRPCRoute"];
const PASSTHROUGH_KINDS: [&str; 1] = ["TLSRoute"];

/// The namespaces that may attach to plain HTTP: the owner's, and those of ACME challenge routes.
fn open(namespace: &str, settings: &Settings, solver: Option<&str>) -> Vec<String> {
    let mut open = vec![namespace.to_owned()];
    for answers in [Some(settings.cert_manager_namespace.as_str()), solver]
        .into_iter()
        .flatten()
    {
        if !open.iter().any(|there| there == answers) {
            open.push(answers.to_owned());
        }
    }
    open
}

/// The plain-HTTP listeners, for HTTPRoutes of the namespaces `open`: `http`, without a hostname.
/// If the class is ours, other Gateways may share the address, and the listeners have the hostnames
/// of the apex alone.
fn plain(open: &[String], settings: &Settings, apex: Option<&Hostname>) -> Vec<Arc<Listener>> {
    let expressions = vec![(NAMESPACE_NAME.to_owned(), "In".to_owned(), open.to_vec())];
    let namespaces = NamespaceRule::Selector(Box::new(Selector {
        labels: BTreeMap::new(),
        expressions,
    }));
    let allowed = Arc::new(AllowedRoutes {
        kinds: Some(kinds(apex.is_some(), &["HTTPRoute"])),
        namespaces,
    });
    let hostnames = match apex {
        None => vec![(PLAIN[0], Hostname::any())],
        Some(apex) => {
            let below = below("*", apex).map(|wildcard| (PLAIN[0], wildcard));
            below
                .into_iter()
                .chain([(PLAIN[1], apex.clone())])
                .collect()
        }
    };
    hostnames
        .into_iter()
        .map(|(name, hostname)| Listener {
            name: Arc::from(name),
            port: settings.ports.http,
            protocol: "HTTP".to_owned(),
            hostname: Ok(hostname),
            tls: None,
            allowed: allowed.clone(),
            filters: Vec::new(),
            unreadable: None,
        })
        .map(Arc::new)
        .collect()
}

fn allowed(own: bool, of: &[&str], namespace: &str, takes: Takes<'_>) -> AllowedRoutes {
    let mut labels = BTreeMap::from([(GATEWAY_LABEL.to_owned(), namespace.to_owned())]);
    let mut expressions = Vec::new();
    match takes {
        Takes::Attached => {}
        Takes::Only(only) => {
            labels.insert(NAMESPACE_NAME.to_owned(), only.to_owned());
        }
        // The API server sets the label on every namespace. A list of values may not be empty.
        Takes::Nobody => {
            expressions.push((NAMESPACE_NAME.to_owned(), NO_LABEL.to_owned(), Vec::new()))
        }
    }
    AllowedRoutes {
        kinds: Some(kinds(own, of)),
        namespaces: NamespaceRule::Selector(Box::new(Selector {
            labels,
            expressions,
        })),
    }
}

/// The route kinds of a listener: `of` if the class is ours. With other classes every listener has
/// the same kinds, also on port 80: Cilium before 1.20 refuses a route whose kind is missing at any
/// listener of its Gateway, wherever it attaches.
fn kinds(own: bool, of: &[&str]) -> Vec<(String, String)> {
    let kinds: &[&str] = if own { of } else { &["HTTPRoute", "TLSRoute"] };
    kinds
        .iter()
        .map(|kind| (GATEWAY_GROUP.to_owned(), (*kind).to_owned()))
        .collect()
}

/// The hostname `label.apex`; `None` if it is too long.
fn below(label: &str, apex: &Hostname) -> Option<Hostname> {
    Hostname::parse(&format!("{label}.{apex}")).ok()
}

/// The class of a TenantGateway's Gateway.
pub(crate) fn class<'a>(tenant: &'a TenantGateway, settings: &'a Settings) -> &'a str {
    Some(tenant.spec.gateway_class_name.as_str())
        .filter(|class| !class.is_empty())
        .unwrap_or(&settings.class)
}

/// The names of the wildcard certificate: apex and `*.apex`, then each child and `*.child`.
pub(crate) fn wildcard_names<'a>(
    tenant: &'a TenantGateway,
    children: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let all = std::iter::once(tenant.spec.apex.as_str()).chain(children);
    all.flat_map(|apex| [apex.to_owned(), format!("*.{apex}")])
        .collect()
}
