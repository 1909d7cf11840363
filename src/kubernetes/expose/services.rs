//! Writes the Services of Gateways of the dedicated fleet and the EndpointSlices behind them, and
//! deletes those that are no longer wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, GroupVersionKind};
use kube::core::DynamicObject;
use serde_json::Value;
use tracing::debug;

use crate::expose::plan::{Plan, ServiceAction, differences, plan, plan_behind};
use crate::metrics::Writes;
use crate::watch::observed::ObservedObject;
use crate::write::failure::Failure;
use crate::write::gateway_troubles::GatewayTroubles;
use crate::write::request::{applied_over, corrected, create, delete, in_time};
use crate::write::worker::Worker;
use crate::write::written::{Moment, Written};
use gatewright_core::inputs::{EndpointSlice, Kind, Object, ObjectKey, Service};
use gatewright_core::model::ObjectName;
use gatewright_core::multimap::MultiMap;
use gatewright_core::store::Store;
use gatewright_core::translate::{Change, Fact, ServiceIntent};

/// The maximum number of Gateways that are written at the same time.
const AT_ONCE: usize = 4;

/// The desired and the observed Services and slices of Gateways.
pub(crate) struct Services {
    client: Client,
    intents: BTreeMap<ObjectName, ServiceIntent>,
    /// The index from a wanted Service to the Gateways that want it.
    wanted: MultiMap<ObjectName, ObjectName>,
    /// The observed Services of ours, with their Gateways and UIDs.
    ours: BTreeMap<ObjectName, (ObjectName, String)>,
    /// The index from a Gateway to our slices behind the Services that it names; `lent_to` is the
    /// reverse.
    lent: MultiMap<ObjectName, ObjectName>,
    lent_to: BTreeMap<ObjectName, ObjectName>,
    /// The Services and slices that the watch has not brought since they were written.
    written: Written<ObjectKey, Object>,
    worker: Worker<ObjectName, Done>,
    troubles: GatewayTroubles,
}

/// The outcome of the writes for one Gateway.
struct Done {
    gateway: ObjectName,
    outcome: Result<(), Failure>,
    /// The objects as the API server answered, and when the writes began.
    answers: Vec<Object>,
    begun: Moment,
    /// The conflict that was found by the plan, without a failed write.
    trouble: Option<String>,
}

/// The outcome of the writes for one Gateway; `None` when a delayed retry is due.
pub(crate) struct WorkerEvent(Option<Done>);

impl Services {
    /// Creates the writer, with an empty queue.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            intents: BTreeMap::new(),
            wanted: MultiMap::default(),
            ours: BTreeMap::new(),
            lent: MultiMap::default(),
            lent_to: BTreeMap::new(),
            written: Written::default(),
            worker: Worker::new(AT_ONCE),
            troubles: GatewayTroubles::new(Fact::ServiceProblem),
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
            // A changed intent is tried at once, without the back-off of an earlier rejection.
            self.worker.drop(&gateway);
            self.worker.want(gateway, Instant::now());
        }
    }

    /// Takes in a Service or a slice that was added or changed.
    pub(crate) fn see(&mut self, object: &Object) {
        match object {
            Object::Service(service) => {
                self.written.hear(&object.key(), !self.worker.is_idle());
                self.forget(&service.meta.name);
                if let Some(exposure) = &service.made {
                    let name = service.meta.name.clone();
                    self.ours
                        .insert(name, (exposure.gateway.clone(), exposure.uid.clone()));
                    self.worker.want(exposure.gateway.clone(), Instant::now());
                }
            }
            Object::EndpointSlice(slice) => {
                self.written.hear(&object.key(), !self.worker.is_idle());
                if let Some(service) = &slice.service {
                    self.enqueue_gateways_of(service);
                }
                let lent = slice.made.as_ref().and_then(|made| made.lent.as_ref());
                self.set_lent(&slice.meta.name, lent.map(|lent| &lent.gateway));
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
        self.written.hear(key, !self.worker.is_idle());
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
            self.worker.want(gateway.clone(), Instant::now());
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
            self.worker.want(gateway.clone(), Instant::now());
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
            self.worker.want(gateway, Instant::now());
        }
    }

    /// Starts writes for the queued Gateways, up to the limit. `seen` has the UIDs of the existing
    /// Gateways.
    pub(crate) fn write(
        &mut self,
        store: &Store,
        seen: &BTreeMap<ObjectKey, Box<ObservedObject>>,
        may_write: bool,
    ) {
        fn uid(
            gateway: &ObjectName,
            seen: &BTreeMap<ObjectKey, Box<ObservedObject>>,
        ) -> Option<Box<str>> {
            seen.get(&ObjectKey::new(Kind::Gateway, gateway.clone()))
                .map(|seen| seen.uid.clone())
        }
        self.written.expire(Instant::now());
        while let Some(gateway) = self.worker.take(Instant::now()) {
            if !may_write {
                self.worker.done(&gateway);
                continue;
            }
            let (work, trouble) = self.work(store, &gateway, uid(&gateway, seen));
            if work.is_empty() {
                self.worker.done(&gateway);
                self.troubles.tell(&gateway, "conflict", trouble);
                continue;
            }
            let actions: Vec<&'static str> = work.iter().map(Work::label).collect();
            let client = self.client.clone();
            let begun = self.written.begin(self.worker.is_idle());
            self.worker.begin_several(
                "expose",
                &actions,
                &format!("gateway {gateway}"),
                async move {
                    let mut answers = Vec::new();
                    let outcome = run(&client, work, &mut answers).await;
                    Done {
                        gateway,
                        outcome,
                        answers,
                        begun,
                        trouble,
                    }
                },
            );
        }
    }

    /// Returns a Service as it was written last, or as the watch has it.
    fn service<'a>(&'a self, store: &'a Store, name: &ObjectName) -> Option<&'a Service> {
        match self
            .written
            .get(&ObjectKey::new(Kind::Service, name.clone()))
        {
            Some(Object::Service(service)) => Some(service),
            _ => store.service(name).map(AsRef::as_ref),
        }
    }

    /// Returns a slice as it was written last, or as the watch has it.
    fn slice<'a>(&'a self, store: &'a Store, name: &ObjectName) -> Option<&'a EndpointSlice> {
        match self
            .written
            .get(&ObjectKey::new(Kind::EndpointSlice, name.clone()))
        {
            Some(Object::EndpointSlice(slice)) => Some(slice),
            _ => store.slice(name).map(AsRef::as_ref),
        }
    }

    fn work(
        &self,
        store: &Store,
        gateway: &ObjectName,
        uid: Option<Box<str>>,
    ) -> (Vec<Work>, Option<String>) {
        let intent = self.intents.get(gateway);
        let mut work = Vec::new();
        let mut in_the_way = None;
        let slice = |name: &ObjectName| self.slice(store, name);
        let lent = || self.lent.of(gateway).filter_map(slice);
        let planned = match (intent, &uid) {
            (Some(ServiceIntent::Wanted(desired)), Some(uid)) => {
                let service = self.service(store, &desired.name);
                Some(plan(
                    desired,
                    uid,
                    service,
                    slice,
                    store.slices(&desired.name).map(AsRef::as_ref),
                ))
            }
            (Some(ServiceIntent::Slices(desired)), Some(uid)) => {
                Some(plan_behind(desired, uid, slice, lent()))
            }
            _ => None,
        };
        if let Some(Plan {
            steps,
            idle,
            trouble,
        }) = planned
        {
            work.extend(steps.into_iter().map(Work::Write));
            work.extend(
                idle.into_iter()
                    .map(|(name, uid)| Work::DeleteSlice(name, uid)),
            );
            in_the_way = trouble;
        }
        if matches!(intent, Some(ServiceIntent::Wanted(_)) | None) {
            // The Gateway does not stand on a named Service any more.
            let made = lent().filter_map(|slice| {
                Some((slice.meta.name.clone(), slice.made.as_ref()?.uid.clone()))
            });
            work.extend(made.map(|(name, uid)| Work::DeleteSlice(name, uid)));
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
                work.extend(store.slices(name).filter_map(|slice| made(slice, &owner)));
                work.push(Work::Delete(name.clone(), uid.clone()));
            }
        }
        (work, in_the_way)
    }

    /// Waits until a write has ended or a delayed retry is due.
    pub(crate) async fn next(&mut self) -> WorkerEvent {
        WorkerEvent(self.worker.next().await)
    }

    /// Takes in the outcome of a write.
    pub(crate) fn take_event(&mut self, event: WorkerEvent) {
        let Some(Done {
            gateway,
            outcome,
            answers,
            begun,
            trouble,
        }) = event.0
        else {
            return;
        };
        let now = Instant::now();
        for object in answers {
            self.written.answered(object.key(), object, begun, now);
        }
        let Err(failure) = outcome else {
            self.worker.done(&gateway);
            self.troubles.tell(&gateway, "conflict", trouble);
            return;
        };
        match &failure {
            // A person has to act on this failure.
            Failure::Refused(_) | Failure::Contested(_) | Failure::Forbidden(_) => {
                let text = match self.intents.get(&gateway).and_then(ServiceIntent::name) {
                    Some(service) => format!("Service {service}: {failure}"),
                    None => failure.to_string(),
                };
                self.troubles.tell(&gateway, failure.class(), Some(text));
            }
            Failure::Unavailable(text) => debug!("the Service of gateway {gateway}: {text}"),
            Failure::Conflict | Failure::Gone | Failure::Throttled(_) => {}
        }
        self.worker.failed(&gateway, &failure, now);
    }

    /// Takes the facts for the engine since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<Change> {
        self.troubles.take_news()
    }

    /// Returns counters of writes, and the number of Gateways with a reported problem.
    pub(crate) fn metrics(&self) -> (Writes, usize) {
        (self.worker.metrics(), self.troubles.count())
    }

    /// Waits for the writes in progress, and starts no more.
    pub(crate) async fn stop(self) {
        self.worker.finish().await;
    }
}

/// Reads an object as the watch would.
fn read(object: DynamicObject) -> Option<Object> {
    Object::parse_admitted(serde_json::to_value(object).ok()?).ok()
}

fn made(slice: &EndpointSlice, owner: &Option<&String>) -> Option<Work> {
    let made = slice
        .made
        .as_ref()
        .filter(|made| Some(&made.owner) == *owner)?;
    Some(Work::DeleteSlice(slice.meta.name.clone(), made.uid.clone()))
}

/// One request to the API server.
enum Work {
    Write(ServiceAction),
    Delete(ObjectName, String),
    DeleteSlice(ObjectName, String),
}

/// Runs the writes in order. Each starts only during a term of the Lease, see [`crate::fence`].
/// After a rejection the other writes go on, since the endpoints of a Service that cannot be
/// changed still change. But nothing is deleted then, since the existing object may serve in place
/// of the rejected one. `answers` gets the objects as the API server answered.
async fn run(client: &Client, work: Vec<Work>, answers: &mut Vec<Object>) -> Result<(), Failure> {
    let mut refused = None;
    for one in work {
        if refused.is_some() && !matches!(one, Work::Write(_)) {
            continue;
        }
        let goes_on = !one.makes_service();
        match one.run(client).await {
            Ok(written) => answers.extend(written.and_then(read)),
            Err(
                failure @ (Failure::Refused(_) | Failure::Contested(_) | Failure::Forbidden(_)),
            ) if goes_on => {
                refused.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    refused.map_or(Ok(()), Err)
}

impl Work {
    /// The label value of metrics.
    fn label(&self) -> &'static str {
        match self {
            Work::Write(ServiceAction::Create(_)) => "create",
            Work::Write(ServiceAction::Apply(..)) => "apply",
            Work::Delete(..) | Work::DeleteSlice(..) => "delete",
        }
    }

    /// Returns whether it creates the Service, which the other writes depend on.
    fn makes_service(&self) -> bool {
        matches!(self, Work::Write(ServiceAction::Create(document)) if document["kind"] == "Service")
    }

    /// Sends the request. Returns the object as it is written.
    async fn run(self, client: &Client) -> Result<Option<DynamicObject>, Failure> {
        match self {
            Work::Write(ServiceAction::Create(document)) => {
                let api = api_of(client, &document);
                let object = in_time(create(&api, document.clone())).await?;
                corrected(&api, object, |object| differences(&document, object))
                    .await
                    .map(Some)
            }
            Work::Write(ServiceAction::Apply(document, uid)) => {
                let api = api_of(client, &document);
                applied_over(&api, &document, &uid, |object| {
                    differences(&document, object)
                })
                .await
                .map(Some)
            }
            Work::Delete(name, uid) => {
                let api = api(client, "", "Service", &name.namespace);
                in_time(delete(&api, &name.name, uid, DeleteParams::default())).await?;
                Ok(None)
            }
            Work::DeleteSlice(name, uid) => {
                let api = api(client, "discovery.k8s.io", "EndpointSlice", &name.namespace);
                in_time(delete(&api, &name.name, uid, DeleteParams::default())).await?;
                Ok(None)
            }
        }
    }
}

/// Returns the API of the kind and namespace of a manifest.
fn api_of(client: &Client, document: &Value) -> Api<DynamicObject> {
    fn text<'a>(pointer: &str, document: &'a Value) -> &'a str {
        document
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
    let version = text("/apiVersion", document);
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    api(
        client,
        group,
        text("/kind", document),
        text("/metadata/namespace", document),
    )
}

fn api(client: &Client, group: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::SystemTime;

    use hyper::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use gatewright_core::inputs::{MANAGER, SLICES_BY, STANDS_ON, ServiceType};
    use gatewright_core::model::TransportPort;
    use gatewright_core::translate::{DesiredService, DesiredSlices, Engine, Settings};

    /// A client of a server that rejects Services, and the requests that it received.
    fn client() -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let code = if path.contains("/services/") {
                422
            } else {
                200
            };
            notes.lock().expect("nobody panics").push(path);
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "message": "no", "metadata": {}});
            let mut response = Response::new(Body::from(status.to_string().into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).expect("a status");
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        (Client::new(service, "default"), asked)
    }

    fn document(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "a", "name": name}})
    }

    #[tokio::test]
    async fn envoys_come_and_go_behind_a_service_whose_change_is_refused() {
        fn slice() -> Work {
            Work::Write(ServiceAction::Apply(
                document("discovery.k8s.io/v1", "EndpointSlice", "s-v4"),
                "2".into(),
            ))
        }
        fn service() -> Value {
            document("v1", "Service", "s")
        }
        for (first, asked_for) in [
            // The refused change, the look at what is there, and the slice.
            (Work::Write(ServiceAction::Apply(service(), "1".into())), 3),
            // Without the Service there is nothing that slices could be behind.
            (Work::Write(ServiceAction::Create(service())), 1),
        ] {
            let (client, asked) = client();
            let old = Work::Delete(ObjectName::new("a", "old"), "3".into());
            let ended = run(&client, vec![first, slice(), old], &mut Vec::new()).await;
            assert_eq!(
                ended,
                Err(Failure::Refused("no".into())),
                "it is told all the same"
            );
            assert_eq!(
                asked.lock().expect("nobody panics").len(),
                asked_for,
                "{asked:?}"
            );
        }
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
        let mut services = Services::new(client().0);
        let mut engine = Engine::new(Settings::new("c", vec![]));
        for object in [slice("g-web-v4", "g"), slice("other-web-v4", "other")] {
            services.see(&object);
            engine.apply(vec![Change::put(object)], SystemTime::UNIX_EPOCH);
        }
        let store = engine.store();
        fn deleted(services: &Services, store: &Store, gateway: &ObjectName) -> Vec<String> {
            let (work, _) = services.work(store, gateway, Some("u".into()));
            work.iter()
                .filter_map(|work| match work {
                    Work::DeleteSlice(name, uid) => Some(format!("{} {uid}", name.name)),
                    _ => None,
                })
                .collect()
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
        assert!(services.worker.is_wanted(&gateway) && services.lent.of(&gateway).next().is_none());
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
            let mut services = Services::new(client().0);
            services.take_in(BTreeMap::from([desired(has)]));
            services.take_in(BTreeMap::from([desired(waits)]));
            services.take_in(BTreeMap::from([(ObjectName::new("a", has), None)]));
            services.write(&Store::default(), &BTreeMap::new(), false);
            assert_eq!(services.worker.due(), None);
            services.forget(&ObjectName::new("a", "b-c-d"));
            assert!(
                services.worker.is_wanted(&ObjectName::new("a", waits)),
                "{waits} wants it"
            );
        }
    }
}
