//! The fixture of these tests: model values are converted to resources and served to a real Envoy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result};
use e2e::echo::Echo;
use e2e::envoy::Envoy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use gatewright_core::model::{
    Action, Addresses, AppProtocol, BackendId, Certificate, CertificateSource, Chain, Cluster,
    ClusterId, Endpoints, Frontend, FrontendId, FrontendKind, Handler, HeaderEdits, Hostname,
    IdentityRemoval, Match, ObjectName, OtherListeners, PathMatch, PrivateKey, Requests, Rewrite,
    Route, Rule, Scope, Secret, SecretName, ServicePort, Table, Target, Termination, TlsParams,
    VirtualHost, WeightedTarget,
};
use gatewright_envoy as envoy;
use gatewright_envoy::{AdsServer, BootstrapOptions, ConnectionLimit, ResourceName};

use super::ads::Ads;

/// A TLS frontend and a plain one, and the server that Envoy subscribes to.
pub(crate) struct Site {
    pub(crate) ads: Ads,
    pub(crate) tls: Frontend,
    pub(crate) plain: Frontend,
}

impl Site {
    pub(crate) fn new() -> Result<Self> {
        let tls = frontend_id()?;
        let plain = frontend_id()?;
        let https = terminate(CertificateSource::BySni, scopes(&[]));
        let site = Self {
            ads: Ads::start()?,
            tls: frontend(
                tls,
                FrontendKind::Tls {
                    chains: [("https".into(), https)].into(),
                    sni_matcher: [].into(),
                },
            ),
            plain: frontend(plain, FrontendKind::Http),
        };
        // A listener whose scopes never arrive does not become ready.
        site.put(&site.plain_scope("unused.invalid", vec![]));
        Ok(site)
    }

    /// Adds a chain, and matches a hostname to it.
    pub(crate) fn chain(&mut self, name: &str, hostname: &str, chain: Chain) {
        let FrontendKind::Tls { chains, .. } = &mut self.tls.kind else {
            unreachable!("made so in new")
        };
        chains.insert(name.into(), chain);
        self.lead(hostname, name);
    }

    /// Matches a hostname to a chain.
    pub(crate) fn lead(&mut self, hostname: &str, chain: &str) {
        let FrontendKind::Tls { sni_matcher, .. } = &mut self.tls.kind else {
            unreachable!("made so in new")
        };
        sni_matcher.insert(host(hostname), chain.into());
    }

    /// Adds all resources that an exact HTTPS host needs.
    pub(crate) fn serve(&mut self, hostname: &str, routes: Vec<Route>) -> Result<()> {
        self.lead(hostname, "https");
        self.secret(
            SecretName::Sni(host(hostname)),
            hostname,
            TlsParams::default(),
        )?;
        self.scope(&self.tls.id, hostname, routes);
        Ok(())
    }

    pub(crate) fn scope(&self, frontend: &FrontendId, hostname: &str, routes: Vec<Route>) {
        let virtual_host = VirtualHost::new(host(hostname), routes);
        let scope = Scope {
            frontend: frontend.clone(),
            requests: Requests::OfListener(host(hostname)),
            virtual_host,
        };
        self.put(&scope);
    }

    pub(crate) fn put(&self, scope: &Scope) {
        self.ads.set(&scope.resource_name(), &envoy::scope(scope));
    }

    /// Adds a self-signed certificate for a hostname, under the name that Envoy requests.
    pub(crate) fn secret(&self, name: SecretName, hostname: &str, params: TlsParams) -> Result<()> {
        let made = rcgen::generate_simple_self_signed([hostname.to_owned()])?;
        let certificate = Certificate {
            leaf: made.cert.der().as_ref().into(),
            issuers: "".into(),
            key: PrivateKey::new(made.signing_key.serialized_der()),
            names: vec![],
            not_before: SystemTime::UNIX_EPOCH,
            not_after: SystemTime::UNIX_EPOCH,
            issuer: "itself".into(),
        };
        let secret = Secret {
            name,
            certificate: Arc::new(certificate),
            params: Arc::new(params),
        };
        self.ads
            .set(&secret.resource_name(), &envoy::secret(&secret));
        Ok(())
    }

    pub(crate) fn table(&self, table: &Table) {
        self.ads.set(&table.resource_name(), &envoy::table(table));
    }

    /// Adds a backend with one endpoint, or with none.
    pub(crate) fn backend(
        &self,
        name: &str,
        protocol: AppProtocol,
        address: Option<SocketAddr>,
    ) -> BackendId {
        let id = backend(name, protocol);
        self.cluster(&Cluster::Backend(id.clone().into()));
        self.endpoints(ClusterId::Backend(id.clone()), address);
        id
    }

    pub(crate) fn endpoints(&self, cluster: ClusterId, address: Option<SocketAddr>) {
        let endpoints = Endpoints {
            cluster,
            addresses: Addresses::Alike(address.into_iter().collect()),
        };
        self.ads
            .set(&endpoints.resource_name(), &envoy::endpoints(&endpoints));
    }

    pub(crate) fn cluster(&self, cluster: &Cluster) {
        self.ads
            .set(&cluster.resource_name(), &envoy::cluster(cluster));
    }

    /// Starts a backend and adds its cluster.
    pub(crate) async fn echo(&self, name: &str) -> Result<Echo> {
        let echo = Echo::start(name).await?;
        self.backend(name, AppProtocol::Http1, Some(echo.address()));
        Ok(echo)
    }

    pub(crate) fn listeners(&self) {
        for frontend in [&self.tls, &self.plain] {
            self.ads
                .set(&frontend.resource_name(), &envoy::listener(frontend));
        }
    }

    /// Starts an Envoy, and waits until it has acknowledged all resources.
    pub(crate) async fn envoy(&self) -> Result<Envoy> {
        self.listeners();
        let mut envoy = Envoy::start(&envoy::bootstrap(&self.options()).to_string()).await?;
        self.ads.push().await.with_context(|| envoy.log())?;
        envoy.ready().await?;
        self.ads.acknowledged().await.with_context(|| envoy.log())?;
        Ok(envoy)
    }

    fn options(&self) -> BootstrapOptions {
        BootstrapOptions {
            node_id: "test".into(),
            node_cluster: "test".into(),
            zone: None,
            ads: AdsServer::Pipe(self.ads.socket()),
            admin: envoy::Admin::Loopback(0),
            ready: None,
            stats: None,
            max_heap_bytes: 1 << 30,
            connections: ConnectionLimit::of(10_000),
        }
    }

    pub(crate) fn tls_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.tls.id.port).into()
    }

    pub(crate) fn plain_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.plain.id.port).into()
    }

    /// Sends a ClientHello with this SNI in exactly this spelling, and returns the first bytes of
    /// the answer. Client libraries convert names to lower case.
    pub(crate) async fn client_hello(&self, name: &str) -> Result<Vec<u8>> {
        let lower = name.to_ascii_lowercase();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let mut client =
            rustls::ClientConnection::new(Arc::new(config), lower.clone().try_into()?)?;
        let mut hello = Vec::new();
        client.write_tls(&mut hello)?;
        let at = hello
            .windows(lower.len())
            .position(|part| part == lower.as_bytes())
            .context("the SNI in the hello")?;
        hello[at..at + name.len()].copy_from_slice(name.as_bytes());
        let mut stream = tokio::net::TcpStream::connect(self.tls_address()).await?;
        stream.write_all(&hello).await?;
        let mut first = vec![0; 1024];
        let read = stream.read(&mut first).await?;
        first.truncate(read);
        Ok(first)
    }

    /// Returns a scope of the plain frontend.
    pub(crate) fn plain_scope(&self, hostname: &str, routes: Vec<Route>) -> Scope {
        Scope {
            frontend: self.plain.id.clone(),
            requests: Requests::Plain(None),
            virtual_host: VirtualHost::new(host(hostname), routes),
        }
    }
}

pub(crate) fn frontend(id: FrontendId, kind: FrontendKind) -> Frontend {
    Frontend {
        port: id.port,
        id,
        addresses: vec![IpAddr::from(Ipv4Addr::LOCALHOST)],
        cdn_id: "test".into(),
        clients: Default::default(),
        access_log: None,
        tracing: None,
        kind,
    }
}

/// Returns a frontend on a free port.
pub(crate) fn frontend_id() -> Result<FrontendId> {
    Ok(FrontendId::tcp(
        ObjectName::new("infra", "edge"),
        e2e::port::free_port()?,
    ))
}

pub(crate) fn terminate(certificate: CertificateSource, handler: Handler) -> Chain {
    let alpn = vec!["h2".to_owned(), "http/1.1".to_owned()];
    Chain {
        tls: Some(Termination {
            certificate,
            alpn,
            params: TlsParams::default(),
            clients: None,
        }),
        handler,
    }
}

/// Returns an HTTP handler by scopes, beside listeners with these wildcards.
pub(crate) fn scopes(wildcards: &[&str]) -> Handler {
    let elsewhere = OtherListeners::Listed(wildcards.iter().copied().map(host).collect());
    Handler::Scopes {
        listener: None,
        elsewhere,
        identity_headers: IdentityRemoval::Early,
    }
}

pub(crate) fn host(text: &str) -> Hostname {
    if text.is_empty() {
        Hostname::any()
    } else {
        Hostname::parse(text).expect("tests write hostnames")
    }
}

pub(crate) fn backend(name: &str, protocol: AppProtocol) -> BackendId {
    BackendId::new(
        ServicePort::tcp(ObjectName::new("default", name), 80),
        protocol,
    )
}

pub(crate) fn share(target: Target, weight: u32) -> WeightedTarget {
    WeightedTarget {
        target,
        weight,
        request_headers: HeaderEdits::default(),
        response_headers: HeaderEdits::default(),
        rewrite: Rewrite::default(),
        session: None,
        external_name: None,
        hash: None,
    }
}

pub(crate) fn to(name: &str, weight: u32) -> WeightedTarget {
    share(Target::Backend(backend(name, AppProtocol::Http1)), weight)
}

pub(crate) fn rule(action: Action) -> Rule {
    Rule::new(action)
}

/// A route for a prefix.
pub(crate) fn route(prefix: &str, rule: Rule) -> Route {
    let path = PathMatch::Prefix(prefix.to_owned());
    route_on(
        Match {
            path,
            call: None,
            method: None,
            headers: vec![],
            query: vec![],
        },
        rule,
    )
}

pub(crate) fn route_on(matches: Match, rule: Rule) -> Route {
    Route {
        name: "test".into(),
        matches,
        rule: Arc::new(rule),
    }
}

/// Returns routes that forward everything to one backend.
pub(crate) fn all_to(name: &str) -> Vec<Route> {
    vec![route("/", rule(Action::Forward(vec![to(name, 1)])))]
}
