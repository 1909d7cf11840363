//! `standalone DIR --once` on a real Envoy: its exit status says whether the directory is served.

use e2e::private_dir::private_dir;
use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use e2e::client_ca::ClientCa;
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::tls_backend::{Pair, TestRoot, TlsBackend};
use e2e_inside::world::free_port;
use serde_json::{Value, json};

const GATEWAY_API: &str = "gateway.networking.k8s.io/v1";

/// A Service with one endpoint.
fn backend(name: &str, at: SocketAddr) -> [Value; 2] {
    let labels = json!({"kubernetes.io/service-name": name});
    [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": name, "labels": labels},
            "addressType": "IPv4", "endpoints": [{"addresses": [at.ip()]}], "ports": [{"port": at.port()}]}),
    ]
}

fn route(kind: &str, name: &str, service: &str) -> Value {
    json!({"apiVersion": GATEWAY_API, "kind": kind, "metadata": {"name": name},
        "spec": {"parentRefs": [{"name": "edge"}], "hostnames": [format!("{name}.example.org")],
            "rules": [{"backendRefs": [{"name": service, "port": 80}]}]}})
}

/// A Gateway whose host `own` has this certificate; `vault` is passed through, `clients` requires
/// client certificates.
fn site(own: &Pair, clients: &ClientCa, web: SocketAddr, vault: SocketAddr) -> Result<Vec<Value>> {
    let port = free_port()?;
    let mutual = free_port()?;
    let internal_ca = json!({"options": {"gatewright.io/issuer": "internal-ca"}});
    let listener = |name: &str, protocol: &str, port: u16, tls: Value| json!({"name": name, "hostname": format!("{name}.example.org"), "protocol": protocol, "port": port, "tls": tls});
    let listeners = [
        listener(
            "own",
            "HTTPS",
            port,
            json!({"certificateRefs": [{"name": "own"}]}),
        ),
        listener("vault", "TLS", port, json!({"mode": "Passthrough"})),
        listener("clients", "HTTPS", mutual, internal_ca),
    ];
    let validation =
        json!({"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "clients"}]});
    let frontend =
        json!({"default": {}, "perPort": [{"port": mutual, "tls": {"validation": validation}}]});
    let own = json!({"tls.crt": own.certificate.pem(), "tls.key": own.key.serialize_pem()});
    let mut all = vec![
        json!({"apiVersion": GATEWAY_API, "kind": "GatewayClass", "metadata": {"name": "ours"},
            "spec": {"controllerName": "gatewright.io/gateway-controller"}}),
        json!({"apiVersion": GATEWAY_API, "kind": "Gateway", "metadata": {"name": "edge"},
            "spec": {"gatewayClassName": "ours", "listeners": listeners, "tls": {"frontend": frontend}}}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "own"},
            "stringData": own}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "clients"},
            "data": {"ca.crt": clients.pem}}),
        route("HTTPRoute", "own", "web"),
        route("HTTPRoute", "clients", "web"),
        route("TLSRoute", "vault", "vault"),
    ];
    all.extend(
        backend("web", web)
            .into_iter()
            .chain(backend("vault", vault)),
    );
    Ok(all)
}

/// Returns the exit status and the output of a check of these objects.
fn check(objects: &[Value]) -> Result<(Option<i32>, String)> {
    let manifests = tempfile::tempdir()?;
    let state = private_dir()?;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    fs::write(manifests.path().join("site.json"), list.to_string())?;
    let dir = manifests.path().display().to_string();
    let private = state.path().display().to_string();
    let envoy = e2e::envoy::binary()?.canonicalize()?.display().to_string();
    let output = Gatewright::run(&[
        "standalone",
        &dir,
        "--once",
        "--state-dir",
        &private,
        "--envoy",
        &envoy,
    ])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Ok((output.status.code(), text))
}

/// Returns the line of a host in the table.
fn line<'a>(text: &'a str, host: &str) -> Result<&'a str> {
    let start = format!("https://{host}.example.org:");
    text.lines()
        .find(|line| line.starts_with(&start))
        .with_context(|| text.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn hosts_that_clients_reach_pass_whatever_this_machine_trusts() -> Result<()> {
    let echo = Echo::start("web").await?;
    let corporate = TestRoot::new("corporate")?;
    let clients = ClientCa::new("clients")?;
    let vault = TlsBackend::start(&corporate.issue("elsewhere.example.net", None)?, None).await?;
    let own = corporate.issue("own.example.org", None)?;
    let (code, text) = check(&site(&own, &clients, echo.address(), vault.address())?)?;
    assert!(line(&text, "own")?.ends_with(" 200"), "{text}");
    assert!(
        line(&text, "vault")?.ends_with(" TLS handshake, certificate not checked"),
        "{text}"
    );
    assert!(
        line(&text, "clients")?.ends_with(" client certificate required"),
        "{text}"
    );
    assert_eq!(code, Some(0), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_certificate_for_another_hostname_does_not_pass() -> Result<()> {
    let echo = Echo::start("web").await?;
    let corporate = TestRoot::new("corporate")?;
    let clients = ClientCa::new("clients")?;
    let vault = TlsBackend::start(&corporate.issue("elsewhere.example.net", None)?, None).await?;
    let own = corporate.issue("other.example.org", None)?;
    let (code, text) = check(&site(&own, &clients, echo.address(), vault.address())?)?;
    let line = line(&text, "own")?;
    assert!(line.contains("not valid for name"), "{text}");
    assert_eq!(code, Some(1), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn hosts_that_only_load_balancers_reach_are_told_and_not_asked() -> Result<()> {
    let echo = Echo::start("web").await?;
    let corporate = TestRoot::new("corporate")?;
    let clients = ClientCa::new("clients")?;
    let vault = TlsBackend::start(&corporate.issue("elsewhere.example.net", None)?, None).await?;
    let own = corporate.issue("own.example.org", None)?;
    let mut objects = site(&own, &clients, echo.address(), vault.address())?;
    let mutual = objects[1]["spec"]["listeners"][2]["port"].clone();
    let proxy = json!({"mode": "Required", "from": ["192.0.2.0/24"]});
    objects.push(json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters", "metadata": {"name": "behind"},
        "spec": {"clients": [{"ports": [mutual], "proxyProtocol": proxy}]}}));
    objects[1]["spec"]["infrastructure"] = json!({"parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters",
        "name": "behind"}});
    let (code, text) = check(&objects)?;
    assert!(
        line(&text, "clients")?.ends_with(" PROXY protocol, not checked"),
        "{text}"
    );
    assert!(line(&text, "own")?.ends_with(" 200"), "{text}");
    assert_eq!(code, Some(0), "{text}");
    Ok(())
}
