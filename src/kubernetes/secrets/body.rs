//! Fetches the bodies of Secrets and ConfigMaps that objects refer to: a few at a time, with
//! retries while the API server refuses.

use std::collections::BTreeSet;
use std::time::Instant;

use kube::Client;
use kube::api::{Api, ApiResource};
use kube::core::{DynamicObject, TypeMeta};
use serde_json::Value;

use crate::write::failure::Failure;
use crate::write::request::{failed, in_time};
use crate::write::worker::Worker;
use gatewright_core::inputs::{Kind, Object, ObjectKey};
use gatewright_core::model::ObjectName;

/// The maximum number of concurrent fetches. Each uses a connection of its own.
const AT_ONCE: usize = 16;
/// The number of consecutive failures after which objects no longer wait for a body.
const REFUSALS: u32 = 2;

/// The result of a fetch.
#[derive(Debug)]
pub(crate) enum Body {
    /// The body.
    There(Box<Object>),
    /// The object does not exist any more.
    Gone,
    /// It cannot be read; the text is the reason. The fetch is retried.
    Refused(String),
}

pub(crate) type Answer = Result<Option<Box<Object>>, Failure>;

/// The fetches of one kind.
pub(crate) struct Bodies {
    client: Client,
    kind: Kind,
    resource: ApiResource,
    worker: Worker<ObjectName, (ObjectName, Answer)>,
    /// The bodies that objects wait for.
    awaited: BTreeSet<ObjectName>,
}

impl Bodies {
    /// Creates the fetches of a kind, Secret or ConfigMap.
    pub(crate) fn new(client: Client, kind: Kind) -> Self {
        let resource = match kind {
            Kind::ConfigMap => ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&()),
            _ => ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&()),
        };
        Self {
            client,
            kind,
            resource,
            worker: Worker::new(AT_ONCE),
            awaited: BTreeSet::new(),
        }
    }

    /// Fetches the current body.
    pub(crate) fn ask(&mut self, name: ObjectName) {
        // After repeated failures objects do not wait for the retry.
        if self.worker.failures(&name) < REFUSALS {
            self.awaited.insert(name.clone());
        }
        self.worker.want(name, Instant::now());
    }

    /// Drops a body that no object refers to any more.
    pub(crate) fn forget(&mut self, name: &ObjectName) {
        self.awaited.remove(name);
        self.worker.drop(name);
    }

    /// Returns the bodies that objects wait for.
    pub(crate) fn awaited(&self) -> &BTreeSet<ObjectName> {
        &self.awaited
    }

    /// Waits for a result; `None` when a delayed retry is due.
    pub(crate) async fn next(&mut self) -> Option<(ObjectName, Body)> {
        while let Some(name) = self.worker.take(Instant::now()) {
            let api = Api::namespaced_with(self.client.clone(), &name.namespace, &self.resource);
            self.worker.begin(
                "get",
                &ObjectKey::new(self.kind, name.clone()).to_string(),
                async move {
                    let answer = body(&api, &name).await;
                    (name, answer)
                },
            );
        }
        let (name, answer) = self.worker.next().await?;
        Some((name.clone(), self.take_in(&name, answer, Instant::now())?))
    }

    /// Evaluates an answer; `None` while a retry may succeed.
    fn take_in(&mut self, name: &ObjectName, answer: Answer, now: Instant) -> Option<Body> {
        let failure = match answer {
            Ok(object) => {
                self.worker.done(name);
                // If it is queued again, it has changed meanwhile, and the next answer counts.
                if !self.worker.is_wanted(name) {
                    self.awaited.remove(name);
                }
                return Some(object.map_or(Body::Gone, Body::There));
            }
            Err(failure) => failure,
        };
        let before = self.worker.failed(name, &failure, now);
        if before == 0 {
            let object = ObjectKey::new(self.kind, name.clone());
            failed(
                &object,
                failure.class(),
                format!("reading {object}: {failure}"),
            );
        }
        let text = match failure {
            Failure::Forbidden(_) => {
                let plural = &self.resource.plural;
                format!(
                    "gatewright is not allowed to: give its service account the verb get on {plural}"
                )
            }
            Failure::Refused(text) | Failure::Contested(text) => text,
            Failure::Gone => {
                self.awaited.remove(name);
                return Some(Body::Gone);
            }
            // These failures are not specific to one body, so objects go on waiting.
            Failure::Conflict | Failure::Throttled(_) | Failure::Unavailable(_) => return None,
        };
        (before + 1 >= REFUSALS && self.awaited.remove(name)).then_some(Body::Refused(text))
    }

    /// Aborts the fetches.
    pub(crate) async fn stop(self) {
        self.worker.abort().await;
    }
}

/// Fetches an object; `None` when it does not exist.
pub(crate) async fn body(api: &Api<DynamicObject>, name: &ObjectName) -> Answer {
    let Some(object) = in_time(api.get_opt(&name.name)).await? else {
        return Ok(None);
    };
    let value = whole(object).map_err(|error| Failure::Refused(error.to_string()))?;
    match Object::parse_admitted(value) {
        Ok(object) => Ok(Some(Box::new(object))),
        Err(error) => Err(Failure::Refused(error.to_string())),
    }
}

/// Returns an object as JSON, without `managedFields` and without a copy of its data, which may
/// have a MiB.
fn whole(object: DynamicObject) -> serde_json::Result<Value> {
    let DynamicObject {
        types,
        mut metadata,
        mut data,
    } = object;
    metadata.managed_fields = None;
    let TypeMeta { api_version, kind } = types.unwrap_or_default();
    data["apiVersion"] = api_version.into();
    data["kind"] = kind.into();
    data["metadata"] = serde_json::to_value(metadata)?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use hyper::{Request, Response, StatusCode};
    use kube::client::Body as KubeBody;
    use serde_json::json;

    use super::*;

    /// A client of a server with this answer.
    fn client<F: Future<Output = (StatusCode, Value)> + Send + 'static>(
        answer: impl Fn(String) -> F + Clone + Send + 'static,
    ) -> Client {
        let service = tower::service_fn(move |request: Request<KubeBody>| {
            let answer = answer(request.uri().path().to_owned());
            async move {
                let (code, value) = answer.await;
                let mut response = Response::new(KubeBody::from(value.to_string().into_bytes()));
                *response.status_mut() = code;
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        Client::new(service, "default")
    }

    fn secret(path: &str) -> Value {
        let name = path.rsplit('/').next();
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": name, "namespace": "a"}, "data": {}})
    }

    #[tokio::test]
    async fn many_are_asked_for_a_few_at_a_time_and_all_come() {
        let now = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let running = now;
        let peak = most.clone();
        let client = client(move |path| {
            let (running, peak) = (running.clone(), peak.clone());
            async move {
                peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // Lets the other tasks run.
                tokio::time::sleep(Duration::from_millis(1)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                (StatusCode::OK, secret(&path))
            }
        });
        let mut bodies = Bodies::new(client, Kind::Secret);
        for number in 0..300 {
            bodies.ask(ObjectName::new("a", format!("s{number}")));
        }
        let mut came = BTreeSet::new();
        while came.len() < 300 {
            if let Some((name, Body::There(object))) = bodies.next().await {
                assert_eq!(object.key().name, name);
                assert!(came.insert(name));
            }
        }
        assert!(bodies.awaited().is_empty());
        assert_eq!(most.load(Ordering::SeqCst), AT_ONCE);
    }

    #[tokio::test]
    async fn a_refused_secret_is_awaited_twice_and_requested_until_it_is_read() {
        let mut bodies = Bodies::new(
            client(async |path: String| (StatusCode::OK, secret(&path))),
            Kind::Secret,
        );
        let name = ObjectName::new("a", "x");
        bodies.ask(name.clone());
        fn refused() -> Result<Option<Box<Object>>, Failure> {
            Err(Failure::Forbidden(String::new()))
        }
        let mut now = Instant::now();
        fn answered(
            bodies: &mut Bodies,
            answer: Result<Option<Box<Object>>, Failure>,
            now: &mut Instant,
            name: &ObjectName,
        ) -> Option<Body> {
            *now = bodies.worker.due().expect("it is asked for").max(*now);
            assert!(bodies.worker.take(*now).is_some());
            bodies.take_in(name, answer, *now)
        }
        assert!(answered(&mut bodies, refused(), &mut now, &name).is_none());
        assert!(bodies.awaited().contains(&name));
        let told = answered(&mut bodies, refused(), &mut now, &name);
        assert!(
            matches!(told, Some(Body::Refused(text)) if text.contains("the verb get on secrets"))
        );
        assert!(bodies.awaited().is_empty());
        // The failure is reported once; objects do not wait for the body, and the fetch is retried.
        bodies.ask(name.clone());
        assert!(bodies.awaited().is_empty());
        for _ in 0..50 {
            assert!(answered(&mut bodies, refused(), &mut now, &name).is_none());
        }
        let long = bodies.worker.due().expect("once more") - Instant::now();
        let Ok(object) = Object::parse_admitted(secret("x")) else {
            panic!("a Secret")
        };
        let there = answered(&mut bodies, Ok(Some(Box::new(object))), &mut now, &name);
        assert!(matches!(there, Some(Body::There(_))) && bodies.worker.due().is_none());
        assert!(
            long <= Duration::from_secs(52 * 60),
            "each time at most a minute later"
        );
    }

    #[tokio::test]
    async fn a_secret_that_changed_during_its_read_is_still_awaited() {
        let mut bodies = Bodies::new(
            client(async |path: String| (StatusCode::OK, secret(&path))),
            Kind::Secret,
        );
        let name = ObjectName::new("a", "x");
        bodies.ask(name.clone());
        let now = Instant::now();
        bodies.worker.take(now);
        bodies.ask(name.clone());
        assert!(matches!(
            bodies.take_in(&name, Ok(None), now),
            Some(Body::Gone)
        ));
        assert!(bodies.awaited().contains(&name));
        bodies.worker.take(Instant::now());
        bodies.take_in(&name, Ok(None), now);
        assert!(bodies.awaited().is_empty());
        bodies.ask(name.clone());
        bodies.forget(&name);
        assert!(bodies.awaited().is_empty() && bodies.worker.due().is_none());
    }
}
