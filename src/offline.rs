//! Translates a set of objects once, from nothing, to readable documents: the resources for Envoy,
//! and the statuses.
//!
//! Pure; `gatewright translate` prints it, and the golden tests compare it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use serde_json::{Value, json};

use gatewright_core::inputs::{ExternalTrafficPolicy, Object, ObjectKey, SliceEndpoint};
use gatewright_core::model::{Hostname, Status, TICKET_KEY_BYTES, TicketKeys};
use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::statuses::{Context, Selection, documents};
use gatewright_core::tenancy::{self, ATTACHED_BY, Desired, GATEWAY_LABEL, Patch};
use gatewright_core::translate::{Change, Fact, ObjectStatus, Resource, ServiceIntent, Settings};
use gatewright_core::wanted::{Issuer, Solver, WantedCertificate};
use gatewright_envoy as envoy;

/// The translation of a set of objects.
pub struct Offline {
    /// Envoy's resources, sorted by kind and name, with every `Any` decoded and private keys
    /// redacted.
    pub resources: Vec<Value>,
    /// Every object of ours, reduced to its status.
    pub statuses: Vec<Value>,
    /// The certificates that would be requested from issuers.
    pub wants: Vec<Value>,
    /// The Services that Gateways want, abridged.
    pub services: Vec<Value>,
    /// The derived objects of tenancy, and labels of namespaces.
    pub desired: Vec<Value>,
    /// True if every condition of every object is as good as it can be.
    pub ok: bool,
}

/// Translates `objects` at the time `now`.
///
/// # Errors
/// When a resource cannot be rendered, which is a bug of ours.
pub fn translate(
    objects: Vec<Object>,
    settings: Settings,
    tenancy: tenancy::Settings,
    now: SystemTime,
) -> Result<Offline, envoy::RenderError> {
    let context = AtOnce {
        controller: settings.controller.clone(),
        time: jiff::Timestamp::try_from(now)
            .unwrap_or_default()
            .to_string(),
    };
    let mut pipeline = Pipeline::new(settings, tenancy, Written::Here);
    // Keys are not printed: any will do.
    let tickets = Change::Fact(Fact::TicketKeys(Some(TicketKeys::new(
        [0; TICKET_KEY_BYTES],
        &[],
    ))));
    let changes = objects.into_iter().map(Change::put).chain([tickets]);
    let outcome = pipeline.apply(changes.collect(), now);
    let resources = outcome
        .delta
        .resources
        .values()
        .flatten()
        .map(render)
        .collect::<Result<_, _>>()?;
    let statuses = documents(&pipeline, &context, &Selection::default());
    let own = pipeline
        .engine()
        .wants()
        .into_iter()
        .map(|(wanted, _)| wanted);
    let of_tenants = pipeline.tenancy().wants().values().cloned();
    let mut wanted: Vec<_> = own.chain(of_tenants).collect();
    wanted.sort_by(|a, b| a.secret.cmp(&b.secret));
    wanted.dedup_by(|a, b| a.secret == b.secret);
    let wants = wanted.iter().map(want).collect();
    let namespaces = outcome
        .tenancy
        .namespaces
        .iter()
        .map(|(name, patch)| label(name, patch));
    let services = pipeline
        .engine()
        .services()
        .values()
        .filter_map(service)
        .collect();
    let desired = pipeline
        .tenancy()
        .objects()
        .values()
        .map(Desired::document)
        .chain(namespaces)
        .collect();
    let ok = pipeline.engine().good_and_bad().1 == 0
        && outcome
            .tenancy
            .tenants
            .values()
            .flatten()
            .all(|readiness| readiness.reason == "Reconciled")
        && pipeline
            .tenancy()
            .verdicts()
            .all(|(.., verdict)| verdict.is_accepted());
    Ok(Offline {
        resources,
        statuses,
        wants,
        services,
        desired,
        ok,
    })
}

/// The context in which no Envoy is connected, and all transitions are at the given time.
pub(crate) struct AtOnce {
    pub(crate) controller: String,
    pub(crate) time: String,
}

impl Context for AtOnce {
    fn controller(&self) -> &str {
        &self.controller
    }

    fn add_acknowledgements(&self, _: &ObjectKey, status: &ObjectStatus) -> ObjectStatus {
        status.clone()
    }

    fn since(&self, _: &ObjectKey, _: &str, _: Status) -> String {
        self.time.clone()
    }
}

fn want(want: &WantedCertificate) -> Value {
    let names: Vec<&str> = want.names.iter().map(Hostname::as_str).collect();
    let mut entry = json!({"secret": want.secret.to_string(), "hostnames": names});
    match &want.issuer {
        Issuer::Named(name) => entry["issuer"] = json!(name),
        Issuer::Acme(acme) => {
            let solver = match &acme.solver {
                Solver::Http01 => "http01".to_owned(),
                Solver::Dns01(provider) => format!("dns01 by {}", provider.as_str()),
            };
            entry["issuer"] = json!({"directory": acme.directory, "account": acme.account.to_string(), "solver": solver});
        }
    }
    entry
}

/// Returns the Service that a Gateway wants, or the slices behind the one on which it stands,
/// abridged.
fn service(intent: &ServiceIntent) -> Option<Value> {
    let want = match intent {
        ServiceIntent::Wanted(want) => want,
        ServiceIntent::Slices(want) => {
            let ports: BTreeMap<&str, String> = want
                .ports
                .iter()
                .map(|(name, port)| (name.as_str(), port.to_string()))
                .collect();
            return Some(json!({
                "standsOn": want.service.to_string(), "gateway": want.gateway.to_string(), "slices": want.prefix,
                "ports": ports, "labels": want.labels, "annotations": want.annotations, "envoys": addresses(&want.envoys),
            }));
        }
        ServiceIntent::Left => return None,
    };
    let targets: BTreeMap<String, u16> = want
        .targets
        .iter()
        .map(|(port, to)| (port.to_string(), *to))
        .collect();
    Some(json!({
        "service": want.name.to_string(), "gateway": want.gateway.to_string(), "type": want.kind.as_str(),
        "externalTrafficPolicy": want.external_traffic_policy.map(ExternalTrafficPolicy::as_str), "address": want.address,
        "targets": targets, "labels": want.labels, "annotations": want.annotations, "envoys": addresses(&want.envoys),
    }))
}

fn addresses(envoys: &BTreeMap<IpAddr, SliceEndpoint>) -> Vec<&IpAddr> {
    envoys.keys().collect()
}

fn label(name: &str, patch: &Patch) -> Value {
    let metadata = match patch {
        Patch::Set(gateway) => {
            json!({"name": name, "labels": {GATEWAY_LABEL: **gateway}, "annotations": {ATTACHED_BY: **gateway}})
        }
        Patch::Strip => {
            json!({"name": name, "labels": {GATEWAY_LABEL: null}, "annotations": {ATTACHED_BY: null}})
        }
        Patch::Disown => json!({"name": name, "annotations": {ATTACHED_BY: null}}),
        Patch::Leave => json!({"name": name}),
    };
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

fn render(resource: &Resource) -> Result<Value, envoy::RenderError> {
    let rendered = match resource {
        Resource::Cluster(cluster) => envoy::render(&envoy::cluster(cluster)),
        Resource::Endpoints(endpoints) => envoy::render(&envoy::endpoints(endpoints)),
        Resource::Secret(secret) => envoy::render(&envoy::secret(secret)),
        Resource::Roots(roots) => envoy::render(&envoy::client_roots(roots)),
        Resource::Generic(secret) => envoy::render(&envoy::generic(secret)),
        Resource::Tickets(secret) => envoy::render(&envoy::ticket_keys(secret)),
        Resource::Scope(scope) => envoy::render(&envoy::scope(scope)),
        Resource::WideHosts(wide) => envoy::render(&envoy::wide_hosts(wide)),
        Resource::Table(table) => envoy::render(&envoy::table(table)),
        Resource::Frontend(frontend) => envoy::render(&envoy::listener(frontend)),
    }?;
    Ok(json!(rendered))
}
