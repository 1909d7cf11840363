//! Watches one kind, or one scope of it, and parses the objects of the API server into slim forms;
//! the rest of each object is dropped at once.

mod backoff;
pub(crate) mod definitions;
pub(crate) mod discovery;
pub(crate) mod kinds;
pub(crate) mod last_heard;
mod located;
pub(crate) mod missing_kinds;
pub(crate) mod observed;
pub(crate) mod peers;
pub(crate) mod scope;
pub(crate) mod sync;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use hyper::Request;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::api::{Api, ApiResource};
use kube::client::Body;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{self, Config, Event, InitialListStrategy, watcher};
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tower::service_fn;
use tracing::debug;

use crate::REQUEST_TIMEOUT;
use crate::live_object::{LiveObject, derived};
use crate::watch::observed::ObservedObject;
use backoff::{ChunkSummary, WatchBackoff};
use definitions::ServedDefinitions;
use gatewright_control::history::Author;
use gatewright_core::inputs::{Content, ISSUED_BY, Kind, Object, ObjectKey};
use gatewright_core::interner::Interner;
use gatewright_core::model::ObjectName;
use gatewright_core::tenancy::{Derived, Existing};
use located::{LocatedObject, RUNNING};
use scope::{AccessSecret, Scope, ScopedWatch};
use sync::Trouble;

/// The maximum number of objects of one event.
const BATCH: usize = 1024;
/// The field selector of Secrets with certificates. Those for AccessPolicies have watches of their
/// own ([`scope::Scope`]); Secrets of other types are not even listed.
const SECRETS: &str = "type=kubernetes.io/tls";
/// The page size of a relist.
const PAGE: u32 = 500;

/// The time after which a resumed watch counts as going on. A server that cannot resume it answers
/// 200 and sends the error 410 as the first event.
const RESUME_GRACE: Duration = Duration::from_secs(1);

/// An event of the watch.
#[derive(Debug)]
pub enum WatchEvent {
    /// Objects were added, changed or deleted.
    Changed(Vec<ObjectUpdate>),
    /// The list of the kind is complete.
    Complete(Kind),
    /// The kind cannot be watched now.
    Trouble(Kind, Trouble),
    /// The server does not serve the kind.
    Missing(Kind),
    /// A kind that was missing is served, and is being listed.
    Listing(Kind),
    /// The definitions of our kinds, at the start and whenever they change.
    Definitions(ServedDefinitions),
}

/// A change of one object.
#[derive(Debug)]
pub enum ObjectUpdate {
    /// The object was added or changed; who wrote it, where that is known.
    Put(Box<Object>, Option<Box<ObservedObject>>, Author),
    /// The object was added or changed, and its kind and name are such that it may be a derived
    /// object of a TenantGateway.
    LiveObject(Derived, Box<LiveObject>, Existing),
    /// A Secret was added or changed: its resource version, and whether we wrote its key. Its body
    /// was not fetched.
    Secret(ObjectName, String, bool),
    /// A Secret of a type for AccessPolicies was added or changed: its resource version. Its body
    /// was not fetched.
    AccessSecret(AccessSecret, ObjectName, String),
    /// A Secret of a type for AccessPolicies was deleted. One of another type may have its name by
    /// now.
    AccessSecretGone(AccessSecret, ObjectName),
    /// A ConfigMap was added or changed: its resource version. Its body was not fetched.
    ConfigMap(ObjectName, String),
    /// The object was deleted.
    Delete(ObjectKey),
    /// The object exists and cannot be parsed; the text is the reason.
    Unreadable(ObjectKey, String),
}

/// The way to request a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lists {
    /// As a stream of watch events (WatchList); the server holds one copy for all clients.
    Streamed,
    /// In pages.
    Paged,
}

/// The names of the objects of a kind that events were sent for. They outlive a watch: a kind that
/// is served again, or in another version, may lack some of them.
#[derive(Clone, Default)]
pub(crate) struct Names {
    seen: Arc<Mutex<SeenNames>>,
    /// The interner of strings that objects of all kinds share. Strings are interned here already,
    /// so that objects waiting in channels share them too.
    interner: Arc<Mutex<Interner>>,
}

impl Names {
    /// Creates an empty set of names for another kind, with the same interner.
    pub(super) fn of_another(&self) -> Self {
        Self {
            seen: Arc::default(),
            interner: self.interner.clone(),
        }
    }
}

#[derive(Debug, Default)]
struct SeenNames {
    /// The objects that existed before a new list began.
    before: BTreeSet<ObjectName>,
    /// The objects that exist now.
    now: BTreeSet<ObjectName>,
}

impl SeenNames {
    fn list_anew(&mut self) {
        self.before.append(&mut self.now);
    }

    /// Returns the objects that the complete list lacked.
    fn gone(&mut self) -> Vec<ObjectName> {
        let mut before = std::mem::take(&mut self.before);
        before.retain(|name| !self.now.contains(name));
        before.into_iter().collect()
    }
}

/// Watches one scope of a kind until the receiver is dropped. Failures are retried.
pub(crate) async fn watch(
    client: Client,
    resource: ApiResource,
    lists: Lists,
    names: Names,
    scoped: ScopedWatch,
) {
    let refused = watch_by(client.clone(), &resource, lists, names.clone(), &scoped).await;
    if refused.is_some() {
        debug!(
            "{}: this API server has no streaming lists",
            scoped.kind().as_str()
        );
        watch_by(client, &resource, Lists::Paged, names, &scoped).await;
    }
}

/// The server refuses this way to request a list.
struct ListTypeRefused;

async fn watch_by(
    client: Client,
    resource: &ApiResource,
    lists: Lists,
    names: Names,
    scoped: &ScopedWatch,
) -> Option<ListTypeRefused> {
    let (resumed, _) = watch::channel(false);
    let running = RunningWatch {
        client: client.clone(),
        resource,
        lists,
        names: names.clone(),
        resumed: resumed.clone(),
    };
    let heard = scoped.clone();
    let client = reporting_activity(client, resumed, move || heard.heard());
    let scope = (scoped.kind(), &scoped.scope);
    let events = events(client, resource, lists, names.interner.clone(), scope);
    pass_on(events, running, scoped).await
}

/// Lists one scope of a kind, in pages: what a watch of it begins with.
pub(crate) async fn list(
    client: Client,
    resource: &ApiResource,
    (kind, scope): (Kind, &Scope),
    counted: &(dyn Fn(usize) + Sync),
) -> watcher::Result<Vec<ObjectUpdate>> {
    let interner = Arc::default();
    let mut events = events(client, resource, Lists::Paged, interner, (kind, scope));
    let mut updates = Vec::new();
    while let Some(event) = events.try_next().await? {
        match event {
            Slim::Init => updates.clear(),
            Slim::Applied(_, parts) => {
                counted(1);
                updates.extend(parts.into_iter().flatten());
            }
            Slim::InitDone => break,
            // A list has none.
            Slim::Deleted(_) => {}
        }
    }
    Ok(scope.told(updates))
}

/// Returns the events of one scope of a kind.
fn events(
    client: Client,
    resource: &ApiResource,
    lists: Lists,
    interner: Arc<Mutex<Interner>>,
    (kind, scope): (Kind, &Scope),
) -> BoxStream<'static, watcher::Result<Slim>> {
    let config = Config {
        page_size: Some(PAGE),
        field_selector: selector(kind).map(str::to_owned),
        initial_list_strategy: match lists {
            Lists::Streamed => InitialListStrategy::StreamingList,
            Lists::Paged => InitialListStrategy::ListWatch,
        },
        ..Config::default()
    };
    let config = scope.select(kind, config);
    let api_version: Arc<str> = Arc::from(resource.api_version.as_str());
    match kind.content() {
        Content::Addresses => watcher(scope.api::<LocatedObject>(client, kind, resource), config)
            .map_ok(move |event| Slim::located(event, kind, &interner))
            .boxed(),
        Content::Metadata => watcher(scope.api(client, kind, resource), config)
            .map_ok(|event| match event {
                Event::Apply(object) => Event::Apply(bare(object)),
                Event::InitApply(object) => Event::InitApply(bare(object)),
                Event::Delete(object) => Event::Delete(bare(object)),
                Event::Init => Event::Init,
                Event::InitDone => Event::InitDone,
            })
            .map_ok(move |event| Slim::of(event, kind, &api_version, &interner))
            .boxed(),
        Content::Whole | Content::Applied => {
            watcher(scope.api::<DynamicObject>(client, kind, resource), config)
                .map_ok(move |event| Slim::of(event, kind, &api_version, &interner))
                .boxed()
        }
    }
}

/// An object of which only the metadata is read.
pub(crate) fn bare(object: PartialObjectMeta<DynamicObject>) -> DynamicObject {
    DynamicObject {
        types: None,
        metadata: object.metadata,
        data: Value::Null,
    }
}

/// Wraps the client so that it also reports when the server has accepted a resumed watch, which has
/// no events as long as nothing changes, and when anything arrives: kube does not pass bookmarks
/// on.
fn reporting_activity(
    client: Client,
    resumed: watch::Sender<bool>,
    heard: impl Fn() + Clone + Send + 'static,
) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let (client, resumed, heard) = (client.clone(), resumed.clone(), heard.clone());
        let is_resumption = is_resumption(request.uri().query().unwrap_or_default());
        async move {
            let answer = client.send(request).await?;
            let is_accepted = answer.status().is_success();
            if is_accepted {
                heard();
            }
            if is_resumption && is_accepted {
                resumed.send_replace(true);
            }
            Ok::<_, Error>(answer.map(|body| {
                body.map_frame(move |frame| {
                    if is_accepted {
                        heard();
                    }
                    frame
                })
            }))
        }
    });
    Client::new(service, "default")
}

/// Returns whether the request is a watch that begins without a list.
fn is_resumption(query: &str) -> bool {
    has("watch=true", query) && !has("sendInitialEvents=true", query)
}

fn has(wanted: &str, query: &str) -> bool {
    query.split('&').any(|pair| pair == wanted)
}

/// The events of kube's watcher, with slim objects.
enum Slim {
    Init,
    Applied(ObjectName, [Option<ObjectUpdate>; 2]),
    Deleted(ObjectKey),
    InitDone,
}

impl Slim {
    fn of(
        event: Event<DynamicObject>,
        kind: Kind,
        api_version: &Arc<str>,
        interner: &Mutex<Interner>,
    ) -> Self {
        match event {
            Event::Init => Self::Init,
            Event::InitDone => Self::InitDone,
            Event::Delete(object) => Self::Deleted(key(kind, &object.metadata)),
            Event::InitApply(object) | Event::Apply(object) => {
                let mut key = key(kind, &object.metadata);
                let share = || interner.lock().expect("nothing panics while it is held");
                share().name(&mut key.name);
                let live = derived(&key).map(|derived| {
                    let (live, existing) = LiveObject::new(&object);
                    ObjectUpdate::LiveObject(derived, Box::new(live), existing)
                });
                let mut parsed = update(key.clone(), object, api_version);
                if let Some(ObjectUpdate::Put(object, ..)) = &mut parsed {
                    share().object(object);
                }
                Self::Applied(key.name, [live, parsed])
            }
        }
    }

    /// As [`Self::of`], for pods and nodes.
    fn located(event: Event<LocatedObject>, kind: Kind, interner: &Mutex<Interner>) -> Self {
        match event {
            Event::Init => Self::Init,
            Event::InitDone => Self::InitDone,
            Event::Delete(object) => Self::Deleted(key(kind, &object.metadata)),
            Event::InitApply(object) | Event::Apply(object) => {
                let mut name = key(kind, &object.metadata).name;
                interner
                    .lock()
                    .expect("nothing panics while it is held")
                    .name(&mut name);
                let object = Box::new(object.into_object(kind, name.clone()));
                let put = ObjectUpdate::Put(object, None, Author::default());
                Self::Applied(name, [Some(put), None])
            }
        }
    }
}

/// Returns the field selector of a kind; `None` lists all objects.
fn selector(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Secret => Some(SECRETS),
        Kind::Pod => Some(RUNNING),
        _ => None,
    }
}

/// The result of a chunk of events.
#[derive(Default)]
struct ChunkResult {
    updates: Vec<ObjectUpdate>,
    summary: ChunkSummary,
    /// The error that ended the chunk, if any.
    failed: Option<watcher::Error>,
}

impl Names {
    /// Removes all names, and returns their deletions. The caller must send them: they are not
    /// returned again.
    fn none(&self, kind: Kind) -> Vec<ObjectUpdate> {
        let mut seen = self.seen.lock().expect("nothing panics while it is held");
        seen.list_anew();
        seen.gone()
            .into_iter()
            .map(|name| ObjectUpdate::Delete(ObjectKey::new(kind, name)))
            .collect()
    }

    /// Takes in a chunk of events. The caller must send the updates: they are not returned again.
    fn note(&self, kind: Kind, chunk: Vec<watcher::Result<Slim>>) -> ChunkResult {
        let mut result = ChunkResult::default();
        let mut seen = self.seen.lock().expect("nothing panics while it is held");
        for event in chunk {
            match event {
                Ok(Slim::Init) => {
                    seen.list_anew();
                    result.summary = ChunkSummary {
                        begun: true,
                        ended: false,
                        ..result.summary
                    };
                }
                Ok(Slim::Applied(name, updates)) => {
                    seen.now.insert(name);
                    result.summary.objects = true;
                    result.updates.extend(updates.into_iter().flatten());
                }
                Ok(Slim::Deleted(key)) => {
                    seen.now.remove(&key.name);
                    result.summary.objects = true;
                    result.updates.push(ObjectUpdate::Delete(key));
                }
                Ok(Slim::InitDone) => {
                    let gone = seen.gone().into_iter();
                    result
                        .updates
                        .extend(gone.map(|name| ObjectUpdate::Delete(ObjectKey::new(kind, name))));
                    result.summary = ChunkSummary {
                        begun: false,
                        ended: true,
                        ..result.summary
                    };
                    result.failed = None;
                }
                Err(error) => result.failed = Some(error),
            }
        }
        result
    }
}

/// The parameters of a running watch.
struct RunningWatch<'a> {
    client: Client,
    resource: &'a ApiResource,
    lists: Lists,
    names: Names,
    /// True once the server has accepted a resumed watch.
    resumed: watch::Sender<bool>,
}

/// Sends the events of a watch until the receiver is dropped or the server refuses the way to list.
async fn pass_on(
    events: impl Stream<Item = watcher::Result<Slim>>,
    running: RunningWatch<'_>,
    scoped: &ScopedWatch,
) -> Option<ListTypeRefused> {
    let RunningWatch {
        client,
        resource,
        lists,
        names,
        resumed,
    } = running;
    let kind = scoped.kind();
    let mut backoff = WatchBackoff::new();
    let mut acceptance = resumed.subscribe();
    // An acceptance before a failure does not count for the requests after it.
    let events = events.inspect_err(|_| {
        resumed.send_replace(false);
    });
    // Each object is made slim before the next one is read: a chunk of whole objects would be our
    // largest use of memory.
    let mut events = pin!(events.ready_chunks(BATCH));
    loop {
        let resumption_accepted = async {
            drop(acceptance.wait_for(|resumed| *resumed).await);
            sleep(RESUME_GRACE).await;
        };
        let chunk = tokio::select! {
            biased;
            chunk = events.next() => chunk?,
            () = resumption_accepted, if backoff.is_interrupted() => {
                backoff.resumed();
                scoped.complete().await.ok()?;
                continue;
            }
        };
        // Room in the channel is reserved before anything is noted, so that a watch aborted here
        // has noted nothing that it did not send.
        let room = scoped.room().await.ok()?;
        let ChunkResult {
            updates,
            summary,
            failed,
        } = names.note(kind, chunk);
        let updates = scoped.scope.told(updates);
        if updates.is_empty() {
            drop(room);
        } else {
            room.send(WatchEvent::Changed(updates));
        }
        if backoff.observe(summary) {
            scoped.complete().await.ok()?;
        }
        if let Some(error) = failed {
            if lists == Lists::Streamed && is_list_type_refused(&error) {
                return Some(ListTypeRefused);
            }
            // A watch that ends now and then is normal.
            let usual = matches!(&error, watcher::Error::WatchFailed(_))
                || matches!(&error, watcher::Error::WatchError(status) if status.code == 410);
            if usual {
                sleep(backoff.failed(true)).await;
                continue;
            }
            // Roles are deleted with their namespace.
            if let Some(namespace) = scoped
                .scope
                .namespace(kind)
                .filter(|_| is_forbidden(&error))
                && is_absent(&client, namespace).await
            {
                debug!("{}: there is no namespace {namespace}", kind.as_str());
                let room = scoped.room().await.ok()?;
                room.send(WatchEvent::Changed(scoped.scope.told(names.none(kind))));
                scoped.complete().await.ok()?;
                loop {
                    sleep(backoff.failed(true)).await;
                    if !is_absent(&client, namespace).await {
                        break;
                    }
                }
                continue;
            }
            let text = explain(&error, resource);
            let is_forbidden = is_forbidden(&error);
            let trouble = if is_forbidden {
                Trouble::Forbidden(text)
            } else {
                Trouble::Failed(text)
            };
            scoped.trouble(trouble).await.ok()?;
            sleep(backoff.failed(false)).await;
        }
    }
}

pub(crate) fn is_forbidden(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) =
        error
    else {
        return false;
    };
    is_denied(error)
}

/// Returns whether the API server does not allow a request.
pub(crate) fn is_denied(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 403)
}

/// Returns whether a namespace does not exist. Without an answer of the API server, it is assumed
/// to exist.
async fn is_absent(client: &Client, namespace: &str) -> bool {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let asked = timeout(REQUEST_TIMEOUT, namespaces.get_metadata(namespace)).await;
    matches!(asked, Ok(Err(Error::Api(status))) if status.code == 404)
}

/// Returns whether a server refuses streaming lists, whatever its version: `sendInitialEvents` is
/// rejected where the feature gate WatchList is off (Kubernetes API concepts, "Streaming lists").
fn is_list_type_refused(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(Error::Api(status)) if matches!(status.code, 400 | 422))
}

fn key(kind: Kind, metadata: &ObjectMeta) -> ObjectKey {
    fn text(field: &Option<String>) -> String {
        field.clone().unwrap_or_default()
    }
    ObjectKey::new(
        kind,
        ObjectName::new(text(&metadata.namespace), text(&metadata.name)),
    )
}

/// Parses an object and drops all fields that are not read.
pub(crate) fn update(
    key: ObjectKey,
    mut object: DynamicObject,
    api_version: &Arc<str>,
) -> Option<ObjectUpdate> {
    match key.kind {
        Kind::Secret => {
            let ours = object
                .metadata
                .annotations
                .is_some_and(|all| all.contains_key(ISSUED_BY));
            return Some(ObjectUpdate::Secret(
                key.name,
                object.metadata.resource_version.unwrap_or_default(),
                ours,
            ));
        }
        Kind::ConfigMap => {
            let version = object.metadata.resource_version.unwrap_or_default();
            return Some(ObjectUpdate::ConfigMap(key.name, version));
        }
        // These kinds are only compared as live objects: their specs are for cert-manager.
        kind if kind.content() == Content::Applied => return None,
        // A TenantGateway that finalizers still hold counts as deleted: nothing is derived from it
        // any more.
        Kind::TenantGateway if object.metadata.deletion_timestamp.is_some() => {
            return Some(ObjectUpdate::Delete(key));
        }
        _ => {}
    }
    let author = Author {
        generation: object.metadata.generation,
        manager: last_manager(object.metadata.managed_fields.take().unwrap_or_default()),
    };
    // We write statuses, and labels of Namespaces.
    let is_written = key.kind.status().is_some() || key.kind == Kind::Namespace;
    let seen = is_written.then(|| Box::new(ObservedObject::new(api_version, &object)));
    if let Some(fields) = object.data.as_object_mut()
        // The addresses of a load balancer are only in the status of its Service.
        && key.kind != Kind::Service
    {
        fields.remove("status");
    }
    if !object.data.is_object() {
        object.data = json!({});
    }
    // Items of a list have neither `kind` nor `apiVersion`.
    object.data["apiVersion"] = json!(**api_version);
    object.data["kind"] = json!(key.kind.as_str());
    object.data["metadata"] = serde_json::to_value(object.metadata).unwrap_or_default();
    Some(match Object::parse_admitted(object.data) {
        Ok(object) => ObjectUpdate::Put(Box::new(object), seen, author),
        Err(error) => ObjectUpdate::Unreadable(key, error.to_string()),
    })
}

/// Returns the field manager of the newest write beside those of subresources, as the status.
fn last_manager(managed: Vec<ManagedFieldsEntry>) -> Option<String> {
    managed
        .into_iter()
        .filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty())
        .max_by_key(|entry| entry.time.as_ref().map(|time| time.0))
        .and_then(|entry| entry.manager)
}

/// Returns the message of a failed watch: the cause, and the remedy.
fn explain(error: &watcher::Error, resource: &ApiResource) -> String {
    let source = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Some(error),
        watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => None,
    };
    let group = &resource.group;
    let plural = &resource.plural;
    match source {
        Some(Error::Api(status)) if status.code == 403 => {
            format!(
                "not allowed: give the service account the verbs list and watch on {plural} of API group {group:?}"
            )
        }
        Some(Error::Api(status)) => format!(
            "the API server answered {}: {}",
            status.code, status.message
        ),
        Some(error) => error.to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
