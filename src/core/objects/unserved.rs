//! Objects that no Gateway of this program serves, for a reason that no status can say: a class or
//! a parent that does not exist has no controller. Pure.
//!
//! It holds only where the objects are complete: in the directory of `gatewright standalone`, and
//! for `gatewright lint`.

use std::collections::BTreeSet;
use std::fmt;

use crate::inputs::{Gateway, GatewayClass, Kind, ObjectKey, ParentKey, Route, RouteKey, SetKey};
use crate::model::ObjectName;
use crate::store::{Store, parent_key};

/// Why an object is not served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unserved {
    /// The GatewayClass of a Gateway does not exist.
    NoClass {
        /// As the Gateway names it.
        class: String,
        /// The GatewayClasses of this program.
        ours: Vec<String>,
    },
    /// The GatewayClass of a Gateway belongs to another controller.
    OtherController {
        /// The name of the class.
        class: String,
        /// Its `controllerName`.
        controller: String,
        /// The `controllerName` of this program.
        ours: String,
    },
    /// The parent of a route or of a ListenerSet does not exist.
    NoParent(ObjectKey),
}

impl Unserved {
    /// The reason, for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Unserved::NoClass { .. } => "ClassNotFound",
            Unserved::OtherController { .. } => "OtherController",
            Unserved::NoParent(_) => "ParentNotFound",
        }
    }
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unserved::NoClass { class, ours } if ours.is_empty() => {
                write!(
                    f,
                    "class {class} does not exist (there is no GatewayClass of Gatewright)"
                )
            }
            Unserved::NoClass { class, ours } => {
                write!(
                    f,
                    "class {class} does not exist (there is: {})",
                    ours.join(", ")
                )
            }
            Unserved::OtherController {
                class,
                controller,
                ours,
            } => {
                write!(
                    f,
                    "class {class} has controllerName {controller}: it is not served, which needs {ours}"
                )
            }
            Unserved::NoParent(parent) => {
                write!(
                    f,
                    "parent {} {} does not exist",
                    parent.kind.as_str(),
                    parent.name
                )
            }
        }
    }
}

/// Returns why an object is not served; empty for one that may be served, and for one that does not
/// exist. `is_tenant` says whether a TenantGateway has a name: why there is no Gateway of that name
/// is the TenantGateway's own status.
pub fn unserved(
    key: &ObjectKey,
    store: &Store,
    controller: &str,
    is_tenant: impl Fn(&ObjectName) -> bool,
) -> Vec<Unserved> {
    let missing = |parents: BTreeSet<ParentKey>| {
        let parents = parents.into_iter().filter(|parent| match parent {
            ParentKey::Gateway(name) => store.gateway(name).is_none() && !is_tenant(name),
            ParentKey::ListenerSet(set) => store.listener_set(set).is_none(),
        });
        parents
            .map(|parent| Unserved::NoParent(parent.object()))
            .collect()
    };
    if let Some(route) = RouteKey::of(key).and_then(|route| store.route(&route)) {
        return missing(parents_of(route));
    }
    if let Some(set) = SetKey::of(key).and_then(|set| store.listener_set(&set)) {
        return missing(
            set.parent
                .clone()
                .map(ParentKey::Gateway)
                .into_iter()
                .collect(),
        );
    }
    let Some(ParentKey::Gateway(name)) = ParentKey::of(key) else {
        return Vec::new();
    };
    let Some(gateway) = store.gateway(&name) else {
        return Vec::new();
    };
    of_class(gateway, store, controller).into_iter().collect()
}

/// Returns why a Gateway is none of this program's, which has this controller name.
pub fn of_class(gateway: &Gateway, store: &Store, controller: &str) -> Option<Unserved> {
    match store.class(&gateway.class) {
        Some(class) if is_ours(class, controller) => None,
        Some(class) => Some(Unserved::OtherController {
            class: gateway.class.clone(),
            controller: class.controller.clone(),
            ours: controller.to_owned(),
        }),
        None => {
            let ours = store
                .classes()
                .filter(|class| is_ours(class, controller))
                .map(|class| class.meta.name.name.to_string());
            Some(Unserved::NoClass {
                class: gateway.class.clone(),
                ours: ours.collect(),
            })
        }
    }
}

fn is_ours(class: &GatewayClass, controller: &str) -> bool {
    class.controller == *controller
}

/// The parents that a route names, each once.
fn parents_of(route: &Route) -> BTreeSet<ParentKey> {
    route
        .parents
        .iter()
        .filter_map(|parent| parent_key(parent, &route.meta.name.namespace))
        .collect()
}

/// Returns the objects for which [`unserved`] may say something else after a change of an object:
/// itself, the Gateways of a class, and what names a parent.
pub fn concerned(key: &ObjectKey, store: &Store) -> Vec<ObjectKey> {
    let mut all = vec![key.clone()];
    let gateways = store.indexes().gateways_by_class(&key.name.name);
    if key.kind == Kind::GatewayClass {
        all.extend(gateways.map(|gateway| ParentKey::Gateway(gateway.clone()).object()));
    }
    if let Some(parent) = ParentKey::of(key) {
        all.extend(store.routes_reaching(&parent, false).map(RouteKey::object));
    }
    if let Some(ParentKey::Gateway(gateway)) = ParentKey::of(key) {
        all.extend(store.sets_of(&gateway).map(SetKey::object));
    }
    all
}
