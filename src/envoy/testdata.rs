//! Small values for the tests of this folder.

use std::sync::Arc;
use std::time::SystemTime;

use gatewright_core::model::{
    Action, AppProtocol, BackendId, Bodies, Certificate, CertificateSource, Chain, ClientAddress,
    Frontend, FrontendId, FrontendKind, Handler, HeaderEdits, Hostname, IdentityRemoval, Match,
    ObjectName, OtherListeners, PathMatch, PrivateKey, Rewrite, Route, Rule, ServicePort, Target,
    Termination, Timeouts, TlsParams, WeightedTarget,
};

pub(super) fn host(text: &str) -> Hostname {
    if text.is_empty() {
        Hostname::any()
    } else {
        Hostname::parse(text).expect("a hostname")
    }
}

pub(super) fn frontend(port: u16) -> FrontendId {
    FrontendId::tcp(ObjectName::new("infra", "edge"), port)
}

pub(super) fn backend(name: &str, protocol: AppProtocol) -> BackendId {
    BackendId::new(
        ServicePort::tcp(ObjectName::new("default", name), 80),
        protocol,
    )
}

pub(super) fn share(target: Target, weight: u32) -> WeightedTarget {
    WeightedTarget {
        target,
        weight,
        request_headers: HeaderEdits::default(),
        response_headers: HeaderEdits::default(),
        rewrite: Rewrite::default(),
        session: None,
        hash: None,
    }
}

pub(super) fn to(name: &str, weight: u32) -> WeightedTarget {
    share(Target::Backend(backend(name, AppProtocol::Http1)), weight)
}

pub(super) fn certificate(name: &str) -> Arc<Certificate> {
    Arc::new(Certificate {
        leaf: b"leaf".as_slice().into(),
        issuers: Arc::from(""),
        key: PrivateKey::new(b"key"),
        names: vec![host(name)],
        not_before: SystemTime::UNIX_EPOCH,
        not_after: SystemTime::UNIX_EPOCH,
        issuer: "test".into(),
    })
}

pub(super) fn rule(action: Action) -> Rule {
    Rule {
        action,
        request_headers: HeaderEdits::default(),
        response_headers: HeaderEdits::default(),
        rewrite: Rewrite::default(),
        mirrors: vec![],
        cors: None,
        timeouts: Timeouts::default(),
        retry: None,
        session: None,
        auth: None,
        access: vec![],
        rate_limits: None,
        bodies: Bodies::default(),
        counted: false,
    }
}

pub(super) fn route(prefix: &str, rule: Rule) -> Route {
    let path = PathMatch::Prefix(prefix.to_owned());
    let matches = Match {
        path,
        call: None,
        method: None,
        headers: vec![],
        query: vec![],
    };
    Route {
        name: "httproute/default/web/0".into(),
        matches,
        rule: Arc::new(rule),
    }
}

/// The listener of port 443 with one host.
pub(super) fn listener() -> envoy_types::pb::envoy::config::listener::v3::Listener {
    let https = Chain {
        tls: Some(Termination {
            certificate: CertificateSource::BySni,
            alpn: vec!["h2".into(), "http/1.1".into()],
            params: TlsParams::default(),
            clients: None,
        }),
        handler: Handler::Scopes {
            listener: None,
            elsewhere: OtherListeners::NOWHERE,
            identity_headers: IdentityRemoval::Early,
        },
    };
    super::listener(&Frontend {
        id: frontend(443),
        port: 443,
        cdn_id: "test".into(),
        clients: ClientAddress::default(),
        access_log: None,
        tracing: None,
        addresses: vec!["127.0.0.1".parse().expect("an address")],
        kind: FrontendKind::Tls {
            chains: [("https".into(), https)].into(),
            sni_matcher: [(host("a.example.org"), "https".into())].into(),
        },
    })
}
