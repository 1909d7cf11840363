//! A Gateway that was deleted and created again between two observations.

use serde_json::{Value, json};

use super::{check, gateway_object};
use crate::Change;

/// Its listeners have other ranks by its new age, and the same hostnames.
#[test]
fn a_gateway_that_was_made_anew_asks_clients_for_what_the_new_one_says() {
    let roots = json!([{"group": "", "kind": "ConfigMap", "name": "gone"}]);
    let asks = json!({"frontend": {"default": {"validation": {"caCertificateRefs": roots}}}});
    let before = gateway(
        2,
        json!([https("l0", "*.x.org"), https("l1", "y.org")]),
        json!({}),
    );
    let http = json!({"name": "l0", "port": 443, "protocol": "HTTP"});
    let batches = vec![
        before,
        gateway(0, json!([http, https("l1", "y.org")]), asks),
    ];
    check("reached", batches).expect("as from nothing");
}

fn https(name: &str, hostname: &str) -> Value {
    json!({"name": name, "port": 80, "protocol": "HTTPS", "hostname": hostname, "tls": {"mode": "Terminate"}})
}

fn gateway(created: u32, listeners: Value, tls: Value) -> Vec<Change> {
    let spec = json!({"gatewayClassName": "ours", "listeners": listeners, "tls": tls});
    vec![Change::put(gateway_object(
        "Gateway", "a", "g", created, spec,
    ))]
}
