//! Plain HTTP beside HTTPS on a real Envoy: the three ways of `docs/redirects.md`, with the
//! examples of the page.

use e2e::private_dir::private_dir;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::probe::{Answer, Probe};
use e2e_inside::world::free_port;
use hyper::Method;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// The longest wait for a state, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

const CLASS: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: gatewright}\n\
                     spec: {controllerName: gatewright.io/gateway-controller}\n---\n";

/// A running program with one example of the page.
struct Site {
    _program: Gatewright,
    _web: Echo,
    manifests: TempDir,
    _state: TempDir,
    http: u16,
    https: u16,
}

/// Returns the example in a section of the page: its YAML.
fn example(section: &str) -> Result<String> {
    let page = include_str!("../../../../docs/redirects.md");
    let (_, section) = page
        .split_once(&format!("\n## {section}\n"))
        .with_context(|| format!("section {section}"))?;
    let (_, block) = section.split_once("```yaml\n").context("an example")?;
    let (yaml, _) = block.split_once("```").context("an end")?;
    Ok(yaml.to_owned())
}

/// A Service `web` of a namespace, with one endpoint.
fn service(namespace: &str, web: &Echo) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: {namespace}}}\n\
         spec: {{ports: [{{port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: web, namespace: {namespace}, \
         labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\nendpoints: [{{addresses: [127.0.0.1]}}]\n\
         ports: [{{port: {}}}]\n",
        web.address().port()
    )
}

impl Site {
    /// Serves an example, on free ports in place of 80 and 443.
    async fn start(section: &str, namespace: &str) -> Result<Self> {
        let (http, https) = (free_port()?, free_port()?);
        let web = Echo::start("web").await?;
        let manifests = tempfile::tempdir()?;
        let state = private_dir()?;
        let yaml = example(section)?
            .replace(
                "protocol: HTTP, port: 80",
                &format!("protocol: HTTP, port: {http}"),
            )
            .replace("port: 443", &format!("port: {https}"))
            .replace(
                "{scheme: https,",
                &format!("{{scheme: https, port: {https},"),
            );
        let all = CLASS.to_owned() + &yaml + &service(namespace, &web);
        fs::write(manifests.path().join("site.yaml"), all)?;
        let [plain, secure] = [("http", http), ("https", https)]
            .map(|(name, port)| format!("tenancy.{name}Port={port}"));
        let options = ["--set", &plain, "--set", &secure];
        let program = Gatewright::standalone(manifests.path(), state.path(), &options)?;
        Ok(Self {
            _program: program,
            _web: web,
            manifests,
            _state: state,
            http,
            https,
        })
    }

    fn plain(&self, host: &str) -> Probe {
        Probe::http(SocketAddr::from((Ipv4Addr::LOCALHOST, self.http)), host)
    }

    fn secure(&self, host: &str) -> Probe {
        Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, self.https)), host)
    }

    /// Checks that a host is served on HTTPS and redirected there on plain HTTP.
    async fn is_redirected(&self, host: &str) -> Result<()> {
        until(&self.secure(host), 200).await?;
        let answer = until(&self.plain(host).path("/cart?id=7"), 301).await?;
        let expected = format!("https://{host}:{}/cart?id=7", self.https);
        ensure!(location(&answer) == expected, "{}", location(&answer));
        Ok(())
    }

    /// Changes the manifests.
    fn edit(&self, from: &str, to: &str) -> Result<()> {
        let file = self.manifests.path().join("site.yaml");
        let text = fs::read_to_string(&file)?;
        ensure!(text.contains(from), "{from} is not in {text}");
        let new = self.manifests.path().join(".new");
        fs::write(&new, text.replace(from, to))?;
        fs::rename(new, file).context("renaming into place")
    }
}

/// Waits until a request is answered with a status, and returns the answer.
async fn until(probe: &Probe, status: u16) -> Result<Answer> {
    let end = Instant::now() + LIMIT;
    loop {
        let found = match probe.send().await {
            Ok(answer) if answer.status == status => return Ok(answer),
            Ok(answer) => answer.status.to_string(),
            Err(failure) => failure.to_string(),
        };
        ensure!(
            Instant::now() < end,
            "{probe:?} has {found}, and not {status}"
        );
        sleep(Duration::from_millis(20)).await;
    }
}

fn location(answer: &Answer) -> &str {
    let value = answer.headers.get("location");
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn plain_http_is_redirected_where_the_parameters_say_so() -> Result<()> {
    let site = Site::start("`plainHttp: Redirect`", "shop").await?;
    site.is_redirected("shop.example.org").await?;
    let post = site
        .plain("shop.example.org")
        .method(Method::POST)
        .send()
        .await?;
    ensure!(post.status == 301, "a POST has {}", post.status);
    for written in ["SHOP.example.org", "shop.example.org:80"] {
        let answer = until(&site.plain(written), 301).await?;
        let expected = format!("https://shop.example.org:{}/", site.https);
        ensure!(
            location(&answer).eq_ignore_ascii_case(&expected),
            "{written}: {}",
            location(&answer)
        );
    }
    until(&site.plain("status.example.org"), 200).await?;
    until(&site.plain("other.example.org"), 404).await?;
    let challenge = site
        .plain("shop.example.org")
        .path("/.well-known/acme-challenge/token");
    until(&challenge, 301).await?;
    site.edit(
        "rules: [{backendRefs: [{name: web, port: 80}]}]",
        "rules:\n  \
         - matches: [{path: {type: Exact, value: /.well-known/acme-challenge/token}}]\n    \
         backendRefs: [{name: web, port: 80}]\n  \
         - matches: [{path: {value: /old}}]\n    \
         filters: [{type: RequestRedirect, requestRedirect: {hostname: new.example.org, statusCode: 302}}]\n  \
         - backendRefs: [{name: web, port: 80}]",
    )?;
    until(&challenge, 200).await?;
    let old = until(&site.plain("shop.example.org").path("/old"), 302).await?;
    ensure!(
        location(&old) == format!("http://new.example.org:{}/old", site.http),
        "{}",
        location(&old)
    );
    until(&site.plain("shop.example.org").path("/older"), 301).await?;
    site.edit("plainHttp: Redirect", "plainHttp: Serve")?;
    until(&site.plain("shop.example.org"), 200).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn plain_http_is_redirected_by_a_route() -> Result<()> {
    let site = Site::start("A redirect HTTPRoute", "shop").await?;
    site.is_redirected("shop.example.org").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_tenant_gateway_redirects_plain_http() -> Result<()> {
    let site = Site::start("TenantGateways", "tenant-shop").await?;
    site.is_redirected("web.shop.example.org").await
}
