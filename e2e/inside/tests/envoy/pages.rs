//! Commands of pages of `docs/` that presuppose a served directory, or a CA of the reader's own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::pebble::server_certificate;
use e2e::walkthrough::{Place, follow, follow_pages};

const HOST: &str = "shop.example.org";

/// An issuer of certificates, for a listener.
fn issuer(name: &str) -> String {
    format!("options: {{gatewright.io/issuer: {name}}}")
}

/// A directory with a Gateway for these hosts, each with the settings of its certificate, and with
/// a route to a Service.
fn site(hosts: &[(&str, String)]) -> String {
    let listeners: Vec<String> = hosts
        .iter()
        .map(|(host, tls)| {
            let name = host.split('.').next().unwrap_or_default();
            format!(
                "  - {{name: {name}, protocol: HTTPS, port: 443, hostname: {host}, tls: {{{tls}}}}}"
            )
        })
        .collect();
    let listeners = listeners.join("\n");
    format!(
        "umask 022
mkdir manifests
cat >manifests/shop.yaml <<'END'
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: gatewright}}
spec: {{controllerName: gatewright.io/gateway-controller}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web}}
spec:
  gatewayClassName: gatewright
  listeners:
{listeners}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: shop}}
spec:
  parentRefs: [{{name: web}}]
  rules: [{{backendRefs: [{{name: shop, port: 80}}]}}]
---
apiVersion: v1
kind: Service
metadata: {{name: shop}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: shop, labels: {{kubernetes.io/service-name: shop}}}}
addressType: IPv4
endpoints: [{{addresses: [127.0.0.1]}}]
ports: [{{name: http, port: 8000}}]
END
export HOME=$PWD
"
    )
}

/// A directory with the programs of these names, for `PATH`.
fn programs(tools: &[&str]) -> Result<tempfile::TempDir> {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let programs = tempfile::Builder::new().prefix("programs").tempdir()?;
    let mut all = vec![("gatewright", e2e::gatewright::binary()?)];
    for tool in tools {
        let path = root.join(".tools").join(tool);
        ensure!(
            path.exists(),
            "no {tool} at {}; run: e2e/tools install envoy pebble",
            path.display()
        );
        all.push((tool, path));
    }
    for (name, program) in all {
        std::os::unix::fs::symlink(program.canonicalize()?, programs.path().join(name))
            .context(name.to_owned())?;
    }
    Ok(programs)
}

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

#[test]
#[ignore = "needs Envoy, Pebble, curl, and root or user namespaces: e2e/tools install envoy pebble"]
fn certificates_of_a_ca_of_ones_own_are_as_their_page_says() -> Result<()> {
    const MAC: &str = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let programs = programs(&["envoy", "pebble", "pebble-challtestsrv"])?;
    let dir = tempfile::Builder::new().prefix("page").tempdir()?;
    std::fs::write(
        dir.path().join("corp-root.pem"),
        server_certificate(dir.path())?,
    )?;
    std::fs::write(dir.path().join("hmac"), MAC)?;
    let config = serde_json::json!({"pebble": {
        "listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000",
        "certificate": dir.path().join("server.pem"), "privateKey": dir.path().join("server.key"),
        "httpPort": 80, "tlsPort": 443,
        "externalAccountBindingRequired": true, "externalAccountMACKeys": {"kid-1": MAC},
        "profiles": {"default": {"description": "ninety days", "validityPeriod": 90 * 86400}}}});
    std::fs::write(dir.path().join("pebble.json"), config.to_string())?;
    let ca = "pebble-challtestsrv -management 127.0.0.1:8055 -dnsserver 127.0.0.1:8053 -http01 '' -https01 '' \
              -tlsalpn01 '' -doh '' -defaultIPv4 127.0.0.1 -defaultIPv6 '' >dns.log 2>&1 &
GOMAXPROCS=1 PEBBLE_VA_NOSLEEP=1 pebble -config pebble.json -dnsserver 127.0.0.1:8053 >pebble.log 2>&1 &
until curl --silent --fail --cacert corp-root.pem https://localhost:14000/dir >dir.json; do sleep 0.1; done";
    let place = Place {
        dir: dir.path().to_owned(),
        path: vec![programs.path().to_owned()],
        alone: true,
        before: site(&[
            (HOST, issuer("acme")),
            ("in.example.org", issuer("internal-ca")),
        ]) + ca,
        // The page's CA is one of the reader's company.
        replaced: vec![(
            "https://ca.corp.internal/acme/directory",
            "https://localhost:14000/dir".to_owned(),
        )],
        // It ends with 0 when every host has a certificate.
        ready: "gatewright certs >certs.txt 2>&1".to_owned(),
        ..Place::default()
    };
    follow_pages(
        &[page("certificates.md"), page("certificates-failures.md")],
        &place,
    )
}

#[test]
#[ignore = "needs Envoy, jq, and root or user namespaces: e2e/tools install envoy"]
fn events_are_selected_as_the_page_says() -> Result<()> {
    let programs = programs(&["envoy"])?;
    let dir = tempfile::Builder::new().prefix("page").tempdir()?;
    let break_route = "sed -i '/backendRefs/s/port: 80/port: 81/' manifests/shop.yaml";
    let place = Place {
        dir: dir.path().to_owned(),
        path: vec![programs.path().to_owned()],
        alone: true,
        before: site(&[(HOST, issuer("internal-ca"))]) + break_route,
        ready: "grep -q BackendNotFound \"$output\"".to_owned(),
        ..Place::default()
    };
    follow(&page("logging.md"), &place)
}

/// Runs a page beside the program, which serves a directory.
fn served(name: &str) -> Result<()> {
    let programs = programs(&["envoy"])?;
    let dir = tempfile::Builder::new().prefix("page").tempdir()?;
    let serve = "gatewright standalone manifests >gatewright.log 2>&1 &
until gatewright explain https://shop.example.org/ >explain.txt 2>&1; do kill -0 $!; sleep 0.1; done";
    let place = Place {
        dir: dir.path().to_owned(),
        path: vec![programs.path().to_owned()],
        alone: true,
        before: site(&[(HOST, issuer("internal-ca"))]) + serve,
        ..Place::default()
    };
    follow(&page(name), &place)
}

#[test]
#[ignore = "needs Envoy, openssl, and root or user namespaces: e2e/tools install envoy"]
fn commands_are_those_of_the_readme() -> Result<()> {
    let programs = programs(&["envoy"])?;
    let dir = tempfile::Builder::new().prefix("page").tempdir()?;
    // `translate` ends with 1 while a certificate is missing, and it issues none.
    let certificate =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout shop.key -out shop.crt \
                       -days 30 -subj /CN=shop -addext subjectAltName=DNS:shop.example.org 2>openssl.txt
cat >manifests/secret.yaml <<END
apiVersion: v1
kind: Secret
metadata: {name: shop-tls}
type: kubernetes.io/tls
data: {tls.crt: $(base64 --wrap=0 shop.crt), tls.key: $(base64 --wrap=0 shop.key)}
END";
    let place = Place {
        dir: dir.path().to_owned(),
        path: vec![programs.path().to_owned()],
        alone: true,
        before: site(&[(HOST, "certificateRefs: [{name: shop-tls}]".to_owned())]) + certificate,
        replaced: vec![
            ("https://HOST/PATH", "https://shop.example.org/".to_owned()),
            ("DIR", "manifests".to_owned()),
        ],
        ready: "gatewright explain https://shop.example.org/ >explain.txt 2>&1".to_owned(),
        ..Place::default()
    };
    follow(&page("../README.md"), &place)
}

#[test]
#[ignore = "needs Envoy, curl, and root or user namespaces: e2e/tools install envoy"]
fn metrics_are_where_the_page_says() -> Result<()> {
    served("standalone.md")
}

#[test]
#[ignore = "needs Envoy, curl, and root or user namespaces: e2e/tools install envoy"]
fn a_request_is_explained_as_the_page_says() -> Result<()> {
    served("troubleshooting.md")
}
