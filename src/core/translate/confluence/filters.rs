//! Fields of the experimental channel among the objects: filters of listeners, and addresses by
//! where they are reachable from.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{NAMESPACES, pick};

/// The filters of a listener: mostly none, else servers that are there, gone or not granted, and
/// now and then one that we have not.
pub(super) fn filters() -> impl Strategy<Value = Value> {
    let filter = (
        pick(NAMESPACES),
        pick(&["web", "web", "api", "extension"]),
        pick(&["HTTP", "GRPC"]),
    )
        .prop_map(|(namespace, name, protocol)| {
            if name == "extension" {
                let extension = json!({"group": "example.org", "kind": "Jwt", "name": "x"});
                return json!({"type": "ExtensionRef", "extensionRef": extension});
            }
            let server = json!({"namespace": namespace, "name": name, "port": 80});
            let settings = protocol.to_lowercase();
            json!({"type": "ExternalAuth",
                "externalAuth": {"protocol": protocol, settings: {}, "backendRef": server}})
        });
    let some =
        proptest::collection::vec(filter, 1..3).prop_map(|requests| json!({"requests": requests}));
    prop_oneof![3 => Just(Value::Null), 1 => some]
}

/// The addresses of a Gateway: mostly none or one, else by where they are to be reachable from.
pub(super) fn addresses() -> impl Strategy<Value = Value> {
    let scoped = proptest::sample::select(vec![
        json!([{"routability": "Cluster"}]),
        json!([{"routability": "Cluster"}, {"value": "127.0.0.2"}]),
        json!([{}, {"routability": "Cluster"}]),
        json!([{"routability": "example.org/Wan"}]),
        json!([{"routability": "testing.x-k8s.io/sentinel"}]),
    ]);
    prop_oneof![3 => Just(json!([])), 3 => one("127.0.0.2"), 1 => one("0.0.0.0"), 2 => scoped]
}

fn one(ip: &str) -> Just<Value> {
    Just(json!([{"value": ip}]))
}
