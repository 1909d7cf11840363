//! The same requests to nginx, with the configuration that ingress-nginx's template makes of
//! Ingresses, and to Envoy with what `gatewright convert` makes of them: status, redirects, the
//! backend and what it gets, and headers of responses.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::nginx::Nginx;
use e2e::private_dir::private_dir;
use e2e::probe::{Answer, Probe};
use e2e_inside::world::free_port;
use hyper::Method;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// The longest wait for a state, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
const SITE: &str = include_str!("ingress_nginx/site.yaml");
const NGINX: &str = include_str!("ingress_nginx/nginx.conf");
const PROXY: &str = include_str!("ingress_nginx/proxy.conf");

/// Headers of responses that are compared.
const RESPONSE_HEADERS: [&str; 8] = [
    "location",
    "strict-transport-security",
    "x-frame-options",
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "access-control-expose-headers",
    "access-control-max-age",
    "access-control-allow-methods",
];
/// Headers that backends get, and that are compared.
const REQUEST_HEADERS: [&str; 4] = [
    "host",
    "x-forwarded-proto",
    "x-forwarded-prefix",
    "authorization",
];

/// A request of the comparison.
struct Case {
    url: &'static str,
    method: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: usize,
    /// The lines in which the answers differ: nginx's, then ours, which may have none.
    differences: &'static [(&'static str, &'static str, Option<&'static str>)],
}

const fn get(url: &'static str) -> Case {
    Case {
        url,
        method: "GET",
        headers: &[],
        body: 0,
        differences: &[],
    }
}

const fn with(url: &'static str, headers: &'static [(&'static str, &'static str)]) -> Case {
    Case {
        headers,
        ..get(url)
    }
}

/// Headers of CORS that nginx sends in each response, and Envoy in answers to preflights.
const OF_PREFLIGHTS: &[(&str, &str, Option<&str>)] = &[
    ("access-control-max-age", "600", None),
    ("access-control-allow-methods", "GET, PUT", None),
];

const CASES: &[Case] = &[
    // Paths, TLS, the redirect to HTTPS, HSTS.
    get("https://shop.example.org/"),
    get("https://shop.example.org/any?q=1"),
    get("https://shop.example.org/api"),
    get("https://shop.example.org/api/x?q=%20"),
    get("https://shop.example.org/apix"),
    get("https://shop.example.org/exact"),
    get("https://shop.example.org/exact/x"),
    get("http://shop.example.org/api/x?q=1"),
    get("http://unknown.example.org/"),
    // Rewrites.
    get("http://app.example.org/app"),
    get("http://app.example.org/app/"),
    get("http://app.example.org/app/x/y?q=1"),
    get("http://app.example.org/application"),
    get("http://turned.example.org/en/shop/x"),
    get("http://turned.example.org/de/shop/xyz/more?q=1"),
    get("http://turned.example.org/EN/Shop/X"),
    get("http://turned.example.org/fr/shop/x"),
    get("http://app.example.org/other"),
    // The case of letters counts in a prefix.
    Case {
        differences: &[
            ("backend", "other", Some("main")),
            ("path", "/x", Some("/APP/x")),
            ("backend's x-forwarded-prefix", "[\"/app\"]", None),
        ],
        ..get("http://app.example.org/APP/x")
    },
    // Regular expressions.
    get("http://regex.example.org/v1/items"),
    get("http://regex.example.org/V1/Items/7"),
    get("http://regex.example.org/v1/other"),
    get("http://regex.example.org/x/v1/items"),
    // Redirects.
    get("http://moved.example.org/x?q=1"),
    get("http://away.example.org/x?q=1"),
    get("http://root.example.org/"),
    get("http://root.example.org/x"),
    get("http://www.bare.example.org/x?q=1"),
    get("http://bare.example.org/x"),
    // Canaries.
    get("http://canary.example.org/"),
    with("http://canary.example.org/", &[("x-canary", "always")]),
    with(
        "http://canary.example.org/",
        &[("x-canary", "never"), ("cookie", "next=always")],
    ),
    with("http://canary.example.org/", &[("cookie", "next=always")]),
    with(
        "http://canary.example.org/",
        &[("cookie", "a=b; next=always; c=d")],
    ),
    with("http://canary.example.org/", &[("cookie", "next=never")]),
    with("http://canary.example.org/", &[("cookie", "xnext=always")]),
    with("http://canary.example.org/", &[("x-canary", "sometimes")]),
    // Access.
    get("http://closed.example.org/"),
    get("http://open.example.org/"),
    get("http://staff.example.org/"),
    with(
        "http://staff.example.org/",
        // alice:open-sesame
        &[("authorization", "Basic YWxpY2U6b3Blbi1zZXNhbWU=")],
    ),
    with(
        "http://staff.example.org/",
        &[("authorization", "Basic YWxpY2U6d3Jvbmc=")],
    ),
    // Headers.
    get("http://vhost.example.org/x"),
    get("http://alias.example.org/x"),
    get("http://headers.example.org/"),
    Case {
        differences: OF_PREFLIGHTS,
        ..with(
            "http://cors.example.org/",
            &[("origin", "https://a.example.org")],
        )
    },
    Case {
        differences: OF_PREFLIGHTS,
        ..with(
            "http://cors.example.org/",
            &[("origin", "https://x.b.example.org")],
        )
    },
    with(
        "http://cors.example.org/",
        &[("origin", "https://evil.example.com")],
    ),
    Case {
        method: "OPTIONS",
        differences: &[("status", "204", Some("200"))],
        ..with(
            "http://cors.example.org/",
            &[
                ("origin", "https://a.example.org"),
                ("access-control-request-method", "PUT"),
            ],
        )
    },
    // Bodies.
    Case {
        method: "POST",
        body: 1000,
        ..get("http://limit.example.org/")
    },
    Case {
        method: "POST",
        body: 2000,
        ..get("http://limit.example.org/")
    },
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and nginx: e2e/tools install envoy nginx"]
async fn converted_ingresses_answer_as_nginx_does() -> Result<()> {
    let [main, other] = [Echo::start("main").await?, Echo::start("other").await?];
    let made = rcgen::generate_simple_self_signed(["*.example.org".to_owned()])?;
    let [certificate, key] = [made.cert.pem(), made.signing_key.serialize_pem()];
    let nginx = [free_port()?, free_port()?];
    let ours = [free_port()?, free_port()?];
    let _nginx = start_nginx(nginx, [&main, &other], &format!("{certificate}{key}")).await?;
    let (manifests, state) = (tempfile::tempdir()?, private_dir()?);
    fs::write(manifests.path().join("converted.yaml"), converted(ours)?)?;
    let beside = beside([&main, &other], &certificate, &key);
    fs::write(manifests.path().join("beside.yaml"), beside)?;
    let _program = Gatewright::standalone(manifests.path(), state.path(), &[])?;
    served(&state).await?;
    let mut wrong = Vec::new();
    for case in CASES {
        let theirs = described(&case.sent(nginx).await?, nginx);
        let ours = described(&case.sent(ours).await?, ours);
        if let Some(difference) = case.compare(&theirs, &ours) {
            wrong.push(difference);
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

impl Case {
    async fn sent(&self, [http, https]: [u16; 2]) -> Result<Answer> {
        let (scheme, rest) = self.url.split_once("://").context("a URL")?;
        let (host, path) = rest.split_once('/').context("a path")?;
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let probe = if scheme == "https" {
            Probe::https(at(https), host).alpn(&["http/1.1"])
        } else {
            Probe::http(at(http), host)
        };
        let mut probe = probe
            .path(&format!("/{path}"))
            .method(Method::from_bytes(self.method.as_bytes())?);
        for (name, value) in self.headers {
            probe = probe.header(name, value);
        }
        if self.body > 0 {
            probe = probe.body(vec![b'x'; self.body]);
        }
        probe.send().await.with_context(|| self.url)
    }

    /// The faults of two answers; a difference that is expected has to be there.
    fn compare(&self, nginx: &[(String, String)], ours: &[(String, String)]) -> Option<String> {
        let mut expected = nginx.to_vec();
        for (line, theirs, different) in self.differences {
            let Some(at) = expected.iter().position(|(name, _)| name == line) else {
                return Some(format!("{}: nginx has no {line}: {nginx:?}", self.url));
            };
            if expected[at].1 != *theirs {
                let found = &expected[at].1;
                return Some(format!(
                    "{}: nginx has {line} {found}, not {theirs}",
                    self.url
                ));
            }
            match different {
                Some(different) => (*different).clone_into(&mut expected[at].1),
                None => {
                    expected.remove(at);
                }
            }
        }
        (expected != ours).then(|| {
            format!(
                "{} {} {:?}:\n  nginx {nginx:?}\n  ours  {ours:?}",
                self.method, self.url, self.headers
            )
        })
    }
}

/// The parts of an answer that are compared.
fn described(answer: &Answer, ports: [u16; 2]) -> Vec<(String, String)> {
    let mut lines = vec![("status".to_owned(), answer.status.to_string())];
    for name in RESPONSE_HEADERS {
        if let Some(value) = answer.header(name) {
            // Lists have no order, and no spaces of their own.
            let mut words: Vec<&str> = value.split(',').map(str::trim).collect();
            words.sort_unstable();
            // The ports are those of the test: at 80 and 443 a URL has none.
            let value = ports.iter().fold(words.join(", "), |value, port| {
                value.replace(&format!(":{port}"), "")
            });
            lines.push((name.to_owned(), value));
        }
    }
    let Ok(echoed) = serde_json::from_slice::<Value>(&answer.body) else {
        return lines;
    };
    for (line, field) in [("backend", "name"), ("method", "method"), ("path", "path")] {
        let value = echoed[field].as_str().unwrap_or_default();
        lines.push((line.to_owned(), value.to_owned()));
    }
    for name in REQUEST_HEADERS {
        let value = match name {
            "host" => &echoed["host"],
            name => &echoed["headers"][name],
        };
        if !value.is_null() {
            lines.push((format!("backend's {name}"), value.to_string()));
        }
    }
    lines
}

async fn start_nginx(
    [http, https]: [u16; 2],
    [main, other]: [&Echo; 2],
    pem: &str,
) -> Result<Nginx> {
    let conf = NGINX
        .replace("HTTPS_PORT", &https.to_string())
        .replace("HTTP_PORT", &http.to_string())
        .replace("MAIN_PORT", &main.address().port().to_string())
        .replace("OTHER_PORT", &other.address().port().to_string());
    let vhost = PROXY.replace("Host $http_host", "Host \"internal.example.org\"");
    let htpasswd = SITE
        .lines()
        .find(|line| line.contains("{SHA}"))
        .context("a user")?;
    let files = [
        ("nginx.conf", conf.as_str()),
        ("proxy.conf", PROXY),
        ("proxy-vhost.conf", &vhost),
        ("htpasswd", htpasswd.trim()),
        ("tls.pem", pem),
    ];
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Nginx::start(&files, &[at(http), at(https)]).await
}

/// What the program makes of the site, at ports of the test.
fn converted([http, https]: [u16; 2]) -> Result<String> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("site.yaml");
    fs::write(&file, SITE)?;
    let file = file.display().to_string();
    let output = Gatewright::run(&["convert", "--from", "ingress-nginx", &file])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(String::from_utf8(output.stdout)?
        .replace("port: 80\n", &format!("port: {http}\n"))
        .replace("port: 443\n", &format!("port: {https}\n")))
}

/// The class, the Services and the certificate.
fn beside([main, other]: [&Echo; 2], certificate: &str, key: &str) -> String {
    let mut text = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: gatewright}\n\
                    spec: {controllerName: gatewright.io/gateway-controller}\n"
        .to_owned();
    for (name, backend) in [("main", main), ("other", other)] {
        let port = backend.address().port();
        text += &format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec: {{ports: [{{name: http, port: 8000}}]}}\n---\n\
             apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
             metadata: {{name: {name}, namespace: shop, labels: {{kubernetes.io/service-name: {name}}}}}\n\
             addressType: IPv4\nendpoints: [{{addresses: [127.0.0.1]}}]\nports: [{{name: http, port: {port}}}]\n"
        );
    }
    let secret = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": "shop", "name": "shop-tls"},
        "stringData": {"tls.crt": certificate, "tls.key": key},
    });
    text + &format!("---\n{secret}\n")
}

/// Waits until every condition is as desired.
async fn served(state: &TempDir) -> Result<()> {
    let private = state.path().display().to_string();
    let deadline = Instant::now() + LIMIT;
    loop {
        let status = Gatewright::run(&["status", "--state-dir", &private])?;
        if status.status.success() {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "{}{}",
            String::from_utf8_lossy(&status.stdout),
            String::from_utf8_lossy(&status.stderr)
        );
        sleep(Duration::from_millis(200)).await;
    }
}
