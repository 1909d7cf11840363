//! Small values for the tests of this folder.

use std::sync::Arc;
use std::time::SystemTime;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use gatewright_core::model::{
    Action, AppProtocol, BackendId, Certificate, CertificateSource, Chain, ClientAddress,
    Enforcement, Frontend, FrontendId, FrontendKind, Handler, HeaderEdits, Hostname,
    IdentityRemoval, IssuerKeys, Jwks, KeyKind, Match, ObjectName, OtherListeners, PathMatch,
    PrivateKey, Rewrite, Route, Rule, ServicePort, Target, Termination, TlsParams, WeightedTarget,
};
use gatewright_core::settings::{Access, JwksSource, TokenAuth, TokenRules};

use crate::settings::Filters;

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
        external_name: None,
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
    Rule::new(action)
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

/// A policy that asks for nothing.
pub(super) fn policy(namespace: &str, name: &str) -> Access {
    Access {
        policy: ObjectName::new(namespace, name),
        enforcement: Enforcement::Enforce,
        client_address: None,
        basic_auth: None,
        oidc: None,
        jwt: None,
        external_auth: None,
    }
}

/// The filters of policies.
pub(super) fn filters(policies: &[Arc<Access>]) -> Vec<TypedExtensionConfig> {
    let mut rule = rule(Action::Respond(200));
    rule.access = policies.to_vec();
    let route = route("/", rule);
    let filters = Filters::of(&route).in_order().into_iter();
    filters.map(|filter| filter.config).collect()
}

fn jwks() -> Jwks {
    Jwks::new("{}".to_owned(), vec![KeyKind::P256])
}

/// Tokens of an issuer, of which nothing else is asked.
pub(super) fn token_rules() -> TokenRules {
    TokenRules {
        issuer: "id".into(),
        audiences: Arc::default(),
        jwks: JwksSource::Inline(jwks()),
        required_claims: Arc::default(),
        claims: Arc::default(),
        forward_payload: None,
        forwards_credentials: true,
    }
}

pub(super) fn tokens_of(rules: TokenRules) -> TokenAuth {
    TokenAuth {
        rules: rules.into(),
        keys: IssuerKeys::Given(jwks()),
    }
}
