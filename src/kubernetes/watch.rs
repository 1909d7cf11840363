//! The watch of one kind, or of a part of it: objects from the API server, parsed into slim forms; the rest is dropped at once.

mod backoff;
pub(crate) mod discovery;
pub(crate) mod kinds;
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

use futures::{Stream, StreamExt, TryStreamExt};
use hyper::Request;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
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
use backoff::{Came, WatchBackoff};
use gatewright_core::inputs::{ISSUED_BY, Kind, Object, ObjectKey};
use gatewright_core::interner::Interner;
use gatewright_core::model::ObjectName;
use gatewright_core::tenancy::{Derived, Existing};
use located::{Place, RUNNING};
use scope::Part;

/// How many objects are handed over at once.
const BATCH: usize = 1024;
/// The only Secrets that we may need. Those of other types are not even listed.
const SECRETS: &str = "type=kubernetes.io/tls";
/// A relist comes in pages of this many.
const PAGE: u32 = 500;

/// How long after a watch was taken up it may still be told that it cannot go on where it was (410): that is the first it
/// says then, and not how it is answered.
const REFUSED: Duration = Duration::from_secs(1);

/// What a watch has to tell.
#[derive(Debug)]
pub enum WatchEvent {
    /// Objects came, changed or went.
    Changed(Vec<ObjectUpdate>),
    /// The view of the kind is complete.
    Complete(Kind),
    /// The kind cannot be watched now, and why.
    Trouble(Kind, String),
    /// The server does not serve the kind.
    Missing(Kind),
    /// It does now, and the kind is being listed.
    Listing(Kind),
}

/// One object.
#[derive(Debug)]
pub enum ObjectUpdate {
    /// It is there, or different from before.
    Put(Box<Object>, Option<Box<ObservedObject>>),
    /// It is there under a name that a TenantGateway may lead to.
    LiveObject(Derived, Box<LiveObject>, Existing),
    /// A Secret is there in this version, and whether we put its key there. Its body was not asked for.
    Secret(ObjectName, String, bool),
    /// A ConfigMap is there in this version. Its body was not asked for.
    ConfigMap(ObjectName, String),
    /// It is gone.
    Delete(ObjectKey),
    /// It is there, and we cannot read it.
    Unreadable(ObjectKey, String),
}

/// How lists are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lists {
    /// As a stream of events, of which the server holds one copy for everybody.
    Streamed,
    /// In pages.
    Paged,
}

/// The names of a kind that were told. They outlive a watch: a kind that is served again, or in another version, may lack
/// some.
#[derive(Clone, Default)]
pub(crate) struct Names {
    known: Arc<Mutex<Known>>,
    /// What objects of all kinds have in common is kept once from here on, where they wait for each other as well.
    interner: Arc<Mutex<Interner>>,
}

impl Names {
    /// Names of another kind.
    pub(super) fn of_another(&self) -> Self {
        Self { known: Arc::default(), interner: self.interner.clone() }
    }
}

#[derive(Debug, Default)]
struct Known {
    /// What was there before a list began anew.
    before: BTreeSet<ObjectName>,
    /// What is there now.
    now: BTreeSet<ObjectName>,
}

impl Known {
    fn list_anew(&mut self) {
        self.before.append(&mut self.now);
    }

    /// What a list that is complete lacked.
    fn gone(&mut self) -> Vec<ObjectName> {
        let mut before = std::mem::take(&mut self.before);
        before.retain(|name| !self.now.contains(name));
        before.into_iter().collect()
    }
}

/// Watches a part of a kind until the receiver is gone. Never ends otherwise: whatever fails is tried again.
pub(crate) async fn watch(client: Client, resource: ApiResource, lists: Lists, names: Names, part: Part) {
    let refused = watch_by(client.clone(), &resource, lists, names.clone(), &part).await;
    if refused.is_some() {
        debug!("{}: this API server has no streaming lists", part.kind().as_str());
        watch_by(client, &resource, Lists::Paged, names, &part).await;
    }
}

/// The server does not take requests for lists of this sort.
struct NotTaken;

async fn watch_by(client: Client, resource: &ApiResource, lists: Lists, names: Names, part: &Part) -> Option<NotTaken> {
    let (kind, scope) = (part.kind(), &part.scope);
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
    let (taken_up, _) = watch::channel(false);
    let asked = Asked { client: client.clone(), resource, lists, names: names.clone(), taken_up: taken_up.clone() };
    let client = telling(client, taken_up);
    let api_version = Arc::from(resource.api_version.as_str());
    let interner = names.interner.clone();
    let whole = |event| Slim::of(event, kind, &api_version, &interner);
    if matches!(kind, Kind::Pod | Kind::Node) {
        let api: Api<Place> = scope.api(client, kind, resource);
        let events = watcher(api, config).map_ok(|event| Slim::located(event, kind, &interner));
        pass_on(events, asked, part).await
    } else if matches!(kind, Kind::Namespace | Kind::Secret | Kind::ConfigMap) {
        // Of these the metadata is enough.
        let bare = |object: PartialObjectMeta<DynamicObject>| DynamicObject {
            types: None,
            metadata: object.metadata,
            data: Value::Null,
        };
        let events = watcher(scope.api(client, kind, resource), config).map_ok(move |event| match event {
            Event::Apply(object) => Event::Apply(bare(object)),
            Event::InitApply(object) => Event::InitApply(bare(object)),
            Event::Delete(object) => Event::Delete(bare(object)),
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
        });
        pass_on(events.map_ok(whole), asked, part).await
    } else {
        let events = watcher(scope.api::<DynamicObject>(client, kind, resource), config);
        pass_on(events.map_ok(whole), asked, part).await
    }
}

/// The same client, which says as well when the server has taken up a watch that goes on where it was: while nothing changes,
/// nothing else is heard of it.
fn telling(client: Client, taken_up: watch::Sender<bool>) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let (client, taken_up) = (client.clone(), taken_up.clone());
        let goes_on = goes_on(request.uri().query().unwrap_or_default());
        async move {
            let answer = client.send(request).await?;
            if goes_on && answer.status().is_success() {
                taken_up.send_replace(true);
            }
            Ok::<_, Error>(answer)
        }
    });
    Client::new(service, "default")
}

/// Whether what is asked for is a watch that begins without a list.
fn goes_on(query: &str) -> bool {
    let has = |wanted: &str| query.split('&').any(|pair| pair == wanted);
    has("watch=true") && !has("sendInitialEvents=true")
}

/// What is kept of an event.
enum Slim {
    Begin,
    There(ObjectName, [Option<ObjectUpdate>; 2]),
    Gone(ObjectKey),
    End,
}

impl Slim {
    fn of(event: Event<DynamicObject>, kind: Kind, api_version: &Arc<str>, interner: &Mutex<Interner>) -> Self {
        match event {
            Event::Init => Self::Begin,
            Event::InitDone => Self::End,
            Event::Delete(object) => Self::Gone(key(kind, &object.metadata)),
            Event::InitApply(object) | Event::Apply(object) => {
                let mut key = key(kind, &object.metadata);
                let share = || interner.lock().expect("nothing panics while it is held");
                share().name(&mut key.name);
                let held = derived(&key).map(|derived| {
                    let (held, existing) = LiveObject::new(&object);
                    ObjectUpdate::LiveObject(derived, Box::new(held), existing)
                });
                let mut told = update(key.clone(), object, api_version);
                if let Some(ObjectUpdate::Put(object, _)) = &mut told {
                    share().object(object);
                }
                Self::There(key.name, [held, told])
            }
        }
    }

    /// The same of pods and nodes.
    fn located(event: Event<Place>, kind: Kind, interner: &Mutex<Interner>) -> Self {
        match event {
            Event::Init => Self::Begin,
            Event::InitDone => Self::End,
            Event::Delete(place) => Self::Gone(key(kind, &place.metadata)),
            Event::InitApply(place) | Event::Apply(place) => {
                let mut name = key(kind, &place.metadata).name;
                interner.lock().expect("nothing panics while it is held").name(&mut name);
                let told = ObjectUpdate::Put(Box::new(place.object(kind, name.clone())), None);
                Self::There(name, [Some(told), None])
            }
        }
    }
}

/// Which objects of a kind are listed; all of them without it.
fn selector(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Secret => Some(SECRETS),
        Kind::Pod => Some(RUNNING),
        _ => None,
    }
}

/// What a chunk of events leads to.
#[derive(Default)]
struct Noted {
    updates: Vec<ObjectUpdate>,
    came: Came,
    /// How it failed after that.
    failed: Option<watcher::Error>,
}

impl Names {
    /// Nothing is there any more. Whoever notes it has to tell it.
    fn none(&self, kind: Kind) -> Vec<ObjectUpdate> {
        let mut known = self.known.lock().expect("nothing panics while it is held");
        known.list_anew();
        known.gone().into_iter().map(|name| ObjectUpdate::Delete(ObjectKey::new(kind, name))).collect()
    }

    /// Takes in a chunk of events. Whoever does so has to tell of them: what is noted is not told again.
    fn note(&self, kind: Kind, chunk: Vec<watcher::Result<Slim>>) -> Noted {
        let mut noted = Noted::default();
        let mut known = self.known.lock().expect("nothing panics while it is held");
        for event in chunk {
            match event {
                Ok(Slim::Begin) => {
                    known.list_anew();
                    noted.came = Came { begun: true, ended: false, ..noted.came };
                }
                Ok(Slim::There(name, told)) => {
                    known.now.insert(name);
                    noted.came.objects = true;
                    noted.updates.extend(told.into_iter().flatten());
                }
                Ok(Slim::Gone(key)) => {
                    known.now.remove(&key.name);
                    noted.came.objects = true;
                    noted.updates.push(ObjectUpdate::Delete(key));
                }
                Ok(Slim::End) => {
                    let gone = known.gone().into_iter();
                    noted.updates.extend(gone.map(|name| ObjectUpdate::Delete(ObjectKey::new(kind, name))));
                    noted.came = Came { begun: false, ended: true, ..noted.came };
                    noted.failed = None;
                }
                Err(error) => noted.failed = Some(error),
            }
        }
        noted
    }
}

/// How a watch asks.
struct Asked<'a> {
    client: Client,
    resource: &'a ApiResource,
    lists: Lists,
    names: Names,
    /// Whether the server has taken up a watch that goes on where it was.
    taken_up: watch::Sender<bool>,
}

/// Tells what events say, until the receiver is gone or the server does not take what it was asked.
async fn pass_on(events: impl Stream<Item = watcher::Result<Slim>>, asked: Asked<'_>, part: &Part) -> Option<NotTaken> {
    let Asked { client, resource, lists, names, taken_up } = asked;
    let kind = part.kind();
    let mut course = WatchBackoff::new();
    let mut heard = taken_up.subscribe();
    // What was taken up before a failure says nothing of what comes after it.
    let events = events.inspect_err(|_| {
        taken_up.send_replace(false);
    });
    // Each object was made slim before the next one is read: a chunk of whole ones would be the most memory that we ever need.
    let mut events = pin!(events.ready_chunks(BATCH));
    loop {
        let goes_on = async {
            drop(heard.wait_for(|taken_up| *taken_up).await);
            sleep(REFUSED).await;
        };
        let chunk = tokio::select! {
            biased;
            chunk = events.next() => chunk?,
            () = goes_on, if course.is_interrupted() => {
                course.goes_on();
                part.complete().await.ok()?;
                continue;
            }
        };
        // There is room before anything is noted, so that a watch that is ended here has noted nothing that it did not tell.
        let room = part.room().await.ok()?;
        let Noted { updates, came, failed } = names.note(kind, chunk);
        if updates.is_empty() {
            drop(room);
        } else {
            room.send(WatchEvent::Changed(updates));
        }
        if course.takes(came) {
            part.complete().await.ok()?;
        }
        if let Some(error) = failed {
            if lists == Lists::Streamed && is_not_taken(&error) {
                return Some(NotTaken);
            }
            // A watch that ends now and then is the usual course of things.
            let usual = matches!(&error, watcher::Error::WatchFailed(_))
                || matches!(&error, watcher::Error::WatchError(status) if status.code == 410);
            if usual {
                sleep(course.fails(true)).await;
                continue;
            }
            // Roles go with their namespace.
            if let Some(namespace) = part.scope.namespace(kind).filter(|_| is_forbidden(&error))
                && is_absent(&client, namespace).await
            {
                debug!("{}: there is no namespace {namespace}", kind.as_str());
                let room = part.room().await.ok()?;
                room.send(WatchEvent::Changed(names.none(kind)));
                part.complete().await.ok()?;
                loop {
                    sleep(course.fails(true)).await;
                    if !is_absent(&client, namespace).await {
                        break;
                    }
                }
                continue;
            }
            part.trouble(explain(&error, resource)).await.ok()?;
            sleep(course.fails(false)).await;
        }
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, Error::Api(status) if status.code == 403)
}

/// Whether a namespace does not exist. One of which the API server does not say it is taken to be there.
async fn is_absent(client: &Client, namespace: &str) -> bool {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let asked = timeout(REQUEST_TIMEOUT, namespaces.get_metadata(namespace)).await;
    matches!(asked, Ok(Err(Error::Api(status))) if status.code == 404)
}

/// Whether a server has no streaming lists, whatever its version: `sendInitialEvents` is refused where the feature
/// WatchList is off (Kubernetes API concepts, "Streaming lists").
fn is_not_taken(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(Error::Api(status)) if matches!(status.code, 400 | 422))
}

fn key(kind: Kind, metadata: &ObjectMeta) -> ObjectKey {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    ObjectKey::new(kind, ObjectName::new(text(&metadata.namespace), text(&metadata.name)))
}

/// Parses an object; all that is not needed is dropped here.
fn update(key: ObjectKey, mut object: DynamicObject, api_version: &Arc<str>) -> Option<ObjectUpdate> {
    match key.kind {
        Kind::Secret => {
            let ours = object.metadata.annotations.is_some_and(|all| all.contains_key(ISSUED_BY));
            return Some(ObjectUpdate::Secret(key.name, object.metadata.resource_version.unwrap_or_default(), ours));
        }
        Kind::ConfigMap => {
            let version = object.metadata.resource_version.unwrap_or_default();
            return Some(ObjectUpdate::ConfigMap(key.name, version));
        }
        // What they lead to is not ours to read.
        Kind::Issuer | Kind::Certificate => return None,
        Kind::Pod | Kind::Node => unreachable!("they are read as places"),
        // Whatever still holds it: nothing is made for it any more.
        Kind::TenantGateway if object.metadata.deletion_timestamp.is_some() => return Some(ObjectUpdate::Delete(key)),
        _ => {}
    }
    object.metadata.managed_fields = None;
    let seen = writes(key.kind).then(|| Box::new(ObservedObject::new(api_version, &object)));
    if let Some(fields) = object.data.as_object_mut()
        // Where a load balancer is reached stands nowhere else.
        && key.kind != Kind::Service
    {
        fields.remove("status");
    }
    if !object.data.is_object() {
        object.data = json!({});
    }
    // Items of a list do not say what they are.
    object.data["apiVersion"] = json!(**api_version);
    object.data["kind"] = json!(key.kind.as_str());
    object.data["metadata"] = serde_json::to_value(object.metadata).unwrap_or_default();
    Some(match Object::parse_admitted(object.data) {
        Ok(object) => ObjectUpdate::Put(Box::new(object), seen),
        Err(error) => ObjectUpdate::Unreadable(key, error.to_string()),
    })
}

/// The kinds that we write to: statuses, and labels of Namespaces.
fn writes(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Namespace
            | Kind::GatewayClass
            | Kind::Gateway
            | Kind::ListenerSet
            | Kind::HTTPRoute
            | Kind::GRPCRoute
            | Kind::TLSRoute
            | Kind::TCPRoute
            | Kind::UDPRoute
            | Kind::BackendTLSPolicy
            | Kind::XBackendTrafficPolicy
            | Kind::TenantGateway
    )
}

/// What failed, and what to do about it.
fn explain(error: &watcher::Error, resource: &ApiResource) -> String {
    let source = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Some(error),
        watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => None,
    };
    let (group, plural) = (&resource.group, &resource.plural);
    match source {
        Some(Error::Api(status)) if status.code == 403 => {
            format!("not allowed: give the service account the verbs list and watch on {plural} of API group {group:?}")
        }
        Some(Error::Api(status)) => format!("the API server answered {}: {}", status.code, status.message),
        Some(error) => error.to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
