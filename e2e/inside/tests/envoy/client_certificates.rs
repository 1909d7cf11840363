//! Client certificates, validated by a real Envoy: which clients are admitted, for which hosts, and
//! for how long.

mod shared_port;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::client_ca::ClientCa;
use e2e::echo::Echo;
use e2e::http1::read_answer;
use e2e::probe::{Probe, Verifier};
use e2e_inside::world::{World, api, class, free_port, object, secret, service};
use gatewright_core::inputs::ObjectChange;
use gatewright_core::model::SecretName;
use gatewright_core::translate::{Change, ResourceKey};
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, NamedGroup, SupportedProtocolVersion};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;

const LIMIT: Duration = Duration::from_secs(180);
const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// The certificate that a client sends on request, with its key.
type Identity = Option<(CertificateDer<'static>, Vec<u8>)>;

fn bundle(name: &str, pem: &str) -> Change {
    object(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name},
        "data": {"ca.crt": pem}}),
    )
}

fn validation(config_map: &str, mode: &str) -> Value {
    json!({"validation": {"mode": mode, "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": config_map}]}})
}

fn https(name: &str, port: u16, hostname: &str) -> Value {
    json!({"name": name, "port": port, "protocol": "HTTPS", "hostname": hostname,
        "tls": {"certificateRefs": [{"name": "server"}]}})
}

fn gateway(name: &str, listeners: Value, frontend: Option<Value>) -> Change {
    let mut spec = json!({"gatewayClassName": "ours", "listeners": listeners});
    if let Some(frontend) = frontend {
        spec["tls"] = json!({"frontend": frontend});
    }
    api("Gateway", name, spec)
}

fn route(name: &str, gateways: &[&str], hostnames: &[&str]) -> Change {
    let parents: Vec<_> = gateways.iter().map(|name| json!({"name": name})).collect();
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    api(
        "HTTPRoute",
        name,
        json!({"parentRefs": parents, "hostnames": hostnames, "rules": rules}),
    )
}

/// A session cache that offers its sessions to every server, as an attacker would.
#[derive(Debug)]
struct Sessions(
    ClientSessionMemoryCache,
    Mutex<HashMap<&'static str, usize>>,
);

impl Sessions {
    fn everyone() -> ServerName<'static> {
        ServerName::try_from("everyone.invalid").expect("a name")
    }

    fn note(&self, what: &'static str) {
        *self
            .1
            .lock()
            .expect("nobody panics meanwhile")
            .entry(what)
            .or_default() += 1;
    }

    /// Returns the number of stored sessions, and of offered ones.
    fn counts(&self) -> (usize, usize) {
        let counts = self.1.lock().expect("nobody panics meanwhile");
        (
            counts.get("kept").copied().unwrap_or(0),
            counts.get("offered").copied().unwrap_or(0),
        )
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(Self::everyone(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&Self::everyone())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.note("kept");
        self.0.set_tls12_session(Self::everyone(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0
            .tls12_session(&Self::everyone())
            .inspect(|_| self.note("offered"))
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&Self::everyone());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.note("kept");
        self.0.insert_tls13_ticket(Self::everyone(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0
            .take_tls13_ticket(&Self::everyone())
            .inspect(|_| self.note("offered"))
    }
}

/// A client with or without a certificate, which keeps its sessions.
#[derive(Clone)]
struct Client {
    config: Arc<ClientConfig>,
    sessions: Arc<Sessions>,
}

impl Client {
    fn new(identity: Identity, versions: &[&'static SupportedProtocolVersion]) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier::new(None, provider)));
        let mut config = match identity {
            Some((certificate, key)) => {
                let key =
                    PrivateKeyDer::try_from(key).map_err(|error| anyhow::anyhow!("{error}"))?;
                builder.with_client_auth_cert(vec![certificate], key)?
            }
            None => builder.with_no_client_auth(),
        };
        let sessions = Arc::new(Sessions(
            ClientSessionMemoryCache::new(32),
            Mutex::default(),
        ));
        config.resumption = Resumption::store(sessions.clone());
        Ok(Self {
            config: Arc::new(config),
            sessions,
        })
    }

    fn any(identity: Identity) -> Result<Self> {
        Self::new(identity, &VERSIONS)
    }

    /// Sends `GET https://authority/` on a connection for a host; returns whether the session was
    /// resumed, and the status.
    async fn ask_as(&self, port: u16, host: &str, authority: &str) -> Result<(HandshakeKind, u16)> {
        let exchange = async {
            let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            let name = ServerName::try_from(host.to_owned())?;
            let mut stream = TlsConnector::from(self.config.clone())
                .connect(name, tcp)
                .await?;
            stream
                .write_all(
                    format!("GET / HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")
                        .as_bytes(),
                )
                .await?;
            let mut answer = Vec::new();
            // With TLS 1.3 a client learns only by reading whether its certificate was accepted.
            let read = read_answer(&mut stream, &mut answer).await;
            let text = String::from_utf8_lossy(&answer);
            let status = text
                .split(' ')
                .nth(1)
                .and_then(|status| status.parse().ok());
            let kind = stream
                .get_ref()
                .1
                .handshake_kind()
                .context("the handshake is over")?;
            match (status, read) {
                (Some(status), _) => Ok((kind, status)),
                (None, Err(error)) => Err(error.into()),
                (None, Ok(_)) => Err(anyhow::anyhow!("closed without an answer")),
            }
        };
        timeout(Duration::from_secs(30), exchange).await?
    }

    async fn ask(&self, port: u16, host: &str) -> Result<u16> {
        Ok(self.ask_as(port, host, host).await?.1)
    }

    /// Waits until a host answers with this status, or does not answer any more (`None`).
    async fn until(&self, port: u16, host: &str, status: Option<u16>) -> Result<()> {
        let until = Instant::now() + LIMIT;
        loop {
            let found = self.ask(port, host).await;
            if found.as_ref().ok().copied() == status {
                return Ok(());
            }
            ensure!(
                Instant::now() < until,
                "{host}:{port}: {found:?}, expected {status:?}"
            );
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A class of fleet Shared, whose Gateways have one port in common.
fn shared_class() -> Vec<Change> {
    let parameters = json!({"group": "gatewright.io", "kind": "GatewayParameters", "namespace": "default", "name": "shared"});
    vec![
        object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "default", "name": "shared"}, "spec": {"fleet": "Shared"}}),
        ),
        object(
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "ours"},
            "spec": {"controllerName": e2e_inside::world::CONTROLLER, "parametersRef": parameters}}),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn clients_without_a_valid_certificate_are_admitted_only_where_the_port_says_so() -> Result<()>
{
    let echo = Echo::start("web").await?;
    let one = ClientCa::new("one")?;
    let two = ClientCa::new("two")?;
    let strict = free_port()?;
    let own = free_port()?;
    let lax = free_port()?;
    let open = free_port()?;
    let closed = free_port()?;
    let hosts = ["app.example.org", "*.wild.example.org"];
    let ports = [strict, own, lax, open, closed];
    let listeners: Vec<Value> = ports
        .iter()
        .flat_map(|port| {
            hosts
                .iter()
                .enumerate()
                .map(move |(n, host)| https(&format!("l{port}-{n}"), *port, host))
        })
        .collect();
    let frontend = json!({"default": validation("one", "AllowValidOnly"), "perPort": [
        {"port": own, "tls": validation("two", "AllowValidOnly")},
        {"port": lax, "tls": validation("one", "AllowInsecureFallback")},
        {"port": open, "tls": {}},
        {"port": closed, "tls": validation("nowhere", "AllowInsecureFallback")},
    ]});
    let mut changes = vec![
        class(),
        gateway("edge", listeners.into(), Some(frontend)),
        route("web", &["edge"], &[]),
        bundle("one", &one.pem),
        bundle("two", &two.pem),
        secret("server", "app.example.org")?,
    ];
    changes.extend(service("web", echo.address()));
    let world = World::start(changes).await?;
    let [by_one, by_two, nobody] = [
        Client::any(Some(one.client()?))?,
        Client::any(Some(two.client()?))?,
        Client::any(None)?,
    ];
    // An exact host has its certificate by SNI, and a wildcard by a fixed name: two kinds of TLS
    // contexts.
    for host in ["app.example.org", "a.wild.example.org"] {
        by_one
            .until(strict, host, Some(200))
            .await
            .with_context(|| world.envoy.log())?;
        by_two.until(own, host, Some(200)).await?;
        for (port, client, expected) in [
            (strict, &by_two, None),
            (strict, &nobody, None),
            (own, &by_one, None),
            (own, &nobody, None),
            (lax, &by_one, Some(200)),
            (lax, &by_two, Some(200)),
            (lax, &nobody, Some(200)),
            (open, &by_one, Some(200)),
            (open, &nobody, Some(200)),
            (closed, &by_one, None),
            (closed, &nobody, None),
        ] {
            let found = client.ask(port, host).await;
            let told = ports.iter().position(|other| *other == port);
            assert_eq!(
                found.as_ref().ok().copied(),
                expected,
                "{host} on port {told:?}: {found:?}"
            );
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn roots_are_replaced_without_a_listener_and_without_a_connection_lost() -> Result<()> {
    let echo = Echo::start("web").await?;
    let one = ClientCa::new("one")?;
    let two = ClientCa::new("two")?;
    let port = free_port()?;
    let listeners = json!([
        https("app", port, "app.example.org"),
        https("wild", port, "*.wild.example.org")
    ]);
    let mut changes = vec![
        class(),
        gateway(
            "edge",
            listeners,
            Some(json!({"default": validation("ca", "AllowValidOnly")})),
        ),
        route("web", &["edge"], &[]),
        bundle("ca", &one.pem),
        secret("server", "app.example.org")?,
    ];
    changes.extend(service("web", echo.address()));
    let world = World::start(changes).await?;
    let old = Some(one.client()?);
    let new = Some(two.client()?);
    let hosts = ["app.example.org", "a.wild.example.org"];
    // A session of the old certificate, for each version.
    let mut before = Vec::new();
    for version in VERSIONS {
        for host in hosts {
            let client = Client::new(old.clone(), &[version])?;
            client.until(port, host, Some(200)).await?;
            before.push((client, host));
        }
        Client::new(new.clone(), &[version])?
            .until(port, hosts[0], None)
            .await?;
    }
    let probe = Probe::https((Ipv4Addr::LOCALHOST, port).into(), "app.example.org");
    let (certificate, key) = old.clone().context("a client has a certificate")?;
    let probe = probe.client(certificate, key);
    let mut held = probe.connect().await?;
    assert_eq!(held.ask(&probe).await?.status, 200);
    let updates = world
        .envoy
        .stat("listener_manager.lds.update_success")
        .await?;

    // Both roots are trusted for a while, as operators do it; then the new one alone.
    let (delta, generation) = world.apply(vec![bundle("ca", &(one.pem.clone() + &two.pem))]);
    let touched: Vec<_> = delta.resources.keys().collect();
    assert!(
        matches!(touched[..], [ResourceKey::Secret(SecretName::Roots(_))]),
        "{touched:?}"
    );
    world.acknowledged(generation).await?;
    for host in hosts {
        Client::any(new.clone())?
            .until(port, host, Some(200))
            .await?;
        Client::any(old.clone())?
            .until(port, host, Some(200))
            .await?;
    }
    world.settle(vec![bundle("ca", &two.pem)]).await?;
    for (client, host) in before {
        // A session that was validated by other roots is not resumed.
        client.until(port, host, None).await?;
    }
    for host in hosts {
        Client::any(new.clone())?
            .until(port, host, Some(200))
            .await?;
        Client::any(old.clone())?.until(port, host, None).await?;
    }
    assert_eq!(
        world
            .envoy
            .stat("listener_manager.lds.update_success")
            .await?,
        updates,
        "no listener was sent"
    );
    assert_eq!(
        held.ask(&probe).await?.status,
        200,
        "a connection stays that was checked when it was opened"
    );

    // Without roots no client is admitted; they are restored.
    let Change::Object(ObjectChange::Put(map)) = bundle("ca", &two.pem) else {
        unreachable!("a put")
    };
    world.settle(vec![Change::delete(map.key())]).await?;
    for host in hosts {
        Client::any(new.clone())?.until(port, host, None).await?;
    }
    world.settle(vec![bundle("ca", &two.pem)]).await?;
    for host in hosts {
        Client::any(new.clone())?
            .until(port, host, Some(200))
            .await?;
        Client::any(old.clone())?.until(port, host, None).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_ended_edition_of_a_ca_hinders_nobody_in_either_order() -> Result<()> {
    let echo = Echo::start("web").await?;
    let ca = ClientCa::new("clients")?;
    let stranger = ClientCa::new("strangers")?;
    let port = free_port()?;
    let old = ca.ended_edition()?;
    let host = "app.example.org";
    let references = |names: &[&str]| {
        let all = names
            .iter()
            .map(|name| json!({"group": "", "kind": "ConfigMap", "name": name}));
        json!({"default": {"validation": {"caCertificateRefs": all.collect::<Vec<_>>()}}})
    };
    let edge = |names: &[&str]| {
        gateway(
            "edge",
            json!([https("a", port, host)]),
            Some(references(names)),
        )
    };
    let mut changes = vec![
        class(),
        edge(&["both"]),
        route("web", &["edge"], &[]),
        bundle("both", &format!("{old}{}", ca.pem)),
        bundle("old", &old),
        bundle("new", &ca.pem),
        secret("server", host)?,
    ];
    changes.extend(service("web", echo.address()));
    let world = World::start(changes).await?;
    let client = Client::any(Some(ca.client()?))?;
    let foreign = Client::any(Some(stranger.client()?))?;
    let settings = [
        ("the old one first", vec![]),
        (
            "the new one first",
            vec![bundle("both", &format!("{}{old}", ca.pem))],
        ),
        (
            "two objects, the old one first",
            vec![edge(&["old", "new"])],
        ),
        (
            "two objects, the new one first",
            vec![edge(&["new", "old"])],
        ),
    ];
    for (what, changes) in settings {
        world.settle(changes).await?;
        client
            .until(port, host, Some(200))
            .await
            .with_context(|| format!("{what}\n{}", world.envoy.log()))?;
        ensure!(
            foreign.ask(port, host).await.is_err(),
            "{what}: strangers stay out"
        );
    }
    // Of ended editions alone nobody is let in.
    world.settle(vec![edge(&["old"])]).await?;
    client.until(port, host, None).await
}
