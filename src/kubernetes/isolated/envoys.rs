//! Writes the objects of Gateways' own Envoys, reports failures to the engine, and deletes objects
//! that no Gateway wants any more.

use std::collections::{BTreeMap, BTreeSet};

use gatewright_core::model::ObjectName;
use gatewright_core::multimap::MultiMap;
use gatewright_core::translate::{Change, DesiredEnvoys, Fact};
use kube::Client;
use kube::core::DynamicObject;
use serde_json::Value;

use super::plan::{plan, removal};
use super::watch::observed;
use super::{IsolatedEvent, IsolatedKind, Observed};
use crate::metrics::Writes;
use crate::write::gateway_writer::{GatewayWriter, Planned, WriterEvent};
use crate::write::object_write::ObjectWrite;

/// An object of our namespace: its name and kind.
type Key = (String, IsolatedKind);

/// The desired and the observed objects of Gateways' own Envoys.
pub(crate) struct IsolatedEnvoys {
    /// Our own namespace.
    namespace: String,
    /// The name of the PodTemplate.
    template_name: String,
    template: Option<Value>,
    intents: BTreeMap<ObjectName, DesiredEnvoys>,
    /// The observed objects, by name.
    observed: BTreeMap<Key, Observed>,
    /// The index from a Gateway to its observed objects.
    by_gateway: MultiMap<ObjectName, Key>,
    /// The kinds whose first list is not complete yet.
    unsynced: BTreeSet<IsolatedKind>,
    template_synced: bool,
    writer: GatewayWriter<Key, Observed>,
}

/// The outcome of the writes for one Gateway.
pub(crate) type WorkerEvent = WriterEvent<Key, Observed>;

impl IsolatedEnvoys {
    /// Creates the writer with an empty work queue. Pods are made from the PodTemplate of this
    /// name, in this namespace.
    pub(crate) fn new(client: Client, namespace: &str, template: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            template_name: template.to_owned(),
            template: None,
            intents: BTreeMap::new(),
            observed: BTreeMap::new(),
            by_gateway: MultiMap::default(),
            unsynced: IsolatedKind::ALL.into_iter().collect(),
            template_synced: false,
            writer: GatewayWriter::new(client, "isolated", Fact::EnvoysProblem, read),
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
            self.writer.want_anew(gateway);
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
        self.writer.hear(&key);
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
            self.writer.want(gateway);
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
            self.writer.want(gateway);
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
        while let Some(gateway) = self.writer.take(may_write) {
            let (writes, trouble) = match self.writes(&gateway) {
                Ok(writes) => (writes, None),
                Err(trouble) => (Vec::new(), Some(trouble)),
            };
            let planned = Planned {
                writes,
                trouble,
                subject: "the Gateway's own Envoys".to_owned(),
            };
            self.writer.begin(gateway, planned);
        }
    }

    /// Returns the writes that a Gateway needs, or the message of the conflict that prevents them.
    fn writes(&self, gateway: &ObjectName) -> Result<Vec<ObjectWrite>, String> {
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
                    self.writer
                        .written(&key)
                        .or_else(|| self.observed.get(&key))
                })?
            }
        };
        steps.extend(removal(others));
        Ok(steps)
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

/// Reads an object as the watch does.
fn read(object: DynamicObject) -> Option<(Key, Observed)> {
    let name = object.metadata.name.clone()?;
    let kind = object.types.as_ref()?.kind.as_str();
    let kind = IsolatedKind::ALL
        .into_iter()
        .find(|one| one.as_str() == kind)?;
    Some(((name, kind), observed(&object)))
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
        while envoys.writer.pending() > 0 {
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
