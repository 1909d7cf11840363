//! Reads the cluster once, with the rights of a person: what a replica of the controller watches,
//! as far as the API server lets this user read it.
//!
//! In: a client. Out: a [`View`] with objects and facts for the pipeline, their statuses, and what
//! may not be read. Nothing is written, and nothing is watched. Of Secrets the metadata is listed;
//! a body is read only where an object refers to it.

mod changes;
mod references;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ApiResource, ListParams};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher;

pub use self::changes::Changes;
use self::references::references;
use crate::claims::{self, ClaimEvent, Claims};
use crate::secrets::body::body;
use crate::secrets::refs::{BodyAction, BodyRefs};
use crate::watch::discovery::{DiscoveryError, Served, discover};
use crate::watch::observed::ObservedObject;
use crate::watch::scope::Scope;
use crate::watch::{ObjectUpdate, is_denied, is_forbidden, list, update};
use crate::write::failure::Failure;
use crate::write::request::in_time;
use gatewright_core::inputs::{Kind, Object, ObjectKey, Secret, SecretError};
use gatewright_core::model::ObjectName;
use gatewright_core::namespaces::Namespaces;
use gatewright_core::tenancy;
use gatewright_core::translate::{Change, Fact};

/// The maximum number of concurrent requests.
const AT_ONCE: usize = 16;
/// The most namespaces that are read one by one.
const NAMESPACES: usize = 32;
/// The text in place of the content of a Secret or ConfigMap.
const UNREAD: &str = "you may not read it";

/// The reason for which the cluster could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The API server did not say which kinds it serves.
    #[error(transparent)]
    Discover(#[from] DiscoveryError),
    /// A list failed, and not for lack of a right.
    #[error("listing {kind}: {why}")]
    List {
        /// The kind.
        kind: &'static str,
        /// The error.
        why: String,
    },
    /// An object could not be read.
    #[error("reading {object}: {why}")]
    Get {
        /// The object.
        object: String,
        /// The error.
        why: Failure,
    },
}

/// What a user may read of a cluster.
#[derive(Default)]
pub struct View {
    /// The objects that can be parsed, each once.
    pub objects: BTreeMap<ObjectKey, Object>,
    /// The facts of the record of ownership, and those about the API server.
    pub facts: Vec<Fact>,
    /// What tenancy knows of existing objects.
    pub existing: Vec<tenancy::Change>,
    /// Metadata and status of the objects that have a status.
    pub observed: BTreeMap<ObjectKey, Box<ObservedObject>>,
    /// The namespaces of which the objects of a kind were read.
    read: BTreeMap<Kind, Namespaces>,
    /// True if the record of ownership was read.
    pub has_record: bool,
}

impl View {
    /// Returns whether the user may read an object of this kind and name.
    pub fn may_read(&self, key: &ObjectKey) -> bool {
        match self.read.get(&key.kind) {
            Some(Namespaces::All) => true,
            Some(Namespaces::Listed(names)) if key.kind == Kind::Namespace => {
                names.contains(&key.name.name)
            }
            Some(Namespaces::Listed(names)) => names.contains(&key.name.namespace),
            // Nobody reads the kind, and the controller does not either.
            None => true,
        }
    }

    /// Returns whether the user may read the pods of a namespace.
    pub fn may_read_pods(&self, namespace: &Arc<str>) -> bool {
        let any = ObjectName::new(namespace.clone(), "");
        self.may_read(&ObjectKey::new(Kind::Pod, any))
    }

    /// Returns whether everything was read that the controller reads.
    pub fn is_complete(&self) -> bool {
        self.has_record && self.partly_read().next().is_none()
    }

    /// Returns the kinds of which the user may not read everything, with the namespaces that were
    /// read.
    pub fn partly_read(&self) -> impl Iterator<Item = (Kind, &BTreeSet<Arc<str>>)> {
        self.read
            .iter()
            .filter_map(|(kind, namespaces)| match namespaces {
                Namespaces::All => None,
                Namespaces::Listed(names) => Some((*kind, names)),
            })
    }

    /// Returns the objects that others refer to and that the user may not read, each with those
    /// that refer to it.
    pub fn unread(&self) -> BTreeMap<ObjectKey, BTreeSet<ObjectKey>> {
        self.unread_of(self.objects.values())
    }

    /// Returns the same of these objects.
    pub fn unread_of<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Object>,
    ) -> BTreeMap<ObjectKey, BTreeSet<ObjectKey>> {
        let mut unread: BTreeMap<ObjectKey, BTreeSet<ObjectKey>> = BTreeMap::new();
        for object in objects {
            for target in references(object) {
                if !self.may_read(&target) {
                    unread.entry(target).or_default().insert(object.key());
                }
            }
        }
        unread
    }

    /// Returns the namespaces of objects that others refer to and that were not read yet.
    fn further_namespaces(&self) -> BTreeSet<Arc<str>> {
        let unread = self.unread().into_keys();
        let namespaces = unread.map(|key| key.name.namespace.clone());
        namespaces.filter(|name| !name.is_empty()).collect()
    }
}

/// Reads what the user of a client may read: of each kind all objects, or those of a namespace, and
/// of namespaces that these refer to. `installation` is the namespace with the record of ownership.
/// `counted` gets the number of objects of each list that was read.
///
/// # Errors
/// When the API server does not answer.
pub async fn read(
    client: &Client,
    kinds: &[Kind],
    namespace: &str,
    installation: &str,
    counted: Counted<'_>,
) -> Result<View, ReadError> {
    let served = discover(client, kinds).await?;
    let mut reader = Reader {
        counted,
        client: client.clone(),
        view: View::default(),
        secrets: BodyRefs::new(Kind::Secret),
        config_maps: BodyRefs::new(Kind::ConfigMap),
        bodies: BTreeSet::new(),
    };
    reader.read_record(installation).await?;
    reader.read_all(kinds, &served).await?;
    let mut pending = BTreeSet::from([Arc::from(namespace)]);
    let mut done = BTreeSet::new();
    while let Some(next) = pending.pop_first().filter(|_| done.len() < NAMESPACES) {
        reader.read_namespace(&next, &served).await?;
        done.insert(next);
        reader.read_bodies().await?;
        pending.extend(reader.view.further_namespaces());
        pending.retain(|name| !done.contains(name));
    }
    Ok(reader.into_view(&served))
}

/// Reads the document in a ConfigMap; `None` if there is none, or the user may not read it.
///
/// # Errors
/// When the API server does not answer.
pub async fn read_document(
    client: &Client,
    name: &ObjectName,
    key: &str,
) -> Result<Option<String>, ReadError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &name.namespace);
    match in_time(api.get(&name.name)).await {
        Ok(map) => Ok(map.data.and_then(|mut data| data.remove(key))),
        Err(Failure::Gone | Failure::Forbidden(_)) => Ok(None),
        Err(why) => Err(ReadError::Get {
            object: format!("configmap {name}"),
            why,
        }),
    }
}

/// Reads Secrets and ConfigMaps with their content, as far as they exist.
///
/// # Errors
/// When the API server does not answer.
pub async fn read_contents(
    client: &Client,
    keys: impl IntoIterator<Item = ObjectKey>,
) -> Result<Vec<Object>, ReadError> {
    let requests: Vec<_> = keys.into_iter().map(|key| content(client, key)).collect();
    let objects: Vec<Option<Object>> = stream::iter(requests)
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(objects.into_iter().flatten().collect())
}

/// Takes in how many objects a page of a list has.
pub type Counted<'a> = &'a (dyn Fn(usize) + Sync);

/// A view while it is read.
struct Reader<'a> {
    counted: Counted<'a>,
    client: Client,
    view: View,
    secrets: BodyRefs,
    config_maps: BodyRefs,
    /// The Secrets and ConfigMaps whose content is still to be read.
    bodies: BTreeSet<ObjectKey>,
}

impl Reader<'_> {
    /// Lists every served kind of the whole cluster, as far as that is allowed.
    async fn read_all(&mut self, kinds: &[Kind], served: &Served) -> Result<(), ReadError> {
        // A kind that is not served has no objects.
        let absent = kinds
            .iter()
            .filter(|kind| served.resource(**kind).is_none())
            .map(|kind| (*kind, Namespaces::All));
        self.view.read.extend(absent);
        let lists = self.list_all(kinds, served, &Namespaces::All).await?;
        for (kind, updates) in lists {
            let namespaces = match updates {
                Some(updates) => {
                    self.take_in(updates);
                    Namespaces::All
                }
                None => Namespaces::Listed(BTreeSet::new()),
            };
            self.view.read.insert(kind, namespaces);
        }
        Ok(())
    }

    /// Lists the kinds of a namespace that may not be listed in the whole cluster.
    async fn read_namespace(
        &mut self,
        namespace: &Arc<str>,
        served: &Served,
    ) -> Result<(), ReadError> {
        let only = Namespaces::Listed(BTreeSet::from([namespace.clone()]));
        let kinds = self.view.partly_read().map(|(kind, _)| kind);
        let kinds = kinds.filter(|kind| kind.namespaced() || *kind == Kind::Namespace);
        let kinds: Vec<Kind> = kinds.collect();
        for (kind, updates) in self.list_all(&kinds, served, &only).await? {
            let Some(updates) = updates else { continue };
            if let Some(Namespaces::Listed(names)) = self.view.read.get_mut(&kind) {
                names.insert(namespace.clone());
            }
            self.take_in(updates);
        }
        Ok(())
    }

    /// Lists served kinds in these namespaces.
    async fn list_all(
        &self,
        kinds: &[Kind],
        served: &Served,
        namespaces: &Namespaces,
    ) -> Result<Vec<(Kind, Option<Vec<ObjectUpdate>>)>, ReadError> {
        let requests = kinds.iter().filter_map(|kind| {
            let resource = served.resource(*kind)?;
            let of = (*kind, resource, namespaces.clone());
            Some(lists(&self.client, of, self.counted))
        });
        stream::iter(requests.collect::<Vec<_>>())
            .buffered(AT_ONCE)
            .try_collect()
            .await
    }

    /// Reads the record of ownership.
    async fn read_record(&mut self, installation: &str) -> Result<(), ReadError> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), installation);
        let labelled = ListParams::default().labels(&claims::selector());
        let maps = match api.list(&labelled).await {
            Ok(maps) => maps,
            Err(error) if is_denied(&error) => return Ok(()),
            Err(error) => return Err(failed(Kind::ConfigMap, &error)),
        };
        let mut claims = Claims::new(self.client.clone(), installation);
        let changes = maps
            .into_iter()
            .flat_map(|map| claims.take_in(ClaimEvent::Applied(Box::new(map))));
        self.view
            .facts
            .extend(changes.filter_map(|change| match change {
                Change::Fact(fact) => Some(fact),
                Change::Object(_) => None,
            }));
        self.view.has_record = true;
        Ok(())
    }

    /// Reads the content of Secrets and ConfigMaps that objects refer to.
    async fn read_bodies(&mut self) -> Result<(), ReadError> {
        let keys = std::mem::take(&mut self.bodies);
        let contents = read_contents(&self.client, keys).await?.into_iter();
        self.view
            .objects
            .extend(contents.map(|object| (object.key(), object)));
        Ok(())
    }

    fn take_in(&mut self, updates: Vec<ObjectUpdate>) {
        for update in updates {
            let actions = match update {
                ObjectUpdate::Put(object, seen, _) => {
                    let key = object.key();
                    let secrets = self.secrets.put(&object);
                    let config_maps = self.config_maps.put(&object);
                    self.want(Kind::ConfigMap, config_maps);
                    self.view
                        .observed
                        .extend(seen.map(|seen| (key.clone(), seen)));
                    self.view.objects.insert(key, *object);
                    secrets
                }
                ObjectUpdate::LiveObject(derived, _, existing) => {
                    let existing = tenancy::Change::Existing(derived, Some(existing));
                    self.view.existing.push(existing);
                    continue;
                }
                ObjectUpdate::Secret(name, version, ours) => {
                    self.secrets.there(name, version, ours)
                }
                ObjectUpdate::AccessSecret(kind, name, version) => {
                    self.secrets.access_secret(kind, name, version)
                }
                ObjectUpdate::ConfigMap(name, version) => {
                    let actions = self.config_maps.there(name, version, false);
                    self.want(Kind::ConfigMap, actions);
                    continue;
                }
                // A list has no deletions; what cannot be parsed is not served.
                ObjectUpdate::Delete(_)
                | ObjectUpdate::AccessSecretGone(..)
                | ObjectUpdate::Unreadable(..) => continue,
            };
            self.want(Kind::Secret, actions);
        }
    }

    fn want(&mut self, kind: Kind, actions: Vec<BodyAction>) {
        for action in actions {
            match action {
                BodyAction::Fetch(name) => {
                    self.bodies.insert(ObjectKey::new(kind, name));
                }
                BodyAction::Forget(name) => {
                    let key = ObjectKey::new(kind, name);
                    self.bodies.remove(&key);
                    self.view.objects.remove(&key);
                }
            }
        }
    }

    fn into_view(mut self, served: &Served) -> View {
        let has = |kind| served.resource(kind).is_some();
        let keyed = self.secrets.rekeyed();
        let keyed = keyed.map(|(name, ours)| tenancy::Fact::Keyed(name, ours).into());
        let sets = tenancy::Fact::ListenerSets(has(Kind::ListenerSet)).into();
        self.view.existing.extend(keyed.chain([sets]));
        self.view
            .facts
            .push(Fact::TrustBundles(has(Kind::ClusterTrustBundle)));
        self.view
    }
}

/// Lists a kind in these namespaces; `None` if the user may not.
async fn lists(
    client: &Client,
    (kind, resource, namespaces): (Kind, &ApiResource, Namespaces),
    counted: Counted<'_>,
) -> Result<(Kind, Option<Vec<ObjectUpdate>>), ReadError> {
    let mut updates = Vec::new();
    for scope in Scope::all(kind, &namespaces) {
        let listed = match &scope {
            Scope::Namespace(name) if kind == Kind::Namespace => {
                namespace(client, resource, name).await
            }
            _ => list(client.clone(), resource, (kind, &scope), counted).await,
        };
        match listed {
            Ok(listed) => updates.extend(listed),
            Err(error) if is_forbidden(&error) => return Ok((kind, None)),
            Err(error) => return Err(failed(kind, &error)),
        }
    }
    Ok((kind, Some(updates)))
}

/// Reads a Namespace by its name, as a role in it allows.
async fn namespace(
    client: &Client,
    resource: &ApiResource,
    name: &Arc<str>,
) -> watcher::Result<Vec<ObjectUpdate>> {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), resource);
    let found = api.get_opt(name).await;
    let found = found.map_err(watcher::Error::InitialListFailed)?;
    let version = Arc::from(resource.api_version.as_str());
    let key = ObjectKey::new(Kind::Namespace, ObjectName::new("", name.clone()));
    let update = found.and_then(|object| update(key, crate::watch::bare(object), &version));
    Ok(update.into_iter().collect())
}

/// Reads the content of a Secret or ConfigMap; `None` if it does not exist any more.
async fn content(client: &Client, key: ObjectKey) -> Result<Option<Object>, ReadError> {
    let resource = match key.kind {
        Kind::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
        _ => ApiResource::erase::<k8s_openapi::api::core::v1::Secret>(&()),
    };
    let api = Api::namespaced_with(client.clone(), &key.name.namespace, &resource);
    match body(&api, &key.name).await {
        Ok(object) => Ok(object.map(|object| *object)),
        Err(Failure::Gone) => Ok(None),
        Err(Failure::Forbidden(_)) => Ok(unread(key, UNREAD.to_owned())),
        Err(Failure::Refused(why)) => Ok(unread(key, why)),
        Err(why) => Err(ReadError::Get {
            object: key.to_string(),
            why,
        }),
    }
}

/// A Secret or ConfigMap whose content could not be read.
fn unread(key: ObjectKey, why: String) -> Option<Object> {
    use gatewright_core::inputs::{CaBundleError, ConfigMap};
    Some(match key.kind {
        Kind::ConfigMap => ConfigMap::without(key.name, CaBundleError::Unread(why)).into(),
        _ => Secret::without(key.name, SecretError::Unread(why)).into(),
    })
}

fn failed(kind: Kind, error: &impl std::fmt::Display) -> ReadError {
    ReadError::List {
        kind: kind.as_str(),
        why: error.to_string(),
    }
}
