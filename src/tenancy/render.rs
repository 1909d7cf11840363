//! The objects themselves, as plain values.

use serde_json::{Value, json};

use super::names;
use super::tenant_gateway::{DIRECTORY, Mode, SecretKey, TenantGateway};
use crate::model::ObjectName;

/// The label that tells which namespaces may attach.
pub const GATEWAY_LABEL: &str = "namespace.cozystack.io/gateway";
/// The label that tells a namespace's apex.
pub const HOST_LABEL: &str = "namespace.cozystack.io/host";
/// The annotation that tells who wrote the gateway label.
pub const ATTACHED_BY: &str = "cozystack.io/gateway-attached-by";
/// The namespace whose challenge routes may attach to port 80.
const CERT_MANAGER: &str = "cozy-cert-manager";
const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// A listener on port 443 that belongs to one hostname.
pub(super) struct Item<'a> {
    pub(super) name: String,
    pub(super) hostname: &'a str,
    pub(super) secret: String,
    /// Only this namespace, where others contend.
    pub(super) only: Option<&'a str>,
}

/// Metadata with the owner: `name` in the TenantGateway's namespace.
fn meta(tenant: &TenantGateway, name: &str, labels: &[(&str, &str)]) -> Value {
    let mut all = serde_json::Map::new();
    all.insert("cozystack.io/managed-by".into(), json!("cozystack-controller"));
    all.extend(labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
    json!({"namespace": *tenant.name.namespace, "name": name, "labels": all, "ownerReferences": [{
        "apiVersion": "gateway.cozystack.io/v1alpha1", "kind": "TenantGateway", "name": *tenant.name.name,
        "uid": tenant.uid, "controller": true, "blockOwnerDeletion": true}]})
}

fn on_443(tenant: &TenantGateway, name: &str, hostname: &str, protocol: &str, tls: Value) -> Value {
    let kinds = ["HTTPRoute", "TLSRoute"].map(|kind| json!({"group": GATEWAY_GROUP, "kind": kind}));
    json!({"name": name, "port": 443, "protocol": protocol, "hostname": hostname, "tls": tls,
        "allowedRoutes": {"kinds": kinds, "namespaces": {"from": "Selector",
            "selector": {"matchLabels": {GATEWAY_LABEL: *tenant.name.namespace}}}}})
}

fn terminating(tenant: &TenantGateway, name: &str, hostname: &str, secret: &str) -> Value {
    on_443(tenant, name, hostname, "HTTPS", json!({"mode": "Terminate", "certificateRefs": [{"name": secret}]}))
}

/// The listener of one item.
pub(super) fn item(tenant: &TenantGateway, item: &Item<'_>) -> Value {
    let mut listener = terminating(tenant, &item.name, item.hostname, &item.secret);
    if let Some(only) = item.only {
        listener["allowedRoutes"]["namespaces"]["selector"] =
            json!({"matchLabels": {GATEWAY_LABEL: *tenant.name.namespace, "kubernetes.io/metadata.name": only}});
    }
    listener
}

/// The Secret that wildcard listeners use.
pub(super) fn wildcard_secret(tenant: &TenantGateway, mode: Mode) -> String {
    match (&tenant.spec.wildcard_secret_ref, mode) {
        (Some(secret), Mode::ExistingSecret) => secret.name.clone(),
        _ => names::wildcard_certificate(&tenant.name.name),
    }
}

/// The Gateway: `http`, then the wildcards of the apex where there are any, the items in order, and passthrough.
pub(super) fn gateway(tenant: &TenantGateway, mode: Mode, items: Vec<Value>, overflows: bool) -> Value {
    let namespace = &*tenant.name.namespace;
    let mut open = vec![namespace];
    if namespace != CERT_MANAGER {
        open.push(CERT_MANAGER);
    }
    let expression = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": open});
    let mut listeners = vec![json!({"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {
        "from": "Selector", "selector": {"matchExpressions": [expression]}}}})];
    let apex = &tenant.spec.apex;
    if !mode.per_host() {
        let secret = wildcard_secret(tenant, mode);
        listeners.push(terminating(tenant, "https", &format!("*.{apex}"), &secret));
        listeners.push(terminating(tenant, "https-apex", apex, &secret));
    }
    listeners.extend(items);
    for service in tenant.passthrough() {
        let (name, hostname) = (names::passthrough_listener(&service), format!("{service}.{apex}"));
        listeners.push(on_443(tenant, &name, &hostname, "TLS", json!({"mode": "Passthrough"})));
    }
    let class = Some(tenant.spec.gateway_class_name.as_str()).filter(|class| !class.is_empty()).unwrap_or("cilium");
    let mut spec = json!({"gatewayClassName": class, "listeners": listeners});
    if overflows {
        spec["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    }
    object(
        "gateway.networking.k8s.io/v1",
        "Gateway",
        meta(tenant, &tenant.name.name, &[("cozystack.io/gateway", namespace)]),
        spec,
    )
}

/// How many listeners of a Gateway are no items.
pub(super) fn fixed(tenant: &TenantGateway, mode: Mode) -> usize {
    1 + if mode.per_host() { 0 } else { 2 } + tenant.passthrough().len()
}

/// A ListenerSet with what the Gateway has no room for.
pub(super) fn overflow(tenant: &TenantGateway, number: usize, items: Vec<Value>) -> Value {
    let name = names::overflow(&tenant.name.name, number);
    let parent = json!({"group": GATEWAY_GROUP, "kind": "Gateway", "name": *tenant.name.name});
    let meta = meta(tenant, &name, &[("cozystack.io/tenantgateway", &tenant.name.name)]);
    object("gateway.networking.k8s.io/v1", "ListenerSet", meta, json!({"parentRef": parent, "listeners": items}))
}

/// The route that sends port 80 to HTTPS.
pub(super) fn redirect(tenant: &TenantGateway) -> Value {
    let name = names::redirect(&tenant.name.name);
    let parent = json!({"group": GATEWAY_GROUP, "kind": "Gateway", "name": *tenant.name.name, "sectionName": "http"});
    let filter = json!({"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 301}});
    let meta = meta(tenant, &name, &[("cozystack.io/tenantgateway", &tenant.name.name)]);
    let spec = json!({"parentRefs": [parent], "rules": [{"filters": [filter]}]});
    object("gateway.networking.k8s.io/v1", "HTTPRoute", meta, spec)
}

/// The certificate of one host.
pub(super) fn host_certificate(tenant: &TenantGateway, hostname: &str) -> Value {
    let name = names::host_certificate(&tenant.name.name, hostname);
    let labels = [("cozystack.io/tenantgateway", &*tenant.name.name), ("cozystack.io/per-listener-cert", "true")];
    certificate(tenant, &name, &labels, vec![hostname.to_owned()])
}

/// The wildcard certificate: apex and `*.apex`, then each child and `*.child`.
pub(super) fn wildcard_certificate<'a>(tenant: &'a TenantGateway, children: impl Iterator<Item = &'a str>) -> Value {
    let all = std::iter::once(tenant.spec.apex.as_str()).chain(children);
    let names = all.flat_map(|apex| [apex.to_owned(), format!("*.{apex}")]).collect();
    certificate(tenant, &names::wildcard_certificate(&tenant.name.name), &[], names)
}

fn certificate(tenant: &TenantGateway, name: &str, labels: &[(&str, &str)], dns_names: Vec<String>) -> Value {
    let issuer = json!({"kind": "Issuer", "name": names::issuer(&tenant.name.name)});
    let spec = json!({"secretName": name, "issuerRef": issuer, "dnsNames": dns_names});
    object("cert-manager.io/v1", "Certificate", meta(tenant, name, labels), spec)
}

/// The Issuer of the mode; `None` where certificates come from elsewhere.
pub(super) fn issuer(tenant: &TenantGateway, mode: Mode) -> Option<Value> {
    let solver = match mode {
        Mode::InternalCa | Mode::ExistingSecret => return None,
        Mode::Http01 => {
            let ObjectName { namespace, name } = &tenant.name;
            let parent = json!({"group": GATEWAY_GROUP, "kind": "Gateway", "namespace": **namespace, "name": **name,
                "sectionName": "http"});
            json!({"http01": {"gatewayHTTPRoute": {"parentRefs": [parent]}}})
        }
        Mode::Dns01 => json!({"dns01": provider(tenant)?}),
    };
    let stage = tenant.spec.issuer_name == "letsencrypt-stage";
    let server = tenant.annotations.get(DIRECTORY).map_or(
        if stage {
            "https://acme-staging-v02.api.letsencrypt.org/directory"
        } else {
            "https://acme-v02.api.letsencrypt.org/directory"
        },
        String::as_str,
    );
    let key = json!({"name": names::acme_account(&tenant.name.name)});
    let spec = json!({"acme": {"server": server, "privateKeySecretRef": key, "solvers": [solver]}});
    Some(object("cert-manager.io/v1", "Issuer", meta(tenant, &names::issuer(&tenant.name.name), &[]), spec))
}

fn provider(tenant: &TenantGateway) -> Option<Value> {
    let dns01 = tenant.spec.dns01.as_ref()?;
    let secret = |key: &SecretKey| json!({"name": key.name, "key": key.key});
    Some(match dns01.provider.as_str() {
        "cloudflare" => {
            json!({"cloudflare": {"apiTokenSecretRef": secret(&dns01.cloudflare.as_ref()?.api_token_secret_ref)}})
        }
        "route53" => {
            let given = dns01.route53.as_ref()?;
            let mut block = json!({"region": given.region, "accessKeyID": given.access_key_id});
            // A reference without a name is the chart's way of saying "ambient credentials".
            if let Some(key) = given.secret_access_key_secret_ref.as_ref().filter(|key| !key.name.is_empty()) {
                block["secretAccessKeySecretRef"] = secret(key);
            }
            json!({"route53": block})
        }
        "digitalocean" => {
            json!({"digitalocean": {"tokenSecretRef": secret(&dns01.digitalocean.as_ref()?.token_secret_ref)}})
        }
        _ => {
            let given = dns01.rfc2136.as_ref()?;
            let algorithm = Some(given.tsig_algorithm.as_str()).filter(|a| !a.is_empty()).unwrap_or("HMACSHA256");
            json!({"rfc2136": {"nameserver": given.nameserver, "tsigKeyName": given.tsig_key_name,
                "tsigAlgorithm": algorithm, "tsigSecretSecretRef": secret(&given.tsig_secret_secret_ref)}})
        }
    })
}

fn object(api_version: &str, kind: &str, meta: Value, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec})
}
