//! Default Gateways (GEP-3793): which Gateways are, and to which of them a route comes that names
//! none.

use crate::key::Verdict;
use crate::rule::gateway_parameters::class_parameters;
use crate::rule::settings::Settings;
use crate::state::attachments::{Attachment, OfRoute, Way};
use crate::state::parent::Parent;
use crate::state::parents::Parents;
use gatewright_objects::channel::Channel;
use gatewright_objects::inputs::{DefaultGateways, Gateway, Kind, ParentRef, Route};
use gatewright_objects::model::{ObjectName, Reason};
use gatewright_objects::store::{Store, parent_key};

/// The most parents that the status of a route can tell of (`RouteStatus.parents`).
const PARENTS: usize = 32;

/// Ok if a Gateway that is to be a default one is: `None` where it is not to be.
pub(crate) fn verdict(gateway: &Gateway, store: &Store, settings: &Settings) -> Option<Verdict> {
    if !gateway.is_default {
        None
    } else if settings.channel == Channel::Standard {
        refuse(
            Reason::Unsupported,
            "it is of the experimental channel, gatewayApi.channel is standard",
        )
    } else if store.is_governed(&gateway.meta.name) {
        refuse(
            Reason::NotAllowed,
            "a TenantGateway decides which routes the Gateway takes",
        )
    } else if !allows(&gateway.class, store) {
        let text = "the GatewayClass does not allow default Gateways: leave it out, or have the operator set \
                    spec.defaultGateways to Allow in the GatewayParameters of the class";
        refuse(Reason::NotAllowed, text)
    } else {
        Some(Ok(()))
    }
}

fn refuse(reason: Reason, text: &str) -> Option<Result<(), (Reason, String)>> {
    Some(Err((
        reason,
        format!("spec.defaultScope has no effect: {text}"),
    )))
}

/// True if Gateways of a class may be default Gateways: whoever may create one would otherwise
/// reach the routes of all namespaces.
fn allows(class: &str, store: &Store) -> bool {
    let parameters = store
        .class(class)
        .and_then(|class| class_parameters(class, store).ok().flatten());
    parameters.and_then(|parameters| parameters.default_gateways) == Some(DefaultGateways::Allow)
}

/// The default Gateways that a route comes to: those that allow its kind and namespace, as many as
/// its status has room for. Those with a listener that `attach` attaches it to come first, of these
/// those of its own namespace, then the oldest, where `dates` can be believed, then the first by
/// name. One that the route names is reached as its parentRef says.
pub(crate) fn of_route<'a>(
    route: &Route,
    parents: &'a Parents,
    store: &Store,
    dates: bool,
    attach: impl Fn(&Parent) -> Attachment,
) -> Vec<(&'a Parent, Attachment)> {
    let namespace = &route.meta.name.namespace;
    let asks = route.uses_defaults.then(|| parents.defaults());
    let labels = store.labels(namespace);
    let allows = |parent: &Parent| {
        let own = &parent.key.name().namespace;
        let mut listeners = parent.listeners.iter();
        listeners.any(|l| {
            l.kinds.contains(route.kind) && l.allowed.namespaces.admits(own, namespace, labels)
        })
    };
    let all = asks
        .into_iter()
        .flatten()
        .filter(|parent| !is_named(parent, namespace, &route.parents) && allows(parent));
    let mut all: Vec<(&Parent, Attachment)> = all.map(|parent| (parent, attach(parent))).collect();
    all.sort_by_cached_key(|(parent, attachment)| {
        let name = parent.key.name().clone();
        let created = if dates { parent.created } else { 0 };
        (
            attachment.listeners.is_empty(),
            name.namespace != *namespace,
            created,
            name,
        )
    });
    all.truncate(PARENTS.saturating_sub(route.parents.len()));
    all
}

fn is_named(
    parent: &Parent,
    namespace: &std::sync::Arc<str>,
    route_parents: &std::sync::Arc<[ParentRef]>,
) -> bool {
    route_parents
        .iter()
        .any(|named| parent_key(named, namespace).is_some_and(|named| named == parent.key))
}

/// The reference to a default Gateway that stands in the status of a route.
pub(crate) fn reference(gateway: &ObjectName) -> ParentRef {
    ParentRef {
        group: Some(Kind::Gateway.group().to_owned()),
        kind: Some(Kind::Gateway.as_str().to_owned()),
        namespace: Some(gateway.namespace.to_string()),
        name: gateway.name.to_string(),
        section: None,
        port: None,
    }
}

/// The note in the status of a route that a default Gateway accepts.
pub(crate) fn note(route: &Route, attachments: &OfRoute) -> String {
    let defaults = attachments
        .iter()
        .filter(|(way, ..)| *way == Way::Default)
        .count();
    let full = (route.parents.len() + defaults >= PARENTS)
        .then_some("; with 32 parents the route has all that it may have");
    format!("attached to a default Gateway{}", full.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use super::*;
    use crate::{Change, Engine, StatusBody};
    use gatewright_objects::inputs::{Object, ObjectKey};
    use gatewright_objects::limits::{Limits, NamespaceLimits};

    const GATEWAY: &str = "gateway.networking.k8s.io/v1";

    fn put(value: Value) -> Change {
        Change::put(Object::parse(value).expect("an object"))
    }

    /// An installation with a class of default Gateways.
    fn engine(limits: Limits) -> Engine {
        let settings = Settings {
            limits,
            channel: Channel::Experimental,
            ..Settings::new("c", Vec::new())
        };
        let mut engine = Engine::new(settings);
        let reference = json!({"group": "gatewright.io", "kind": "GatewayParameters", "namespace": "infra", "name": "p"});
        let class = json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "open"},
            "spec": {"controllerName": "c", "parametersRef": reference}});
        let parameters = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "infra", "name": "p"}, "spec": {"defaultGateways": "Allow"}});
        engine.apply(vec![put(class), put(parameters)], SystemTime::UNIX_EPOCH);
        engine
    }

    /// A default Gateway with a listener.
    fn gateway(namespace: &str, name: &str, mut listener: Value) -> Change {
        listener["name"] = json!("http");
        listener["protocol"] = json!("HTTP");
        listener["allowedRoutes"] = json!({"namespaces": {"from": "All"}});
        put(
            json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"namespace": namespace, "name": name},
            "spec": {"gatewayClassName": "open", "defaultScope": "All", "listeners": [listener]}}),
        )
    }

    /// A route of namespace `a` that wants default Gateways.
    fn route(name: &str) -> Change {
        let hostnames: Vec<String> = (0..15)
            .map(|number| format!("{name}-{number}.example.org"))
            .collect();
        put(
            json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"namespace": "a", "name": name},
            "spec": {"useDefaultGateways": "All", "hostnames": hostnames, "rules": [{}]}}),
        )
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(Kind::HTTPRoute, ObjectName::new("a", name))
    }

    /// The reason of `Accepted` of a route at a default Gateway.
    fn accepted(engine: &Engine, route: &str, namespace: &str) -> Option<&'static str> {
        let StatusBody::Route(status) = engine.status(&key(route))?.body else {
            panic!("a route's")
        };
        let at = status
            .parents
            .iter()
            .find(|(at, _)| at.namespace.as_deref() == Some(namespace))?;
        Some(at.1.first()?.reason.as_str())
    }

    #[test]
    fn filters_of_a_default_gateway_refuse_routes_there_and_nowhere_else() {
        let mut engine = engine(Limits {
            namespace: NamespaceLimits {
                envoy_mib: 1,
                ..Limits::default().namespace
            },
            ..Limits::default()
        });
        let filter = json!({"type": "ExternalAuth",
            "externalAuth": {"protocol": "HTTP", "backendRef": {"name": "auth", "port": 80}}});
        fn filters(count: usize, filter: &Value) -> Value {
            json!({"port": 8080, "filters": {"requests": vec![&filter; count]}})
        }
        fn apply(changes: Vec<Change>, engine: &mut Engine) -> [[Option<&str>; 2]; 3] {
            engine.apply(changes, SystemTime::UNIX_EPOCH);
            ["r1", "r2", "r3"].map(|route| ["infra", "b"].map(|at| accepted(engine, route, at)))
        }
        let good = Some("Accepted");
        let refused = Some("LimitReached");
        let gateways = vec![
            gateway("infra", "g", json!({"port": 80})),
            gateway("b", "g", filters(2, &filter)),
        ];
        apply(gateways, &mut engine);
        let told = apply(vec![route("r1"), route("r2"), route("r3")], &mut engine);
        assert_eq!(told, [[good, good], [good, good], [good, refused]]);
        // The oldest, here the first by name, have what fits.
        assert_eq!(
            apply(vec![Change::delete(key("r1"))], &mut engine),
            [[None, None], [good, good], [good, good]]
        );
        assert_eq!(
            apply(vec![route("r1")], &mut engine),
            [[good, good], [good, good], [good, refused]]
        );
        assert_eq!(
            apply(vec![gateway("b", "g", filters(1, &filter))], &mut engine),
            [[good, good]; 3]
        );
        assert_eq!(
            apply(vec![gateway("b", "g", filters(2, &filter))], &mut engine),
            [[good, good], [good, good], [good, refused]]
        );
    }

    #[test]
    fn default_gateways_without_a_matching_listener_take_no_place_of_others() {
        let mut engine = engine(Limits::default());
        let others = (0..PARENTS).map(|n| {
            gateway(
                &format!("a{}", n / 4),
                &format!("g{n}"),
                json!({"port": 80, "hostname": "other.example.com"}),
            )
        });
        let own = gateway("infra", "g", json!({"port": 80}));
        engine.apply(
            others.chain([own, route("r")]).collect(),
            SystemTime::UNIX_EPOCH,
        );
        assert_eq!(accepted(&engine, "r", "infra"), Some("Accepted"));
        assert_eq!(
            accepted(&engine, "r", "a0"),
            Some("NoMatchingListenerHostname")
        );
    }
}
