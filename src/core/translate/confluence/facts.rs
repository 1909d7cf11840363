//! Facts among the events: inputs that are no objects.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::{HOSTS, NAMESPACES, pick};
use crate::{Change, Fact, ParentKey, RouteKey};
use gatewright_objects::definitions::{DefinedFields, Definitions};
use gatewright_objects::inputs::{Kind, RouteKind, SetKey, SetKind};
use gatewright_objects::model::{
    Hostname, HostnameGrant, ObjectName, Reason, TICKET_KEY_BYTES, TicketKeys,
};

/// The subject of a fact: a later fact with the same subject replaces it.
pub(super) fn subject(fact: &Change) -> String {
    match fact {
        Change::Fact(Fact::Challenge(hostname, _)) => hostname.to_string(),
        Change::Fact(Fact::ExpectedIssuer(secret, _)) => format!("awaited {secret}"),
        Change::Fact(Fact::ServiceProblem(gateway, _)) => format!("Service of {gateway}"),
        Change::Fact(Fact::EnvoysProblem(gateway, _)) => format!("Envoys of {gateway}"),
        Change::Fact(Fact::TlsChallenges(_)) => "TLS-ALPN-01".to_owned(),
        Change::Fact(Fact::IssuanceProblem(secret, _)) => secret.to_string(),
        Change::Fact(Fact::Granted(route, _)) => format!("granted {}", route.object()),
        Change::Fact(Fact::Withheld(set, _)) => format!("withheld of {}", set.object()),
        Change::Fact(Fact::Governed(gateway, _)) => format!("governed {gateway}"),
        Change::Fact(Fact::TrustBundles(_)) => "trust bundles".to_owned(),
        Change::Fact(Fact::TicketKeys(_)) => "ticket keys".to_owned(),
        Change::Fact(Fact::Definitions(_)) => "definitions".to_owned(),
        Change::Fact(Fact::Recorded(..) | Fact::Resolved(..)) | Change::Object(_) => {
            unreachable!("no event of these tests")
        }
    }
}

/// The fact that tenancy withholds listeners of a ListenerSet: all of them, some, or none.
pub(super) fn withheld() -> impl Strategy<Value = Change> {
    let kind = select(&[SetKind::Stable, SetKind::Experimental][..]);
    (
        kind,
        pick(NAMESPACES),
        pick(&["s", "t"]),
        subsequence(&["l0", "l1", "l2"][..], 0..4),
    )
        .prop_map(|(kind, namespace, name, listeners)| {
            let listeners = listeners.into_iter().map(Arc::from).collect();
            Change::Fact(Fact::Withheld(
                SetKey {
                    name: ObjectName::new(namespace, name),
                    kind,
                },
                listeners,
            ))
        })
}

/// The fact whether the API server serves ClusterTrustBundles.
pub(super) fn trust_bundles() -> impl Strategy<Value = Change> {
    any::<bool>().prop_map(|can_be| Change::Fact(Fact::TrustBundles(can_be)))
}

/// The keys of session tickets: two generations, or none.
pub(super) fn ticket_keys() -> impl Strategy<Value = Change> {
    let keys = [
        None,
        Some([1; TICKET_KEY_BYTES]),
        Some([2; TICKET_KEY_BYTES]),
    ];
    select(keys.to_vec())
        .prop_map(|key| Change::Fact(Fact::TicketKeys(key.map(|key| TicketKeys::new(key, &[])))))
}

/// The definitions of a cluster.
pub(super) fn definitions() -> impl Strategy<Value = Change> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(listener_filters, routability, udp)| {
            let missing = udp.then_some(Kind::UDPRoute).into_iter().collect();
            let fields = DefinedFields {
                listener_filters,
                routability,
            };
            Change::Fact(Fact::Definitions(Definitions {
                fields,
                missing,
                ..Definitions::unknown()
            }))
        },
    )
}

/// That a TenantGateway has a Gateway, or that it has not.
pub(super) fn governed() -> impl Strategy<Value = Change> {
    let gateway = (pick(NAMESPACES), pick(&["g", "f"]));
    (gateway, any::<bool>()).prop_map(|((namespace, name), governs)| {
        Change::Fact(Fact::Governed(ObjectName::new(namespace, name), governs))
    })
}

/// A grant of tenancy to a route at a Gateway, or none.
pub(super) fn granted() -> impl Strategy<Value = Change> {
    let route = (
        select(&RouteKind::ALL[..]),
        pick(NAMESPACES),
        pick(&["r", "q", "p"]),
    );
    let parent = (pick(NAMESPACES), pick(&["g", "f"]));
    let hostnames = subsequence(&HOSTS[1..], 0..3);
    let sets = subsequence(&["s", "t"][..], 0..2);
    (route, parent, hostnames, sets, 0..4).prop_map(
        |((kind, own, name), (namespace, gateway), hostnames, sets, how)| {
            let grant = HostnameGrant {
                granted: hostnames
                    .into_iter()
                    .map(|name| Hostname::parse(name).expect("a hostname"))
                    .collect(),
                sets: sets
                    .into_iter()
                    .map(|set| ObjectName::new(namespace, set))
                    .collect(),
                // A route whose listeners are all elsewhere does not depend on changes of the
                // Gateway's own.
                on_gateway: true,
                refusal: (how == 1)
                    .then(|| (Reason::HostnameConflict, "somebody else's".to_owned())),
            };
            let parent = ParentKey::Gateway(ObjectName::new(namespace, gateway));
            let key = RouteKey {
                kind,
                name: ObjectName::new(own, name),
            };
            Change::Fact(Fact::Granted(
                key,
                (how > 0).then_some((parent, grant)).into_iter().collect(),
            ))
        },
    )
}
