//! Claims on a port, and the decision which of several listeners gets a hostname there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::by_record::admitted;
use super::parent::{Parent, ParentListener};
use crate::key::{ListenerId, ParentKey};
use crate::rule::client_validation::Clients;
use crate::rule::gateway_exposure::GatewayPrecedence;
use crate::rule::host_option::HostOption;
use crate::rule::protocol::Protocol;
use crate::rule::tls_options::TlsSettings;
use gatewright_objects::model::{
    Certificate, Family, FrontendId, Hostname, ListenerFilters, Reason,
};
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::ownership::ListenersOf;

/// Precedence of a listener: on a shared port by the precedence of its Gateway; then the Gateway's
/// own listeners before those of ListenerSets, and these by age and name (GEP-1713).
///
/// Listeners of one object that claim the same name all lose, so their order among themselves does
/// not matter: their name makes ranks unique, and an additional listener changes no other's rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// The precedence of the Gateway, on a port that Gateways share.
    pub(crate) gateway: Option<GatewayPrecedence>,
    /// True if it comes from a ListenerSet.
    pub(crate) set: bool,
    /// Creation time of its parent.
    pub(crate) created: i64,
    /// Its parent. An XListenerSet comes after the ListenerSet with its name.
    pub(crate) parent: ParentKey,
    /// Its name in its parent.
    pub(crate) listener: Arc<str>,
}

/// A listener's claim on a hostname.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) listener: ListenerId,
    pub(crate) hostname: Hostname,
    pub(crate) protocol: Protocol,
    /// The listeners of the Gateway's owner that admit it, if it is of another namespace.
    pub(crate) admitted: Option<Arc<ListenersOf>>,
}

/// Why a listener does not get its hostname.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) reason: Reason,
    /// True if it lost because another namespace owns the hostname by record.
    pub(crate) is_recorded: bool,
    /// The protocol family that has the port, where the conflict is about it: the message names it.
    pub(crate) holder: Option<Family>,
}

/// All claims on one port of one Gateway, or of the Gateways that share it.
#[derive(Default)]
pub(crate) struct Claims {
    by_rank: BTreeMap<Rank, Claim>,
    by_hostname: MultiMap<Hostname, Rank>,
    port: PortVerdict,
    /// True if the protocol of the port is recorded, and not determined by the claims.
    recorded: bool,
}

/// The protocol family of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PortVerdict {
    /// The family; `None` while the Gateway's listeners contradict each other, or without claims.
    family: Option<Family>,
    /// Gateways and ListenerSets whose listeners contradict each other, of those that precede the
    /// winner.
    contradicting: BTreeSet<ParentKey>,
}

impl Claims {
    /// Sets or removes a claim. Returns the hostnames whose outcome may have changed.
    pub(crate) fn set(&mut self, rank: Rank, claim: Option<Claim>) -> BTreeSet<Hostname> {
        let mut touched = BTreeSet::new();
        if let Some(old) = self.by_rank.remove(&rank) {
            self.by_hostname.remove(&old.hostname, &rank);
            touched.insert(old.hostname);
        }
        if let Some(claim) = claim {
            touched.insert(claim.hostname.clone());
            self.by_hostname
                .insert(claim.hostname.clone(), rank.clone());
            self.by_rank.insert(rank, claim);
        }
        if !self.recorded {
            touched.extend(self.take_verdict(self.port_verdict()));
        }
        touched
    }

    /// Sets the recorded family of the port. Returns the hostnames whose outcome may have changed.
    pub(crate) fn set_recorded_family(&mut self, family: Option<Family>) -> BTreeSet<Hostname> {
        self.recorded = true;
        self.take_verdict(PortVerdict {
            family,
            contradicting: BTreeSet::new(),
        })
    }

    fn take_verdict(&mut self, port: PortVerdict) -> BTreeSet<Hostname> {
        if port == self.port {
            return BTreeSet::new();
        }
        self.port = port;
        self.by_hostname
            .from(Hostname::any())
            .map(|(hostname, _)| hostname.clone())
            .collect()
    }

    /// The claim of a rank.
    pub(crate) fn get(&self, rank: &Rank) -> Option<&Claim> {
        self.by_rank.get(rank)
    }

    /// True if any listener claims a hostname.
    pub(crate) fn claims(&self, hostname: &Hostname) -> bool {
        self.by_hostname.first(hostname).is_some()
    }

    /// The claims on a hostname, the first in precedence first.
    pub(crate) fn on<'a>(
        &'a self,
        hostname: &Hostname,
    ) -> impl Iterator<Item = &'a Claim> + use<'a> {
        let ranks = self.by_hostname.of(hostname);
        ranks.map(|rank| &self.by_rank[rank])
    }

    /// The claims on a hostname and on those that cover it.
    pub(crate) fn over<'a, 'b>(
        &'a self,
        hostname: &'b Hostname,
    ) -> impl Iterator<Item = &'a Claim> + use<'a, 'b> {
        let any = (!hostname.is_any()).then(Hostname::any);
        std::iter::once(hostname.clone())
            .chain(hostname.covering())
            .chain(any)
            .flat_map(|name| self.on(&name))
    }

    /// True if there are no claims.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    /// Every listener with a claim.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = &ListenerId> {
        self.by_rank.values().map(|claim| &claim.listener)
    }

    /// The protocol family of the port.
    pub(crate) fn family(&self) -> Option<Family> {
        self.port.family
    }

    fn port_verdict(&self) -> PortVerdict {
        let mut verdict = PortVerdict::default();
        let mut claims = self.by_rank.iter().peekable();
        // A Gateway whose listeners contradict each other; other Gateways may still get the port.
        let mut out: Option<&GatewayPrecedence> = None;
        while let Some((rank, claim)) = claims.next() {
            let family = claim.protocol.family();
            let mut unanimous = out.is_none() || out != rank.gateway.as_ref();
            while let Some((_, next)) =
                claims.next_if(|(next, _)| next.set == rank.set && next.parent == rank.parent)
            {
                unanimous &= next.protocol.family() == family;
            }
            if unanimous {
                verdict.family = Some(family);
                return verdict;
            }
            if !rank.set {
                // None of the Gateway's own listeners wins, and the port is refused to all
                // ListenerSets that extend it.
                let Some(gateway) = &rank.gateway else {
                    return verdict;
                };
                out = Some(gateway);
            }
            verdict.contradicting.insert(claim.listener.parent.clone());
        }
        verdict
    }

    /// Returns the claim that gets a hostname, and why the others do not; `is_entitled` is true if
    /// the record permits the claim.
    pub(crate) fn outcome(
        &self,
        hostname: &Hostname,
        is_entitled: impl Fn(&Claim) -> bool,
    ) -> (Option<&Claim>, Vec<(&ListenerId, Reason)>) {
        let mut losers = Vec::new();
        let mut winner: Option<&Claim> = None;
        let mut eligible: Vec<(&Rank, &Claim)> = Vec::new();
        for rank in self.by_hostname.of(hostname) {
            let claim = &self.by_rank[rank];
            let loses = Some(claim.protocol.family()) != self.port.family
                || self.port.contradicting.contains(&claim.listener.parent);
            if loses {
                losers.push((&claim.listener, Reason::ProtocolConflict));
            } else if is_entitled(claim) {
                eligible.push((rank, claim));
            } else {
                losers.push((&claim.listener, Reason::HostnameConflict));
            }
        }
        let mut contested: Option<&Rank> = None;
        for group in eligible.chunk_by(|(a, _), (b, _)| a.set == b.set && a.parent == b.parent) {
            let barred = contested.is_some_and(|by| by.gateway == group[0].0.gateway);
            if winner.is_none() && !barred && group.len() == 1 {
                winner = Some(group[0].1);
                continue;
            }
            // Listeners of one object that claim the same name all lose; if it is a Gateway, all
            // ListenerSets that extend it lose too.
            if winner.is_none() && !group[0].0.set {
                contested = Some(group[0].0);
            }
            losers.extend(
                group
                    .iter()
                    .map(|(_, claim)| (&claim.listener, Reason::HostnameConflict)),
            );
        }
        (winner, losers)
    }
}

/// The place of a claim: the port, and the rank there.
pub(crate) type Place = (FrontendId, Rank);

/// The parts of a listener that its units are compiled from.
#[derive(PartialEq)]
pub(crate) struct Content {
    certificate: Option<Arc<Certificate>>,
    tls: Arc<TlsSettings>,
    clients: Clients,
    filters: Option<Arc<ListenerFilters>>,
    http3: bool,
    tickets: bool,
}

impl Content {
    /// True if hosts under a wildcard or catch-all listener find the same chain, and the same
    /// before their routes: another certificate is only another secret.
    pub(crate) fn is_to_others(&self, other: &Content) -> bool {
        let Content {
            certificate,
            tls,
            clients,
            filters,
            http3: _,
            tickets: _,
        } = self;
        certificate.is_some() == other.certificate.is_some()
            && *tls == other.tls
            && *clients == other.clients
            && *filters == other.filters
    }
}

/// The listeners of a parent that claim their port.
pub(crate) fn claiming(parent: &Parent) -> impl Iterator<Item = &ParentListener> + Clone {
    let served = parent.accepted.is_ok() && parent.placement.unusable.is_none();
    parent
        .listeners
        .iter()
        .filter(move |l| served && l.accepted.is_ok())
}

/// The claims of a parent by place, each with the content for its units.
pub(crate) fn claims_of(parent: &Parent) -> BTreeMap<Place, (Claim, Content)> {
    claiming(parent)
        .filter_map(|listener| {
            let id = parent.frontend(listener.transport_port());
            let rank = Rank {
                gateway: parent.placement.precedence.clone(),
                set: matches!(parent.key, ParentKey::ListenerSet(_)),
                created: parent.created,
                parent: parent.key.clone(),
                listener: listener.name.clone(),
            };
            let claim = Claim {
                listener: parent.id(listener),
                hostname: listener.hostname.clone(),
                protocol: listener.protocol?,
                // Ports of TCP and UDP have a single owner, without hostnames: the record of
                // hostnames does not apply.
                admitted: admitted(parent)
                    .filter(|_| listener.has_hostnames())
                    .cloned(),
            };
            let content = Content {
                certificate: listener.served.certificate().cloned(),
                tls: listener.tls.clone(),
                clients: listener.clients.clone(),
                filters: listener.guard.filters.clone(),
                http3: listener.http3 == HostOption::On,
                tickets: listener.tickets == HostOption::On,
            };
            Some(((id, rank), (claim, content)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use gatewright_objects::inputs::SetKey;
    use gatewright_objects::model::ObjectName;

    fn claim(set: Option<u8>, index: usize, hostname: &str, protocol: Protocol) -> (Rank, Claim) {
        let name = ObjectName::new("ns", set.map_or("gw".to_owned(), |n| format!("set{n}")));
        let parent = match set {
            None => ParentKey::Gateway(name),
            Some(_) => ParentKey::ListenerSet(SetKey::stable(name)),
        };
        let listener: Arc<str> = Arc::from(format!("l{index}"));
        let rank = Rank {
            gateway: None,
            set: set.is_some(),
            created: 0,
            parent: parent.clone(),
            listener: listener.clone(),
        };
        let hostname = crate::confluence::hostname(hostname);
        (
            rank,
            Claim {
                listener: ListenerId {
                    parent,
                    name: listener,
                },
                hostname,
                protocol,
                admitted: None,
            },
        )
    }

    fn check(claims: &[(Rank, Claim)], hostname: &str) -> (Option<String>, Vec<(String, Reason)>) {
        let mut all = Claims::default();
        for (rank, claim) in claims {
            all.set(rank.clone(), Some(claim.clone()));
        }
        let hostname = crate::confluence::hostname(hostname);
        let (winner, losers) = all.outcome(&hostname, |_| true);
        fn text(id: &ListenerId) -> String {
            format!("{}/{}", id.parent.name().name, id.name)
        }
        (
            winner.map(|w| text(&w.listener)),
            losers
                .into_iter()
                .map(|(id, reason)| (text(id), reason))
                .collect(),
        )
    }

    #[test]
    fn within_one_gateway_conflicting_listeners_all_lose() {
        let claims = [
            claim(None, 0, "a.org", Protocol::Https),
            claim(None, 1, "a.org", Protocol::TlsPassthrough),
        ];
        let (winner, losers) = check(&claims, "a.org");
        assert_eq!(winner, None);
        assert!(
            losers
                .iter()
                .all(|(_, reason)| *reason == Reason::HostnameConflict)
                && losers.len() == 2
        );
    }

    #[test]
    fn across_objects_the_first_in_precedence_wins() {
        let claims = [
            claim(Some(2), 0, "a.org", Protocol::Https),
            claim(Some(1), 0, "a.org", Protocol::Https),
        ];
        assert_eq!(
            check(&claims, "a.org"),
            (
                Some("set1/l0".into()),
                vec![("set2/l0".into(), Reason::HostnameConflict)]
            )
        );
    }

    fn shared(
        gateway: u8,
        set: Option<u8>,
        index: usize,
        hostname: &str,
        protocol: Protocol,
    ) -> (Rank, Claim) {
        let name = ObjectName::new(format!("ns{gateway}"), "gw");
        let (mut rank, mut claim) = claim(set, index, hostname, protocol);
        rank.gateway = Some(Arc::new((i64::from(gateway), name.clone())));
        if set.is_none() {
            rank.parent = ParentKey::Gateway(name);
            claim.listener.parent = rank.parent.clone();
        }
        (rank, claim)
    }

    #[test]
    fn among_gateways_that_share_a_port_the_older_keeps_a_name_with_all_that_extends_it() {
        let claims = [
            shared(1, None, 0, "a.org", Protocol::Https),
            shared(2, None, 0, "a.org", Protocol::Https),
            shared(2, None, 1, "b.org", Protocol::Https),
            shared(1, Some(1), 0, "b.org", Protocol::Https),
        ];
        fn lost(id: &str) -> Vec<(String, Reason)> {
            vec![(id.to_owned(), Reason::HostnameConflict)]
        }
        assert_eq!(
            check(&claims, "a.org"),
            (Some("gw/l0".into()), lost("gw/l0"))
        );
        assert_eq!(
            check(&claims, "b.org"),
            (Some("set1/l0".into()), lost("gw/l1"))
        );
    }

    #[test]
    fn a_gateway_that_contradicts_itself_takes_nothing_from_those_that_share_with_it() {
        let claims = [
            shared(1, None, 0, "a.org", Protocol::Http),
            shared(1, None, 1, "a.org", Protocol::Https),
            shared(1, Some(1), 0, "c.org", Protocol::Https),
            shared(2, None, 2, "a.org", Protocol::Https),
        ];
        let (winner, losers) = check(&claims, "a.org");
        assert_eq!(winner, Some("gw/l2".into()));
        assert!(
            losers
                .iter()
                .all(|(_, reason)| *reason == Reason::ProtocolConflict)
                && losers.len() == 2
        );
        assert_eq!(
            check(&claims, "c.org"),
            (None, vec![("set1/l0".into(), Reason::ProtocolConflict)])
        );
        let twice = [
            shared(1, None, 0, "a.org", Protocol::Https),
            shared(1, None, 1, "a.org", Protocol::TlsPassthrough),
            shared(1, Some(1), 0, "a.org", Protocol::Https),
            shared(2, None, 2, "a.org", Protocol::Https),
        ];
        assert_eq!(
            check(&twice, "a.org").0,
            Some("gw/l2".into()),
            "its sets are barred with it"
        );
    }

    #[test]
    fn a_set_with_two_families_loses_only_what_the_gateway_does_not_speak() {
        let claims = [
            claim(None, 0, "", Protocol::Http),
            claim(Some(1), 0, "a.org", Protocol::Http),
            claim(Some(1), 1, "b.org", Protocol::Https),
        ];
        assert_eq!(check(&claims, "a.org").0, Some("set1/l0".into()));
        assert_eq!(
            check(&claims, "b.org"),
            (None, vec![("set1/l1".into(), Reason::ProtocolConflict)])
        );
    }

    proptest! {
        #[test]
        fn removing_the_winner_promotes_exactly_the_next(sets in proptest::collection::btree_set(0u8..20, 2..8)) {
            let claims: Vec<_> = sets.iter().map(|n| claim(Some(*n), 0, "a.org", Protocol::Https)).collect();
            let mut all = Claims::default();
            for (rank, claim) in claims.iter().rev() {
                all.set(rank.clone(), Some(claim.clone()));
            }
            let hostname = Hostname::parse("a.org").expect("a hostname");
            let mut order: Vec<_> = claims.iter().map(|(rank, _)| rank.clone()).collect();
            order.sort();
            for rank in order {
                let winner = all.outcome(&hostname, |_| true).0.map(|w| w.listener.parent.clone());
                prop_assert_eq!(winner, Some(rank.parent.clone()));
                all.set(rank, None);
            }
        }
    }
}
