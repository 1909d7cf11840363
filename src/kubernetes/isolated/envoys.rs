//! Writes the objects of Gateways' own Envoys, reports failures to the engine, and deletes objects
//! that no Gateway wants any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use gatewright_core::model::ObjectName;
use gatewright_core::multimap::MultiMap;
use gatewright_core::translate::{Change, DesiredEnvoys, Fact};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, GroupVersionKind};
use kube::core::DynamicObject;
use serde_json::Value;
use tracing::debug;

use super::plan::{Step, differences, plan, removal};
use super::watch::{content, observed};
use super::{IsolatedEvent, IsolatedKind, Observed};
use crate::metrics::Writes;
use crate::write::failure::Failure;
use crate::write::gateway_troubles::GatewayTroubles;
use crate::write::request::{applied_over, corrected, create, delete, hand_over, in_time};
use crate::write::worker::Worker;
use crate::write::written::{Moment, Written};

/// The field manager that owns `spec.replicas` until an autoscaler writes it: the API server resets
/// a field without an owner to its default.
const REPLICAS_MANAGER: &str = "gatewright-replicas";
/// The number of Gateways that are written at the same time.
const AT_ONCE: usize = 4;

/// The desired and the observed objects of Gateways' own Envoys.
pub(crate) struct IsolatedEnvoys {
    client: Client,
    /// Our own namespace.
    namespace: String,
    /// The name of the PodTemplate.
    template_name: String,
    template: Option<Value>,
    intents: BTreeMap<ObjectName, DesiredEnvoys>,
    /// The observed objects, by name.
    observed: BTreeMap<(String, IsolatedKind), Observed>,
    /// The index from a Gateway to its observed objects.
    by_gateway: MultiMap<ObjectName, (String, IsolatedKind)>,
    /// The objects that the watch has not brought since they were written.
    written: Written<(String, IsolatedKind), Observed>,
    /// The kinds whose first list is not complete yet.
    unsynced: BTreeSet<IsolatedKind>,
    template_synced: bool,
    worker: Worker<ObjectName, Done>,
    troubles: GatewayTroubles,
}

/// The outcome of the writes for one Gateway.
struct Done {
    gateway: ObjectName,
    outcome: Result<(), Failure>,
    /// The objects as the API server answered, and when the writes began.
    answers: Vec<((String, IsolatedKind), Observed)>,
    begun: Moment,
}

/// The outcome of the writes for one Gateway; `None` when a delayed retry is due.
pub(crate) struct WorkerEvent(Option<Done>);

impl IsolatedEnvoys {
    /// Creates the writer with an empty work queue. Pods are made from the PodTemplate of this
    /// name, in this namespace.
    pub(crate) fn new(client: Client, namespace: &str, template: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            template_name: template.to_owned(),
            template: None,
            intents: BTreeMap::new(),
            observed: BTreeMap::new(),
            by_gateway: MultiMap::default(),
            written: Written::default(),
            unsynced: IsolatedKind::ALL.into_iter().collect(),
            template_synced: false,
            worker: Worker::new(AT_ONCE),
            troubles: GatewayTroubles::new(Fact::EnvoysProblem),
        }
    }

    /// Takes in changes of the desired Envoys of Gateways, and queues these Gateways.
    pub(crate) fn take_in(&mut self, envoys: BTreeMap<ObjectName, Option<DesiredEnvoys>>) {
        for (gateway, intent) in envoys {
            match intent {
                Some(intent) => {
                    self.intents.insert(gateway.clone(), intent);
                }
                None => {
                    self.intents.remove(&gateway);
                }
            }
            // A changed intent is tried at once, without the back-off of an earlier rejection.
            self.worker.drop(&gateway);
            self.worker.want(gateway, Instant::now());
        }
    }

    /// Takes in an event of the watch.
    pub(crate) fn see(&mut self, event: IsolatedEvent) {
        match event {
            IsolatedEvent::Object(kind, name, observed) => self.see_object(kind, name, observed),
            IsolatedEvent::Synced(kind) => {
                if self.unsynced.remove(&kind) && self.knows_pods() {
                    self.enqueue_all();
                }
            }
            IsolatedEvent::Template(template) => {
                if self.template != template {
                    self.template = template;
                    self.enqueue_all();
                }
            }
            IsolatedEvent::TemplateSynced => {
                if !std::mem::replace(&mut self.template_synced, true) {
                    self.enqueue_all();
                }
            }
        }
    }

    fn see_object(&mut self, kind: IsolatedKind, name: String, observed: Option<Observed>) {
        let key = (name.clone(), kind);
        self.written.hear(&key, !self.worker.is_idle());
        let mut gateways: BTreeSet<ObjectName> = observed
            .iter()
            .filter_map(|observed| observed.gateway.clone())
            .collect();
        let before = match observed {
            Some(observed) => {
                if let Some(gateway) = &observed.gateway {
                    self.by_gateway.insert(gateway.clone(), key.clone());
                }
                self.observed.insert(key.clone(), observed)
            }
            None => self.observed.remove(&key),
        };
        if let Some(gateway) = before.and_then(|before| before.gateway) {
            if !gateways.contains(&gateway) {
                self.by_gateway.remove(&gateway, &key);
            }
            gateways.insert(gateway);
        }
        // The object may have blocked a Gateway of the same name; there are few of these.
        let in_the_way = self
            .intents
            .iter()
            .filter(|(_, intent)| *intent.name.name == *name);
        gateways.extend(in_the_way.map(|(gateway, _)| gateway.clone()));
        for gateway in gateways {
            self.worker.want(gateway, Instant::now());
        }
    }

    /// Queues every Gateway for comparison, since nothing was written before.
    pub(crate) fn enqueue_all(&mut self) {
        let there = self
            .observed
            .values()
            .filter_map(|observed| observed.gateway.clone());
        let all: BTreeSet<ObjectName> = self.intents.keys().cloned().chain(there).collect();
        for gateway in all {
            self.worker.want(gateway, Instant::now());
        }
    }

    /// Returns whether all kinds but the autoscalers are listed. Those are waited for only where
    /// they are used: an older installation may lack the rights for them.
    fn knows_pods(&self) -> bool {
        self.unsynced
            .iter()
            .all(|kind| *kind == IsolatedKind::Autoscaler)
    }

    /// Starts writes for the queued Gateways, up to the limit.
    pub(crate) fn write(&mut self, may_write: bool) {
        // Before the watches are complete, existing objects look absent.
        let may_write = may_write && self.knows_pods() && self.template_synced;
        self.written.expire(Instant::now());
        while let Some(gateway) = self.worker.take(Instant::now()) {
            if !may_write {
                self.worker.done(&gateway);
                continue;
            }
            let steps = match self.steps(&gateway) {
                Ok(steps) if !steps.is_empty() => steps,
                other => {
                    self.worker.done(&gateway);
                    self.troubles.tell(&gateway, "conflict", other.err());
                    continue;
                }
            };
            let actions: Vec<&'static str> = steps.iter().map(Step::label).collect();
            let client = self.client.clone();
            let namespace = self.namespace.clone();
            let begun = self.written.begin(self.worker.is_idle());
            self.worker.begin_several(
                "isolated",
                &actions,
                &format!("gateway {gateway}"),
                async move {
                    let mut answers = Vec::new();
                    let outcome = run(&client, &namespace, steps, &mut answers).await;
                    Done {
                        gateway,
                        outcome,
                        answers,
                        begun,
                    }
                },
            );
        }
    }

    /// Returns the writes that a Gateway needs, or the message of the conflict that prevents them.
    fn steps(&self, gateway: &ObjectName) -> Result<Vec<Step>, String> {
        let wanted = match self.intents.get(gateway) {
            Some(desired)
                if desired.parameters.autoscaling.is_some()
                    && self.unsynced.contains(&IsolatedKind::Autoscaler) =>
            {
                return Ok(Vec::new());
            }
            other => other,
        };
        let others = self
            .by_gateway
            .of(gateway)
            .filter(|(name, _)| wanted.is_none_or(|desired| *desired.name.name != **name));
        let others = others.filter_map(|key| {
            let name = ObjectName::new(self.namespace.as_str(), key.0.as_str());
            Some((key.1, name, self.observed.get(key)?))
        });
        let mut steps = match (wanted, &self.template) {
            (None, _) => Vec::new(),
            (Some(_), None) => {
                return Err(format!(
                    "PodTemplate {}/{} for Envoys of fleet Isolated does not exist: apply deploy/isolated, or set \
                     isolated.enabled of the chart",
                    self.namespace, self.template_name
                ));
            }
            (Some(desired), Some(template)) => {
                let name = desired.name.name.to_string();
                plan(desired, template, |kind| {
                    let key = (name.clone(), kind);
                    self.written.get(&key).or_else(|| self.observed.get(&key))
                })?
            }
        };
        steps.extend(removal(others));
        Ok(steps)
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
        }) = event.0
        else {
            return;
        };
        let now = Instant::now();
        for (key, object) in answers {
            self.written.answered(key, object, begun, now);
        }
        let Err(failure) = outcome else {
            self.worker.done(&gateway);
            self.troubles.tell(&gateway, "conflict", None);
            return;
        };
        match &failure {
            // A person has to act on this failure.
            Failure::Refused(_) | Failure::Contested(_) | Failure::Forbidden(_) => {
                self.troubles.tell(
                    &gateway,
                    failure.class(),
                    Some(format!("the Gateway's own Envoys: {failure}")),
                );
            }
            Failure::Unavailable(text) => debug!("the Envoys of gateway {gateway}: {text}"),
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

/// Runs the steps in order, up to the first that fails. Each starts only during a term of the
/// Lease, see [`crate::fence`]. `answers` gets the objects as the API server answered.
async fn run(
    client: &Client,
    namespace: &str,
    steps: Vec<Step>,
    answers: &mut Vec<((String, IsolatedKind), Observed)>,
) -> Result<(), Failure> {
    for step in steps {
        let Some((kind, object)) = step.run(client, namespace).await? else {
            continue;
        };
        let name = object.metadata.name.clone().unwrap_or_default();
        answers.push(((name, kind), observed(&object)));
    }
    Ok(())
}

impl Step {
    /// The label value of metrics.
    fn label(&self) -> &'static str {
        match self {
            Step::Create(..) => "create",
            Step::Apply(..) | Step::LeaveReplicas(..) => "apply",
            Step::Delete(..) => "delete",
        }
    }

    /// Sends the request. Returns the object as it is written.
    async fn run(
        self,
        client: &Client,
        namespace: &str,
    ) -> Result<Option<(IsolatedKind, DynamicObject)>, Failure> {
        match self {
            Step::Create(kind, document) => {
                let api = api(client, kind, namespace);
                let object = in_time(create(&api, document.clone())).await?;
                corrected(&api, object, |object| {
                    differences(kind, &document, &content(&object.data))
                })
                .await
                .map(|object| Some((kind, object)))
            }
            Step::Apply(kind, document, uid) => {
                let api = api(client, kind, namespace);
                applied_over(&api, &document, &uid, |object| {
                    differences(kind, &document, &content(&object.data))
                })
                .await
                .map(|object| Some((kind, object)))
            }
            Step::LeaveReplicas(name, uid) => {
                let deployments = api(client, IsolatedKind::Deployment, namespace);
                in_time(hand_over(
                    &deployments,
                    &name.name,
                    &uid,
                    "/spec/replicas",
                    REPLICAS_MANAGER,
                ))
                .await?;
                Ok(None)
            }
            Step::Delete(kind, name, uid) => {
                let api = api(client, kind, namespace);
                in_time(delete(&api, &name.name, uid, DeleteParams::background())).await?;
                Ok(None)
            }
        }
    }
}

fn api(client: &Client, kind: IsolatedKind, namespace: &str) -> Api<DynamicObject> {
    let (group, version, kind) = kind.gvk();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use gatewright_core::inputs::IsolatedParameters;
    use gatewright_core::translate::{DesiredEnvoys, isolated_name};
    use http_body_util::BodyExt;
    use hyper::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    type Asked = Arc<Mutex<Vec<String>>>;

    /// A client of a server that accepts everything and stores what is applied, and the requests
    /// that the server received.
    fn client() -> (Client, Asked) {
        let asked = Asked::default();
        let notes = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let name = request
                .uri()
                .path()
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            let kind = request
                .uri()
                .path()
                .rsplit('/')
                .nth(1)
                .unwrap_or_default()
                .to_owned();
            notes
                .lock()
                .expect("nobody panics")
                .push(format!("{} {kind} {name}", request.method()));
            let object =
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
            async move {
                let is_apply = request.method() == hyper::Method::PATCH;
                let sent = request
                    .into_body()
                    .collect()
                    .await
                    .expect("it is in memory")
                    .to_bytes();
                let answer = if is_apply {
                    sent.to_vec()
                } else {
                    object.to_string().into_bytes()
                };
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(answer)))
            }
        });
        (Client::new(service, "default"), asked)
    }

    fn gateway(name: &str) -> ObjectName {
        ObjectName::new("a", name)
    }

    fn wanted(name: &str, replicas: u16) -> BTreeMap<ObjectName, Option<DesiredEnvoys>> {
        let parameters = IsolatedParameters {
            replicas: Some(replicas),
            ..IsolatedParameters::default()
        };
        let name = gateway(name);
        let desired = DesiredEnvoys {
            name: ObjectName::new("ours", isolated_name(&name)),
            gateway: name.clone(),
            parameters,
        };
        BTreeMap::from([(name, Some(desired))])
    }

    /// A writer whose watches are complete and saw only the template.
    fn informed(client: Client) -> IsolatedEnvoys {
        let mut envoys = IsolatedEnvoys::new(client, "ours", "template");
        envoys.see(IsolatedEvent::Template(Some(
            json!({"spec": {"containers": [{"name": "envoy"}]}}),
        )));
        envoys.see(IsolatedEvent::TemplateSynced);
        IsolatedKind::ALL
            .into_iter()
            .for_each(|kind| envoys.see(IsolatedEvent::Synced(kind)));
        envoys
    }

    async fn settle(envoys: &mut IsolatedEnvoys, asked: &Asked) -> Vec<String> {
        envoys.write(true);
        while envoys.worker.pending() > 0 {
            let event = envoys.next().await;
            envoys.take_event(event);
            envoys.write(true);
        }
        std::mem::take(&mut asked.lock().expect("nobody panics"))
    }

    #[tokio::test]
    async fn a_change_of_one_gateway_writes_nothing_of_another() {
        let (client, asked) = client();
        let mut envoys = informed(client);
        envoys.take_in(wanted("edge", 2));
        envoys.take_in(wanted("other", 2));
        assert_eq!(settle(&mut envoys, &asked).await.len(), 8);
        envoys.take_in(wanted("edge", 3));
        let written = settle(&mut envoys, &asked).await;
        let name = isolated_name(&gateway("edge"));
        assert!(
            !written.is_empty() && written.iter().all(|one| one.ends_with(&name)),
            "{written:?}"
        );
    }

    #[tokio::test]
    async fn nothing_is_written_before_all_is_known_or_without_a_template() {
        let (client, asked) = client();
        let mut envoys = IsolatedEnvoys::new(client, "ours", "template");
        envoys.take_in(wanted("edge", 2));
        assert!(settle(&mut envoys, &asked).await.is_empty() && envoys.take_news().is_empty());
        IsolatedKind::ALL
            .into_iter()
            .for_each(|kind| envoys.see(IsolatedEvent::Synced(kind)));
        envoys.see(IsolatedEvent::TemplateSynced);
        assert!(settle(&mut envoys, &asked).await.is_empty());
        let news = envoys.take_news();
        let [Change::Fact(Fact::EnvoysProblem(of, Some(text)))] = &news[..] else {
            panic!("{news:?}")
        };
        assert!(
            *of == gateway("edge") && text.contains("PodTemplate ours/template"),
            "{text}"
        );
        envoys.see(IsolatedEvent::Template(Some(
            json!({"spec": {"containers": []}}),
        )));
        assert_eq!(settle(&mut envoys, &asked).await.len(), 4);
        assert_eq!(
            envoys.take_news(),
            [Change::Fact(Fact::EnvoysProblem(gateway("edge"), None))]
        );
    }

    #[tokio::test]
    async fn unwanted_objects_of_an_earlier_run_are_deleted() {
        let (client, asked) = client();
        let mut envoys = informed(client);
        let observed = Observed {
            uid: "u".to_owned(),
            gateway: Some(gateway("gone")),
            ..Observed::default()
        };
        let name = isolated_name(&gateway("gone"));
        envoys.see(IsolatedEvent::Object(
            IsolatedKind::Deployment,
            name.clone(),
            Some(observed),
        ));
        envoys.see(IsolatedEvent::Object(
            IsolatedKind::Deployment,
            "gatewright-isolated-theirs".to_owned(),
            Some(Observed::default()),
        ));
        assert_eq!(
            settle(&mut envoys, &asked).await,
            [format!("DELETE deployments {name}")]
        );
    }
}
