//! The scope of one watch, and the aggregation of the watches of a kind: the receiver sees one
//! watch per kind.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use kube::Client;
use kube::api::{Api, ApiResource};
use kube::core::DynamicResourceScope;
use kube::runtime::watcher::Config;
use tokio::sync::mpsc;

use super::last_heard::LastHeard;
use super::sync::Trouble;
use super::{ObjectUpdate, WatchEvent};
use gatewright_core::inputs::{HTPASSWD_TYPE, Kind, OIDC_CLIENT_TYPE};
use gatewright_core::namespaces::Namespaces;

/// The objects that one watch covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// All objects of the cluster.
    Cluster,
    /// The objects of one namespace; for the kind Namespace, the object of this name.
    Namespace(Arc<str>),
    /// The Secrets of the cluster with this type. A field selector cannot ask for several types.
    TypeOfCluster(AccessSecret),
    /// The Secrets of one namespace with this type.
    TypeOfNamespace(AccessSecret, Arc<str>),
}

/// The types of Secrets that AccessPolicies refer to. Each has watches of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessSecret {
    /// Users with passwords.
    Users,
    /// The secret of a client of OpenID Connect.
    Client,
}

impl AccessSecret {
    const ALL: [Self; 2] = [Self::Users, Self::Client];

    fn as_str(self) -> &'static str {
        match self {
            Self::Users => HTPASSWD_TYPE,
            Self::Client => OIDC_CLIENT_TYPE,
        }
    }
}

impl Scope {
    /// Returns the scopes that together cover the watched objects of a kind.
    pub(crate) fn all(kind: Kind, namespaces: &Namespaces) -> Vec<Self> {
        match namespaces {
            Namespaces::Listed(names) if kind == Kind::Secret => names
                .iter()
                .flat_map(|name| {
                    let own = AccessSecret::ALL.into_iter();
                    let own = own.map(|kind| Self::TypeOfNamespace(kind, name.clone()));
                    std::iter::once(Self::Namespace(name.clone())).chain(own)
                })
                .collect(),
            Namespaces::Listed(names) if kind.namespaced() || kind == Kind::Namespace => {
                names.iter().cloned().map(Self::Namespace).collect()
            }
            _ if kind == Kind::Secret => {
                let own = AccessSecret::ALL.into_iter().map(Self::TypeOfCluster);
                std::iter::once(Self::Cluster).chain(own).collect()
            }
            _ => vec![Self::Cluster],
        }
    }

    /// What the watch of this scope says: of Secrets for AccessPolicies something else than of
    /// others.
    pub(super) fn told(&self, updates: Vec<ObjectUpdate>) -> Vec<ObjectUpdate> {
        match self {
            Self::Cluster | Self::Namespace(_) => updates,
            Self::TypeOfCluster(kind) | Self::TypeOfNamespace(kind, _) => updates
                .into_iter()
                .map(|update| typed(*kind, update))
                .collect(),
        }
    }

    /// Returns the API client of the scope.
    pub(super) fn api<K>(&self, client: Client, kind: Kind, resource: &ApiResource) -> Api<K>
    where
        K: kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        match self {
            Self::Namespace(namespace) | Self::TypeOfNamespace(_, namespace)
                if kind.namespaced() =>
            {
                Api::namespaced_with(client, namespace, resource)
            }
            _ => Api::all_with(client, resource),
        }
    }

    /// Adds the field selector of the scope. RBAC allows the list of a single object by its name if
    /// the field selector has it.
    pub(super) fn select(&self, kind: Kind, config: Config) -> Config {
        match self {
            Self::Namespace(name) if kind == Kind::Namespace => {
                config.fields(&format!("metadata.name={name}"))
            }
            Self::TypeOfCluster(of) | Self::TypeOfNamespace(of, _) => {
                config.fields(&format!("type={}", of.as_str()))
            }
            _ => config,
        }
    }

    /// Returns the namespace of the objects; `None` for the whole cluster.
    pub(super) fn namespace(&self, kind: Kind) -> Option<&str> {
        match self {
            Self::Namespace(namespace) | Self::TypeOfNamespace(_, namespace)
                if kind.namespaced() =>
            {
                Some(namespace)
            }
            _ => None,
        }
    }
}

impl Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster | Self::TypeOfCluster(_) => f.write_str("the cluster"),
            Self::Namespace(namespace) | Self::TypeOfNamespace(_, namespace) => {
                write!(f, "namespace {namespace}")
            }
        }
    }
}

/// An update of a Secret of a type for AccessPolicies.
fn typed(kind: AccessSecret, update: ObjectUpdate) -> ObjectUpdate {
    match update {
        ObjectUpdate::Secret(name, version, _) => ObjectUpdate::AccessSecret(kind, name, version),
        ObjectUpdate::Delete(key) => ObjectUpdate::AccessSecretGone(kind, key.name),
        other => other,
    }
}

/// The scopes of a kind that are not complete, each with the reason.
type Lacking = BTreeMap<Scope, Option<Trouble>>;

/// Aggregates the watches of one kind.
#[derive(Clone, Debug)]
pub(crate) struct KindWatches {
    kind: Kind,
    scopes: Arc<[Scope]>,
    lacking: Arc<Mutex<Lacking>>,
    heard: LastHeard,
    out: mpsc::Sender<WatchEvent>,
}

impl KindWatches {
    /// Creates the watches of a kind; all scopes are incomplete.
    pub(crate) fn new(
        kind: Kind,
        namespaces: &Namespaces,
        heard: LastHeard,
        out: mpsc::Sender<WatchEvent>,
    ) -> Self {
        let scopes: Arc<[Scope]> = Scope::all(kind, namespaces).into();
        let watches = Self {
            kind,
            scopes,
            lacking: Arc::default(),
            heard,
            out,
        };
        watches.lack_all();
        watches
    }

    /// Marks all scopes as incomplete, and starts the clock of their silence.
    pub(crate) fn begin(&self) {
        self.lack_all();
        let now = Instant::now();
        self.scopes
            .iter()
            .for_each(|scope| self.heard.begin(self.kind, scope, now));
    }

    /// Forgets when the watches last had an event: the kind is not watched any more.
    pub(crate) fn end(&self) {
        self.heard.end(self.kind);
    }

    fn lack_all(&self) {
        *self.held() = self
            .scopes
            .iter()
            .map(|scope| (scope.clone(), None))
            .collect();
    }

    /// Returns the watch of each scope.
    pub(crate) fn each(&self) -> impl Iterator<Item = ScopedWatch> {
        self.scopes.iter().map(|scope| ScopedWatch {
            scope: scope.clone(),
            all: self.clone(),
        })
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Lacking> {
        self.lacking
            .lock()
            .expect("nothing panics while it is held")
    }
}

/// The sender of one watch. The kind is complete when the last of its watches is, and in trouble
/// while one of them is.
#[derive(Clone, Debug)]
pub(crate) struct ScopedWatch {
    /// The scope of the watch.
    pub(crate) scope: Scope,
    all: KindWatches,
}

/// The receiver was dropped.
#[derive(Debug)]
pub(super) struct Gone;

impl ScopedWatch {
    /// The kind of the watched objects.
    pub(crate) fn kind(&self) -> Kind {
        self.all.kind
    }

    /// Notes that an event, a bookmark or an answer arrived.
    pub(super) fn heard(&self) {
        self.all
            .heard
            .note(self.kind(), &self.scope, Instant::now());
    }

    /// Waits for room for one message in the channel.
    pub(super) async fn room(&self) -> Result<mpsc::Permit<'_, WatchEvent>, Gone> {
        self.all.out.reserve().await.map_err(|_| Gone)
    }

    /// Reports that the list of the scope is complete.
    pub(super) async fn complete(&self) -> Result<(), Gone> {
        let room = self.room().await?;
        // The lock is held while sending, so that messages are in the order of the changes.
        let mut lacking = self.all.held();
        let had = lacking.remove(&self.scope).flatten();
        let kind = self.kind();
        if lacking.is_empty() {
            room.send(WatchEvent::Complete(kind));
        } else if had.is_some() {
            room.send(match lacking.values().flatten().next() {
                Some(trouble) => WatchEvent::Trouble(kind, trouble.clone()),
                None => WatchEvent::Listing(kind),
            });
        }
        Ok(())
    }

    /// Reports that the scope cannot be watched now.
    pub(super) async fn trouble(&self, trouble: Trouble) -> Result<(), Gone> {
        let room = self.room().await?;
        let trouble = match self.scope.namespace(self.kind()) {
            Some(namespace) => trouble.in_namespace(namespace),
            None => trouble,
        };
        self.all
            .held()
            .insert(self.scope.clone(), Some(trouble.clone()));
        room.send(WatchEvent::Trouble(self.kind(), trouble));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> Namespaces {
        Namespaces::Listed(["a".into(), "b".into()].into())
    }

    #[test]
    fn kinds_of_namespaces_are_asked_for_in_each_and_others_in_the_cluster() {
        let both = vec![Scope::Namespace("a".into()), Scope::Namespace("b".into())];
        for (kind, expected) in [
            (Kind::HTTPRoute, both.clone()),
            (Kind::Namespace, both),
            (Kind::Node, vec![Scope::Cluster]),
            (Kind::GatewayClass, vec![Scope::Cluster]),
        ] {
            assert_eq!(Scope::all(kind, &listed()), expected);
            assert_eq!(Scope::all(kind, &Namespaces::All), [Scope::Cluster]);
        }
    }

    #[test]
    fn secrets_are_asked_for_by_each_of_their_types_apart() {
        fn selectors(namespaces: &Namespaces) -> Vec<Option<String>> {
            let scopes = Scope::all(Kind::Secret, namespaces).into_iter();
            scopes
                .map(|scope| {
                    let config = Config::default().fields("type=kubernetes.io/tls");
                    scope.select(Kind::Secret, config).field_selector
                })
                .collect()
        }
        let all = [
            "type=kubernetes.io/tls",
            "type=gatewright.io/htpasswd",
            "type=gatewright.io/oidc-client",
        ];
        let all: Vec<Option<String>> = all.map(|text| Some(text.to_owned())).into();
        assert_eq!(selectors(&Namespaces::All), all, "in the cluster");
        let each = [all.clone(), all].concat();
        assert_eq!(selectors(&listed()), each, "in each namespace");
    }

    #[tokio::test]
    async fn a_kind_is_complete_with_its_last_watch_and_troubled_with_any() {
        let (out, mut reported) = mpsc::channel(8);
        let watches = KindWatches::new(Kind::HTTPRoute, &listed(), LastHeard::default(), out);
        let [a, b] = watches.each().collect::<Vec<_>>().try_into().expect("two");
        fn next(reported: &mut mpsc::Receiver<WatchEvent>) -> String {
            match reported.try_recv() {
                Ok(WatchEvent::Trouble(_, trouble)) => trouble.to_string(),
                Ok(WatchEvent::Complete(_)) => "complete".to_owned(),
                Ok(WatchEvent::Listing(_)) => "listing".to_owned(),
                Ok(other) => format!("{other:?}"),
                Err(_) => "nothing".to_owned(),
            }
        }
        a.complete().await.expect("it is heard");
        assert_eq!(next(&mut reported), "nothing");
        b.complete().await.expect("it is heard");
        assert_eq!(next(&mut reported), "complete");
        a.trouble(Trouble::Failed("x".to_owned()))
            .await
            .expect("it is heard");
        assert_eq!(next(&mut reported), "in namespace a: x");
        b.trouble(Trouble::Forbidden("y".to_owned()))
            .await
            .expect("it is heard");
        assert_eq!(next(&mut reported), "in namespace b: y");
        b.complete().await.expect("it is heard");
        assert_eq!(
            next(&mut reported),
            "in namespace a: x",
            "one that is well says nothing of the other"
        );
        a.complete().await.expect("it is heard");
        assert_eq!(next(&mut reported), "complete");
        watches.begin();
        b.trouble(Trouble::Forbidden("y".to_owned()))
            .await
            .expect("it is heard");
        assert_eq!(next(&mut reported), "in namespace b: y");
        b.complete().await.expect("it is heard");
        assert_eq!(next(&mut reported), "listing");
        a.complete().await.expect("it is heard");
        assert_eq!(next(&mut reported), "complete");
    }
}
