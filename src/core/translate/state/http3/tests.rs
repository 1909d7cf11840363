use serde_json::{Value, json};

use crate::Fleet;
use crate::https_site::{Site, https};
use crate::rule::ownership::shared_frontend;
use gatewright_objects::limits::{Limits, NamespaceLimits};
use gatewright_objects::model::{FrontendId, FrontendKind, ObjectName, Transport};

/// What a listener with HTTP/3 has in its status if it is served by it.
const SERVED: &str = "";

impl Site {
    /// The hosts with HTTP/3 on a frontend.
    fn hosts(&self, id: &FrontendId) -> Vec<String> {
        match self
            .published
            .frontend(&id.over(Transport::Udp))
            .map(|f| &f.kind)
        {
            Some(FrontendKind::Http3 { hosts, .. }) => {
                hosts.keys().map(ToString::to_string).collect()
            }
            Some(other) => panic!("{other:?}"),
            None => Vec::new(),
        }
    }

    /// The hosts whose responses tell of HTTP/3.
    fn telling(&self, id: &FrontendId) -> Vec<String> {
        let scopes = self.published.scopes(id);
        let telling = scopes
            .into_iter()
            .filter(|(_, host)| host.http3 == Some(443));
        telling.map(|(name, _)| name.to_string()).collect()
    }
}

fn http3(hostname: &str) -> Value {
    https(hostname, json!({"gatewright.io/http3": "Enabled"}))
}

fn own() -> FrontendId {
    FrontendId::tcp(ObjectName::new("a", "edge"), 443)
}

#[test]
fn a_host_with_the_option_has_a_chain_a_secret_and_a_header_and_others_have_none() {
    let mut site = Site::new();
    site.secret("a", "1");
    let plain = https("b.org", json!({}));
    site.gateway("a", 1, &[http3("a.org"), plain.clone()], json!({}));
    assert_eq!(site.told("a"), [SERVED; 2]);
    assert_eq!(site.hosts(&own()), ["a.org"]);
    assert_eq!(site.telling(&own()), ["a.org"]);
    let secrets = ["sds/a/edge:443/udp/a.org", "a.org", "b.org"];
    let mut published = site.published.secrets();
    published.sort();
    assert_eq!(published, {
        let mut all = secrets.map(str::to_owned);
        all.sort();
        all
    });
    site.gateway("a", 1, &[https("a.org", json!({})), plain], json!({}));
    assert!(site.hosts(&own()).is_empty() && site.telling(&own()).is_empty());
    assert_eq!(site.published.secrets().len(), 2, "the secret is gone");
}

#[test]
fn a_host_without_a_certificate_has_no_chain_for_which_others_would_wait() {
    let mut site = Site::new();
    site.gateway("a", 1, &[http3("a.org")], json!({}));
    assert!(site.hosts(&own()).is_empty());
    site.secret("a", "1");
    assert_eq!(site.hosts(&own()), ["a.org"]);
}

#[test]
fn options_that_quic_does_not_follow_are_refused_with_the_listener() {
    let mut site = Site::new();
    site.secret("a", "1");
    let old = json!({"gatewright.io/http3": "Enabled", "gatewright.io/tls-max-version": "1.2"});
    let listeners = [
        http3("*.org"),
        https("b.org", old),
        https("c.org", json!({"gatewright.io/http3": "on"})),
    ];
    site.gateway("a", 1, &listeners, json!({}));
    let told = site.told("a");
    for (text, part) in told
        .iter()
        .zip(["wildcard", "tls-max-version 1.2", "expected Enabled"])
    {
        assert!(
            text.starts_with("UnsupportedValue: ") && text.contains(part),
            "{text}"
        );
    }
}

#[test]
fn a_udp_listener_has_precedence_on_its_port() {
    let mut site = Site::new();
    site.secret("a", "1");
    let udp = json!({"name": "udp", "protocol": "UDP", "port": 443});
    site.gateway("a", 1, &[http3("a.org")], json!({}));
    assert_eq!(site.telling(&own()), ["a.org"]);
    site.gateway("a", 1, &[http3("a.org"), udp], json!({}));
    let told = site.told("a");
    assert!(
        told[0].contains("a UDP listener has port 443/udp"),
        "{told:?}"
    );
    assert_eq!(told[1], "", "the UDP listener is served");
    assert!(
        site.telling(&own()).is_empty(),
        "clients are not told of it"
    );
    let there = site.published.frontend(&own().over(Transport::Udp));
    assert_eq!(there.expect("a frontend").kind, FrontendKind::Udp);
    site.gateway("a", 1, &[http3("a.org")], json!({}));
    assert_eq!(site.hosts(&own()), ["a.org"]);
    assert_eq!(site.telling(&own()), ["a.org"]);
}

#[test]
fn client_certificates_leave_tls_over_tcp() {
    let mut site = Site::new();
    site.secret("a", "1");
    let validation = json!({"validation": {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}});
    site.gateway(
        "a",
        1,
        &[http3("a.org")],
        json!({"tls": {"frontend": {"default": validation}}}),
    );
    assert!(site.hosts(&own()).is_empty());
    site.gateway("a", 1, &[http3("a.org")], json!({}));
    assert_eq!(site.hosts(&own()), ["a.org"]);
}

#[test]
fn another_namespace_at_the_same_address_does_not_take_the_port() {
    let mut site = Site::new();
    site.secret("a", "1");
    site.gateway("a", 2, &[http3("a.org")], json!({}));
    let udp = json!({"name": "udp", "protocol": "UDP", "port": 443});
    site.gateway("b", 1, &[udp], json!({}));
    assert_eq!(site.telling(&own()), ["a.org"]);
    assert!(
        site.told("b")[0].starts_with("PortUnavailable"),
        "{:?}",
        site.told("b")
    );
}

#[test]
fn the_oldest_hosts_of_a_namespace_and_of_a_port_have_http3_and_a_removed_one_makes_room() {
    let limits = Limits {
        namespace: NamespaceLimits {
            http3_hosts: 2,
            ..Limits::default().namespace
        },
        http3_hosts: 3,
        ..Limits::default()
    };
    let mut site = Site::within(Fleet::Shared, limits);
    let shared = shared_frontend(gatewright_objects::model::TransportPort::tcp(443));
    for namespace in ["a", "b", "c"] {
        site.secret(namespace, namespace);
    }
    let of_a = [http3("1.a.org"), http3("2.a.org"), http3("3.a.org")];
    site.gateway("a", 1, &of_a, json!({}));
    assert_eq!(site.hosts(&shared), ["1.a.org", "2.a.org"]);
    let told = site.told("a");
    assert!(
        told[2].contains("limits.namespace.http3Hosts 2"),
        "{told:?}"
    );
    site.gateway("c", 3, &[http3("c.org")], json!({}));
    assert_eq!(site.told("c"), [SERVED]);
    site.gateway("b", 2, &[http3("b.org")], json!({}));
    assert_eq!(site.told("b"), [SERVED], "it is older");
    assert!(
        site.told("c")[0].contains("limits.http3Hosts 3"),
        "{:?}",
        site.told("c")
    );
    assert_eq!(site.telling(&shared), ["1.a.org", "2.a.org", "b.org"]);
    site.gateway("a", 1, &of_a[..1], json!({}));
    assert_eq!(site.told("c"), [SERVED], "there is room again");
    assert_eq!(site.hosts(&shared), ["1.a.org", "b.org", "c.org"]);
}
