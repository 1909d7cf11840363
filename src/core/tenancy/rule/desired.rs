//! Desired objects, cheap to create, compare and share. The JSON document is built when one is
//! written.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::issuer;
use super::names::{self, GATEWAY_GROUP};
use super::solving::SolverRoute;
use crate::Ports;
use gatewright_objects::inputs::{
    AllowedRoutes, DERIVED_GATEWAY, Gateway, Listener, ListenerSet, NamespaceRule, Object,
    Selector, TenantGateway, TlsMode,
};
use gatewright_objects::model::{Hostname, ObjectName};
use gatewright_objects::wanted::AcmeIssuer;

/// The TenantGateway in the owner reference of derived objects.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) name: ObjectName,
    pub(crate) uid: String,
    pub(crate) created: i64,
}

/// A desired object.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    owner: Arc<Owner>,
    content: Content,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    Gateway(Arc<Gateway>),
    ListenerSet(Arc<ListenerSet>),
    /// A Certificate for one host; its Secret has the same name.
    Certificate(Arc<str>, Hostname, KeyKind),
    /// The certificate of the wildcard listeners, and its DNS names.
    Wildcard(String, Vec<String>, KeyKind),
    /// The route that redirects plain HTTP to HTTPS.
    Redirect(Plain),
    /// cert-manager's Issuer, with the parent of its challenge routes.
    Issuer(Plain, Arc<AcmeIssuer>),
    /// A route that forwards challenges to our responder.
    Challenges(Plain, Arc<SolverRoute>),
}

/// The origin of the private key in a Certificate's Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// A key of cert-manager, with its default parameters.
    CertManager,
    /// Our key, on P-256. Unless the Certificate says so, cert-manager would issue again, with a
    /// key for RSA.
    Own,
}

/// The attachment of routes to plain HTTP, and the port of the redirect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plain {
    /// True if the class is ours: plain HTTP then has several listeners.
    pub(crate) own: bool,
    pub(crate) ports: Ports,
}

impl Desired {
    pub(crate) fn gateway(owner: &Arc<Owner>, gateway: Gateway) -> Self {
        Self {
            owner: owner.clone(),
            content: Content::Gateway(Arc::new(gateway)),
        }
    }

    pub(crate) fn listener_set(owner: &Arc<Owner>, set: ListenerSet) -> Self {
        Self {
            owner: owner.clone(),
            content: Content::ListenerSet(Arc::new(set)),
        }
    }

    pub(crate) fn certificate(
        owner: &Arc<Owner>,
        name: Arc<str>,
        hostname: Hostname,
        key: KeyKind,
    ) -> Self {
        Self {
            owner: owner.clone(),
            content: Content::Certificate(name, hostname, key),
        }
    }

    pub(crate) fn wildcard(
        owner: &Arc<Owner>,
        name: &str,
        names: Vec<String>,
        key: KeyKind,
    ) -> Self {
        Self {
            owner: owner.clone(),
            content: Content::Wildcard(name.to_owned(), names, key),
        }
    }

    pub(crate) fn redirect(owner: &Arc<Owner>, plain: Plain) -> Self {
        Self {
            owner: owner.clone(),
            content: Content::Redirect(plain),
        }
    }

    pub(crate) fn issuer(owner: &Arc<Owner>, plain: Plain, issuer: &Arc<AcmeIssuer>) -> Self {
        Self {
            owner: owner.clone(),
            content: Content::Issuer(plain, issuer.clone()),
        }
    }

    pub(crate) fn challenges(owner: &Arc<Owner>, plain: Plain, route: SolverRoute) -> Self {
        Self {
            owner: owner.clone(),
            content: Content::Challenges(plain, Arc::new(route)),
        }
    }

    /// The object as written to the API server.
    pub fn document(&self) -> Value {
        let owner = &*self.owner;
        let tenant = ("cozystack.io/tenantgateway", &*owner.name.name);
        match &self.content {
            Content::Gateway(gateway) => {
                let labels = [(DERIVED_GATEWAY, &*owner.name.namespace)];
                let meta = meta(owner, &gateway.meta.name.name, &labels);
                object(
                    "gateway.networking.k8s.io/v1",
                    "Gateway",
                    meta,
                    gateway_spec(gateway),
                )
            }
            Content::ListenerSet(set) => {
                let parent =
                    json!({"group": GATEWAY_GROUP, "kind": "Gateway", "name": &*owner.name.name});
                let spec = json!({"parentRef": parent, "listeners": listeners(&set.listeners)});
                let meta = meta(owner, &set.meta.name.name, &[tenant]);
                object("gateway.networking.k8s.io/v1", "ListenerSet", meta, spec)
            }
            Content::Certificate(name, hostname, key) => {
                let labels = [tenant, ("cozystack.io/per-listener-cert", "true")];
                certificate(owner, name, &labels, &[hostname.as_str()], *key)
            }
            Content::Wildcard(name, names, key) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                certificate(owner, name, &[], &names, *key)
            }
            Content::Redirect(plain) => {
                let mut redirect = json!({"scheme": "https", "statusCode": 301});
                if plain.ports.https != 443 {
                    redirect["port"] = json!(plain.ports.https);
                }
                let filter = json!({"type": "RequestRedirect", "requestRedirect": redirect});
                let meta = meta(owner, &names::redirect(tenant.1), &[tenant]);
                let spec = json!({"parentRefs": [plain.parent(tenant.1)], "rules": [{"filters": [filter]}]});
                object("gateway.networking.k8s.io/v1", "HTTPRoute", meta, spec)
            }
            Content::Issuer(plain, issuer) => {
                let spec = issuer::spec(&owner.name, plain.parent(tenant.1), issuer);
                object(
                    "cert-manager.io/v1",
                    "Issuer",
                    meta(owner, &names::issuer(tenant.1), &[]),
                    spec,
                )
            }
            Content::Challenges(plain, route) => {
                let meta = route.meta(&owner.name);
                let spec = route.spec(&owner.name, plain.parent(tenant.1));
                object("gateway.networking.k8s.io/v1", "HTTPRoute", meta, spec)
            }
        }
    }

    /// The object as the translation reads it; `None` for kinds that it does not read.
    pub fn object(&self) -> Option<Object> {
        match &self.content {
            Content::Gateway(gateway) => Some(Object::Gateway(Gateway::clone(gateway))),
            Content::ListenerSet(set) => Some(Object::ListenerSet(ListenerSet::clone(set))),
            Content::Redirect(_) | Content::Challenges(..) => {
                Some(Object::parse(self.document()).expect("a route that follows the schema"))
            }
            Content::Certificate(..) | Content::Wildcard(..) | Content::Issuer(..) => None,
        }
    }

    /// The class of a Gateway.
    pub(crate) fn class(&self) -> Option<&str> {
        match &self.content {
            Content::Gateway(gateway) => Some(&gateway.class),
            _ => None,
        }
    }

    /// The listeners; empty for kinds without listeners.
    pub fn listeners(&self) -> &[Arc<Listener>] {
        match &self.content {
            Content::Gateway(gateway) => &gateway.listeners,
            Content::ListenerSet(set) => &set.listeners,
            Content::Certificate(..)
            | Content::Wildcard(..)
            | Content::Redirect(_)
            | Content::Issuer(..)
            | Content::Challenges(..) => &[],
        }
    }
}

impl Plain {
    /// The parentRef of routes on plain HTTP.
    fn parent(self, tenant: &str) -> Value {
        let mut parent = json!({"group": GATEWAY_GROUP, "kind": "Gateway", "name": tenant});
        if self.own {
            parent["port"] = json!(self.ports.http);
        } else {
            parent["sectionName"] = json!("http");
        }
        parent
    }
}

/// Metadata with the owner reference; `name` is in the TenantGateway's namespace.
fn meta(owner: &Owner, name: &str, labels: &[(&str, &str)]) -> Value {
    let mut all = Map::new();
    all.insert(names::MANAGED_BY.into(), json!(names::MANAGER));
    all.extend(
        labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value))),
    );
    json!({"namespace": *owner.name.namespace, "name": name, "labels": all, "ownerReferences": [{
        "apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway", "name": *owner.name.name,
        "uid": owner.uid, "controller": true, "blockOwnerDeletion": true}]})
}

fn object(api_version: &str, kind: &str, meta: Value, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec})
}

/// cert-manager's Certificate; its Secret has the same name.
fn certificate(
    owner: &Owner,
    name: &str,
    labels: &[(&str, &str)],
    dns_names: &[&str],
    key: KeyKind,
) -> Value {
    let issuer = json!({"kind": "Issuer", "name": names::issuer(&owner.name.name)});
    let mut spec = json!({"secretName": name, "issuerRef": issuer, "dnsNames": dns_names});
    if key == KeyKind::Own {
        spec["privateKey"] = json!({"algorithm": "ECDSA", "size": 256});
    }
    object(
        "cert-manager.io/v1",
        "Certificate",
        meta(owner, name, labels),
        spec,
    )
}

fn gateway_spec(gateway: &Gateway) -> Value {
    use gatewright_objects::inputs::Address;
    let mut spec =
        json!({"gatewayClassName": gateway.class, "listeners": listeners(&gateway.listeners)});
    let addresses = gateway
        .addresses
        .iter()
        .filter_map(|address| match address {
            Address::Ip(ip) => Some(json!({"type": "IPAddress", "value": ip.to_string()})),
            Address::Any | Address::Unsupported(_) | Address::Malformed(_) => None,
        });
    let addresses: Vec<Value> = addresses.collect();
    if !addresses.is_empty() {
        spec["addresses"] = Value::Array(addresses);
    }
    if gateway.allowed_listeners == NamespaceRule::Same {
        spec["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    }
    spec
}

fn listeners(all: &[Arc<Listener>]) -> Value {
    all.iter()
        .map(|listener| self::listener(listener))
        .collect()
}

fn listener(listener: &Listener) -> Value {
    let mut value = json!({"name": *listener.name, "port": listener.port, "protocol": listener.protocol,
        "allowedRoutes": allowed(&listener.allowed)});
    if let Some(hostname) = listener
        .hostname
        .as_ref()
        .ok()
        .filter(|hostname| !hostname.is_any())
    {
        value["hostname"] = json!(hostname.as_str());
    }
    if let Some(tls) = &listener.tls {
        value["tls"] = match tls.mode {
            TlsMode::Terminate => {
                let names = tls
                    .certificates
                    .iter()
                    .map(|reference| json!({"name": *reference.name.name}));
                json!({"mode": "Terminate", "certificateRefs": names.collect::<Vec<_>>()})
            }
            TlsMode::Passthrough => json!({"mode": "Passthrough"}),
        };
    }
    value
}

fn allowed(allowed: &AllowedRoutes) -> Value {
    let mut value = Map::new();
    if let Some(kinds) = &allowed.kinds {
        let kinds = kinds
            .iter()
            .map(|(group, kind)| json!({"group": group, "kind": kind}));
        value.insert("kinds".to_owned(), kinds.collect());
    }
    if let NamespaceRule::Selector(selector) = &allowed.namespaces {
        let Selector {
            labels,
            expressions,
        } = &**selector;
        let mut selector = Map::new();
        if !labels.is_empty() {
            selector.insert("matchLabels".to_owned(), json!(labels));
        }
        if !expressions.is_empty() {
            selector.insert(
                "matchExpressions".to_owned(),
                expressions
                    .iter()
                    .map(|(key, operator, values)| {
                        let mut expression = json!({"key": key, "operator": operator});
                        if !values.is_empty() {
                            expression["values"] = json!(values);
                        }
                        expression
                    })
                    .collect(),
            );
        }
        value.insert(
            "namespaces".to_owned(),
            json!({"from": "Selector", "selector": selector}),
        );
    }
    Value::Object(value)
}

impl Owner {
    pub(crate) fn of(tenant: &TenantGateway) -> Arc<Self> {
        Arc::new(Self {
            name: tenant.name.clone(),
            uid: tenant.uid.clone(),
            created: tenant.created,
        })
    }
}
