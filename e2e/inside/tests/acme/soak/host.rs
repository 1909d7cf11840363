//! A host of the soak: its manifests, and what is expected of its answers.

use std::net::SocketAddr;
use std::sync::Mutex;

use e2e::probe::{Answer, Connection, Peer, Probe};
use e2e::tls_backend::Pair;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};

/// The names of the backends. A version of a route leads to one of them.
pub(super) const BACKENDS: [&str; 3] = ["red", "green", "blue"];

/// Where the certificate of a host is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A Secret in the manifests.
    Secret,
    /// Pebble.
    Acme,
}

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// Returns them by turns.
    pub(super) fn of(number: usize) -> Self {
        if number.is_multiple_of(2) {
            Self::Http1
        } else {
            Self::Http2
        }
    }

    /// Returns its name in ALPN.
    fn alpn(self) -> &'static str {
        match self {
            Self::Http1 => "http/1.1",
            Self::Http2 => "h2",
        }
    }
}

/// The answers that are right.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// The versions of the route: two while it is changed.
    pub(super) versions: Vec<u64>,
    /// The certificates: two while it is rotated. Without any, each one of the CA is right.
    pub(super) leaves: Vec<CertificateDer<'static>>,
}

impl Expected {
    /// What either of two allows: a request may take effect at any time between its start and its
    /// end.
    fn or(mut self, other: &Self) -> Self {
        if self.leaves.is_empty() || other.leaves.is_empty() {
            self.leaves.clear();
        } else {
            self.leaves.extend(other.leaves.iter().cloned());
        }
        self.versions.extend(&other.versions);
        self
    }
}

/// A host, as its clients know it.
pub(super) struct Host {
    /// The hostname.
    pub(super) name: String,
    /// Where its certificate is from.
    pub(super) source: Source,
    probe: Probe,
    expected: Mutex<Expected>,
}

/// The content of a host's manifests that changes.
pub(super) struct Manifest<'a> {
    /// The version of the route.
    pub(super) version: u64,
    /// The certificate and its key; None for one of Pebble's.
    pub(super) pair: Option<&'a Pair>,
    /// The port of the listener.
    pub(super) port: u16,
    /// The port of the version's backend.
    pub(super) backend: u16,
}

/// An answer that was right.
pub(super) struct Right {
    /// The answer.
    pub(super) answer: Answer,
    /// The certificate of its connection.
    pub(super) leaf: CertificateDer<'static>,
    /// The connection, unless it accepts no more requests.
    pub(super) connection: Option<Connection>,
    /// True if the connection was opened for this request.
    pub(super) is_new: bool,
}

impl Host {
    /// A host whose answers are expected to have version 0 and a certificate of these roots.
    pub(super) fn new(
        name: &str,
        source: Source,
        address: SocketAddr,
        roots: RootCertStore,
        leaf: Option<CertificateDer<'static>>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            source,
            probe: Probe::https(address, name).roots(roots),
            expected: Mutex::new(Expected {
                versions: vec![0],
                leaves: leaf.into_iter().collect(),
            }),
        }
    }

    /// Returns the name of its objects and of its file.
    pub(super) fn object(&self) -> String {
        self.name.replace('.', "-")
    }

    /// Returns its manifests. Each version of the route has a Service of its own.
    pub(super) fn manifests(&self, manifest: &Manifest<'_>) -> String {
        let name = self.object();
        let Manifest {
            version,
            pair,
            port,
            backend,
        } = *manifest;
        let service = format!("{name}-{version}");
        let tls = match self.source {
            Source::Secret => json!({"certificateRefs": [{"name": name}]}),
            Source::Acme => json!({"options": {"gatewright.io/issuer": "acme"}}),
        };
        let listener = json!({"name": "https", "hostname": self.name, "protocol": "HTTPS", "port": port, "tls": tls});
        let filter = json!({"type": "ResponseHeaderModifier",
            "responseHeaderModifier": {"set": [{"name": "x-version", "value": version.to_string()}]}});
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": service},
                "spec": {"ports": [{"port": 80}]}}),
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
                "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": backend}]}),
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet", "metadata": {"name": name},
                "spec": {"parentRef": {"name": "edge"}, "listeners": [listener]}}),
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name},
                "spec": {"parentRefs": [{"kind": "ListenerSet", "name": name}],
                    "rules": [{"filters": [filter], "backendRefs": [{"name": service, "port": 80}]}]}}),
        ];
        objects.extend(pair.map(|pair| {
            json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": name},
                "stringData": {"tls.crt": pair.certificate.pem(), "tls.key": pair.key.serialize_pem()}})
        }));
        let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
        objects.join("\n---\n") + "\n"
    }

    /// Returns the answers that are right at present.
    fn expected(&self) -> Expected {
        self.expected
            .lock()
            .expect("nobody panics while holding it")
            .clone()
    }

    /// Changes the answers that are right.
    pub(super) fn expect(&self, change: impl FnOnce(&mut Expected)) {
        change(
            &mut self
                .expected
                .lock()
                .expect("nobody panics while holding it"),
        );
    }

    /// Sends a request, over this connection if it accepts one more.
    ///
    /// # Errors
    /// When there is no answer, or a wrong one.
    pub(super) async fn ask(
        &self,
        protocol: Protocol,
        connection: Option<Connection>,
    ) -> Result<Right, String> {
        let probe = self.probe.clone().alpn(&[protocol.alpn()]);
        let before = self.expected();
        let mut open = None;
        if let Some(mut connection) = connection
            && connection.takes_more().await
        {
            open = Some(connection);
        }
        let is_new = open.is_none();
        let mut connection = match open {
            Some(open) => open,
            None => {
                let connected = probe.connect().await;
                let connected = connected.map_err(|failure| failure.to_string())?;
                let expected = before.clone().or(&self.expected());
                right_peer(connected.peer(), protocol, &expected)?;
                connected
            }
        };
        let answer = connection.ask(&probe).await;
        let answer = answer.map_err(|failure| failure.to_string())?;
        right_answer(&answer, &before.or(&self.expected()))?;
        let leaf = leaf(answer.peer.as_ref())?;
        let is_last = answer
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        Ok(Right {
            leaf,
            connection: (!is_last).then_some(connection),
            answer,
            is_new,
        })
    }
}

/// Returns the version of an answer.
pub(super) fn version(answer: &Answer) -> Option<u64> {
    answer.header("x-version")?.parse().ok()
}

fn leaf(peer: Option<&Peer>) -> Result<CertificateDer<'static>, String> {
    let leaf = peer.and_then(|peer| peer.chain.first());
    leaf.cloned().ok_or_else(|| "no certificate".to_owned())
}

/// Judges a handshake. The client has verified the chain and the name.
fn right_peer(peer: Option<&Peer>, protocol: Protocol, expected: &Expected) -> Result<(), String> {
    let leaf = leaf(peer)?;
    if !expected.leaves.is_empty() && !expected.leaves.contains(&leaf) {
        return Err("another certificate of the same host".to_owned());
    }
    match peer.and_then(|peer| peer.alpn.as_deref()) {
        Some(alpn) if alpn == protocol.alpn() => Ok(()),
        other => Err(format!("{other:?} instead of {}", protocol.alpn())),
    }
}

/// Judges an answer by its status, the version of the route and the backend.
fn right_answer(answer: &Answer, expected: &Expected) -> Result<(), String> {
    if answer.status != 200 {
        return Err(format!("answered {}: {:?}", answer.status, answer.headers));
    }
    let version = version(answer).ok_or("an answer without a version")?;
    if !expected.versions.contains(&version) {
        let right = &expected.versions;
        return Err(format!("version {version} instead of {right:?}"));
    }
    let backend = answer.echoed("name").map_err(|error| error.to_string())?;
    let right = backend_of(version);
    if backend != right {
        return Err(format!("version {version} by {backend} instead of {right}"));
    }
    Ok(())
}

/// Returns the backend of a version.
fn backend_of(version: u64) -> &'static str {
    BACKENDS[index_of(version)]
}

/// Returns the number of the backend of a version.
pub(super) fn index_of(version: u64) -> usize {
    usize::try_from(version % BACKENDS.len() as u64).expect("a small number")
}
