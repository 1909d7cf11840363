//! The hostnames that namespaces may have at the Gateways of a class, by its GatewayParameters.

use crate::key::Verdict;
use crate::rule::gateway_exposure::GatewayExposure;
use crate::state::granted_names::labelled_domain;
use gatewright_objects::model::{Hostname, Reason, clipped};
use gatewright_objects::store::Store;

/// Checks whether a namespace may have a hostname: by a rule, or by the label with the domain that
/// the platform set.
pub(crate) fn check(
    exposure: &GatewayExposure,
    hostname: &Hostname,
    namespace: &str,
    store: &Store,
) -> Verdict {
    let Some(rules) = &exposure.allowed_hostnames else {
        return Ok(());
    };
    let labels = store.labels(namespace);
    let domain = labelled_domain(namespace, store);
    if domain
        .as_ref()
        .is_some_and(|domain| is_within(hostname, domain))
    {
        return Ok(());
    }
    let rules = rules
        .iter()
        .filter(|rule| rule.namespaces.matches(namespace, labels));
    let allowed: Vec<&Hostname> = rules.flat_map(|rule| &rule.hostnames).collect();
    if allowed.iter().any(|allowed| allowed.covers(hostname)) {
        return Ok(());
    }
    let found = if hostname.is_any() {
        "a listener or route without a hostname".to_owned()
    } else {
        format!("hostname {hostname}")
    };
    let mut expected: Vec<String> = allowed
        .iter()
        .map(ToString::to_string)
        .chain(domain.map(|d| d.to_string()))
        .collect();
    expected.sort();
    expected.dedup();
    let expected = if expected.is_empty() {
        "none".to_owned()
    } else {
        expected.join(", ")
    };
    let text = format!(
        "{found} is not allowed to namespace {namespace} by the GatewayParameters of the class, which allow it {expected}: \
         take one of those, or ask whoever runs the class"
    );
    Err((Reason::HostnameNotAllowed, clipped(text)))
}

/// True if a hostname is a domain or lies below it.
pub(crate) fn is_within(hostname: &Hostname, domain: &Hostname) -> bool {
    let bare = hostname
        .as_str()
        .strip_prefix("*.")
        .unwrap_or(hostname.as_str());
    domain.is_exact() && (bare == domain.as_str() || below(bare, domain))
}

fn below(bare: &str, domain: &Hostname) -> bool {
    bare.strip_suffix(domain.as_str())
        .is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use serde_json::{Value, json};

    use crate::{Change, Engine, Settings, StatusBody};
    use gatewright_objects::inputs::{HOST_LABEL, Kind, Object, ObjectKey};
    use gatewright_objects::model::ObjectName;

    const GATEWAY: &str = "gateway.networking.k8s.io/v1";

    fn put(value: Value) -> Change {
        Change::put(Object::parse(value).expect("an object"))
    }

    fn engine(allowed: Value) -> Engine {
        let mut engine = Engine::new(Settings::new("c", vec![[127, 0, 0, 1].into()]));
        let class = json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "g"}, "spec": {
            "controllerName": "c", "parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters",
                "namespace": "infra", "name": "p"}}});
        let parameters = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "infra", "name": "p"}, "spec": {"allowedHostnames": allowed}});
        fn namespace(name: &str, labels: Value) -> Change {
            put(
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}),
            )
        }
        let blue = namespace("blue", json!({"team": "blue"}));
        let given = namespace("given", json!({HOST_LABEL: "given.org"}));
        engine.apply(
            vec![put(class), put(parameters), blue, given],
            SystemTime::UNIX_EPOCH,
        );
        engine
    }

    /// The reason of `Accepted` of a Gateway's only listener.
    fn told(engine: &mut Engine, namespace: &str, hostname: &str) -> &'static str {
        let mut listener = json!({"name": "l", "protocol": "HTTP", "port": 80});
        if !hostname.is_empty() {
            listener["hostname"] = json!(hostname);
        }
        let spec = json!({"gatewayClassName": "g", "listeners": [listener]});
        let gateway = json!({"apiVersion": GATEWAY, "kind": "Gateway", "spec": spec,
            "metadata": {"name": "edge", "namespace": namespace}});
        engine.apply(vec![put(gateway)], SystemTime::UNIX_EPOCH);
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new(namespace, "edge"));
        let StatusBody::Gateway(status) = engine.status(&key).expect("a status").body else {
            panic!("a Gateway's")
        };
        engine.apply(vec![Change::delete(key)], SystemTime::UNIX_EPOCH);
        status.listeners[0].conditions[0].reason.as_str()
    }

    #[test]
    fn a_namespace_has_what_a_rule_or_its_label_allows() {
        let rules = json!([{"namespaces": {"matchLabels": {"team": "blue"}}, "hostnames": ["a.org", "*.b.org"]},
            {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "infra"}}, "hostnames": ["*"]}]);
        let mut engine = engine(rules);
        let refused = "HostnameNotAllowed";
        for (namespace, hostname, reason) in [
            ("blue", "a.org", "Accepted"),
            ("blue", "x.b.org", "Accepted"),
            ("blue", "*.b.org", "Accepted"),
            ("blue", "b.org", refused),
            ("blue", "*.org", refused),
            ("blue", "", refused),
            ("red", "a.org", refused),
            ("given", "given.org", "Accepted"),
            ("given", "*.x.given.org", "Accepted"),
            ("given", "forgiven.org", refused),
            ("infra", "", "Accepted"),
            ("infra", "a.org", "Accepted"),
        ] {
            assert_eq!(
                told(&mut engine, namespace, hostname),
                reason,
                "{namespace} {hostname:?}"
            );
        }
    }

    #[test]
    fn a_label_that_comes_or_goes_decides_anew() {
        let mut engine =
            engine(json!([{"namespaces": {"matchLabels": {"team": "green"}}, "hostnames": ["*"]}]));
        assert_eq!(told(&mut engine, "blue", "a.org"), "HostnameNotAllowed");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "blue",
            "labels": {"team": "green"}}});
        engine.apply(vec![put(namespace)], SystemTime::UNIX_EPOCH);
        assert_eq!(told(&mut engine, "blue", "a.org"), "Accepted");
    }
}
