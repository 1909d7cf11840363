//! The stage that decides which hostnames a claimant is entitled to claim.

use std::sync::Arc;

use smallvec::SmallVec;

use super::solver::Solvers;
use crate::delta::{Derived, DerivedKind};
use crate::rule::claim::{ClaimId, Rank, within};
use crate::rule::host::HostId;
use crate::rule::names::{self, lower_case};
use crate::rule::render::HOST_LABEL;
use crate::state::claims::{Claims, Finding};
use crate::state::derivations::Derivations;
use crate::state::dirty::Dirty;
use crate::state::hosts::{Bid, Hosts};
use crate::state::namespaces::Namespaces;
use crate::state::record::Records;
use crate::state::tenants::{ResolvedTenant, Tenants};
use crate::{ClaimKey, ClaimKind, Claimant, Mode, Settings, Source};
use gatewright_objects::domain_order::from_the_end;
use gatewright_objects::inputs::SetKind;
use gatewright_objects::model::{Hostname, ObjectName, Reason};

/// The states that the stage reads and writes.
pub(crate) struct Admitting<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) tenants: &'a Tenants,
    pub(crate) namespaces: &'a Namespaces,
    pub(crate) records: &'a mut Records,
    pub(crate) claims: &'a mut Claims,
    pub(crate) hosts: &'a mut Hosts,
    pub(crate) derivations: &'a mut Derivations,
}

impl Admitting<'_> {
    /// Divides a claimant's hostnames into bids and refusals.
    pub(crate) fn admit(mut self, id: ClaimId, dirty: &mut Dirty) {
        let (key, tenant) = self.claims[id].names();
        let (key, tenant) = (key.clone(), tenant.clone());
        let mut admitted = SmallVec::<[&Hostname; 2]>::new();
        let mut refused = Vec::new();
        let may_claim =
            |claimant: &&Claimant| !claimant.challenge && self.may_attach(&key, &tenant);
        let claimant = self.claims.claiming(id).filter(may_claim);
        if let (Some(claimant), Some(valid)) = (claimant, self.tenants.resolved(&tenant)) {
            let kept_off = self.settings.ports.kept_off_plain(claimant, valid);
            for hostname in &*claimant.hostnames {
                match hostname {
                    Err(error) => refused.push((Reason::InvalidHostname, error.to_string())),
                    Ok(hostname) => match self
                        .refusal(&key, hostname, valid)
                        .or_else(|| kept_off.clone())
                    {
                        Some(refusal) => refused.push(refusal),
                        None => admitted.push(hostname),
                    },
                }
            }
            if claimant.hostnames.is_empty() {
                refused.extend(nameless(key.kind));
            }
        }
        if let Some(claimant) = claimant.filter(|_| self.tenants.is_unmanaged(&tenant)) {
            let own = claimant.hostnames.iter().flatten();
            admitted.extend(own.filter(|hostname| {
                self.is_below(&key, hostname) && self.stands(&tenant, hostname)
            }));
        }
        refused.sort();
        refused.dedup();
        admitted.sort_by(|a, b| from_the_end(a, b));
        admitted.dedup();
        let secure: SmallVec<[bool; 2]> =
            match (self.claims.claimant(&key), self.tenants.resolved(&tenant)) {
                (Some(claimant), Some(valid)) => admitted
                    .iter()
                    .map(|n| self.settings.ports.is_secure(claimant, valid, n))
                    .collect(),
                _ => admitted.iter().map(|_| true).collect(),
            };
        let bids: SmallVec<[HostId; 2]> = admitted
            .into_iter()
            .map(|name| self.hosts.hold(&tenant, name))
            .collect();
        let before = self.claims[id].ask(bids.clone(), refused);
        let rank = Rank::of(&key);
        for (some, others, there) in [(&before, &bids, false), (&bids, &before, true)] {
            for host in some {
                let found = others.binary_search_by(|other| {
                    self.hosts[*other].host().cmp(self.hosts[*host].host())
                });
                if found.is_ok() {
                    continue;
                }
                let held = &mut self.hosts[*host];
                held.bid(
                    Bid {
                        rank: rank.clone(),
                        claim: id,
                        secure: false,
                    },
                    there,
                );
                dirty.names.insert(held.host().name());
            }
        }
        for host in before.iter().chain(&bids) {
            self.count(*host, &key.name.namespace, dirty);
        }
        for (host, secure) in bids.iter().zip(secure) {
            if self.hosts[*host].secure(id, secure) {
                dirty.hosts.insert(*host);
            }
        }
        if let Some(claimant) = self.claims.claimant(&key) {
            self.records.touch(&claimant.hostnames, dirty);
        }
        dirty.verdicts.insert(id);
        let solvers = Solvers {
            settings: self.settings,
            tenants: self.tenants,
            derivations: self.derivations,
        };
        solvers.solve_beside(self.claims, id, dirty);
    }

    /// Counts a hostname for the quota of a namespace that bids for it where records count.
    fn count(&mut self, host: HostId, namespace: &Arc<str>, dirty: &mut Dirty) {
        let hostname = self.hosts[host].host().hostname.clone();
        let is_there = self.hosts.named(&hostname).any(|id| {
            let held = &self.hosts[id];
            let mut ranks = held.ranks();
            ranks.any(|rank| rank.namespace() == namespace)
                && self
                    .records
                    .count_at(self.tenants.is_own(&held.host().tenant))
        });
        self.records.count(&hostname, namespace, is_there, dirty);
    }

    /// True if a claimant's namespace may attach to the TenantGateway, and the claimant is not a
    /// derived object of ours.
    fn may_attach(&self, key: &ClaimKey, tenant: &ObjectName) -> bool {
        let own = &tenant.namespace;
        let from = &key.name.namespace;
        let made_by_us = match key.kind {
            ClaimKind::HttpRoute => {
                key.name.name.strip_suffix(names::REDIRECT) == Some(&*tenant.name)
            }
            ClaimKind::ListenerSet(SetKind::Stable) => {
                names::overflow_of(&key.name.name).is_some_and(|(of, _)| *of == *tenant.name)
            }
            ClaimKind::ListenerSet(SetKind::Experimental)
            | ClaimKind::GrpcRoute
            | ClaimKind::TlsRoute
            | ClaimKind::TcpRoute
            | ClaimKind::UdpRoute => false,
        };
        let made_by_us = own == from && made_by_us || self.settings.is_solver(key, tenant);
        !made_by_us && (own == from || self.namespaces.member_of(from) == Some(own))
    }

    /// True if a hostname was served before this program started, by the existing objects.
    fn stands(&self, tenant: &ObjectName, hostname: &Hostname) -> bool {
        let gateway = Derived {
            kind: DerivedKind::Gateway,
            name: tenant.clone(),
        };
        let there = || {
            self.derivations
                .existing(&gateway)
                .filter(|there| self.tenants.has(there, tenant))
        };
        self.hosts
            .get(tenant, hostname)
            .is_some_and(|held| held.shard().is_some())
            || there().is_some_and(|there| {
                there
                    .hosts
                    .values()
                    .any(|own| own == hostname || own.covers(hostname))
            })
    }

    /// True if a hostname that was served is below the domain of the claimant's namespace. Which
    /// namespaces a TenantGateway attached is unknown while it cannot be carried out: those that
    /// were served stay.
    fn is_below(&self, key: &ClaimKey, hostname: &Hostname) -> bool {
        let namespace = &key.name.namespace;
        let host = self.namespaces.host_label(namespace);
        host.map_or(!namespace.starts_with("tenant-"), |host| {
            within(hostname, &lower_case(host))
        })
    }

    /// True if a namespace without a host label may have the hostnames of a TenantGateway: it is
    /// the TenantGateway's own namespace, or attached to it.
    fn is_trusted(&self, namespace: &Arc<str>, tenant: &ObjectName) -> bool {
        let attached = || {
            let given = self.tenants.given(tenant);
            given.is_some_and(|given| {
                given
                    .spec
                    .attached_namespaces
                    .iter()
                    .any(|attached| **attached == **namespace)
            })
        };
        self.settings.unlabelled || *namespace == tenant.namespace || attached()
    }

    /// True if a hostname is reserved by settings for another namespace than this one, or for none.
    fn is_reserved(&self, namespace: &str, hostname: &Hostname) -> bool {
        let mut names = std::iter::once(hostname.clone()).chain(hostname.covering());
        let reserved = names.find_map(|name| self.settings.reserved.get(&name));
        reserved.is_some_and(|only| only.as_deref() != Some(namespace))
    }

    fn refusal(
        &self,
        key: &ClaimKey,
        hostname: &Hostname,
        valid: &ResolvedTenant,
    ) -> Option<Finding> {
        let apex = valid.apex.as_str();
        let namespace = &key.name.namespace;
        let host = self
            .namespaces
            .host_label(namespace)
            .map(|host| lower_case(host));
        match host {
            _ if hostname.is_any() || !within(hostname, apex) => {
                return not_allowed(format!("{hostname} is not {apex} or below it"));
            }
            Some(host) if !within(hostname, &host) => {
                return not_allowed(format!("{hostname} is not {host} or below it"));
            }
            _ if self.is_reserved(namespace, hostname) => {
                return not_allowed(format!(
                    "{hostname} is reserved by the installation (tenancy.reservedHostnames)"
                ));
            }
            // A namespace without the label is denied, since the label is what permits.
            None if !self.is_trusted(namespace, &valid.object.name) => {
                return not_allowed(format!(
                    "{hostname}: namespace {namespace} has no label {HOST_LABEL}: set it to the domain that it may publish, \
                     or name the namespace in attachedNamespaces of the TenantGateway"
                ));
            }
            _ => {}
        }
        let passthrough = valid.template.passes_through(hostname);
        match key.kind {
            ClaimKind::ListenerSet(_) if *namespace != valid.object.name.namespace => not_allowed(
                format!("{hostname}: the Gateway takes ListenerSets of its own namespace only"),
            ),
            ClaimKind::TlsRoute if !passthrough => {
                let text = format!("{hostname} is no passthrough service of the Gateway");
                Some((Reason::NoMatchingListenerHostname, text))
            }
            ClaimKind::TlsRoute => None,
            _ if passthrough => Some((
                Reason::HostnameConflict,
                format!("{hostname} belongs to a passthrough service"),
            )),
            _ if hostname.is_wildcard()
                && (valid.mode, valid.source != Source::InternalCa) == (Mode::Http01, true)
                && !key.kind.is_set() =>
            {
                let text =
                    format!("{hostname}: HTTP-01 issues no wildcard certificates; use dns01");
                Some((Reason::WildcardNotIssuable, text))
            }
            _ => None,
        }
    }
}

fn not_allowed(text: String) -> Option<(Reason, String)> {
    Some((Reason::HostnameNotAllowed, text))
}

/// Why a claimant without hostnames may not attach to a Gateway that tenants share; `None` for a
/// ListenerSet, which may be empty.
fn nameless(kind: ClaimKind) -> Option<Finding> {
    match kind {
        ClaimKind::ListenerSet(_) => None,
        ClaimKind::HttpRoute | ClaimKind::GrpcRoute | ClaimKind::TlsRoute => {
            let text = "spec.hostnames: at least one is needed on a shared Gateway".to_owned();
            Some((Reason::HostnameRequired, text))
        }
        ClaimKind::TcpRoute | ClaimKind::UdpRoute => {
            let text = "a shared Gateway tells its tenants apart by hostnames, and these routes have none: attach it to a \
                        Gateway of its own";
            Some((Reason::NotAllowedByListeners, text.to_owned()))
        }
    }
}
