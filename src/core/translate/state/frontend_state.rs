//! The state of a frontend.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::claims::{Claim, Claims, Rank};
use super::dirty::Dirty;
use super::guests::Guests;
use super::http3::Http3Hosts;
use super::parent::ParentListener;
use super::placed_hosts::PlacedHosts;
use super::sans::Sans;
use super::secured::{Secured, SecuredNames};
use super::sni_matcher::SniMatcher;
use crate::key::ListenerId;
use crate::rule::chain_class::{ChainClass, Purpose};
use crate::rule::ownership::Claimant;
use crate::rule::protocol::Protocol;
use gatewright_objects::domain_order::Domains;
use gatewright_objects::model::{
    AccessLog, Chain, ClientAddress, Family, FrontendId, Hostname, OtherListeners, Thumbprint,
    Tracing, WeightedTarget,
};
use gatewright_objects::ownership::Ownable;

/// The state of one port of one Gateway, or of the shared fleet.
#[derive(Default)]
pub(crate) struct FrontendState {
    /// Claims on hostnames.
    claims: Claims,
    /// The listeners that have their hostnames.
    winners: BTreeMap<Hostname, (ListenerId, Protocol)>,
    /// Wildcards and the catch-all among the winners.
    wide: BTreeSet<Hostname>,
    /// The hostnames of winners by domain.
    domains: Domains,
    /// The chain for each SNI.
    matcher: SniMatcher,
    /// Where its virtual hosts are.
    hosts: PlacedHosts,
    /// Hostnames of HTTPS listeners whose Gateways redirect plain HTTP to them.
    secured: SecuredNames,
    /// The names in the certificates of winners.
    sans: Sans,
    /// Hosts whose HTTP-01 challenges are answered here, with the account.
    challenges: BTreeMap<Hostname, Account>,
    /// The hosts with HTTP/3 on a port of UDP.
    http3: Http3Hosts,
    /// The targets of connections to a TCP port.
    shares: Vec<WeightedTarget>,
    /// The addresses to bind.
    addresses: Vec<IpAddr>,
    /// The port to bind.
    port: u16,
    /// Whose word is taken for the address of a client.
    clients: ClientAddress,
    /// The access log of its requests.
    access_log: Option<Arc<AccessLog>>,
    /// The tracing of its requests.
    tracing: Option<Arc<Tracing>>,
    /// True if virtual hosts have the names of their owners, for the access log or for counts.
    names_owners: bool,
    /// Hostnames of listeners that Gateways admit from other namespaces.
    guests: Guests,
    /// Hostnames of routes that something else answers for, or answers for as well.
    contested: BTreeSet<Hostname>,
    /// Its claims on these addresses, if Gateways have addresses of their own.
    claimed: BTreeMap<Ownable, Claimant>,
}

/// The account that proves a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// The thumbprint of its key.
    pub(crate) thumbprint: Thumbprint,
    /// True if the namespace of the Gateway asked: other Gateways of it answer as well.
    pub(crate) is_of_gateway: bool,
}

impl FrontendState {
    /// The claims of listeners.
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Sets or removes the claim of a listener. Returns the hostnames whose outcome may have
    /// changed.
    pub(crate) fn claim(&mut self, rank: Rank, claim: Option<Claim>) -> BTreeSet<Hostname> {
        self.claims.set(rank, claim)
    }

    /// Sets the recorded family of its port. Returns the hostnames whose outcome may have changed.
    pub(crate) fn set_recorded_family(&mut self, family: Option<Family>) -> BTreeSet<Hostname> {
        self.claims.set_recorded_family(family)
    }

    /// The hosts with HTTP/3.
    pub(crate) fn http3(&self) -> &Http3Hosts {
        &self.http3
    }

    /// The same, for changes.
    pub(crate) fn http3_mut(&mut self) -> &mut Http3Hosts {
        &mut self.http3
    }

    /// The listener that has a hostname as its own, with its protocol.
    pub(crate) fn winner(&self, hostname: &Hostname) -> Option<&(ListenerId, Protocol)> {
        self.winners.get(hostname)
    }

    /// All listeners that have their hostnames, sorted by hostname.
    pub(crate) fn winners(
        &self,
    ) -> impl ExactSizeIterator<Item = (&Hostname, &(ListenerId, Protocol))> {
        self.winners.iter()
    }

    /// The chain for each SNI.
    pub(crate) fn matcher(&self) -> &SniMatcher {
        &self.matcher
    }

    /// Sets the chain of a hostname; marks the frontend if its matcher changed.
    pub(crate) fn set_chain(
        &mut self,
        id: &FrontendId,
        hostname: &Hostname,
        chain: Option<ChainClass>,
        dirty: &mut Dirty,
    ) {
        if self.matcher.set(hostname, chain) {
            dirty.frontends.insert(id.clone());
        }
    }

    /// The targets of all connections to the port.
    pub(crate) fn shares(&self) -> &[WeightedTarget] {
        &self.shares
    }

    /// The addresses to bind.
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The port to bind.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Whose word is taken for the address of a client.
    pub(crate) fn clients(&self) -> &ClientAddress {
        &self.clients
    }

    /// Sets whose word is taken for the address of a client; marks the frontend if that changed.
    pub(crate) fn set_clients(
        &mut self,
        id: &FrontendId,
        clients: ClientAddress,
        dirty: &mut Dirty,
    ) {
        if self.clients != clients {
            self.clients = clients;
            dirty.frontends.insert(id.clone());
        }
    }

    /// Sets the addresses and port to bind, and returns the former ones.
    pub(crate) fn rebind(&mut self, addresses: Vec<IpAddr>, port: u16) -> (Vec<IpAddr>, u16) {
        (
            std::mem::replace(&mut self.addresses, addresses),
            std::mem::replace(&mut self.port, port),
        )
    }

    /// The access log of its requests.
    pub(crate) fn access_log(&self) -> Option<&Arc<AccessLog>> {
        self.access_log.as_ref()
    }

    /// True if virtual hosts have the names of their owners.
    pub(crate) fn names_owners(&self) -> bool {
        self.names_owners
    }

    /// Sets the access log, and whether virtual hosts have the names of their owners also without
    /// one; marks the frontend if the log changed, and its units if these names come or go.
    pub(crate) fn set_access_log(
        &mut self,
        id: &FrontendId,
        log: Option<Arc<AccessLog>>,
        always_names_owners: bool,
        dirty: &mut Dirty,
    ) {
        let names_owners = always_names_owners || log.is_some();
        if self.access_log != log {
            dirty.frontends.insert(id.clone());
        }
        if self.names_owners != names_owners {
            let names = self.served_names().map(|name| (id.clone(), name.clone()));
            dirty.units.extend(names);
        }
        self.access_log = log;
        self.names_owners = names_owners;
    }

    /// The tracing of its requests.
    pub(crate) fn tracing(&self) -> Option<&Arc<Tracing>> {
        self.tracing.as_ref()
    }

    /// Sets the tracing; marks the frontend if it changed.
    pub(crate) fn set_tracing(
        &mut self,
        id: &FrontendId,
        tracing: Option<Arc<Tracing>>,
        dirty: &mut Dirty,
    ) {
        if self.tracing != tracing {
            self.tracing = tracing;
            dirty.frontends.insert(id.clone());
        }
    }

    /// True if the certificate of a listener shares names with another listener's.
    pub(crate) fn overlaps_by_certificate(&self, hostname: &Hostname) -> bool {
        self.sans.overlap(hostname)
    }

    /// True if it answers challenges.
    pub(crate) fn has_challenges(&self) -> bool {
        !self.challenges.is_empty()
    }

    /// Sets or removes a host whose challenges it answers. Returns whether that is a change.
    pub(crate) fn answer_challenges(&mut self, host: &Hostname, account: Option<Account>) -> bool {
        let before = match &account {
            Some(account) => self.challenges.insert(host.clone(), account.clone()),
            None => self.challenges.remove(host),
        };
        before != account
    }

    /// The hosts whose challenges it answers.
    pub(crate) fn challenged(&self) -> impl Iterator<Item = &Hostname> {
        self.challenges.keys()
    }

    /// The account that proves a host of its own here, if one does.
    pub(super) fn account(&self, host: &Hostname) -> Option<&Account> {
        self.challenges.get(host)
    }

    /// The listener that serves a hostname: the most specific one that covers it.
    pub(crate) fn owner(&self, hostname: &Hostname) -> Option<(&Hostname, &ListenerId, Protocol)> {
        let own = self.winners.get_key_value(hostname);
        let wider = || {
            hostname
                .covering()
                .find_map(|w| self.winners.get_key_value(&w))
        };
        let (hostname, (listener, protocol)) = own
            .or_else(wider)
            .or_else(|| self.winners.get_key_value(&Hostname::any()))?;
        Some((hostname, listener, *protocol))
    }

    /// True if a wildcard or catch-all listener has its hostname here.
    pub(crate) fn is_wide(&self) -> bool {
        self.has_hostnames() && !self.wide.is_empty()
    }

    /// The wildcard and catch-all listeners that have their hostnames.
    pub(crate) fn wide_winners(&self) -> impl Iterator<Item = &ListenerId> {
        self.wide
            .iter()
            .filter_map(|name| self.winners.get(name))
            .map(|(listener, _)| listener)
    }

    /// True if the port is divided by hostnames.
    pub(crate) fn has_hostnames(&self) -> bool {
        self.claims.family().is_none_or(Family::has_hostnames)
    }

    /// Sets the targets of all connections to the port; marks the frontend if they changed.
    pub(crate) fn pass_on(
        &mut self,
        id: &FrontendId,
        shares: Vec<WeightedTarget>,
        dirty: &mut Dirty,
    ) {
        if self.shares != shares {
            self.shares = shares;
            dirty.frontends.insert(id.clone());
        }
    }

    /// Sets the listener that has a hostname. Returns the listeners that begin or cease to overlap
    /// with another.
    pub(crate) fn set_winner(
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
        if there && !hostname.is_exact() {
            self.wide.insert(hostname.clone())
        } else {
            self.wide.remove(hostname)
        };
        // The wider ones that have a name below them by this one alone.
        self.domains.set(hostname, false);
        let any = (!hostname.is_any()).then(Hostname::any);
        for wide in hostname.covering().chain(any) {
            if let Some((listener, _)) = self.winners.get(&wide)
                && self.domains.below(&wide).next().is_none()
            {
                flipped.insert(listener.clone());
            }
        }
        if !hostname.is_exact() {
            let below = self.domains.below(hostname);
            let winners = below.filter_map(|name| self.winners.get(name));
            flipped.extend(winners.map(|(listener, _)| listener.clone()));
        }
        self.domains.set(hostname, there);
        flipped
    }

    /// The chain of a class, with the hosts of other listeners, which depend on all winners.
    pub(crate) fn chain(&self, id: &FrontendId, class: &ChainClass) -> Chain {
        if !matches!(class.purpose, Purpose::Scopes(_)) {
            return class.chain(id, OtherListeners::NOWHERE);
        }
        // Its own hosts without a scope belong to no listener, unless a table serves some of them.
        class.chain(
            id,
            elsewhere(self.wide.iter().filter(|name| {
                class.listener.as_ref() != Some(name) || self.matcher.has_table(name)
            })),
        )
    }

    /// The hosts of other listeners, on connections whose SNI is the listener's hostname.
    pub(crate) fn other_listeners(&self) -> OtherListeners {
        elsewhere(self.wide.iter())
    }

    /// True if another hostname of the port covers this one or is below it.
    pub(crate) fn overlaps(&self, hostname: &Hostname) -> bool {
        let any = !hostname.is_any() && self.winners.contains_key(&Hostname::any());
        self.domains.below(hostname).next().is_some() || wider(hostname, &self.winners) || any
    }

    /// The hostnames of listeners that Gateways admit from other namespaces.
    pub(crate) fn guests(&self) -> &Guests {
        &self.guests
    }

    /// The same, for changes.
    pub(crate) fn guests_mut(&mut self) -> &mut Guests {
        &mut self.guests
    }

    /// Sets whether something else answers for a hostname of routes. Returns whether it does or
    /// did.
    pub(crate) fn set_contested(&mut self, hostname: &Hostname, is_contested: bool) -> bool {
        if is_contested {
            self.contested.insert(hostname.clone());
            return true;
        }
        self.contested.remove(hostname)
    }

    /// Sets its claims on its addresses, and returns the former ones if they differ.
    pub(crate) fn set_claimed(
        &mut self,
        claimed: &BTreeMap<Ownable, Claimant>,
    ) -> Option<BTreeMap<Ownable, Claimant>> {
        (self.claimed != *claimed).then(|| std::mem::replace(&mut self.claimed, claimed.clone()))
    }

    /// Sets the certificate that a listener serves, and marks listeners whose certificates begin or
    /// cease to overlap.
    pub(crate) fn place_sans(
        &mut self,
        hostname: &Hostname,
        own: Option<&ParentListener>,
        dirty: &mut Dirty,
    ) {
        let touched = self.sans.set(
            hostname,
            own.and_then(|listener| listener.served.certificate()),
        );
        let listeners = touched
            .iter()
            .filter_map(|hostname| self.winners.get(hostname));
        dirty
            .statuses
            .extend(listeners.map(|(listener, _)| listener.parent.object()));
    }
}

fn wider(h: &Hostname, winners: &BTreeMap<Hostname, (ListenerId, Protocol)>) -> bool {
    h.covering().any(|w| winners.contains_key(&w))
}

impl FrontendState {
    /// True if it has neither claims nor challenges, and no host asks for HTTP/3.
    pub(crate) fn is_idle(&self) -> bool {
        self.claims.is_empty() && self.challenges.is_empty() && !self.http3.is_asked()
    }

    /// True if it speaks plain HTTP: its listeners do, or it exists for challenges alone.
    pub(crate) fn is_plain(&self) -> bool {
        if self.claims.is_empty() {
            !self.challenges.is_empty()
        } else {
            self.claims.family() == Some(Family::Http)
        }
    }
}

/// The number of other listeners up to which they are listed, so that a host of theirs (421)
/// differs from one that no listener has (404). Above it, every host that may be theirs counts as
/// such, and no list grows with the number of hosts.
pub(crate) const LISTED: usize = if cfg!(test) { 2 } else { 64 };

/// The total size in bytes up to which they are listed: wildcards become one regular expression,
/// and Envoy, which needs about one instruction for each byte, refuses a Listener with an
/// expression of more than 10,000.
const LISTED_BYTES: usize = 4096;

/// The list of other listeners, or [`OtherListeners::Many`] above the limits.
pub(crate) fn elsewhere<'a>(names: impl Iterator<Item = &'a Hostname>) -> OtherListeners {
    let names: Vec<Hostname> = names.take(LISTED + 1).cloned().collect();
    let bytes: usize = names.iter().map(|name| name.as_str().len()).sum();
    if names.len() > LISTED || bytes > LISTED_BYTES {
        OtherListeners::Many
    } else {
        OtherListeners::Listed(names)
    }
}

impl FrontendState {
    /// Where its virtual hosts are.
    pub(crate) fn hosts(&self) -> &PlacedHosts {
        &self.hosts
    }

    /// The same, for changes.
    pub(crate) fn hosts_mut(&mut self) -> &mut PlacedHosts {
        &mut self.hosts
    }

    /// The hostnames with any resource on the frontend, some of them more than once.
    pub(crate) fn served_names(&self) -> impl Iterator<Item = &Hostname> {
        self.hosts
            .names()
            .chain(self.matcher.all().keys())
            .chain(self.secured.names())
    }

    /// Sets what HTTPS does with a hostname of a Gateway that redirects plain HTTP. Returns whether
    /// that is a change.
    pub(crate) fn set_secured(&mut self, hostname: &Hostname, secured: Option<Secured>) -> bool {
        self.secured.set(hostname, secured)
    }

    /// The hostnames of HTTPS listeners whose Gateways redirect plain HTTP to them.
    pub(crate) fn secured(&self) -> &SecuredNames {
        &self.secured
    }
}

/// The listener that serves a hostname.
pub(crate) struct Owner {
    /// The listener's own hostname.
    pub(crate) hostname: Hostname,
    pub(crate) listener: ListenerId,
    pub(crate) protocol: Protocol,
    /// True if the hostname is the listener's own.
    pub(crate) is_own: bool,
}
