//! Ports whose requests are traced, with as many and as large attributes and headers as a policy
//! may have.

use serde_json::{Value, json};

use super::{Batch, web};

/// The most attributes of a policy, and their size.
const ATTRIBUTES: usize = 32;
const LITERAL: usize = 1024;
/// Headers of the requests to the collector: nearly the most.
const HEADERS: usize = 7;
const VALUE: usize = 1000;

impl Batch<'_> {
    /// A Gateway with an address of its own and as many ports as it may have, and its policy.
    pub(super) fn traced_ports(&self) -> Vec<Value> {
        let mut gateway = self.ports();
        let address = format!("127.0.9.{}", self.number + 1);
        gateway["spec"]["addresses"] = json!([{"type": "IPAddress", "value": address}]);
        let attributes: Vec<Value> = (0..ATTRIBUTES)
            .map(|number| json!({"name": format!("a{number}"), "sourceType": "Literal", "literalValue": "v".repeat(LITERAL)}))
            .collect();
        let headers: Vec<Value> = (0..HEADERS)
            .map(|number| json!({"name": format!("x-{number}"), "value": "v".repeat(VALUE)}))
            .collect();
        let spec = json!({"spec": {
            "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": self.name}],
            "tracing": {"mode": "Enabled", "provider": {"backendRef": web(), "headers": headers},
                "attributes": attributes}}});
        let version = "gateway.networking.x-k8s.io/v1alpha1";
        let policy = self
            .place
            .object(version, "XTelemetryPolicy", &self.name, &spec);
        vec![gateway, policy]
    }
}
