//! Explains which namespace owns a hostname, and why: for operators, who may see every tenant's
//! objects.

use super::rule::claim::within;
use super::rule::names;
use super::state::claims::Claims;
use super::state::hosts::Hosts;
use super::state::tenants::Tenants;
use super::{ClaimKey, Verdict};
use gatewright_objects::model::{Hostname, ObjectName};

/// The explanation of a hostname under one TenantGateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnershipExplanation {
    /// The TenantGateway.
    pub tenant: ObjectName,
    /// True if the hostname has an owner there, and a listener.
    pub ok: bool,
    /// The owner and the reason; or why there is none.
    pub text: String,
}

/// The states that explanations read.
pub(super) struct Explaining<'a> {
    pub(super) tenants: &'a Tenants,
    pub(super) hosts: &'a Hosts,
    pub(super) claimants: &'a Claims,
}

impl Explaining<'_> {
    /// Explanations of a hostname, one for each TenantGateway whose apex it is below, the deepest
    /// apex first.
    pub(super) fn explain(&self, host: &Hostname) -> Vec<OwnershipExplanation> {
        let mut over: Vec<_> = self
            .tenants
            .all_resolved()
            .filter(|valid| within(host, valid.apex.as_str()))
            .collect();
        over.sort_by_key(|valid| {
            (
                std::cmp::Reverse(valid.apex.as_str().len()),
                valid.object.name.clone(),
            )
        });
        let tell = |tenant: &ObjectName| {
            let (ok, text) = self.tell(tenant, host);
            OwnershipExplanation {
                tenant: tenant.clone(),
                ok,
                text,
            }
        };
        let mut explanations: Vec<OwnershipExplanation> = over
            .into_iter()
            .map(|valid| tell(&valid.object.name))
            .collect();
        // A TenantGateway that serves it comes first.
        explanations.sort_by_key(|ownership| !ownership.ok);
        explanations
    }

    fn tell(&self, tenant: &ObjectName, host: &Hostname) -> (bool, String) {
        let names = std::iter::once(host.clone()).chain(host.covering());
        let claimed = names
            .into_iter()
            .find_map(|name| Some((self.hosts.owner(tenant, &name)?.clone(), name)));
        let losers = self.losers(tenant, host);
        let Some((owner, name)) = claimed else {
            let apex = self
                .tenants
                .resolved(tenant)
                .map(|valid| valid.apex.to_string())
                .unwrap_or_default();
            let nobody = format!(
                "TenantGateway {tenant} has apex {apex}, and no route has claimed {host} there"
            );
            let text = if losers.is_empty() {
                nobody
            } else {
                losers.join("; ")
            };
            return (false, text);
        };
        let key = owner.rank.key();
        let others = self.hosts.bids(&name).map(|(rank, _)| rank);
        let others = others.filter(|rank| rank.namespace() != owner.rank.namespace());
        let why = match others.min() {
            None => "nobody else claims it",
            Some(other) if *other < owner.rank => "it claimed it first",
            Some(_) if key.name.namespace.starts_with("cozy-") => "cozy-* namespaces go first",
            Some(_) => "its namespace/name is the smallest",
        };
        let what = if name == *host {
            name.to_string()
        } else {
            format!("{host} by {name}")
        };
        let place = match self.hosts.shard_of(tenant, &name) {
            0 => format!("Gateway {tenant}"),
            number => format!(
                "ListenerSet {}/{}",
                tenant.namespace,
                names::overflow(&tenant.name, number)
            ),
        };
        let verdict = self.claimants.verdict(&key, tenant);
        let ok = verdict.is_some_and(|verdict| verdict.granted.contains(&name));
        let mut text = format!(
            "TenantGateway {tenant}: {} has {what}: {why}; its listener is in {place}",
            key.object()
        );
        if let Some(verdict) = verdict.filter(|_| !ok) {
            text = format!("{text}; {}: {}", verdict.reason.as_str(), verdict.message);
        }
        for loser in losers {
            text = format!("{text}; {loser}");
        }
        (ok, text)
    }

    /// The claimants that do not get a hostname under a TenantGateway, with the reasons.
    fn losers(&self, tenant: &ObjectName, host: &Hostname) -> Vec<String> {
        let bids = self
            .hosts
            .bids(host)
            .filter(|(_, through)| *through == tenant)
            .map(|(rank, _)| rank.key());
        let asked = self.claimants.claimants_of(tenant).filter(|key| {
            let claimant = self.claimants.claimant(key);
            claimant.is_some_and(|claimant| {
                claimant.hostnames.iter().flatten().any(|name| name == host)
            })
        });
        let mut keys: Vec<ClaimKey> = bids.chain(asked.cloned()).collect();
        keys.sort();
        keys.dedup();
        keys.iter()
            .filter_map(|key| refused(key, self.claimants.verdict(key, tenant)?, host))
            .collect()
    }
}

fn refused(key: &ClaimKey, verdict: &Verdict, host: &Hostname) -> Option<String> {
    (!verdict.granted.contains(host)).then(|| {
        format!(
            "{} does not: {}: {}",
            key.object(),
            verdict.reason.as_str(),
            verdict.message
        )
    })
}
