//! Tests of explanations of HTTP/3.

use super::*;

/// The Gateway `edge` with HTTPS and HTTP/3 on port 443, with this hostname, and this `spec.tls`.
fn http3_gateway(hostname: &str, tls: &Value) -> Change {
    let options = json!({"gatewright.io/http3": "Enabled"});
    let listener = json!({"name": "https", "port": 443, "protocol": "HTTPS", "hostname": hostname,
        "tls": {"certificateRefs": [{"name": "cert"}], "options": options}});
    let mut spec = json!({"gatewayClassName": "g", "listeners": [listener]});
    if !tls.is_null() {
        spec["tls"] = tls.clone();
    }
    gateway_api("Gateway", "edge", spec)
}

#[test]
fn a_host_with_http3_is_told_and_why_another_that_asks_for_it_has_none() {
    let edge = http3_gateway(HOST, &Value::Null);
    let told = "served on port 443/udp as well";
    assert_eq!(held(vec![edge.clone()], "HTTP/3").as_deref(), Some(told));
    // Who does not ask for it is told nothing of it.
    let without = gateway("g", &Value::Null);
    assert_eq!(held(vec![without], "HTTP/3"), None, "it does not ask");
    let checking = http3_gateway(HOST, &frontend_tls(&["ca"], "AllowValidOnly"));
    let refused = held(vec![checking, config_map("ca")], "HTTP/3").expect("a link");
    let why = "only TLS over TCP; NOTE: HTTP/3 is not served: the Gateway checks client certificates on port 443";
    assert!(refused.starts_with(why), "{refused}");
    // A wildcard cannot have it: its listener is served nowhere.
    let (what, text) = failure_at(
        &engine(vec![http3_gateway("*.example.org", &Value::Null)]),
        443,
        HOST,
    );
    assert_eq!(what, "frontend", "{text}");
    assert!(
        text.contains("gatewright.io/http3 needs a hostname without a wildcard"),
        "{text}"
    );
}
