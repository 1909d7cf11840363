//! Routes that bring the questions of HTTP-01 to us, at Gateways that somebody else serves.
//!
//! A Gateway has one without hostnames, which stays: nothing is written per challenge. A hostname goes before every path,
//! though (Gateway API, `HTTPRoute.spec.hostnames`), so that a route with hostnames on port 80 hides it; such a route, which
//! only the Gateway's own namespace may have there, has one of ours beside it, with the same hostnames. None has a hostname
//! that is not on port 80 already: that would hide the redirect.
//!
//! They stand in our namespace, where the Service is that they lead to, and belong to the Namespace of the TenantGateway.

use std::sync::Arc;

use serde_json::{Value, json};

use super::claims::{Claim, ClaimId};
use super::delta::{Certificates, Derived, DerivedKind, Settings, SolverService};
use super::desired::Desired;
use super::engine::{Dirty, Tenancy};
use super::{ClaimKey, ClaimKind, Claimant, Mode, names};
use crate::inputs::{Kind, ParentRef};
use crate::model::{Hostname, ObjectName};

/// RFC 8555, 8.3.
const PATH: &str = "/.well-known/acme-challenge/";

/// How the challenges of one Gateway reach us.
#[derive(Debug, PartialEq)]
pub(super) struct Solving {
    service: SolverService,
    /// The UID of the TenantGateway's Namespace.
    pub(super) namespace_uid: String,
}

impl Solving {
    /// `None` where nobody asks on port 80, or we serve the Gateway, or somebody else issues.
    pub(super) fn new(mode: Mode, own: bool, namespace_uid: &str, settings: &Settings) -> Option<Self> {
        let ours = settings.certificates == Certificates::Own && mode == Mode::Http01 && !own;
        let service = settings.solver.clone().filter(|to| to.answers && ours && !namespace_uid.is_empty())?;
        Some(Self { service, namespace_uid: namespace_uid.to_owned() })
    }

    /// The namespace whose routes have to be let in.
    pub(super) fn namespace(&self) -> &str {
        &self.service.namespace
    }
}

/// A route of a Gateway.
#[derive(Debug, PartialEq)]
pub(super) struct SolverRoute {
    solving: Arc<Solving>,
    name: String,
    /// None of them: it is for all.
    hostnames: Vec<Hostname>,
}

impl SolverRoute {
    pub(super) fn meta(&self, tenant: &ObjectName) -> Value {
        json!({"namespace": self.solving.namespace(), "name": self.name,
            "labels": {"app.kubernetes.io/managed-by": "gatewright"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": *tenant.namespace,
                "uid": self.solving.namespace_uid, "controller": true, "blockOwnerDeletion": false}]})
    }

    pub(super) fn spec(&self, tenant: &ObjectName, mut parent: Value) -> Value {
        let service = &self.solving.service;
        parent["namespace"] = json!(*tenant.namespace);
        let backend = json!({"name": service.name, "port": service.port});
        let rule = json!({"matches": [{"path": {"type": "PathPrefix", "value": PATH}}], "backendRefs": [backend]});
        let mut spec = json!({"parentRefs": [parent], "rules": [rule]});
        if !self.hostnames.is_empty() {
            spec["hostnames"] = self.hostnames.iter().map(|hostname| json!(hostname.as_str())).collect();
        }
        spec
    }
}

impl Tenancy {
    /// The route of a Gateway that is for all hostnames.
    pub(super) fn solve(&mut self, tenant: &ObjectName, dirty: &mut Dirty) {
        self.emit_solver(tenant, names::challenges(tenant, None), Vec::new(), true, dirty);
    }

    /// The route beside one with hostnames on port 80.
    pub(super) fn solve_beside(&mut self, id: ClaimId, dirty: &mut Dirty) {
        let Claim { key, tenant, .. } = &self.claims[id];
        let may = key.name.namespace == tenant.namespace && key.kind != ClaimKind::ListenerSet;
        if self.settings.solver.is_none() || !may {
            return;
        }
        let there = self.claims.claiming(id).filter(|claimant| self.is_plain(claimant, tenant));
        let mut hostnames: Vec<Hostname> =
            there.into_iter().flat_map(|claimant| claimant.hostnames.iter().flatten()).cloned().collect();
        hostnames.sort();
        hostnames.dedup();
        let name = names::challenges(tenant, Some(&format!("{:?} {}", key.kind, key.name.name)));
        let tenant = tenant.clone();
        let wanted = !hostnames.is_empty();
        self.emit_solver(&tenant, name, hostnames, wanted, dirty);
    }

    /// Whether a claimant may be on port 80 of a Gateway.
    fn is_plain(&self, claimant: &Claimant, tenant: &ObjectName) -> bool {
        let port = self.settings.ports.http;
        let reaches = |parent: &ParentRef| {
            let named = parent.target(&claimant.key.name.namespace);
            named.is_some_and(|(kind, name)| kind == Kind::Gateway && name == *tenant)
                && parent.section.as_deref().is_none_or(|section| section == "http")
                && parent.port.is_none_or(|of| of == port)
        };
        !claimant.challenge && claimant.parents.iter().any(reaches)
    }

    fn emit_solver(
        &mut self,
        tenant: &ObjectName,
        name: String,
        hosts: Vec<Hostname>,
        wanted: bool,
        dirty: &mut Dirty,
    ) {
        let Some(namespace) = self.settings.solver.as_ref().map(|service| service.namespace.clone()) else { return };
        let key = Derived { kind: DerivedKind::HttpRoute, name: ObjectName::new(namespace, name.as_str()) };
        let frame = self.valid.get(tenant).map(|valid| &valid.frame).filter(|_| wanted);
        let solving = frame.and_then(|frame| Some((frame, frame.solving.clone()?)));
        let uid = solving.as_ref().map(|(_, solving)| solving.namespace_uid.as_str());
        let foreign = uid.is_some_and(|uid| self.existing.get(&key).is_some_and(|there| there.owner != *uid));
        let value = solving.map(|(frame, solving)| {
            Desired::challenges(&frame.owner, frame.plain(), SolverRoute { solving, name, hostnames: hosts })
        });
        self.emit_as(tenant, key, value, foreign, dirty);
    }

    /// Takes note of an object under the name of a route of ours: what others put there, or took away, is looked at again.
    pub(super) fn observe_solver(&mut self, key: &Derived, owner: Option<&str>, dirty: &mut Dirty) {
        let Some(tenant) = self.tenant_of(key).cloned() else { return };
        let solving = self.valid.get(&tenant).and_then(|valid| valid.frame.solving.as_ref());
        let theirs = owner.is_some_and(|owner| solving.is_some_and(|solving| solving.namespace_uid != owner));
        if theirs || self.foreign.contains(&tenant, key) {
            dirty.claims.extend(self.claims.on(&tenant));
            dirty.tenants.insert(tenant);
        }
    }

    /// Whether a claimant is a route of ours that leads challenges to us.
    pub(super) fn is_solver(&self, claim: &ClaimKey, tenant: &ObjectName) -> bool {
        let ours = self.settings.solver.as_ref().is_some_and(|service| service.namespace == claim.name.namespace);
        ours && claim.kind == ClaimKind::HttpRoute && is_of(&claim.name.name, tenant)
    }

    /// The TenantGateways at which a host may be claimed and whose challenges come to us through a route.
    pub fn solved(&self, host: &Hostname) -> Vec<&ObjectName> {
        let solves = |tenant: &&ObjectName| self.valid.get(*tenant).is_some_and(|valid| valid.frame.solving.is_some());
        self.hosts.named(host).map(|id| &self.hosts[id].host.tenant).filter(solves).collect()
    }
}

/// Whether the name of a route is one of those that a TenantGateway has.
pub(super) fn is_of(name: &str, tenant: &ObjectName) -> bool {
    let Some((namespace, rest)) = names::challenges_of(name) else { return false };
    let rest = rest.strip_prefix(&*tenant.name).filter(|_| namespace == &*tenant.namespace);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
