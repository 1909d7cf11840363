//! The objects whose statuses are asked for: by kind, namespace and name, and by a hostname.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::condition_row::is_ok;
use crate::inputs::{Gateway, Kind, Listener, ListenerSet, ObjectKey, ParentKey, RouteKey, SetKey};
use crate::model::Hostname;
use crate::store::{Store, parent_key};

/// A selection of objects; by default all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The kind.
    pub kind: Option<Kind>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The name.
    pub name: Option<String>,
    /// A hostname: routes, Gateways and ListenerSets that name it, also by a wildcard, and the
    /// parents of these routes.
    pub host: Option<Hostname>,
    /// True if only objects with a condition that is not as desired are asked for.
    pub not_ok: bool,
}

impl Selection {
    /// Reads an object as written on a command line: `KIND`, `KIND/NAME` or
    /// `KIND/NAMESPACE/NAME`. The kind is in any case, and may be the plural.
    ///
    /// # Errors
    /// When there is no such kind: the text names those that there are.
    pub fn of_object(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, '/');
        let kind = parts.next().map(kind_of).transpose()?;
        let (first, second) = (parts.next(), parts.next());
        let (namespace, name) = match second {
            Some(name) => (first, Some(name)),
            None => (None, first),
        };
        Ok(Self {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            ..Self::default()
        })
    }

    /// True if it names single objects or a hostname, so that each of their conditions is of
    /// interest.
    pub fn is_of_objects(&self) -> bool {
        self.kind.is_some() || self.name.is_some() || self.host.is_some()
    }

    /// True if all objects are asked for.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// True if the kind, the namespace and the name are asked for.
    fn names(&self, key: &ObjectKey) -> bool {
        let Self {
            kind,
            namespace,
            name,
            host: _,
            not_ok: _,
        } = self;
        kind.is_none_or(|kind| kind == key.kind)
            && namespace
                .as_ref()
                .is_none_or(|namespace| **namespace == *key.name.namespace)
            && name.as_ref().is_none_or(|name| **name == *key.name.name)
    }

    /// Looks up which objects of a store it is about; `keys` are those with a status.
    pub(super) fn resolved<'a>(
        &'a self,
        store: &Store,
        keys: impl Iterator<Item = &'a ObjectKey> + Clone,
    ) -> Resolved<'a> {
        Resolved {
            selection: self,
            of_host: self.host.as_ref().map(|host| of_host(store, keys, host)),
        }
    }
}

/// A selection with the objects that its hostname stands for.
pub(super) struct Resolved<'a> {
    selection: &'a Selection,
    of_host: Option<BTreeSet<ObjectKey>>,
}

impl Resolved<'_> {
    /// True if an object is asked for, whatever its status.
    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        let of_host = self.of_host.as_ref();
        self.selection.names(key) && of_host.is_none_or(|objects| objects.contains(key))
    }

    /// True if an object with this status is asked for.
    pub(super) fn has_document(&self, item: &Value) -> bool {
        !self.selection.not_ok || !is_ok(item)
    }
}

/// The kind that a text names.
fn kind_of(text: &str) -> Result<Kind, String> {
    let wanted = text.to_lowercase();
    let found = with_status().find(|kind| {
        let singular = kind.as_str().to_lowercase();
        let plural = match singular.strip_suffix("cy") {
            Some(head) => format!("{head}cies"),
            None if singular.ends_with('s') => format!("{singular}es"),
            None => format!("{singular}s"),
        };
        wanted == singular || wanted == plural
    });
    found.ok_or_else(|| {
        let known: Vec<String> = with_status()
            .map(|kind| kind.as_str().to_lowercase())
            .collect();
        format!(
            "{text:?} is no kind with a status: expected {}",
            known.join(", ")
        )
    })
}

/// The kinds whose statuses we report.
fn with_status() -> impl Iterator<Item = Kind> {
    let all = Kind::ALL.iter().copied();
    all.filter(|kind| kind.status().is_some())
}

/// The objects among `keys` that have to do with a hostname: Gateways and ListenerSets with a
/// listener of that name, routes that name it or have it from such a listener, and the parents of
/// these routes.
fn of_host<'a>(
    store: &Store,
    keys: impl Iterator<Item = &'a ObjectKey> + Clone,
    host: &Hostname,
) -> BTreeSet<ObjectKey> {
    let mut found: BTreeSet<ObjectKey> = keys
        .clone()
        .filter(|key| {
            listeners(store, key)
                .iter()
                .any(|listener| names(listener.hostname.as_ref().ok(), host))
        })
        .cloned()
        .collect();
    let mut routes = BTreeSet::new();
    for key in keys {
        let Some(route) = RouteKey::of(key).and_then(|key| store.route(&key)) else {
            continue;
        };
        let parents: Vec<ObjectKey> = route
            .parents
            .iter()
            .filter_map(|parent| parent_key(parent, &key.name.namespace))
            .map(|parent| match parent {
                ParentKey::Gateway(name) => ObjectKey::new(Kind::Gateway, name),
                ParentKey::ListenerSet(set) => set.object(),
            })
            .collect();
        let has_it_of_a_listener =
            route.hostnames.is_empty() && parents.iter().any(|parent| found.contains(parent));
        let names_it = route
            .hostnames
            .iter()
            .any(|hostname| names(hostname.as_ref().ok(), host));
        if names_it || has_it_of_a_listener {
            routes.insert(key.clone());
            routes.extend(parents);
        }
    }
    found.extend(routes);
    found
}

/// True if a hostname of a listener or route is or covers a host. One that covers every host names
/// none.
fn names(hostname: Option<&Hostname>, host: &Hostname) -> bool {
    hostname.is_some_and(|hostname| !hostname.is_any() && hostname.covers(host))
}

/// The listeners of a Gateway or ListenerSet.
fn listeners<'a>(store: &'a Store, key: &ObjectKey) -> &'a [Arc<Listener>] {
    fn of_gateway(gateway: &Arc<Gateway>) -> &[Arc<Listener>] {
        &gateway.listeners
    }
    fn of_set(set: &Arc<ListenerSet>) -> &[Arc<Listener>] {
        &set.listeners
    }
    match key.kind {
        Kind::Gateway => store.gateway(&key.name).map(of_gateway),
        _ => SetKey::of(key)
            .and_then(|set| store.listener_set(&set))
            .map(of_set),
    }
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::Object;
    use crate::model::ObjectName;
    use serde_json::json;

    #[test]
    fn an_object_is_read_as_it_is_written_on_a_command_line() {
        let all = Selection::of_object("HTTPRoutes").expect("a kind");
        assert_eq!(all.kind, Some(Kind::HTTPRoute), "the plural, in any case");
        assert_eq!(all.name, None, "all of the kind");
        let gateways = Selection::of_object("gateways").expect("a kind");
        assert_eq!(gateways.kind, Some(Kind::Gateway), "a plural in s");
        let one = Selection::of_object("backendtlspolicies/a/x").expect("an object");
        assert_eq!(one.kind, Some(Kind::BackendTLSPolicy), "the kind is read");
        assert_eq!(one.namespace.as_deref(), Some("a"), "the namespace is read");
        assert_eq!(one.name.as_deref(), Some("x"), "the name is read");
        let error = Selection::of_object("deployment/x").expect_err("none of ours");
        assert!(error.contains("gateway, listenerset"), "{error}");
    }

    #[test]
    fn a_selection_has_objects_of_its_kind_namespace_and_name() {
        let key = ObjectKey::new(Kind::HTTPRoute, ObjectName::new("a", "x"));
        for (text, is_of_it) in [
            ("httproute", true),
            ("httproute/x", true),
            ("httproute/a/x", true),
            ("httproute/b/x", false),
            ("httproute/y", false),
            ("grpcroute", false),
        ] {
            let selection = Selection::of_object(text).expect("a selection");
            assert_eq!(selection.names(&key), is_of_it, "{text}");
        }
        assert!(Selection::default().names(&key), "everything has it");
    }

    #[test]
    fn a_host_has_its_routes_their_parents_and_its_listeners() {
        let mut store = Store::default();
        let mut keys = Vec::new();
        fn gateway(name: &str, hostname: Value) -> Value {
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": {"name": name, "namespace": "a"},
                "spec": {"gatewayClassName": "ours", "listeners": [
                    {"name": "l", "port": 80, "protocol": "HTTP", "hostname": hostname}]}})
        }
        fn route(name: &str, parent: &str, hostnames: Value) -> Value {
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
                "metadata": {"name": name, "namespace": "a"},
                "spec": {"parentRefs": [{"name": parent}], "hostnames": hostnames}})
        }
        for object in [
            gateway("wild", json!("*.example.org")),
            gateway("other", json!("other.example.net")),
            gateway("any", Value::Null),
            route("names", "any", json!(["shop.example.org"])),
            route("inherits", "wild", json!([])),
            route("elsewhere", "other", json!(["other.example.net"])),
        ] {
            let object = Object::parse(object).expect("an object");
            keys.push(object.key());
            store.put(object);
        }
        let host = Hostname::parse("shop.example.org").expect("a hostname");
        let found: Vec<String> = of_host(&store, keys.iter(), &host)
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = [
            "gateway a/any",
            "gateway a/wild",
            "httproute a/inherits",
            "httproute a/names",
        ];
        assert_eq!(found, expected);
    }
}
