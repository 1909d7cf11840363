//! The objects themselves, as plain values.

use serde_json::{Value, json};

use super::delta::Ports;
use super::names;
use crate::inputs::{Mode, TenantGateway};

/// The label that tells which namespaces may attach.
pub const GATEWAY_LABEL: &str = "namespace.cozystack.io/gateway";
/// The label that tells a namespace's apex.
pub const HOST_LABEL: &str = "namespace.cozystack.io/host";
/// The annotation that tells who wrote the gateway label.
pub const ATTACHED_BY: &str = "cozystack.io/gateway-attached-by";
/// The namespace whose challenge routes may attach to port 80.
const CERT_MANAGER: &str = "cozy-cert-manager";
pub(super) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// What the objects of one TenantGateway have in common.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) tenant: &'a TenantGateway,
    pub(super) mode: Mode,
    pub(super) ports: Ports,
    /// Whether its class is ours. Others get both route kinds on every TLS listener: Cilium before 1.20 merges
    /// listeners of one port (cilium#45559).
    pub(super) own: bool,
}

/// A TLS listener that belongs to one hostname.
pub(super) struct Item<'a> {
    pub(super) name: String,
    pub(super) hostname: &'a str,
    pub(super) secret: String,
    /// Only this namespace, where others contend.
    pub(super) only: Option<&'a str>,
}

/// Metadata with the owner: `name` in the TenantGateway's namespace.
pub(super) fn meta(tenant: &TenantGateway, name: &str, labels: &[(&str, &str)]) -> Value {
    let mut all = serde_json::Map::new();
    all.insert("cozystack.io/managed-by".into(), json!("cozystack-controller"));
    all.extend(labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
    json!({"namespace": *tenant.name.namespace, "name": name, "labels": all, "ownerReferences": [{
        "apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway", "name": *tenant.name.name,
        "uid": tenant.uid, "controller": true, "blockOwnerDeletion": true}]})
}

pub(super) fn object(api_version: &str, kind: &str, meta: Value, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec})
}

impl Frame<'_> {
    fn tls(&self, name: &str, hostname: &str, protocol: &str, tls: Value, only: Option<&str>) -> Value {
        let kinds: &[&str] = match (self.own, protocol) {
            (false, _) => &["HTTPRoute", "TLSRoute"],
            (true, "TLS") => &["TLSRoute"],
            (true, _) => &["HTTPRoute"],
        };
        let kinds: Vec<Value> = kinds.iter().map(|kind| json!({"group": GATEWAY_GROUP, "kind": kind})).collect();
        let mut labels = json!({GATEWAY_LABEL: *self.tenant.name.namespace});
        if let Some(only) = only {
            labels["kubernetes.io/metadata.name"] = json!(only);
        }
        json!({"name": name, "port": self.ports.https, "protocol": protocol, "hostname": hostname, "tls": tls,
            "allowedRoutes": {"kinds": kinds,
                "namespaces": {"from": "Selector", "selector": {"matchLabels": labels}}}})
    }

    fn terminating(&self, name: &str, hostname: &str, secret: &str, only: Option<&str>) -> Value {
        let tls = json!({"mode": "Terminate", "certificateRefs": [{"name": secret}]});
        self.tls(name, hostname, "HTTPS", tls, only)
    }

    /// The listener of one item.
    pub(super) fn item(&self, item: &Item<'_>) -> Value {
        self.terminating(&item.name, item.hostname, &item.secret, item.only)
    }

    /// The Secret that wildcard listeners use.
    pub(super) fn wildcard_secret(&self) -> String {
        match (&self.tenant.spec.wildcard_secret_ref, self.mode) {
            (Some(secret), Mode::ExistingSecret) => secret.name.clone(),
            _ => names::wildcard_certificate(&self.tenant.name.name),
        }
    }

    /// The Gateway: `http`, then the wildcards of the apex where there are any, the items in order, and passthrough.
    /// `only` says which namespace alone may attach to a listener that every such Gateway has.
    pub(super) fn gateway(&self, items: Vec<Value>, sets: bool, only: &dyn Fn(&str) -> Option<String>) -> Value {
        let tenant = self.tenant;
        let namespace = &*tenant.name.namespace;
        let mut open = vec![namespace];
        if namespace != CERT_MANAGER {
            open.push(CERT_MANAGER);
        }
        let expression = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": open});
        let mut listeners = vec![json!({"name": "http", "port": self.ports.http, "protocol": "HTTP",
            "allowedRoutes": {"namespaces": {"from": "Selector", "selector": {"matchExpressions": [expression]}}}})];
        let apex = &tenant.spec.apex;
        if !self.mode.per_host() {
            let secret = self.wildcard_secret();
            listeners.push(self.terminating("https", &format!("*.{apex}"), &secret, None));
            listeners.push(self.terminating("https-apex", apex, &secret, only(apex).as_deref()));
        }
        listeners.extend(items);
        for service in tenant.passthrough() {
            let (name, hostname) = (names::passthrough_listener(&service), format!("{service}.{apex}"));
            let tls = json!({"mode": "Passthrough"});
            listeners.push(self.tls(&name, &hostname, "TLS", tls, only(&hostname).as_deref()));
        }
        let mut spec = json!({"gatewayClassName": class(tenant), "listeners": listeners});
        let addresses = tenant.addresses().unwrap_or_default();
        if !addresses.is_empty() {
            let address = |ip: &std::net::IpAddr| json!({"type": "IPAddress", "value": ip.to_string()});
            spec["addresses"] = addresses.iter().map(address).collect();
        }
        if sets {
            spec["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
        }
        let meta = meta(tenant, &tenant.name.name, &[("cozystack.io/gateway", namespace)]);
        object("gateway.networking.k8s.io/v1", "Gateway", meta, spec)
    }

    /// A ListenerSet with what the Gateway has no room for.
    pub(super) fn overflow(&self, number: usize, items: Vec<Value>) -> Value {
        let tenant = self.tenant;
        let name = names::overflow(&tenant.name.name, number);
        let parent = json!({"group": GATEWAY_GROUP, "kind": "Gateway", "name": *tenant.name.name});
        let meta = meta(tenant, &name, &[("cozystack.io/tenantgateway", &tenant.name.name)]);
        object("gateway.networking.k8s.io/v1", "ListenerSet", meta, json!({"parentRef": parent, "listeners": items}))
    }

    /// The route that sends plain HTTP to HTTPS.
    pub(super) fn redirect(&self) -> Value {
        let tenant = self.tenant;
        let name = names::redirect(&tenant.name.name);
        let parent =
            json!({"group": GATEWAY_GROUP, "kind": "Gateway", "name": *tenant.name.name, "sectionName": "http"});
        let mut redirect = json!({"scheme": "https", "statusCode": 301});
        if self.ports.https != 443 {
            redirect["port"] = json!(self.ports.https);
        }
        let filter = json!({"type": "RequestRedirect", "requestRedirect": redirect});
        let meta = meta(tenant, &name, &[("cozystack.io/tenantgateway", &tenant.name.name)]);
        let spec = json!({"parentRefs": [parent], "rules": [{"filters": [filter]}]});
        object("gateway.networking.k8s.io/v1", "HTTPRoute", meta, spec)
    }
}

/// The class of a TenantGateway's Gateway.
pub(super) fn class(tenant: &TenantGateway) -> &str {
    Some(tenant.spec.gateway_class_name.as_str()).filter(|class| !class.is_empty()).unwrap_or("cilium")
}

/// How many listeners of a Gateway are no items.
pub(super) fn fixed(tenant: &TenantGateway, mode: Mode) -> usize {
    1 + if mode.per_host() { 0 } else { 2 } + tenant.passthrough().len()
}

/// The certificate of one host.
pub(super) fn host_certificate(tenant: &TenantGateway, hostname: &str) -> Value {
    let name = names::host_certificate(&tenant.name.name, hostname);
    let labels = [("cozystack.io/tenantgateway", &*tenant.name.name), ("cozystack.io/per-listener-cert", "true")];
    certificate(tenant, &name, &labels, &[hostname.to_owned()])
}

/// The names on the wildcard certificate: apex and `*.apex`, then each child and `*.child`.
pub(super) fn wildcard_names<'a>(tenant: &'a TenantGateway, children: impl Iterator<Item = &'a str>) -> Vec<String> {
    let all = std::iter::once(tenant.spec.apex.as_str()).chain(children);
    all.flat_map(|apex| [apex.to_owned(), format!("*.{apex}")]).collect()
}

/// cert-manager's Certificate, which has the name of its Secret.
pub(super) fn certificate(tenant: &TenantGateway, name: &str, labels: &[(&str, &str)], dns_names: &[String]) -> Value {
    let issuer = json!({"kind": "Issuer", "name": names::issuer(&tenant.name.name)});
    let spec = json!({"secretName": name, "issuerRef": issuer, "dnsNames": dns_names});
    object("cert-manager.io/v1", "Certificate", meta(tenant, name, labels), spec)
}
