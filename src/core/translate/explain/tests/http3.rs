//! Tests of explanations of HTTP/3 and of session tickets.

use super::*;
use crate::Fact;
use gatewright_objects::model::TicketKeys;

/// The Gateway `edge` with HTTPS and HTTP/3 on port 443, with this hostname, and this `spec.tls`.
fn http3_gateway(hostname: &str, tls: &Value) -> Change {
    gateway_with("gatewright.io/http3", hostname, tls)
}

/// The same with another option.
fn gateway_with(option: &str, hostname: &str, tls: &Value) -> Change {
    let options = json!({option: "Enabled"});
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

#[test]
fn a_host_with_session_tickets_is_told_and_why_another_has_none() {
    let option = "gatewright.io/session-tickets";
    let edge = gateway_with(option, HOST, &Value::Null);
    let keys = Change::Fact(Fact::TicketKeys(Some(TicketKeys::new([1; 32], &[]))));
    let told = "clients that return resume their sessions";
    let link = held(vec![edge.clone(), keys], "session tickets");
    assert_eq!(link.as_deref(), Some(told));
    let without = held(vec![edge], "session tickets").expect("a link");
    assert!(
        without.contains("their keys are not there yet"),
        "{without}"
    );
    let checking = gateway_with(option, HOST, &frontend_tls(&["ca"], "AllowValidOnly"));
    let refused = held(vec![checking, config_map("ca")], "session tickets").expect("a link");
    let why = "none; NOTE: session tickets are not served: the Gateway checks client certificates on port 443, and a resumed \
               session would not: remove gatewright.io/session-tickets from listener https, or use a port without them";
    assert_eq!(refused, why);
}
