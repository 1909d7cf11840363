//! What is known of one hostname under one TenantGateway.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::claim::Rank;
use super::engine::{Standing, Tenancy};
use super::names;
use crate::model::{Hostname, ObjectName};

/// A hostname, ordered from its end: what covers a name goes before it, and what lies below a name stands together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(pub(super) Hostname);

/// A hostname of a TenantGateway, in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Host {
    pub(super) tenant: ObjectName,
    pub(super) hostname: Hostname,
}

/// What is known of a hostname.
#[derive(Default)]
pub(super) struct Held {
    /// Who asks for it, the first in rank first.
    pub(super) bids: Vec<Rank>,
    /// Who has it.
    pub(super) owner: Option<Standing>,
    /// Whether somebody of another namespace contends for it.
    pub(super) contested: bool,
    /// The namespace that alone may attach while it is contested; none where nobody has it.
    pub(super) keeper: Option<Arc<str>>,
    /// Hostnames below it, a wildcard that somebody has, which other namespaces ask for.
    pub(super) intruders: BTreeSet<Hostname>,
    /// Whether a ListenerSet of others than us has it.
    pub(super) with_set: bool,
    /// The shard in which its listener stands.
    pub(super) place: Option<usize>,
    /// What it gives a name to, once that was needed.
    pub(super) names: Option<names::OfHost>,
}

impl Host {
    pub(super) fn new(tenant: &ObjectName, hostname: &Hostname) -> Self {
        Self { tenant: tenant.clone(), hostname: hostname.clone() }
    }

    /// Before every hostname of a TenantGateway.
    pub(super) fn first(tenant: &ObjectName) -> Self {
        Self { tenant: tenant.clone(), hostname: Hostname::any() }
    }

    pub(super) fn name(&self) -> Name {
        Name(self.hostname.clone())
    }
}

impl Held {
    /// Adds or removes a bid.
    pub(super) fn bid(&mut self, rank: Rank, there: bool) {
        match (self.bids.binary_search(&rank), there) {
            (Err(at), true) => self.bids.insert(at, rank),
            (Ok(at), false) => drop(self.bids.remove(at)),
            (Ok(_), true) | (Err(_), false) => {}
        }
    }

    /// Whether nothing is known that would have to be kept.
    fn is_idle(&self) -> bool {
        self.bids.is_empty() && self.owner.is_none() && self.place.is_none() && !self.with_set
    }
}

/// What is known of hosts. Looked for by name far more often than gone through in order.
#[derive(Default)]
pub(super) struct Hosts {
    held: HashMap<Host, Held>,
    order: BTreeSet<Host>,
}

impl Hosts {
    pub(super) fn get(&self, host: &Host) -> Option<&Held> {
        self.held.get(host)
    }

    pub(super) fn get_mut(&mut self, host: &Host) -> Option<&mut Held> {
        self.held.get_mut(host)
    }

    /// What is known of a host, to be added to.
    fn hold(&mut self, host: &Host) -> &mut Held {
        self.held.entry(host.clone()).or_insert_with(|| {
            self.order.insert(host.clone());
            Held::default()
        })
    }

    fn remove(&mut self, host: &Host) {
        self.held.remove(host);
        self.order.remove(host);
    }

    /// All of them, in no order.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Host, &Held)> {
        self.held.iter()
    }

    /// A host and those after it.
    fn from<'a>(&'a self, first: &Host) -> impl Iterator<Item = (&'a Host, &'a Held)> + use<'a> {
        self.order.range(first.clone()..).filter_map(|host| Some((host, self.held.get(host)?)))
    }
}

impl Tenancy {
    /// What is known of a host, to be added to.
    pub(super) fn hold(&mut self, host: &Host) -> &mut Held {
        if host.hostname.is_wildcard() {
            self.wild.insert(host.tenant.clone(), host.hostname.clone());
        }
        self.hosts.hold(host)
    }

    /// Forgets a host of which nothing is left.
    pub(super) fn release(&mut self, host: &Host) {
        if self.hosts.get(host).is_some_and(Held::is_idle) {
            self.hosts.remove(host);
            if host.hostname.is_wildcard() {
                self.wild.remove(&host.tenant, &host.hostname);
            }
        }
    }

    /// The hosts of a TenantGateway.
    pub(super) fn hosts_of<'a>(&'a self, tenant: &'a ObjectName) -> impl Iterator<Item = (&'a Host, &'a Held)> {
        self.hosts.from(&Host::first(tenant)).take_while(move |(host, _)| host.tenant == *tenant)
    }

    /// The hosts below a wildcard of the same TenantGateway, without itself.
    pub(super) fn below<'a>(&'a self, wildcard: &'a Host) -> impl Iterator<Item = (&'a Host, &'a Held)> {
        let all = self.hosts.from(wildcard).skip_while(move |(host, _)| *host == wildcard);
        all.take_while(move |(host, _)| host.tenant == wildcard.tenant && wildcard.hostname.covers(&host.hostname))
    }

    pub(super) fn standing(&self, host: &Host) -> Option<&Standing> {
        self.hosts.get(host)?.owner.as_ref()
    }

    /// The wildcards over a host that the same TenantGateway knows, most specific first.
    pub(super) fn over<'a>(&'a self, host: &Host) -> impl Iterator<Item = (Host, &'a Held)> + use<'a> {
        // Mostly there are none, and then nothing is made up to be looked for.
        let any = self.wild.first(&host.tenant).is_some();
        let wildcards = any.then(|| host.hostname.covering().map(|wildcard| Host::new(&host.tenant, &wildcard)));
        let wildcards: Vec<Host> = wildcards.into_iter().flatten().collect();
        wildcards.into_iter().filter_map(|wildcard| self.hosts.get(&wildcard).map(|held| (wildcard, held)))
    }

    /// Who has the wildcards over a host, most specific first.
    pub(super) fn covering<'a>(&'a self, host: &Host) -> impl Iterator<Item = &'a Standing> + use<'a> {
        self.over(host).filter_map(|(_, held)| held.owner.as_ref())
    }

    /// Everybody who asks for a hostname, and through which TenantGateway.
    pub(super) fn bids<'a>(&'a self, hostname: &Hostname) -> impl Iterator<Item = (&'a Rank, &'a ObjectName)> {
        let tenants = self.tenants_of.of(&Name(hostname.clone()));
        let bids = |tenant: &'a ObjectName| {
            let held = self.hosts.get(&Host::new(tenant, hostname));
            held.into_iter().flat_map(|held| &held.bids).map(move |rank| (rank, tenant)).collect::<Vec<_>>()
        };
        tenants.flat_map(bids).collect::<Vec<_>>().into_iter()
    }
}

/// Compares from the end, eight bytes at a time: what hostnames of one apex have in common is long.
fn from_the_end(mut a: &[u8], mut b: &[u8]) -> Ordering {
    while let (Some((a_rest, a_last)), Some((b_rest, b_last))) = (a.split_last_chunk::<8>(), b.split_last_chunk::<8>())
    {
        match u64::from_le_bytes(*a_last).cmp(&u64::from_le_bytes(*b_last)) {
            Ordering::Equal => (a, b) = (a_rest, b_rest),
            other => return other,
        }
    }
    a.iter().rev().cmp(b.iter().rev())
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        from_the_end(self.0.as_str().as_bytes(), other.0.as_str().as_bytes())
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Host {
    fn cmp(&self, other: &Self) -> Ordering {
        let names = || from_the_end(self.hostname.as_str().as_bytes(), other.hostname.as_str().as_bytes());
        self.tenant.cmp(&other.tenant).then_with(names)
    }
}

impl PartialOrd for Host {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_comparison_from_the_end_is_one_of_the_texts_in_reverse(a in "[a-b.]{0,20}", b in "[a-b.]{0,20}") {
            let reversed = |text: &str| text.bytes().rev().collect::<Vec<_>>();
            prop_assert_eq!(from_the_end(a.as_bytes(), b.as_bytes()), reversed(&a).cmp(&reversed(&b)));
        }

        #[test]
        fn what_lies_below_a_wildcard_follows_it_without_a_gap(
            mut names in proptest::collection::vec("(\\*\\.)?([a-c-]{0,2}[ab0]\\.){0,3}(x|ax|x-x)", 2..30),
        ) {
            names.sort_by(|a, b| from_the_end(a.as_bytes(), b.as_bytes()));
            let names: Vec<Hostname> = names.iter().filter_map(|name| Hostname::parse(name).ok()).collect();
            for (at, wildcard) in names.iter().enumerate().filter(|(_, name)| name.is_wildcard()) {
                prop_assert!(names[..at].iter().all(|name| name == wildcard || !wildcard.covers(name)));
                let run = names[at..].iter().take_while(|name| wildcard.covers(name)).count();
                prop_assert!(names[at + run..].iter().all(|name| !wildcard.covers(name)));
            }
        }
    }
}
