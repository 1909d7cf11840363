//! Headers of TrafficPolicies on a real Envoy: what backends and clients are told, that no client
//! writes it, and that a certificate which nobody verified is none.

use anyhow::{Context, Result, ensure};
use e2e::client_ca::ClientCa;
use e2e::probe::Probe;
use e2e_inside::world::{api, gatewright, object};
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::body_site::{BodySite, HOST, OTHER, forward, policy};

fn known(name: &str, kind: &str) -> Value {
    json!({"name": name, "value": {"type": kind}})
}

fn text(name: &str, text: &str) -> Value {
    json!({"name": name, "value": {"type": "Text", "text": text}})
}

/// The headers of requests that these tests look at, with their types.
const KNOWN: [(&str, &str); 8] = [
    ("x-real-ip", "ClientAddress"),
    ("x-forwarded-host", "Host"),
    ("x-forwarded-port", "Port"),
    ("x-forwarded-scheme", "Scheme"),
    ("x-correlation", "RequestID"),
    ("ssl-client-subject-dn", "ClientCertificateSubject"),
    ("x-fingerprint", "ClientCertificateFingerprint"),
    ("ssl-client-cert", "ClientCertificate"),
];

fn headers() -> Change {
    let request: Vec<Value> = KNOWN
        .into_iter()
        .map(|(name, kind)| known(name, kind))
        .chain([text("x-text", "100%REQ(cookie)% %START_TIME%")])
        .collect();
    let response = json!([
        text("strict-transport-security", "max-age=31536000"),
        known("x-asked", "Host"),
        text("server", "edge"),
    ]);
    policy(
        "app",
        "headers",
        json!({"request": request, "response": response}),
    )
}

async fn start() -> Result<BodySite> {
    let closed = json!({"name": "closed", "matches": [{"path": {"value": "/closed"}}],
        "backendRefs": [{"name": "web", "port": 80}]});
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "app",
        "sectionName": "closed"});
    let access = gatewright(
        "AccessPolicy",
        "closed",
        json!({"targetRefs": [target], "clientAddress": {"allow": ["192.0.2.0/24"]}}),
    );
    let rules = json!([closed, forward()]);
    BodySite::start(rules, vec![access, headers()]).await
}

/// A request in which the client has written all of them.
fn forged(probe: Probe) -> Probe {
    let names = KNOWN.map(|(name, _)| name);
    names
        .into_iter()
        .chain(["x-text"])
        .fold(probe, |probe, name| probe.header(name, "forged"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn backends_are_told_what_envoy_knows_and_not_what_clients_write() -> Result<()> {
    let site = start().await?;
    for (way, probe) in site.each(HOST, "/").into_iter().enumerate() {
        let port = [&site.http, &site.https][way.min(1)].port();
        for probe in [probe.clone(), forged(probe)] {
            let answer = site.send(&probe).await?;
            ensure!(answer.status == 200, "{answer:?}");
            let headers = answer.echoed("headers")?;
            let host = answer.echoed("host")?;
            ensure!(headers["x-real-ip"] == json!(["127.0.0.1"]), "{headers}");
            ensure!(headers["x-forwarded-host"] == json!([host]), "{headers}");
            let port = port.to_string();
            ensure!(headers["x-forwarded-port"] == json!([port]), "{headers}");
            let scheme = ["http", "https"][way.min(1)];
            ensure!(
                headers["x-forwarded-scheme"] == json!([scheme]),
                "{headers}"
            );
            let id = headers["x-correlation"][0].as_str().unwrap_or_default();
            ensure!(id.len() == 36, "an ID of a request: {headers}");
            let literal = json!(["100%REQ(cookie)% %START_TIME%"]);
            ensure!(headers["x-text"] == literal, "{headers}");
            for (name, kind) in KNOWN {
                if kind.starts_with("ClientCertificate") {
                    ensure!(headers[name].is_null(), "{name} without one: {headers}");
                }
            }
            ensure!(answer.header("x-asked") == host.as_str(), "{answer:?}");
            ensure!(answer.header("server") == Some("edge"), "{answer:?}");
        }
    }
    // Responses that no backend gives have them as well.
    for probe in site.each(HOST, "/closed") {
        let answer = site.send(&probe).await?;
        ensure!(answer.status == 403, "{answer:?}");
        let found = answer.header("strict-transport-security");
        ensure!(found == Some("max-age=31536000"), "{answer:?}");
    }
    for probe in site.each(OTHER, "/") {
        let answer = site.send(&forged(probe)).await?;
        let headers = answer.echoed("headers")?;
        ensure!(headers["x-text"] == json!(["forged"]), "{headers}");
        ensure!(answer.header("x-asked").is_none(), "{answer:?}");
    }
    Ok(())
}

/// The Gateway of the site, which asks clients for certificates of these roots.
fn asking(site: &BodySite, mode: &str) -> Change {
    let [http, https] = [site.http, site.https].map(|at| at.port());
    let listeners = json!([{"name": "http", "port": http, "protocol": "HTTP"},
        {"name": "https", "port": https, "protocol": "HTTPS", "hostname": "*.example.org",
            "tls": {"certificateRefs": [{"name": "app"}]}}]);
    let roots = json!([{"group": "", "kind": "ConfigMap", "name": "roots"}]);
    let validation = json!({"mode": mode, "caCertificateRefs": roots});
    let spec = json!({"gatewayClassName": "ours", "listeners": listeners,
        "tls": {"frontend": {"default": {"validation": validation}}}});
    api("Gateway", "edge", spec)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_certificate_is_told_where_it_was_verified_and_nowhere_else() -> Result<()> {
    let site = start().await?;
    let [ours, strangers] = [ClientCa::new("ours")?, ClientCa::new("strangers")?];
    let roots = object(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "roots"}, "data": {"ca.crt": ours.pem}}));
    site.world
        .settle(vec![roots, asking(&site, "AllowValidOnly")])
        .await?;
    let (certificate, key) = ours.client()?;
    let digest = Sha256::digest(&certificate);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    for alpn in ["http/1.1", "h2"] {
        let probe = forged(Probe::https(site.https, HOST)).alpn(&[alpn]);
        let answer = site
            .send(&probe.client(certificate.clone(), key.clone()))
            .await?;
        let headers = answer.echoed("headers")?;
        let subject = json!(["CN=a client"]);
        ensure!(headers["ssl-client-subject-dn"] == subject, "{headers}");
        ensure!(headers["x-fingerprint"] == json!([digest]), "{headers}");
        let pem = headers["ssl-client-cert"][0].as_str().context("a text")?;
        ensure!(pem.starts_with("-----BEGIN%20CERTIFICATE-----%0A"), "{pem}");
    }
    // Anybody can make a certificate that nobody verifies.
    site.world
        .settle(vec![asking(&site, "AllowInsecureFallback")])
        .await?;
    for ca in [&ours, &strangers] {
        let (certificate, key) = ca.client()?;
        let probe = forged(Probe::https(site.https, HOST)).client(certificate, key);
        let headers = site.send(&probe).await?.echoed("headers")?;
        for (name, kind) in KNOWN {
            let is_certificate = kind.starts_with("ClientCertificate");
            ensure!(
                headers[name].is_null() == is_certificate,
                "{name}: {headers}"
            );
        }
    }
    site.world
        .settle(vec![asking(&site, "AllowValidOnly")])
        .await?;
    let probe = Probe::https(site.https, HOST).client(certificate, key);
    let headers = site.send(&probe).await?.echoed("headers")?;
    ensure!(headers["x-fingerprint"] == json!([digest]), "{headers}");
    // Plain HTTP has none, whatever a client writes.
    let headers = site.send(&forged(Probe::http(site.http, HOST))).await?;
    let headers = headers.echoed("headers")?;
    ensure!(headers["x-fingerprint"].is_null(), "{headers}");
    Ok(())
}
