//! Strategies for rules of routes with fields of the experimental channel.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{NAMESPACES, pick};

/// A session, now and then; some of them are not served.
pub(super) fn with_session() -> impl Strategy<Value = Option<Value>> {
    proptest::option::weighted(0.3, session())
}

/// `sessionPersistence` of a rule or policy.
pub(super) fn session() -> impl Strategy<Value = Value> {
    pick(&["named", "unnamed", "permanent", "x-session", "host"]).prop_map(|how| match how {
        "named" => json!({"type": "Cookie", "cookie": {"name": "sid"}}),
        "unnamed" => json!({"type": "Cookie", "cookie": {}}),
        "permanent" => json!({"type": "Cookie", "absoluteTimeout": "1h", "cookie": {"lifetimeType": "Permanent"}}),
        header => json!({"type": "Header", "header": {"name": header}}),
    })
}

/// A filter that has a server asked, now and then.
pub(super) fn with_auth() -> impl Strategy<Value = Option<Value>> {
    let auth = (
        pick(NAMESPACES),
        pick(&["web", "api", "gone"]),
        pick(&["HTTP", "GRPC"]),
    );
    let auth = auth.prop_map(|(namespace, name, protocol)| {
        let backend = json!({"namespace": namespace, "name": name, "port": 80});
        let how = protocol.to_lowercase();
        json!({"type": "ExternalAuth", "externalAuth": {"protocol": protocol, how: {}, "backendRef": backend}})
    });
    proptest::option::weighted(0.25, auth)
}
