//! What is kept of a frontend.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::chain_class::{ChainClass, Purpose};
use super::challenge::KnownHosts;
use super::claims::{Claims, Family};
use super::dirty::Dirty;
use super::key::ListenerId;
use super::ownership::{Claimant, Ownable};
use super::parent::{ParentListener, Protocol};
use super::sans::Sans;
use super::sni_matcher::SniMatcher;
use super::tables::elsewhere;
use crate::model::{Chain, FrontendId, Hostname, OtherListeners, VirtualHost, WeightedTarget};

/// One port of one Gateway, or of the Gateways that share it.
#[derive(Default)]
pub(super) struct FrontendState {
    /// Who wants which hostname.
    pub(super) claims: Claims,
    /// Who has it.
    pub(super) winners: BTreeMap<Hostname, (ListenerId, Protocol)>,
    /// Wildcards and the catch-all among the winners.
    wide: BTreeSet<Hostname>,
    /// For each wildcard, and the catch-all, how many winners lie under it.
    under: HashMap<Hostname, usize>,
    /// Which SNI goes where.
    pub(super) gate: SniMatcher,
    /// Virtual hosts by table: the plain-HTTP one, or one for each wildcard or catch-all listener.
    pub(super) tables: BTreeMap<Option<Hostname>, BTreeMap<Hostname, VirtualHost>>,
    /// In which table a hostname stands.
    pub(super) placed: BTreeMap<Hostname, Option<Hostname>>,
    /// Exact hostnames with routes under a wildcard or catch-all listener, by that listener's hostname.
    pub(super) beneath: BTreeMap<Hostname, BTreeSet<Hostname>>,
    /// The names in the certificates of winners.
    pub(super) sans: Sans,
    /// Hosts whose HTTP-01 challenges are answered here.
    pub(super) challenges: KnownHosts,
    /// Where connections go of a port that is passed on as it comes.
    pub(super) shares: Vec<WeightedTarget>,
    /// Addresses it is to be bound to.
    pub(super) addresses: Vec<IpAddr>,
    /// The port there.
    pub(super) port: u16,
    /// What it claims of those addresses, where Gateways have addresses of their own.
    claimed: BTreeMap<Ownable, Claimant>,
}

impl FrontendState {
    /// The listener that serves a hostname: the most specific one that covers it.
    pub(super) fn owner(&self, hostname: &Hostname) -> Option<(&Hostname, &ListenerId, Protocol)> {
        let own = self.winners.get_key_value(hostname);
        let wider = || hostname.covering().find_map(|w| self.winners.get_key_value(&w));
        let any = || self.winners.get_key_value(&Hostname::any());
        let (hostname, (listener, protocol)) = own.or_else(wider).or_else(any)?;
        Some((hostname, listener, *protocol))
    }

    /// Whether a wildcard or catch-all listener has its name here.
    pub(super) fn is_wide(&self) -> bool {
        self.has_hostnames() && !self.wide.is_empty()
    }

    /// Whether hostnames divide it.
    pub(super) fn has_hostnames(&self) -> bool {
        self.claims.family().is_none_or(Family::has_hostnames)
    }

    /// Sets where the connections of the whole port go; marks it where that is new.
    pub(super) fn pass_on(&mut self, id: &FrontendId, shares: Vec<WeightedTarget>, dirty: &mut Dirty) {
        if self.shares != shares {
            self.shares = shares;
            dirty.frontends.insert(id.clone());
        }
    }

    /// Sets who has a hostname. Returns the listeners that begin or cease to overlap with another.
    pub(super) fn set_winner(
        &mut self,
        hostname: &Hostname,
        winner: Option<(ListenerId, Protocol)>,
    ) -> BTreeSet<ListenerId> {
        let there = winner.is_some();
        let was = match winner {
            Some(winner) => self.winners.insert(hostname.clone(), winner),
            None => self.winners.remove(hostname),
        };
        let mut flipped = BTreeSet::new();
        if was.is_some() == there {
            return flipped;
        }
        match there && !hostname.is_exact() {
            true => self.wide.insert(hostname.clone()),
            false => self.wide.remove(hostname),
        };
        let any = (!hostname.is_any()).then(Hostname::any);
        for wide in hostname.covering().chain(any) {
            let count = self.under.entry(wide.clone()).or_insert(0);
            if there {
                *count += 1
            } else {
                *count -= 1
            }
            let edge = *count == usize::from(there);
            if *count == 0 {
                self.under.remove(&wide);
            }
            if edge && let Some((listener, _)) = self.winners.get(&wide) {
                flipped.insert(listener.clone());
            }
        }
        if !hostname.is_exact() {
            let beneath = self.winners.iter().filter(|(name, _)| *name != hostname && hostname.covers(name));
            flipped.extend(beneath.map(|(_, (listener, _))| listener.clone()));
        }
        flipped
    }

    /// A chain of the gate with what depends on all winners: whose the hosts without a scope are.
    pub(super) fn chain(&self, id: &FrontendId, class: &ChainClass) -> Chain {
        if class.purpose != Purpose::Scopes {
            return class.chain(id, OtherListeners::NOWHERE);
        }
        // Its own hosts without a scope are nobody's, unless a table serves some of them.
        let theirs = |name: &&Hostname| class.listener.as_ref() != Some(name) || self.gate.has_table(name);
        class.chain(id, elsewhere(self.wide.iter().filter(theirs)))
    }

    /// Whether another hostname of the port covers this one or lies under it.
    pub(super) fn overlaps(&self, hostname: &Hostname) -> bool {
        let wider = |h: &Hostname| h.covering().any(|w| self.winners.contains_key(&w));
        let any = !hostname.is_any() && self.winners.contains_key(&Hostname::any());
        self.under.contains_key(hostname) || wider(hostname) || any
    }

    /// Sets what it claims of its addresses, and returns what it claimed before where that is different.
    pub(super) fn set_claimed(&mut self, claimed: &BTreeMap<Ownable, Claimant>) -> Option<BTreeMap<Ownable, Claimant>> {
        (self.claimed != *claimed).then(|| std::mem::replace(&mut self.claimed, claimed.clone()))
    }

    /// Notes the certificate that a listener serves, and marks those whose certificates begin or cease to overlap.
    pub(super) fn place_sans(&mut self, hostname: &Hostname, own: Option<&ParentListener>, dirty: &mut Dirty) {
        let touched = self.sans.set(hostname, own.and_then(|listener| listener.served.certificate()));
        let listeners = touched.iter().filter_map(|hostname| self.winners.get(hostname));
        dirty.statuses.extend(listeners.map(|(listener, _)| listener.parent.object()));
    }
}
