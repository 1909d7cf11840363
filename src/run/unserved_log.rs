//! Objects that no Gateway serves, each logged once for as long as that is so.

use std::collections::{BTreeMap, BTreeSet};

use gatewright_control::event::Event;
use gatewright_core::inputs::ObjectKey;
use gatewright_core::pipeline::Pipeline;
use gatewright_core::unserved::Unserved;

/// The objects that are not served, by what was logged last.
#[derive(Default)]
pub(super) struct UnservedLog {
    logged: BTreeMap<ObjectKey, Vec<Unserved>>,
    /// The objects to be examined.
    doubtful: BTreeSet<ObjectKey>,
}

impl UnservedLog {
    /// Notes objects that changes concern.
    pub(super) fn examine_later(&mut self, concerned: &BTreeSet<ObjectKey>) {
        self.doubtful.extend(concerned.iter().cloned());
    }

    /// Examines these objects. Returns events of what is new.
    pub(super) fn news(&mut self, pipeline: &Pipeline) -> Vec<Event> {
        let mut news = Vec::new();
        for object in std::mem::take(&mut self.doubtful) {
            let now = pipeline.unserved(&object);
            let before = if now.is_empty() {
                self.logged.remove(&object)
            } else {
                self.logged.insert(object.clone(), now.clone())
            };
            let before = before.unwrap_or_default();
            let new = now.into_iter().filter(|why| !before.contains(why));
            news.extend(new.map(|why| Event::Unserved {
                object: object.clone(),
                why,
            }));
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    use gatewright_core::inputs::{Object, ObjectChange};
    use gatewright_core::pipeline::Written;
    use gatewright_core::tenancy;
    use gatewright_core::translate::{Change, Settings};
    use serde_json::json;

    #[test]
    fn an_object_is_logged_when_it_ceases_to_be_served_and_not_with_each_change() {
        let settings = Settings::new("gatewright.io/gateway-controller", Vec::new());
        let mut pipeline = Pipeline::new(settings, tenancy::Settings::default(), Written::Here);
        let mut log = UnservedLog::default();
        let mut after = |change: Change| {
            log.examine_later(
                &pipeline
                    .apply(vec![change], SystemTime::UNIX_EPOCH)
                    .concerned,
            );
            log.news(&pipeline)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        let put = |kind: &str, name: &str, spec| {
            let metadata = json!({"name": name, "namespace": "infra"});
            let value = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec});
            Change::put(Object::parse(value).expect("an object"))
        };
        let class = |controller: &str| {
            let metadata = json!({"name": "gatewright"});
            let spec = json!({"controllerName": controller});
            let kind = "GatewayClass";
            let value = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec});
            Change::put(Object::parse(value).expect("an object"))
        };
        let gateway = |port: u16| {
            let listeners = json!([{"name": "web", "port": port, "protocol": "HTTP"}]);
            put(
                "Gateway",
                "edge",
                json!({"gatewayClassName": "gatewright", "listeners": listeners}),
            )
        };
        let route = |parent: &str| {
            put(
                "HTTPRoute",
                "shop",
                json!({"parentRefs": [{"name": parent}]}),
            )
        };

        let no_parent = |name: &str| {
            [format!(
                "httproute infra/shop: parent Gateway infra/{name} does not exist"
            )]
        };
        assert_eq!(after(route("edge")), no_parent("edge"));
        assert_eq!(after(route("edgy")), no_parent("edgy"));
        let no_class = "gateway infra/edge: class gatewright does not exist (there is no GatewayClass of Gatewright)";
        assert_eq!(after(gateway(80)), [no_class]);
        assert_eq!(
            after(gateway(81)),
            [""; 0],
            "a known reason is not logged again"
        );
        assert_eq!(
            after(route("edge")),
            [""; 0],
            "a served object is not logged"
        );
        let other = "gateway infra/edge: class gatewright has controllerName example.org/other: it is not served, which needs \
                     gatewright.io/gateway-controller";
        assert_eq!(after(class("example.org/other")), [other]);
        assert_eq!(after(class("gatewright.io/gateway-controller")), [""; 0]);
        let of_gateway = |change| match change {
            Change::Object(ObjectChange::Put(object)) => Change::delete(object.key()),
            other => other,
        };
        assert_eq!(after(of_gateway(gateway(80))), no_parent("edge"));
    }
}
