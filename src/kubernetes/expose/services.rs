//! Writes the Services of Gateways of the dedicated fleet and the EndpointSlices behind them, and
//! deletes those that are no longer wanted.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use kube::core::DynamicObject;

use crate::expose::plan::{Owner, Plan, plan, plan_behind};
use crate::metrics::Writes;
use crate::watch::observed::ObservedObject;
use crate::write::gateway_writer::{GatewayWriter, Planned, WriterEvent};
use crate::write::object_write::{Existing, ObjectWrite};
use gatewright_core::inputs::{EndpointSlice, Kind, Object, ObjectKey, Service};
use gatewright_core::model::ObjectName;
use gatewright_core::multimap::MultiMap;
use gatewright_core::store::Store;
use gatewright_core::translate::{Change, Fact, ServiceIntent};

/// The desired and the observed Services and slices of Gateways.
pub(crate) struct Services {
    intents: BTreeMap<ObjectName, ServiceIntent>,
    /// The index from a wanted Service to the Gateways that want it.
    wanted: MultiMap<ObjectName, ObjectName>,
    /// The observed Services of ours, with their Gateways and UIDs.
    ours: BTreeMap<ObjectName, (ObjectName, String)>,
    /// The index from a Gateway to our slices behind the Services that it names; `lent_to` is the
    /// reverse.
    lent: MultiMap<ObjectName, ObjectName>,
    lent_to: BTreeMap<ObjectName, ObjectName>,
    writer: GatewayWriter<ObjectKey, Object>,
}

/// The outcome of the writes for one Gateway.
pub(crate) type WorkerEvent = WriterEvent<ObjectKey, Object>;

impl Services {
    /// Creates the writer, with an empty queue.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            intents: BTreeMap::new(),
            wanted: MultiMap::default(),
            ours: BTreeMap::new(),
            lent: MultiMap::default(),
            lent_to: BTreeMap::new(),
            writer: GatewayWriter::new(client, "expose", Fact::ServiceProblem, read),
        }
    }

    /// Takes in changes of the desired Services of Gateways, and queues these Gateways.
    pub(crate) fn take_in(&mut self, services: BTreeMap<ObjectName, Option<ServiceIntent>>) {
        for (gateway, intent) in services {
            let now = intent.as_ref().and_then(ServiceIntent::name).cloned();
            let before = match intent {
                Some(intent) => self.intents.insert(gateway.clone(), intent),
                None => self.intents.remove(&gateway),
            };
            // Several Gateways may want the same name; one of them gets it.
            if let Some(before) = before.as_ref().and_then(ServiceIntent::name) {
                self.wanted.remove(before, &gateway);
            }
            if let Some(now) = now {
                self.wanted.insert(now, gateway.clone());
            }
            self.writer.want_anew(gateway);
        }
    }

    /// Takes in a Service or a slice that was added or changed.
    pub(crate) fn see(&mut self, object: &Object) {
        match object {
            Object::Service(service) => {
                self.writer.hear(&object.key());
                self.forget(&service.meta.name);
                if let Some(exposure) = &service.made {
                    // One without an owner is not ours before it is taken over.
                    if !exposure.owner.is_empty() {
                        let name = service.meta.name.clone();
                        self.ours
                            .insert(name, (exposure.gateway.clone(), exposure.uid.clone()));
                    }
                    self.writer.want(exposure.gateway.clone());
                }
            }
            Object::EndpointSlice(slice) => {
                self.writer.hear(&object.key());
                if let Some(service) = &slice.service {
                    self.enqueue_gateways_of(service);
                }
                let made = slice.made.as_ref();
                let lent = made.and_then(|made| Some((made.owner.is_empty(), made.lent.as_ref()?)));
                let owned = lent.filter(|(is_orphan, _)| !is_orphan);
                self.set_lent(&slice.meta.name, owned.map(|(_, lent)| &lent.gateway));
                if let Some((true, lent)) = lent {
                    self.writer.want(lent.gateway.clone());
                }
            }
            _ => {}
        }
    }

    /// Takes in the deletion of an object.
    pub(crate) fn gone(&mut self, key: &ObjectKey) {
        match key.kind {
            Kind::Service => self.forget(&key.name),
            Kind::EndpointSlice => self.forget_slice(&key.name),
            _ => return,
        }
        self.writer.hear(key);
    }

    /// Takes in the deletion of a Service.
    fn forget(&mut self, service: &ObjectName) {
        self.enqueue_gateways_of(service);
        self.ours.remove(service);
    }

    /// Sets the Gateway of a slice behind a named Service; `None` where there is none any more.
    fn set_lent(&mut self, slice: &ObjectName, gateway: Option<&ObjectName>) {
        let before = match gateway {
            Some(gateway) => self.lent_to.insert(slice.clone(), gateway.clone()),
            None => self.lent_to.remove(slice),
        };
        if let Some(before) = &before {
            self.lent.remove(before, slice);
        }
        for gateway in before.iter().chain(gateway) {
            self.writer.want(gateway.clone());
        }
        if let Some(gateway) = gateway {
            self.lent.insert(gateway.clone(), slice.clone());
        }
    }

    /// Takes in the deletion of a slice; behind a Service of ours, its name has that of the Service
    /// as a prefix.
    fn forget_slice(&mut self, slice: &ObjectName) {
        self.set_lent(slice, None);
        if let Some((service, _)) = slice.name.rsplit_once("-v") {
            self.enqueue_gateways_of(&ObjectName::new(slice.namespace.clone(), service));
        }
    }

    /// Queues the Gateways that want this Service.
    fn enqueue_gateways_of(&mut self, service: &ObjectName) {
        for gateway in self.wanted.of(service) {
            self.writer.want(gateway.clone());
        }
    }

    /// Queues every Gateway for comparison, since nothing was written before.
    pub(crate) fn enqueue_all(&mut self) {
        let all: BTreeSet<ObjectName> = self
            .intents
            .keys()
            .chain(self.ours.values().map(|(gateway, _)| gateway))
            .chain(self.lent.keys())
            .cloned()
            .collect();
        for gateway in all {
            self.writer.want(gateway);
        }
    }

    /// Starts writes for the queued Gateways, up to the limit. `seen` has the existing Gateways.
    pub(crate) fn write(
        &mut self,
        store: &Store,
        seen: &BTreeMap<ObjectKey, Box<ObservedObject>>,
        may_write: bool,
    ) {
        fn owner(
            gateway: &ObjectName,
            seen: &BTreeMap<ObjectKey, Box<ObservedObject>>,
        ) -> Option<(Box<str>, bool)> {
            seen.get(&ObjectKey::new(Kind::Gateway, gateway.clone()))
                .map(|seen| (seen.uid.clone(), seen.is_deleting))
        }
        while let Some(gateway) = self.writer.take(may_write) {
            let planned = self.planned(store, &gateway, owner(&gateway, seen));
            self.writer.begin(gateway, planned);
        }
    }

    /// Returns a Service as it was written last, or as the watch has it.
    fn service<'a>(&'a self, store: &'a Store, name: &ObjectName) -> Option<&'a Service> {
        let key = ObjectKey::new(Kind::Service, name.clone());
        match self.writer.written(&key) {
            Some(Object::Service(service)) => Some(service),
            _ => store.service(name).map(AsRef::as_ref),
        }
    }

    /// Returns a slice as it was written last, or as the watch has it.
    fn slice<'a>(&'a self, store: &'a Store, name: &ObjectName) -> Option<&'a EndpointSlice> {
        let key = ObjectKey::new(Kind::EndpointSlice, name.clone());
        match self.writer.written(&key) {
            Some(Object::EndpointSlice(slice)) => Some(slice),
            _ => store.slice(name).map(AsRef::as_ref),
        }
    }

    /// Returns the writes that a Gateway with this UID needs.
    fn planned(
        &self,
        store: &Store,
        gateway: &ObjectName,
        seen: Option<(Box<str>, bool)>,
    ) -> Planned {
        let owner = seen.as_ref().map(|(uid, is_deleting)| Owner {
            uid,
            is_deleting: *is_deleting,
        });
        let intent = self.intents.get(gateway);
        let mut writes = Vec::new();
        let mut in_the_way = None;
        let slice = |name: &ObjectName| self.slice(store, name);
        let lent = || self.lent.of(gateway).filter_map(slice);
        let planned = match (intent, owner) {
            (Some(ServiceIntent::Wanted(desired)), Some(owner)) => {
                let service = self.service(store, &desired.name);
                Some(plan(
                    desired,
                    owner,
                    service,
                    slice,
                    store.slices(&desired.name).map(AsRef::as_ref),
                ))
            }
            (Some(ServiceIntent::Slices(desired)), Some(owner)) => {
                Some(plan_behind(desired, owner, slice, lent()))
            }
            _ => None,
        };
        if let Some(Plan {
            steps,
            idle,
            trouble,
        }) = planned
        {
            writes.extend(steps);
            writes.extend(idle.into_iter().map(|(name, uid)| no_slice(name, uid)));
            in_the_way = trouble;
        }
        if matches!(intent, Some(ServiceIntent::Wanted(_)) | None) {
            // The Gateway does not stand on a named Service any more.
            let made = lent().filter_map(|slice| {
                Some((slice.meta.name.clone(), slice.made.as_ref()?.uid.clone()))
            });
            writes.extend(made.map(|(name, uid)| no_slice(name, uid)));
        }
        if !matches!(intent, Some(ServiceIntent::Left)) {
            let wanted = intent.and_then(ServiceIntent::name);
            // Services of a Gateway are in its namespace.
            let start = ObjectName::new(gateway.namespace.clone(), "");
            let near = self
                .ours
                .range(start..)
                .take_while(|(name, _)| name.namespace == gateway.namespace);
            for (name, (_, uid)) in
                near.filter(|(name, (of, _))| of == gateway && Some(*name) != wanted)
            {
                let owner = store
                    .service(name)
                    .and_then(|service| service.made.as_ref())
                    .map(|there| &there.owner);
                writes.extend(store.slices(name).filter_map(|slice| made(slice, &owner)));
                writes.push(ObjectWrite::Delete(Existing {
                    api_version: "v1".to_owned(),
                    kind: "Service",
                    name: name.clone(),
                    uid: uid.clone(),
                    version: None,
                }));
            }
        }
        let name = intent.and_then(ServiceIntent::name);
        Planned {
            writes,
            trouble: in_the_way,
            subject: name.map_or_else(String::new, |name| format!("Service {name}")),
        }
    }

    /// Waits until a write has ended or a delayed retry is due.
    pub(crate) async fn next(&mut self) -> WorkerEvent {
        self.writer.next().await
    }

    /// Takes in the outcome of a write.
    pub(crate) fn take_event(&mut self, event: WorkerEvent) {
        self.writer.take_event(event);
    }

    /// Takes the facts for the engine since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<Change> {
        self.writer.take_news()
    }

    /// Returns counters of writes, and the number of Gateways with a reported problem.
    pub(crate) fn metrics(&self) -> (Writes, usize) {
        self.writer.metrics()
    }

    /// Waits for the writes in progress, and starts no more.
    pub(crate) async fn stop(self) {
        self.writer.stop().await;
    }
}

/// Reads an object as the watch would.
fn read(object: DynamicObject) -> Option<(ObjectKey, Object)> {
    let object = Object::parse_admitted(serde_json::to_value(object).ok()?).ok()?;
    Some((object.key(), object))
}

/// Deletes a slice.
fn no_slice(name: ObjectName, uid: String) -> ObjectWrite {
    ObjectWrite::Delete(Existing {
        api_version: "discovery.k8s.io/v1".to_owned(),
        kind: "EndpointSlice",
        name,
        uid,
        version: None,
    })
}

/// Deletes a slice that was made for this owner.
fn made(slice: &EndpointSlice, owner: &Option<&String>) -> Option<ObjectWrite> {
    let made = slice
        .made
        .as_ref()
        .filter(|made| Some(&made.owner) == *owner)?;
    Some(no_slice(slice.meta.name.clone(), made.uid.clone()))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::SystemTime;

    use hyper::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use gatewright_core::inputs::{MANAGER, SLICES_BY, STANDS_ON, ServiceType};
    use gatewright_core::model::TransportPort;
    use gatewright_core::translate::{DesiredService, DesiredSlices, Engine, Settings};

    /// A client whose requests nobody answers.
    fn client() -> Client {
        let service = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, Infallible>>()
        });
        Client::new(service, "default")
    }

    fn document(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "a", "name": name}})
    }

    #[tokio::test]
    async fn slices_behind_a_service_of_somebodys_go_with_the_gateway_and_before_a_service_of_ours_is_made()
     {
        let gateway = ObjectName::new("a", "g");
        fn slice(name: &str, gateway: &str) -> Object {
            let mut slice = document("discovery.k8s.io/v1", "EndpointSlice", name);
            slice["addressType"] = json!("IPv4");
            slice["endpoints"] = json!([]);
            slice["metadata"]["uid"] = json!(format!("uid of {name}"));
            slice["metadata"]["annotations"] = json!({STANDS_ON: "web"});
            slice["metadata"]["labels"] =
                json!({"kubernetes.io/service-name": "web", SLICES_BY: MANAGER});
            slice["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Gateway", "name": gateway, "uid": "u", "controller": true}]);
            Object::parse_admitted(slice).expect("a slice")
        }
        let mut services = Services::new(client());
        let mut engine = Engine::new(Settings::new("c", vec![]));
        for object in [slice("g-web-v4", "g"), slice("other-web-v4", "other")] {
            services.see(&object);
            engine.apply(vec![Change::put(object)], SystemTime::UNIX_EPOCH);
        }
        let store = engine.store();
        fn deleted(services: &Services, store: &Store, gateway: &ObjectName) -> Vec<String> {
            let planned = services.planned(store, gateway, Some(("u".into(), false)));
            fn deleted(write: &ObjectWrite) -> Option<String> {
                match write {
                    ObjectWrite::Delete(there) if there.kind == "EndpointSlice" => {
                        Some(format!("{} {}", there.name.name, there.uid))
                    }
                    _ => None,
                }
            }
            planned.writes.iter().filter_map(deleted).collect()
        }
        let gone = ["g-web-v4 uid of g-web-v4"];
        assert_eq!(
            deleted(&services, store, &gateway),
            gone,
            "it is not ours any more, or gone"
        );
        fn behind(
            ports: &[u16],
            gateway: &ObjectName,
        ) -> BTreeMap<ObjectName, Option<ServiceIntent>> {
            let desired = DesiredSlices {
                prefix: "g-web".to_owned(),
                service: ObjectName::new("a", "web"),
                gateway: gateway.clone(),
                ports: ports
                    .iter()
                    .map(|port| (port.to_string(), TransportPort::tcp(*port)))
                    .collect(),
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                envoys: BTreeMap::new(),
            };
            BTreeMap::from([(
                gateway.clone(),
                Some(ServiceIntent::Slices(Box::new(desired))),
            )])
        }
        services.take_in(behind(&[20_001], &gateway));
        assert!(deleted(&services, store, &gateway).is_empty());
        services.take_in(behind(&[], &gateway));
        assert_eq!(
            deleted(&services, store, &gateway),
            gone,
            "nothing leads to it any more"
        );
        services.take_in(BTreeMap::from([(
            gateway.clone(),
            Some(ServiceIntent::Left),
        )]));
        assert!(
            deleted(&services, store, &gateway).is_empty(),
            "what may be put right stays"
        );
        // The Gateway is queued again when the slice is deleted.
        services.write(store, &BTreeMap::new(), false);
        services.gone(&ObjectKey::new(
            Kind::EndpointSlice,
            ObjectName::new("a", "g-web-v4"),
        ));
        assert!(services.writer.is_wanted(&gateway) && services.lent.of(&gateway).next().is_none());
    }

    #[tokio::test]
    async fn a_gateway_that_waits_for_a_service_name_is_reconciled_when_it_is_free() {
        fn desired(gateway: &str) -> (ObjectName, Option<ServiceIntent>) {
            let desired = DesiredService {
                name: ObjectName::new("a", "b-c-d"),
                gateway: ObjectName::new("a", gateway),
                kind: ServiceType::ClusterIP,
                load_balancer_class: None,
                external_traffic_policy: None,
                address: None,
                cluster_ip: None,
                targets: BTreeMap::new(),
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                envoys: BTreeMap::new(),
            };
            (
                desired.gateway.clone(),
                Some(ServiceIntent::Wanted(Box::new(desired))),
            )
        }
        for (has, waits) in [("b", "b-c"), ("b-c", "b")] {
            let mut services = Services::new(client());
            services.take_in(BTreeMap::from([desired(has)]));
            services.take_in(BTreeMap::from([desired(waits)]));
            services.take_in(BTreeMap::from([(ObjectName::new("a", has), None)]));
            services.write(&Store::default(), &BTreeMap::new(), false);
            assert_eq!(services.writer.pending(), 0);
            services.forget(&ObjectName::new("a", "b-c-d"));
            assert!(
                services.writer.is_wanted(&ObjectName::new("a", waits)),
                "{waits} wants it"
            );
        }
    }
}
