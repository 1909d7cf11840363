//! DirectResponses on a real Envoy: what clients get, over HTTP/1.1 and HTTP/2.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e::websocket::over_http2;
use e2e_inside::world::{World, class, edge, edge_route, free_port, object, secret, service};
use gatewright_core::translate::Change;
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HOST: &str = "app.example.org";
/// What Envoy would read as command operators, if it read them.
const PAGE: &str = "<h1>100 % of %REQ(:PATH)% is away</h1> %%";

fn response(name: &str, spec: Value) -> Change {
    object(
        json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "DirectResponse",
        "metadata": {"namespace": "default", "name": name}, "spec": spec}),
    )
}

fn pages(data: &Value, binary: &Value) -> Change {
    object(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "default", "name": "pages"}, "data": data, "binaryData": binary}))
}

/// A rule for a path that a DirectResponse of the same name answers.
fn rule(name: &str) -> Value {
    let reference = json!({"group": "gatewright.io", "kind": "DirectResponse", "name": name});
    json!({"matches": [{"path": {"value": format!("/{name}")}}],
        "filters": [{"type": "ExtensionRef", "extensionRef": reference}]})
}

/// An Envoy with an HTTP and an HTTPS listener, a backend and answers beside it.
struct Site {
    world: World,
    echo: Echo,
    http: SocketAddr,
    https: SocketAddr,
}

impl Site {
    async fn start() -> Result<Self> {
        let [http, https] = [free_port()?, free_port()?];
        let echo = Echo::start("web").await?;
        let listeners = json!([{"name": "http", "port": http, "protocol": "HTTP"},
            {"name": "https", "port": https, "protocol": "HTTPS", "hostname": HOST,
                "tls": {"certificateRefs": [{"name": "app"}]}}]);
        let names = [
            "sorry", "large", "icon", "empty", "robots", "gone", "cookies", "same",
        ];
        let mut rules: Vec<Value> = names.map(rule).into();
        let server = json!({"name": "nobody", "port": 80});
        let ask = json!({"type": "ExternalAuth",
            "externalAuth": {"protocol": "HTTP", "http": {}, "backendRef": server}});
        let mut guarded = rule("robots");
        guarded["matches"] = json!([{"path": {"value": "/guarded"}}]);
        guarded["filters"]
            .as_array_mut()
            .expect("filters")
            .push(ask);
        rules.push(guarded);
        rules.push(json!({"backendRefs": [{"name": "web", "port": 80}]}));
        let mut changes = vec![
            class(),
            secret("app", HOST)?,
            edge(listeners),
            edge_route("app", HOST, rules),
            response(
                "sorry",
                json!({"statusCode": 503, "contentType": "text/html; charset=utf-8",
                "headers": [{"name": "Retry-After", "value": "600"}, {"name": "X-Share", "value": "100%"}],
                "body": {"inline": PAGE}}),
            ),
            response(
                "large",
                json!({"body": {"configMapRef": {"name": "pages", "key": "large.txt"}}}),
            ),
            response(
                "icon",
                json!({"contentType": "image/x-icon",
                    "body": {"configMapRef": {"name": "pages", "key": "favicon.ico"}}}),
            ),
            response("empty", json!({"statusCode": 204})),
            response("same", json!({"statusCode": 304})),
            response("robots", json!({"body": {"inline": "User-agent: *\n"}})),
            response(
                "cookies",
                json!({"statusCode": 302, "headers": [{"name": "Location", "value": "/new"},
                    {"name": "Set-Cookie", "value": "a=1"}, {"name": "Set-Cookie", "value": "b=2"}]}),
            ),
            // An authorization server that is away.
            object(json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"namespace": "default", "name": "nobody"}, "spec": {"ports": [{"port": 80}]}})),
            pages(
                &json!({"large.txt": "x".repeat(16 * 1024)}),
                &json!({"favicon.ico": "AAEC/w=="}),
            ),
        ];
        changes.extend(service("web", echo.address()));
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self {
            world: World::start(changes).await?,
            echo,
            http: at(http),
            https: at(https),
        })
    }

    /// The same request over HTTP/1.1 in plain text, and over HTTP/1.1 and HTTP/2 with TLS.
    fn each(&self, path: &str) -> [Probe; 3] {
        let tls = Probe::https(self.https, HOST).path(path);
        [
            Probe::http(self.http, HOST).path(path),
            tls.clone().alpn(&["http/1.1"]),
            tls.alpn(&["h2"]),
        ]
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_rule_answers_with_status_headers_and_body() -> Result<()> {
    let site = Site::start().await?;
    for probe in site.each("/sorry/a") {
        let answer = probe.clone().send().await?;
        ensure!(answer.status == 503, "{probe:?}: {}", answer.status);
        ensure!(answer.body == PAGE.as_bytes(), "{:?}", answer.body);
        let kind = answer.header("content-type");
        ensure!(kind == Some("text/html; charset=utf-8"), "{kind:?}");
        let retry = answer.header("retry-after");
        ensure!(retry == Some("600"), "{retry:?}");
        let share = answer.header("x-share");
        ensure!(share == Some("100%"), "{share:?}");
        // A HEAD request gets the same headers and no body.
        let head = probe.method(Method::HEAD).send().await?;
        ensure!(head.status == 503, "{}", head.status);
        ensure!(head.body.is_empty(), "{:?}", head.body);
        let length = head.header("content-length");
        ensure!(length == Some(&*PAGE.len().to_string()), "{length:?}");
        // A request with a body is answered as well.
        let [post, ..] = site.each("/sorry");
        let post = post.method(Method::POST).body("x".repeat(100_000));
        ensure!(post.send().await?.status == 503, "a POST request");
    }
    for probe in site.each("/large") {
        let answer = probe.send().await?;
        ensure!(answer.status == 200, "{}", answer.status);
        ensure!(answer.body.len() == 16 * 1024, "{}", answer.body.len());
        let kind = answer.header("content-type");
        ensure!(kind == Some("text/plain"), "{kind:?}");
    }
    for probe in site.each("/icon") {
        let answer = probe.send().await?;
        ensure!(answer.body.as_ref() == [0, 1, 2, 255], "{:?}", answer.body);
    }
    for probe in site.each("/empty") {
        let answer = probe.send().await?;
        ensure!(answer.status == 204, "{}", answer.status);
        let length = answer.header("content-length");
        ensure!(length.is_none(), "{length:?}");
    }
    for probe in site.each("/same") {
        let answer = probe.send().await?;
        ensure!(answer.status == 304, "{}", answer.status);
        let location = answer.header("location");
        ensure!(location.is_none(), "{location:?}");
    }
    for probe in site.each("/cookies") {
        let answer = probe.send().await?;
        ensure!(answer.status == 302, "{}", answer.status);
        let location = answer.header("location");
        ensure!(location == Some("/new"), "{location:?}");
        let cookies: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
        ensure!(cookies == ["a=1", "b=2"], "{cookies:?}");
    }
    for probe in site.each("/guarded") {
        let answer = probe.send().await?;
        ensure!(answer.status == 403, "{}", answer.status);
        ensure!(answer.body.is_empty(), "{:?}", answer.body);
    }
    ensure!(site.echo.requests() == 0, "no backend gets any of them");
    let [plain, ..] = site.each("/else");
    ensure!(plain.send().await?.status == 200, "the rule beside them");
    ensure!(site.echo.requests() == 1, "goes to its backend");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_request_for_a_websocket_gets_the_answer() -> Result<()> {
    let site = Site::start().await?;
    let mut stream = TcpStream::connect(site.http).await?;
    let request = format!(
        "GET /sorry HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    let mut bytes = [0; 4096];
    while !text.contains(PAGE) {
        let length = stream.read(&mut bytes).await?;
        ensure!(length > 0, "{text}");
        text += &String::from_utf8_lossy(&bytes[..length]);
    }
    ensure!(text.starts_with("HTTP/1.1 503 "), "{text}");
    // All paths of the host are answered, since this client asks for `/`.
    let reference = json!({"group": "gatewright.io", "kind": "DirectResponse", "name": "sorry"});
    let rules = json!([{"filters": [{"type": "ExtensionRef", "extensionRef": reference}]}]);
    let route = edge_route("app", HOST, rules);
    site.world.settle(vec![route]).await?;
    for (address, tls) in [(site.http, false), (site.https, true)] {
        let opened = over_http2(address, HOST, tls, &[]).await?;
        ensure!(opened.status == 503, "{}", opened.status);
        ensure!(opened.message.is_none(), "it is not opened");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_missing_answer_is_500_until_it_is_there() -> Result<()> {
    let site = Site::start().await?;
    for probe in site.each("/gone") {
        let answer = probe.send().await?;
        ensure!(answer.status == 500, "{}", answer.status);
        ensure!(answer.body.is_empty(), "{:?}", answer.body);
    }
    let of_pages = json!({"body": {"configMapRef": {"name": "pages", "key": "gone"}}});
    site.world.settle(vec![response("gone", of_pages)]).await?;
    let [probe, ..] = site.each("/gone");
    ensure!(
        probe.clone().send().await?.status == 500,
        "the key is missing"
    );
    let data = json!({"gone": "here again"});
    site.world.settle(vec![pages(&data, &json!({}))]).await?;
    let answer = probe.send().await?;
    ensure!(answer.body == "here again", "{:?}", answer.body);
    // The same ConfigMap has lost the bodies of other answers.
    let [large, ..] = site.each("/large");
    ensure!(large.send().await?.status == 500, "its key is not there");
    Ok(())
}
