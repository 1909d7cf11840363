//! `gatewright ui` beside the program with a directory and a real Envoy, in a real browser: what
//! the page shows, and as it changes.

mod accessible;
mod crowd;
mod hostile;
mod pictures;
mod refused;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::port::free_port;
use e2e::private_dir::private_dir;
use e2e::probe::Probe;
use e2e::ui::{DOWN, ENTER, ESCAPE, Ui};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A host that is served.
const SHOP: &str = "shop.example.org";
/// A host whose Service does not exist.
const BROKEN: &str = "broken.example.org";
/// A secret that no response may have.
const CANARY: &str = "canary-of-a-secret";
/// The digest of a password, which no response may have either.
const DIGEST: &str = "W6ph5Mm5Pz8GgiULbPgzG37mj9g=";

/// The program with hosts of two namespaces.
struct Site {
    program: Gatewright,
    manifests: TempDir,
    state: TempDir,
    https: u16,
    _echo: Echo,
}

fn object(api: &str, kind: &str, (namespace, name): (&str, &str), body: Value) -> Value {
    let mut object = json!({"apiVersion": api, "kind": kind,
        "metadata": {"namespace": namespace, "name": name}});
    let fields = object.as_object_mut().expect("an object");
    fields.extend(body.as_object().expect("fields").clone());
    object
}

fn gateway_api(kind: &str, name: (&str, &str), spec: Value) -> Value {
    let spec = json!({"spec": spec});
    object("gateway.networking.k8s.io/v1", kind, name, spec)
}

fn route(namespace: &str, host: &str, service: &str) -> Value {
    let name = host.split('.').next().unwrap_or_default();
    let backends = json!([{"name": service, "port": 80}]);
    gateway_api(
        "HTTPRoute",
        (namespace, name),
        json!({"parentRefs": [{"name": "edge", "namespace": "platform", "sectionName": "https"}],
            "hostnames": [host], "rules": [{"backendRefs": backends}]}),
    )
}

/// A Service with an endpoint.
fn service(namespace: &str, name: &str, address: SocketAddr) -> [Value; 2] {
    let endpoints = json!([{"addresses": [address.ip()]}]);
    let slice = json!({"addressType": "IPv4", "endpoints": endpoints,
        "ports": [{"port": address.port()}]});
    let mut slice = object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        (namespace, name),
        slice,
    );
    slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": name});
    let spec = json!({"spec": {"ports": [{"port": 80}]}});
    [object("v1", "Service", (namespace, name), spec), slice]
}

/// Users of a host, whose passwords nobody may see.
fn users() -> Vec<Value> {
    let secret = json!({"type": "gatewright.io/htpasswd",
        "stringData": {".htpasswd": format!("ann:{{SHA}}{DIGEST}")}});
    let spec = json!({"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute",
        "name": "private"}], "basicAuth": {"users": {"name": "users"}}});
    vec![
        object("v1", "Secret", ("blue", "users"), secret),
        object(
            "gatewright.io/v1alpha1",
            "AccessPolicy",
            ("blue", "staff"),
            json!({"spec": spec}),
        ),
    ]
}

impl Site {
    /// Starts the program with hosts, and more objects.
    async fn start(more: Vec<Value>) -> Result<Self> {
        let echo = Echo::start("web").await?;
        let https = free_port()?;
        let manifests = tempfile::tempdir()?;
        let state = private_dir()?;
        let listener = json!({"name": "https", "hostname": "*.example.org", "protocol": "HTTPS",
            "port": https, "tls": {"options": {"gatewright.io/issuer": "internal-ca"}},
            "allowedRoutes": {"namespaces": {"from": "All"}}});
        let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "ours"},
            "spec": {"controllerName": "gatewright.io/gateway-controller"}});
        let gateway = json!({"gatewayClassName": "ours", "listeners": [listener]});
        let limit = json!({"targetRefs": [{"group": "gateway.networking.k8s.io",
            "kind": "HTTPRoute", "name": "shop"}], "requestBody": {"maxBytes": 1048576}});
        let mut objects = vec![
            class,
            gateway_api("Gateway", ("platform", "edge"), gateway),
            route("shop", SHOP, "web"),
            route("shop", BROKEN, "missing"),
            route("blue", "blue.example.org", "web"),
            object(
                "gatewright.io/v1alpha1",
                "TrafficPolicy",
                ("shop", "limit"),
                json!({"spec": limit}),
            ),
        ];
        for namespace in ["shop", "blue"] {
            objects.extend(service(namespace, "web", echo.address()));
        }
        objects.extend(more);
        save(&manifests, "site.yaml", &objects)?;
        let mut program = Gatewright::standalone(manifests.path(), state.path(), &[])?;
        program.line("secret platform/").await?;
        Ok(Self {
            program,
            manifests,
            state,
            https,
            _echo: echo,
        })
    }

    /// Starts `gatewright ui` for it.
    async fn ui(&self) -> Result<Ui> {
        let state = self.state.path().display().to_string();
        Ui::start(&["--state-dir", &state]).await
    }

    fn probe(&self, host: &str) -> Probe {
        Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, self.https)), host)
    }
}

/// Writes objects into a file of a directory, at once.
fn save(manifests: &TempDir, name: &str, objects: &[Value]) -> Result<()> {
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    let new = manifests.path().join(format!(".{name}.new"));
    fs::write(&new, text.join("\n---\n"))?;
    fs::rename(new, manifests.path().join(name)).context("renaming into place")
}

#[tokio::test]
#[ignore = "needs Envoy and Chromium: e2e/tools install"]
async fn the_page_shows_what_is_wrong_first_and_as_it_changes() -> Result<()> {
    let site = Site::start(Vec::new()).await?;
    site.probe(SHOP).answered(200).await?;
    site.probe(BROKEN)
        .path("/cart?secret=1")
        .answered(500)
        .await?;
    let ui = site.ui().await?;
    let page = ui.page().await?;
    page.until_row(BROKEN, "failing").await?;
    let hosts = page.listed().await?;
    assert_eq!(
        hosts,
        [BROKEN, "blue.example.org", SHOP],
        "the worst is first"
    );

    // A host by keys alone.
    page.browser.press("/").await?;
    page.browser.press("broken").await?;
    page.until_text("1 of 3 hosts").await?;
    page.browser.press(&[DOWN, ENTER].concat()).await?;
    page.until_text("Steps of a request").await?;
    let failing = "document.querySelector('.chain .fails')";
    page.browser.until(failing).await?;
    page.until_text("BackendNotFound").await?;
    page.until_text("GET /cart").await?;
    let text = page.browser.text().await?;
    assert!(!text.contains("secret=1"), "no query is shown: {text}");
    page.until_text("httproute shop/broken").await?;

    // It is repaired, and the page follows.
    let echo = Echo::start("repaired").await?;
    save(
        &site.manifests,
        "more.yaml",
        &service("shop", "missing", echo.address()),
    )?;
    page.browser.until(&format!("!{failing}")).await?;
    page.browser
        .until("document.querySelector('.state.ok')")
        .await?;
    page.browser.press(ESCAPE).await?;
    page.browser.until("location.hash === '#/hosts'").await?;
    page.browser
        .run(
            "document.querySelector('input').value = ''; \
              document.querySelector('input').dispatchEvent(new Event('input'))",
            &[],
        )
        .await?;
    page.until_row(BROKEN, "ok").await?;
    save(
        &site.manifests,
        "new.yaml",
        &[route("blue", "new.example.org", "web")],
    )?;
    page.until_row("new.example.org", "ok").await?;
    fs::remove_file(site.manifests.path().join("new.yaml"))?;
    page.until_text("3 hosts").await?;

    page.go("certificates").await?;
    page.until_text("internal-ca").await?;
    page.browser
        .until("document.querySelector('.months button')")
        .await?;
    page.go("owners").await?;
    page.until_text("blue").await?;
    page.go("policies").await?;
    page.until_text("trafficpolicy shop/limit").await?;
    page.until_text(SHOP).await?;
    page.go("envoys").await?;
    page.browser
        .until("document.querySelector('main .state.ok')")
        .await?;
    page.go("objects").await?;
    page.until_text("objects are OK").await
}

#[tokio::test]
#[ignore = "needs Envoy and Chromium: e2e/tools install"]
async fn the_page_tells_that_the_program_does_not_answer_and_goes_on_later() -> Result<()> {
    let mut site = Site::start(Vec::new()).await?;
    let ui = site.ui().await?;
    let page = ui.page().await?;
    page.until_row(BROKEN, "failing").await?;
    site.program.signal("TERM")?;
    site.program.end().await?;
    let trouble = "document.getElementById('trouble')";
    page.browser.until(&format!("!{trouble}.hidden")).await?;
    page.until_row(BROKEN, "failing").await?;
    save(
        &site.manifests,
        "new.yaml",
        &[route("blue", "new.example.org", "web")],
    )?;
    site.program = Gatewright::standalone(site.manifests.path(), site.state.path(), &[])?;
    page.until_row("new.example.org", "ok").await?;
    page.browser.until(&format!("{trouble}.hidden")).await
}
