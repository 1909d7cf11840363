//! Hostnames that plain HTTP redirects to HTTPS: many on one port, and some on many ports.

use std::iter::once;

use serde_json::{Value, json};

use super::{Batch, GATEWAY, HOSTNAMES, MANY, usual_chain, web};
use crate::port::free_port;

impl Batch<'_> {
    /// A Gateway with one port of plain HTTP, which it redirects.
    pub(super) fn redirecting_port(&self) -> Vec<Value> {
        let plain = json!({"name": "http", "protocol": "HTTP", "port": self.place.http});
        self.redirecting(&[plain])
    }

    /// Listeners for HTTPS of a ListenerSet, whose hostnames a route serves and the Gateway
    /// redirects.
    pub(super) fn redirected_listeners(&self) -> Vec<Value> {
        let listeners: Vec<Value> = (0..MANY)
            .zip(self.names())
            .map(|(number, host)| self.https(&format!("l{number}"), &host))
            .collect();
        let spec = json!({"spec": {"parentRef": {"name": self.tag}, "listeners": listeners}});
        let set = self.place.object(GATEWAY, "ListenerSet", &self.name, &spec);
        let parent =
            json!({"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": self.name});
        vec![set, self.route_at(&parent, &[])]
    }

    /// A Gateway with a listener for HTTPS, and as many ports of plain HTTP as it may have beside
    /// that.
    pub(super) fn redirecting_ports(&self) -> Vec<Value> {
        let plain = (1..MANY).map(|number| {
            let port = free_port().expect("a free port");
            json!({"name": format!("l{number}"), "protocol": "HTTP", "port": port})
        });
        let https = self.https("https", "*.hosts.example.com");
        let listeners: Vec<Value> = once(https).chain(plain).collect();
        self.redirecting(&listeners)
    }

    /// A route for hostnames of the listener for HTTPS, each of which is redirected on all ports.
    pub(super) fn redirected_hosts(&self) -> Value {
        let hosts: Vec<String> = self.names().into_iter().take(HOSTNAMES).collect();
        self.route_at(&json!({"name": self.tag, "sectionName": "https"}), &hosts)
    }

    fn route_at(&self, parent: &Value, hosts: &[String]) -> Value {
        let rules = json!([{"backendRefs": [web()]}]);
        let mut route = self.route("HTTPRoute", &self.name, hosts, &rules);
        route["spec"]["parentRefs"] = json!([parent]);
        route
    }

    fn https(&self, name: &str, host: &str) -> Value {
        json!({"name": name, "protocol": "HTTPS", "port": self.place.https, "hostname": host,
            "tls": {"certificateRefs": [{"name": self.tag}]}})
    }

    /// A Gateway with these listeners that redirects plain HTTP, and the certificate of its
    /// hostnames.
    fn redirecting(&self, listeners: &[Value]) -> Vec<Value> {
        let mut gateway = self.place.gateway_with(&self.tag, json!(listeners));
        gateway["spec"]["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
        gateway["spec"]["infrastructure"] = json!({"parametersRef":
            {"group": "gatewright.io", "kind": "GatewayParameters", "name": self.tag}});
        let spec = json!({"spec": {"plainHttp": "Redirect"}});
        let version = "gatewright.io/v1alpha1";
        let parameters = self
            .place
            .object(version, "GatewayParameters", &self.tag, &spec);
        vec![parameters, self.secret(&self.tag, usual_chain()), gateway]
    }
}
