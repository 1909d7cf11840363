//! The stage that computes verdicts on claims.

use crate::delta::{Derived, DerivedKind, Verdict};
use crate::rule::claim::{ClaimId, Rank};
use crate::rule::names;
use crate::state::children::{ChildApexes, NAMES};
use crate::state::claims::{Claims, Finding};
use crate::state::derivations::Derivations;
use crate::state::dirty::Dirty;
use crate::state::hosts::{HostState, Hosts};
use crate::state::places::{Places, WaitingFor};
use crate::state::record::Records;
use crate::state::tenants::Tenants;
use crate::{ClaimKind, Claimant, Settings};
use gatewright_objects::model::{ObjectName, Reason};

/// The states that the stage reads and writes.
pub(crate) struct Judging<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) tenants: &'a Tenants,
    pub(crate) hosts: &'a Hosts,
    pub(crate) places: &'a Places,
    pub(crate) children: &'a ChildApexes,
    pub(crate) records: &'a Records,
    pub(crate) derivations: &'a Derivations,
    pub(crate) claims: &'a mut Claims,
}

impl Judging<'_> {
    /// Computes the verdict on a claim. It contains the claimant's own hostnames, and nothing about
    /// others.
    pub(crate) fn judge(self, id: ClaimId, dirty: &mut Dirty) {
        let claim = &self.claims[id];
        let (key, tenant) = claim.names();
        let bids = claim.bids();
        let claimant = self.claims.claimant(key);
        let mut findings = claim.refused().to_vec();
        let mut granted = Vec::new();
        let mut lost = Vec::new();
        let mut elsewhere = Vec::new();
        let mut reserved = Vec::new();
        let mut sets = Vec::new();
        let mut on_gateway = false;
        let mut undecided = 0;
        // The plain-HTTP listener is always in the Gateway, whatever the shard of the TLS listener.
        let plain = claimant.is_some_and(|c| {
            c.naming(tenant)
                .any(|parent| self.settings.ports.is_plain_only(parent))
        });
        let mut exceeded = None;
        for held in bids.iter().map(|bid| &self.hosts[*bid]) {
            let name = &held.host().hostname;
            match held.owner() {
                Some(owner) if *owner.rank.namespace() == key.name.namespace => {
                    match self.obstacle(claimant, held, is_secure(held, &id)) {
                        Some(obstacle) => findings.push(obstacle),
                        None => {
                            granted.push(name.clone());
                            on_gateway |= plain;
                            if !is_secure(held, &id) {
                                continue;
                            }
                            match held
                                .shard()
                                .unwrap_or_else(|| self.hosts.shard_of(tenant, name))
                            {
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
                None if self.records.is_undecided(name) => undecided += 1,
                None if self.records.is_given_up(name) => reserved.push(name.to_string()),
                None if self.hosts.is_owned(name) => elsewhere.push(name.to_string()),
                None if let Some(text) = self.records.beyond_quota(name, &key.name.namespace) => {
                    exceeded.get_or_insert((Reason::LimitReached, format!("{name}: {text}")));
                }
                _ => lost.push(name.to_string()),
            }
        }
        findings.extend(exceeded);
        sets.sort();
        sets.dedup();
        let here = format!("already claimed by another route on TenantGateway {tenant}");
        let there = "already claimed by a route on another TenantGateway".to_owned();
        let hold = "released recently, and reserved for its previous namespace (tenancy.hostnameHoldHours)"
            .to_owned();
        for (mut names, why) in [(lost, here), (elsewhere, there), (reserved, hold)] {
            if names.is_empty() {
                continue;
            }
            names.sort();
            let text = format!("{} {why}", names.join(", "));
            findings.push((Reason::HostnameConflict, text));
        }
        // The conflict comes first, as the Cozystack gateway page specifies.
        findings.sort_by_key(|finding| (finding.0 != Reason::HostnameConflict, finding.clone()));
        let message = findings
            .iter()
            .map(|(_, text)| text.as_str())
            .collect::<Vec<_>>()
            .join("; ");
        let seen = !bids.is_empty() || !findings.is_empty();
        if undecided > 0 && granted.is_empty() && findings.is_empty() {
            // The former reason stays until there is a new one; no hostname is served by it.
            if let Some(kept) = self.claims[id]
                .verdict()
                .filter(|verdict| !verdict.granted.is_empty())
                .cloned()
            {
                self.claims[id].judge(
                    Some(Verdict {
                        granted: Vec::new(),
                        ..kept
                    }),
                    dirty,
                );
            }
            return;
        }
        let reason = findings
            .first()
            .map_or(Reason::Accepted, |(reason, _)| *reason);
        let generation = claimant.map_or(0, |claimant| claimant.generation);
        let resolved = claimant.filter(|_| seen).zip(self.tenants.resolved(tenant));
        let parents = resolved.map_or_else(Vec::new, |(claimant, valid)| {
            self.settings
                .ports
                .parent_findings(claimant, valid, &granted, self.derivations)
        });
        let verdict = seen.then_some(Verdict {
            generation,
            reason,
            message,
            granted,
            sets,
            on_gateway,
            parents,
        });
        self.claims[id].judge(verdict, dirty);
        self.claims.release(id);
    }

    /// Why an owned host is not served.
    fn obstacle(
        &self,
        claimant: Option<&Claimant>,
        held: &HostState,
        secure: bool,
    ) -> Option<Finding> {
        let (claimant, host) = (claimant?, held.host());
        let key = &claimant.key;
        let tenant = &host.tenant;
        let name = host.hostname.as_str();
        if key.kind == ClaimKind::HttpRoute && !secure {
            return None;
        }
        if let Some(names) = held.names().filter(|_| self.places.any_waits()) {
            if self
                .places
                .waits(host, WaitingFor::Name(names.listener.clone()))
            {
                let text = format!(
                    "{name}: another hostname has listener name {} already",
                    names.listener
                );
                return Some((Reason::NameCollision, text));
            }
            if self.places.waits(host, WaitingFor::Room) {
                let text = format!("{name}: the Gateway has 64 listeners, and takes no more");
                return Some((Reason::ListenerLimitReached, text));
            }
        }
        if let Some(names) = held.names().filter(|_| self.derivations.any_blocked()) {
            let secret = ObjectName::new(tenant.namespace.clone(), names.certificate.clone());
            if self.derivations.is_blocked(
                tenant,
                &Derived {
                    kind: DerivedKind::Certificate,
                    name: secret.clone(),
                },
            ) {
                let text = format!(
                    "{name}: Certificate {} is not owned by TenantGateway {tenant}",
                    secret.name
                );
                return Some((Reason::ForeignObject, text));
            }
        }
        if let Some(child) = self
            .children
            .beyond_the_certificate(self.tenants.resolved(tenant), host)
        {
            let text = format!(
                "{name}: a certificate has room for {NAMES} names, and those of {child} are not among them"
            );
            return Some((Reason::CertificateLimitReached, text));
        }
        if key.kind.is_set() {
            return None;
        }
        let same = |rank: &Rank| *rank.namespace() == key.name.namespace && rank.kind.is_set();
        if held.ranks().any(same) {
            let text = format!(
                "{name}: a ListenerSet of this namespace has its listener: name that one as parent"
            );
            return Some((Reason::NoMatchingListenerHostname, text));
        }
        if key.kind == ClaimKind::GrpcRoute && !self.tenants.is_own(tenant) {
            let text = format!(
                "{name}: the listeners take HTTPRoute and TLSRoute; the name is kept for this namespace"
            );
            return Some((Reason::NotAllowedByListeners, text));
        }
        let set = self
            .tenants
            .reaches(claimant, tenant, held.shard()?)
            .err()?;
        let text = format!(
            "{name}: add a parentRef with kind ListenerSet, name {} and namespace {}",
            set.name, set.namespace
        );
        Some((Reason::ListenerSetParentRequired, text))
    }
}

fn is_secure(held: &HostState, id: &ClaimId) -> bool {
    held.bids().iter().any(|bid| bid.claim == *id && bid.secure)
}
