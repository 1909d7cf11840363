//! UDP ports of a namespace and of a fleet. Each has an equal part of an Envoy's UDP sessions, so
//! there are at most as many as the parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::dirty::Dirty;
use super::parent::{Parent, ParentListener};
use crate::key::ParentKey;
use crate::rule::settings::{DedicatedEnvoys, Settings};
use gatewright_objects::limits::{Limits, NamespaceLimits};
use gatewright_objects::model::{EnvoyFleet, FrontendId, Reason, Transport};
use gatewright_objects::multimap::MultiMap;
use gatewright_objects::quota::{Member, Quota};

/// The UDP ports that Gateways and ListenerSets ask for.
pub(crate) struct UdpPorts {
    /// The ports of each object.
    of_namespace: Quota<Arc<str>, ParentKey>,
    /// Ports by the Envoys that serve them, those of objects within the quota of their namespace.
    of_envoys: Quota<EnvoyFleet, FrontendId>,
    /// The objects that ask for a port, the oldest first.
    asking: MultiMap<FrontendId, (i64, ParentKey)>,
    /// Creation time and ports of each of these objects.
    asked: BTreeMap<ParentKey, (i64, BTreeSet<FrontendId>)>,
}

impl UdpPorts {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            of_namespace: Quota::new(limits.namespace.udp_ports),
            of_envoys: Quota::new(limits.udp_ports.into()),
            asking: MultiMap::default(),
            asked: BTreeMap::new(),
        }
    }

    /// Sets how many ports a namespace may have. Returns the objects whose verdict changed.
    pub(crate) fn allow(&mut self, namespace: &Arc<str>, most: u64) -> Vec<ParentKey> {
        self.of_namespace.allow(namespace, most)
    }

    /// Refuses the UDP listeners of a Gateway or ListenerSet that are beyond a quota; its other
    /// listeners stay. Marks the objects whose verdict changes.
    pub(crate) fn limit(
        &mut self,
        key: &ParentKey,
        new: Option<&mut Parent>,
        limits: &NamespaceLimits,
        settings: &Settings,
        dirty: &mut Dirty,
    ) {
        let ports = new.as_deref().map(ports_of).unwrap_or_default();
        let created = new.as_deref().map_or(0, |parent| parent.created);
        let namespace = &key.name().namespace;
        let count = ports.len();
        let member = (count > 0).then(|| Member {
            group: namespace.clone(),
            created,
            weight: count as u64,
        });
        dirty.parents.extend(self.of_namespace.set(key, member));
        let is_within = self.of_namespace.has(key);
        self.ask(
            key,
            (created, if is_within { ports } else { BTreeSet::new() }),
            settings,
            dirty,
        );
        let Some(parent) = new.filter(|parent| parent.accepted.is_ok()) else {
            return;
        };
        let beyond_namespace = format!(
            "the UDP ports of this object ({count}) exceed, with those of older Gateways and ListenerSets of namespace \
             {namespace}, limits.namespace.udpPorts {}: remove UDP listeners",
            limits.udp_ports
        );
        let beyond_envoys = format!(
            "the UDP ports of these Envoys up to this one, the oldest first, exceed limits.udpPorts {}, which divides \
             their UDP sessions: remove UDP listeners, or ask whoever runs the Envoys",
            settings.limits.udp_ports
        );
        let frontends: Vec<FrontendId> = parent
            .listeners
            .iter()
            .map(|listener| parent.frontend(listener.transport_port()))
            .collect();
        for (listener, frontend) in parent
            .listeners
            .iter_mut()
            .zip(frontends)
            .filter(|(listener, _)| is_udp(listener))
        {
            if !is_within {
                listener.accepted = Err((Reason::LimitReached, beyond_namespace.clone()));
            } else if !self.of_envoys.has(&frontend) {
                listener.accepted = Err((Reason::LimitReached, beyond_envoys.clone()));
            }
        }
    }

    /// Sets the ports that an object asks for.
    fn ask(
        &mut self,
        key: &ParentKey,
        asks: (i64, BTreeSet<FrontendId>),
        settings: &Settings,
        dirty: &mut Dirty,
    ) {
        let before = if asks.1.is_empty() {
            self.asked.remove(key)
        } else {
            self.asked.insert(key.clone(), asks.clone())
        };
        if before.as_ref() == Some(&asks) {
            return;
        }
        let (before_created, before) = before.unwrap_or_default();
        before
            .iter()
            .for_each(|port| self.asking.remove(port, &(before_created, key.clone())));
        asks.1
            .iter()
            .for_each(|port| self.asking.insert(port.clone(), (asks.0, key.clone())));
        for port in before.union(&asks.1) {
            let had = self.of_envoys.has(port);
            let oldest = self.asking.first(port);
            let member = oldest.map(|(created, _)| Member {
                group: envoys(port, settings),
                created: *created,
                weight: 1,
            });
            let mut moved = self.of_envoys.set(port, member);
            if self.of_envoys.has(port) != had {
                moved.push(port.clone());
            }
            let others = moved
                .iter()
                .flat_map(|port| self.asking.of(port))
                .map(|(_, other)| other);
            dirty
                .parents
                .extend(others.filter(|other| *other != key).cloned());
        }
    }
}

fn is_udp(listener: &ParentListener) -> bool {
    listener.accepted.is_ok() && listener.transport_port().transport == Transport::Udp
}

fn ports_of(parent: &Parent) -> BTreeSet<FrontendId> {
    let listeners = parent
        .listeners
        .iter()
        .filter(|listener| parent.accepted.is_ok() && is_udp(listener));
    listeners
        .map(|listener| parent.frontend(listener.transport_port()))
        .collect()
}

/// The Envoys that serve a port: those of the shared fleet also serve the dedicated one if it has
/// none of its own.
fn envoys(port: &FrontendId, settings: &Settings) -> EnvoyFleet {
    match (port.fleet(), &settings.dedicated) {
        (EnvoyFleet::Dedicated, DedicatedEnvoys::OfSharedFleet) => EnvoyFleet::Shared,
        (fleet, _) => fleet,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use crate::{Change, Engine, Settings, StatusBody};
    use gatewright_objects::inputs::{Kind, Object, ObjectKey};
    use gatewright_objects::limits::{Limits, NamespaceLimits};
    use gatewright_objects::model::ObjectName;

    const GATEWAY: &str = "gateway.networking.k8s.io/v1";

    fn put(value: Value) -> Change {
        Change::put(Object::parse(value).expect("an object"))
    }

    /// An engine of which a namespace may have two UDP ports, and an Envoy three.
    fn engine() -> Engine {
        let limits = Limits {
            namespace: NamespaceLimits {
                udp_ports: 2,
                ..Limits::default().namespace
            },
            udp_ports: 3,
            ..Limits::default()
        };
        let mut engine = Engine::new(Settings {
            limits,
            ..Settings::new("c", vec![[127, 0, 0, 1].into()])
        });
        let class = json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g"},
            "spec": {"controllerName": "c"}});
        engine.apply(vec![put(class)], SystemTime::UNIX_EPOCH);
        engine
    }

    fn gateway(namespace: &str, created: u8, ports: &[u16]) -> Change {
        let udp = ports
            .iter()
            .map(|port| json!({"name": format!("u{port}"), "protocol": "UDP", "port": port}));
        let http = json!({"name": "http", "protocol": "HTTP", "port": 8000 + u16::from(created)});
        let listeners: Vec<Value> = udp.chain([http]).collect();
        put(json!({"apiVersion": GATEWAY, "kind": "Gateway",
            "metadata": {"name": "edge", "namespace": namespace, "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")},
            "spec": {"gatewayClassName": "g", "listeners": listeners}}))
    }

    /// The reasons of `Accepted` of a Gateway's listeners.
    fn told(engine: &Engine, namespace: &str) -> Vec<&'static str> {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new(namespace, "edge"));
        let StatusBody::Gateway(status) = engine.status(&key).expect("a status").body else {
            panic!("a Gateway's")
        };
        status
            .listeners
            .iter()
            .map(|listener| listener.conditions[0].reason.as_str())
            .collect()
    }

    #[test]
    fn the_oldest_objects_of_a_namespace_have_its_udp_ports_and_others_keep_what_is_not_udp() {
        let mut engine = engine();
        engine.apply(vec![gateway("a", 1, &[1, 2, 3])], SystemTime::UNIX_EPOCH);
        let refused = ["LimitReached", "LimitReached", "LimitReached", "Accepted"];
        assert_eq!(told(&engine, "a"), refused, "three are too many");
        engine.apply(vec![gateway("a", 1, &[1, 2])], SystemTime::UNIX_EPOCH);
        assert_eq!(told(&engine, "a"), ["Accepted"; 3], "two are not");
    }

    #[test]
    fn the_oldest_ports_of_an_envoy_are_served_and_a_removed_one_makes_room() {
        let mut engine = engine();
        engine.apply(
            vec![gateway("c", 3, &[5]), gateway("b", 2, &[3, 4])],
            SystemTime::UNIX_EPOCH,
        );
        assert_eq!(told(&engine, "c"), ["Accepted"; 2], "three ports");
        engine.apply(vec![gateway("a", 1, &[1, 2])], SystemTime::UNIX_EPOCH);
        assert_eq!(told(&engine, "a"), ["Accepted"; 3], "the oldest");
        assert_eq!(
            told(&engine, "b"),
            ["Accepted", "LimitReached", "Accepted"],
            "room for one more"
        );
        assert_eq!(
            told(&engine, "c"),
            ["LimitReached", "Accepted"],
            "the youngest"
        );
        engine.apply(vec![gateway("a", 1, &[])], SystemTime::UNIX_EPOCH);
        assert_eq!(told(&engine, "c"), ["Accepted"; 2], "there is room again");
    }

    #[test]
    fn a_namespace_beyond_its_quota_takes_no_port_from_others() {
        let mut engine = engine();
        engine.apply(
            vec![gateway("a", 1, &[1, 2, 3]), gateway("b", 2, &[4, 5])],
            SystemTime::UNIX_EPOCH,
        );
        assert_eq!(
            told(&engine, "b"),
            ["Accepted"; 3],
            "refused ports do not count"
        );
    }
}
