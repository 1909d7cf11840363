use serde_json::{Value, json};

use crate::https_site::{Site, https};
use crate::rule::ownership::shared_frontend;
use crate::{Change, Fact, Fleet};
use gatewright_objects::limits::{Limits, NamespaceLimits};
use gatewright_objects::model::{
    CertificateSource, Chain, ChainName, FrontendId, FrontendKind, ObjectName, TicketKeys,
};

/// What a listener with session tickets has in its status if it has them.
const SERVED: &str = "";

fn tickets(hostname: &str) -> Value {
    https(
        hostname,
        json!({"gatewright.io/session-tickets": "Enabled"}),
    )
}

fn own() -> FrontendId {
    FrontendId::tcp(ObjectName::new("a", "edge"), 443)
}

impl Site {
    fn ticket_keys(&mut self, key: Option<u8>) {
        let keys = key.map(|key| TicketKeys::new([key; 32], &[]));
        self.apply(Change::Fact(Fact::TicketKeys(keys)));
    }

    fn keyed() -> Self {
        let mut site = Self::new();
        site.ticket_keys(Some(1));
        site.secret("a", "1");
        site
    }

    /// The chain of a host.
    fn chain(&self, id: &FrontendId, host: &str) -> (ChainName, Chain) {
        let frontend = self.published.frontend(id).expect("a frontend");
        let FrontendKind::Tls {
            chains,
            sni_matcher,
        } = &frontend.kind
        else {
            panic!("{:?}", frontend.kind)
        };
        let name = sni_matcher[&crate::confluence::hostname(host)].clone();
        let chain = chains[&name].clone();
        (name, chain)
    }

    /// True if a host has session tickets.
    fn resumes(&self, id: &FrontendId, host: &str) -> bool {
        let (_, chain) = self.chain(id, host);
        let tls = chain.tls.expect("TLS ends here");
        matches!(tls.certificate, CertificateSource::Resumed { .. })
    }

    fn has_keys(&self, host: &str) -> bool {
        let name = format!("sds/tickets@a/edge:443/{host}");
        self.published.secrets().contains(&name)
    }
}

#[test]
fn a_host_with_the_option_has_a_chain_and_keys_and_others_have_none() {
    let mut site = Site::keyed();
    let plain = https("b.org", json!({}));
    site.gateway("a", 1, &[tickets("a.org"), plain.clone()], json!({}));
    assert_eq!(site.told("a"), [SERVED; 2]);
    assert!(site.resumes(&own(), "a.org") && site.has_keys("a.org"));
    assert!(!site.resumes(&own(), "b.org") && !site.has_keys("b.org"));
    let (of_all, _) = site.chain(&own(), "b.org");
    assert_eq!(&*of_all, "https");
    site.gateway("a", 1, &[https("a.org", json!({})), plain], json!({}));
    assert!(!site.resumes(&own(), "a.org") && !site.has_keys("a.org"));
    assert_eq!(site.published.secrets().len(), 2, "the secrets are gone");
}

#[test]
fn the_chain_that_a_host_had_before_stays_and_so_do_its_connections() {
    let mut site = Site::keyed();
    site.gateway("a", 1, &[https("a.org", json!({}))], json!({}));
    let (before, chain) = site.chain(&own(), "a.org");
    site.gateway("a", 1, &[tickets("a.org")], json!({}));
    let frontend = site.published.frontend(&own()).expect("a frontend");
    let FrontendKind::Tls { chains, .. } = &frontend.kind else {
        panic!("{:?}", frontend.kind)
    };
    assert_eq!(chains.get(&before), Some(&chain));
}

#[test]
fn without_keys_or_a_certificate_a_host_is_served_without_tickets() {
    let mut site = Site::new();
    site.secret("a", "1");
    site.gateway("a", 1, &[tickets("a.org")], json!({}));
    assert!(!site.resumes(&own(), "a.org"));
    let missing = "session tickets are not served: their keys are not there yet";
    assert_eq!(site.told("a"), [missing]);
    site.ticket_keys(Some(1));
    assert!(site.resumes(&own(), "a.org"));
    assert_eq!(site.told("a"), [SERVED]);
    site.ticket_keys(None);
    assert!(!site.resumes(&own(), "a.org") && !site.has_keys("a.org"));
    assert_eq!(site.told("a"), [missing]);

    let mut site = Site::new();
    site.ticket_keys(Some(1));
    site.gateway("a", 1, &[tickets("a.org")], json!({}));
    assert!(!site.resumes(&own(), "a.org"), "others would wait for it");
    site.secret("a", "1");
    assert!(site.resumes(&own(), "a.org"));
}

#[test]
fn a_rotation_changes_keys_and_no_listener() {
    let mut site = Site::keyed();
    site.gateway("a", 1, &[tickets("a.org")], json!({}));
    let keys = TicketKeys::new([2; 32], &[[1; 32]]);
    let rotation = Change::Fact(Fact::TicketKeys(Some(keys)));
    let delta = site
        .engine
        .apply(vec![rotation], std::time::SystemTime::UNIX_EPOCH);
    let changed: Vec<String> = delta
        .resources
        .keys()
        .map(|key| format!("{key:?}"))
        .collect();
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert!(changed[0].contains("Tickets"), "{changed:?}");
    assert!(delta.statuses.is_empty(), "{:?}", delta.statuses);
}

#[test]
fn wildcards_other_protocols_and_other_values_are_refused() {
    let mut site = Site::keyed();
    let listeners = [
        tickets("*.org"),
        https("b.org", json!({"gatewright.io/session-tickets": "on"})),
    ];
    site.gateway("a", 1, &listeners, json!({}));
    let told = site.told("a");
    for (text, part) in told.iter().zip([
        "gatewright.io/session-tickets needs a hostname without a wildcard",
        "expected Enabled",
    ]) {
        assert!(
            text.starts_with("UnsupportedValue: ") && text.contains(part),
            "{text}"
        );
    }
}

#[test]
fn client_certificates_leave_full_handshakes() {
    let mut site = Site::keyed();
    let validation = json!({"validation": {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}});
    site.gateway(
        "a",
        1,
        &[tickets("a.org")],
        json!({"tls": {"frontend": {"default": validation}}}),
    );
    assert!(!site.has_keys("a.org"));
    site.gateway("a", 1, &[tickets("a.org")], json!({}));
    assert!(site.has_keys("a.org"));
}

#[test]
fn the_oldest_hosts_of_a_namespace_and_of_a_port_have_tickets() {
    let limits = Limits {
        namespace: NamespaceLimits {
            session_ticket_hosts: 1,
            ..Limits::default().namespace
        },
        session_ticket_hosts: 1,
        ..Limits::default()
    };
    let mut site = Site::within(Fleet::Shared, limits);
    site.ticket_keys(Some(1));
    let shared = shared_frontend(gatewright_objects::model::TransportPort::tcp(443));
    for namespace in ["a", "b"] {
        site.secret(namespace, namespace);
    }
    let of_a = [tickets("1.a.org"), tickets("2.a.org")];
    site.gateway("a", 1, &of_a, json!({}));
    assert!(site.resumes(&shared, "1.a.org") && !site.resumes(&shared, "2.a.org"));
    let told = site.told("a");
    assert!(
        told[1].contains("limits.namespace.sessionTicketHosts 1"),
        "{told:?}"
    );
    site.gateway("b", 2, &[tickets("b.org")], json!({}));
    let told = site.told("b");
    assert!(told[0].contains("limits.sessionTicketHosts 1"), "{told:?}");
    site.gateway("a", 1, &[https("1.a.org", json!({}))], json!({}));
    assert_eq!(site.told("b"), [SERVED], "there is room");
}
