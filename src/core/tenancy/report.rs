//! Saying what was decided: verdicts on claims, and how ready a TenantGateway is.

use std::sync::Arc;

use super::claim::Rank;
use super::claims::{Claim, ClaimId};
use super::delta::{Derived, DerivedKind, Verdict};
use super::engine::{Dirty, Finding, Tenancy};
use super::evaluate::{CHILDREN, NAMES};
use super::hosts::{Held, Host};
use super::{ClaimKind, Claimant, Mode, Readiness, names};
use crate::model::{Hostname, ObjectName, Reason};

impl Tenancy {
    /// The verdict on a claim. It names what the claimant asked for, and nothing of others.
    pub(super) fn judge(&mut self, id: ClaimId, dirty: &mut Dirty) {
        self.counters.verdicts += 1;
        let Claim { key, tenant, bids, refused, .. } = &self.claims[id];
        let claimant = self.claims.claimant(key);
        let mut findings = refused.clone();
        let (mut granted, mut lost, mut elsewhere, mut reserved) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut sets = Vec::new();
        let (mut on_gateway, mut undecided) = (false, 0);
        // Plain HTTP stands in the Gateway, wherever the listener for TLS is.
        let plain = claimant.is_some_and(|c| c.naming(tenant).any(|parent| self.is_plain_only(parent)));
        let is_secure = |held: &Held| held.bids.iter().any(|bid| bid.claim == id && bid.secure);
        for held in bids.iter().map(|bid| &self.hosts[*bid]) {
            let name = &held.host.hostname;
            match &held.owner {
                Some(owner) if *owner.rank.namespace() == key.name.namespace => {
                    match self.obstacle(claimant, held, is_secure(held)) {
                        Some(obstacle) => findings.push(obstacle),
                        None => {
                            granted.push(name.clone());
                            on_gateway |= plain;
                            if !is_secure(held) {
                                continue;
                            }
                            match held.place.unwrap_or_else(|| self.shard_of(tenant, name)) {
                                0 => on_gateway = true,
                                number => {
                                    sets.push(ObjectName::new(
                                        tenant.namespace.clone(),
                                        names::overflow(&tenant.name, number),
                                    ));
                                }
                            }
                        }
                    }
                }
                None if self.is_undecided(name) => undecided += 1,
                None if self.is_given_up(name) => reserved.push(name.to_string()),
                None if self.is_owned(name) => elsewhere.push(name.to_string()),
                _ => lost.push(name.to_string()),
            }
        }
        sets.sort();
        sets.dedup();
        let here = format!("already claimed by another route on TenantGateway {tenant}");
        let there = "already claimed by a route on another TenantGateway".to_owned();
        let hold = "given up a short while ago and reserved for whom it belonged to (--hostname-hold)".to_owned();
        for (mut names, why) in [(lost, here), (elsewhere, there), (reserved, hold)] {
            if names.is_empty() {
                continue;
            }
            names.sort();
            let text = format!("{} {why}", names.join(", "));
            findings.push((Reason::HostnameConflict, text));
        }
        // The conflict goes first: it is what the page promises to say.
        findings.sort_by_key(|finding| (finding.0 != Reason::HostnameConflict, finding.clone()));
        let message = findings.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("; ");
        let seen = !bids.is_empty() || !findings.is_empty();
        if undecided > 0 && granted.is_empty() && findings.is_empty() {
            // What was said before stays until there is something to say; nothing is served by it.
            let claim = &mut self.claims[id];
            if let Some(verdict) = claim.verdict.as_mut().filter(|verdict| !verdict.granted.is_empty()) {
                verdict.granted.clear();
                dirty.judged.push(((claim.key.clone(), claim.tenant.clone()), Some(verdict.clone())));
            }
            return;
        }
        let reason = findings.first().map_or(Reason::Accepted, |(reason, _)| *reason);
        let generation = claimant.map_or(0, |claimant| claimant.generation);
        let told = claimant.filter(|_| seen).map(|claimant| self.told(claimant, tenant, &granted)).unwrap_or_default();
        let verdict = seen.then_some(Verdict { generation, reason, message, granted, sets, on_gateway, told });
        let claim = &mut self.claims[id];
        if claim.verdict != verdict {
            dirty.judged.push(((claim.key.clone(), claim.tenant.clone()), verdict.clone()));
            claim.verdict = verdict;
        }
        self.claims.release(id);
    }

    /// Whether a hostname has an owner through any TenantGateway.
    fn is_owned(&self, hostname: &Hostname) -> bool {
        self.hosts.named(hostname).any(|id| self.hosts[id].owner.is_some())
    }

    /// The child apex over a host that the Gateway's one certificate has no room for.
    pub(super) fn beyond_the_certificate(&self, host: &Host) -> Option<Hostname> {
        let valid = self.valid.get(&host.tenant).filter(|valid| valid.mode == Mode::Dns01)?;
        // What `*.apex` stands for is covered all the same (RFC 9525, 6.3: one label).
        if host.hostname.parent().is_some_and(|parent| parent.as_str()[2..] == *valid.apex.as_str()) {
            return None;
        }
        let over = |child: &Host| child.hostname.covers(&host.hostname);
        self.beyond_of(&host.tenant).find(|child| over(child)).map(|child| child.hostname.clone())
    }

    /// Why a host that is owned is not served.
    fn obstacle(&self, claimant: Option<&Claimant>, held: &Held, secure: bool) -> Option<Finding> {
        let (claimant, host) = (claimant?, &held.host);
        let key = &claimant.key;
        let (tenant, name) = (&host.tenant, host.hostname.as_str());
        if key.kind == ClaimKind::HttpRoute && !secure {
            return None;
        }
        if let Some(names) = held.names.as_ref().filter(|_| !self.waiting.is_empty()) {
            if self.waiting.contains(&(tenant.clone(), names.listener.clone()), host) {
                let text = format!("{name}: another hostname has listener name {} already", names.listener);
                return Some((Reason::NameCollision, text));
            }
            if self.waiting.contains(&(tenant.clone(), Arc::from("")), host) {
                let text = format!("{name}: the Gateway has 64 listeners, and takes no more");
                return Some((Reason::ListenerLimitReached, text));
            }
        }
        if let Some(names) = held.names.as_ref().filter(|_| !self.foreign.is_empty()) {
            let secret = ObjectName::new(tenant.namespace.clone(), names.certificate.clone());
            if self.foreign.contains(tenant, &Derived { kind: DerivedKind::Certificate, name: secret.clone() }) {
                let text = format!("{name}: Certificate {} is not owned by TenantGateway {tenant}", secret.name);
                return Some((Reason::ForeignObject, text));
            }
        }
        if let Some(child) = self.beyond_the_certificate(host) {
            let text =
                format!("{name}: a certificate has room for {NAMES} names, and those of {child} are not among them");
            return Some((Reason::CertificateLimitReached, text));
        }
        if key.kind == ClaimKind::ListenerSet {
            return None;
        }
        let same = |rank: &Rank| *rank.namespace() == key.name.namespace && rank.kind == ClaimKind::ListenerSet;
        if held.ranks().any(same) {
            let text = format!("{name}: a ListenerSet of this namespace has its listener: name that one as parent");
            return Some((Reason::NoMatchingListenerHostname, text));
        }
        if key.kind == ClaimKind::GrpcRoute && !self.is_own(tenant) {
            let text =
                format!("{name}: the listeners take HTTPRoute and TLSRoute; the name is kept for this namespace");
            return Some((Reason::NotAllowedByListeners, text));
        }
        let set = self.reaches(claimant, tenant, held.place?).err()?;
        let text =
            format!("{name}: add a parentRef with kind ListenerSet, name {} and namespace {}", set.name, set.namespace);
        Some((Reason::ListenerSetParentRequired, text))
    }

    /// `Ready` of a TenantGateway.
    pub(super) fn report(&mut self, tenant: &ObjectName, dirty: &mut Dirty) {
        if self.is_stopped(tenant) && self.given.contains_key(tenant) {
            return;
        }
        let new = self.given.get(tenant).and(self.valid.get(tenant)).map(|valid| {
            let mut findings: Vec<(&'static str, String)> = Vec::new();
            for key in self.foreign.of(tenant).take(10) {
                let text = format!("{} {} is not owned by TenantGateway {tenant}", key.kind.as_str(), key.name);
                findings.push(("ForeignObject", text));
            }
            for namespace in &valid.object.spec.attached_namespaces {
                if self.namespaces.contains_key(namespace.as_str())
                    && self.gateway_of(namespace).is_some_and(|of| of != tenant.namespace)
                {
                    let text =
                        format!("spec.attachedNamespaces: {namespace} is attached elsewhere; its label is left alone");
                    findings.push(("NamespaceAttachedElsewhere", text));
                }
            }
            if valid.mode == Mode::Dns01 && self.beyond_of(tenant).next().is_some() {
                let text = format!("more than {CHILDREN} child apexes: a certificate has room for {NAMES} names");
                findings.push(("TooManyNames", text));
            }
            findings.extend(self.issues_not(valid.mode, valid.source, valid.frame.own));
            findings.extend(self.lacks(valid));
            let reason = findings.first().map_or("Reconciled", |(reason, _)| *reason);
            let message = findings.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("; ");
            Readiness { reason, message, frozen: false }
        });
        if self.readiness.get(tenant) != new.as_ref() {
            dirty.delta.tenants.insert(tenant.clone(), new.clone());
            match new {
                Some(new) => drop(self.readiness.insert(tenant.clone(), new)),
                None => drop(self.readiness.remove(tenant)),
            }
        }
    }
}
