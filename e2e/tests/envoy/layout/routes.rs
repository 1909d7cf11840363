//! Routes over plain HTTP: the effect of each kind of rule on a request.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::echo::Echo;
use e2e::envoy::Envoy;
use e2e::probe::{Answer, Probe};
use gatewright_core::model::{
    Action, AppProtocol, Challenges, Cors, Fraction, HeaderEdits, HeaderMatch, Match, Mirror,
    Origin, OtherListeners, PathMatch, PathRewrite, QueryMatch, Redirect, Retry, Rewrite, Route,
    Rule, StringMatch, Table, Target, Timeouts,
};
use hyper::Method;
use serde_json::Value;

use super::site::{Site, backend, host, route, route_on, rule, share, to};

const HOST: &str = "a.example.org";
/// A host with an ACME account, and without routes on plain HTTP.
const GUEST: &str = "guest.example.org";

/// A site with these routes for one plain-HTTP host, and the backends `a` and `b`.
struct Plain {
    site: Site,
    a: Echo,
    b: Echo,
    _envoy: Envoy,
}

impl Plain {
    async fn with(routes: Vec<Route>) -> Result<Self> {
        Self::with_table(|site| site.plain_table(HOST, routes)).await
    }

    async fn with_table(table: impl FnOnce(&Site) -> Table) -> Result<Self> {
        let site = Site::new()?;
        let a = site.echo("a").await?;
        let b = site.echo("b").await?;
        site.table(&table(&site));
        let envoy = site.envoy().await?;
        Ok(Self {
            site,
            a,
            b,
            _envoy: envoy,
        })
    }

    fn get(&self, path: &str) -> Probe {
        Probe::http(self.site.plain_address(), HOST).path(path)
    }
}

fn to_a() -> Rule {
    rule(Action::Forward(vec![to("a", 1)]))
}

fn said(answer: &Answer) -> Result<Value> {
    serde_json::from_slice(&answer.body)
        .with_context(|| format!("no JSON from the echo: {}", answer.status))
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer
        .headers
        .get(name)
        .map(|value| value.to_str().expect("tests use printable headers"))
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn matches() -> Result<()> {
    let on = |path: PathMatch| Match {
        path,
        call: None,
        method: None,
        headers: vec![],
        query: vec![],
    };
    let prefix = |text: &str| on(PathMatch::Prefix(text.to_owned()));
    let status = |status: u16, matches: Match| route_on(matches, rule(Action::Respond(status)));
    let exactly = |text: &str| StringMatch::Exact(text.to_owned());
    let header_is = |name: &str, value: StringMatch| HeaderMatch {
        name: name.to_owned(),
        value,
    };
    let plain = Plain::with(vec![
        status(201, on(PathMatch::Exact("/exact".to_owned()))),
        status(202, prefix("/prefix")),
        status(203, on(PathMatch::Regex("/re[0-9]+".to_owned()))),
        status(
            204,
            Match {
                method: Some("PUT".to_owned()),
                ..prefix("/method")
            },
        ),
        status(
            205,
            Match {
                headers: vec![
                    header_is("x-a", exactly("1")),
                    header_is("X-A", exactly("2")),
                ],
                ..prefix("/header")
            },
        ),
        status(
            206,
            Match {
                headers: vec![header_is("x-r", StringMatch::Regex("v.*".to_owned()))],
                ..prefix("/header")
            },
        ),
        status(
            207,
            Match {
                query: vec![QueryMatch {
                    name: "q".to_owned(),
                    value: exactly("1"),
                }],
                ..prefix("/query")
            },
        ),
    ])
    .await?;
    for (expected, probe) in [
        (201, plain.get("/exact?x")),
        (404, plain.get("/exact/")),
        (202, plain.get("/prefix")),
        (202, plain.get("/prefix/a")),
        (404, plain.get("/prefixed")),
        (203, plain.get("/re12")),
        (404, plain.get("/re12/x")),
        (204, plain.get("/method").method(Method::PUT)),
        (404, plain.get("/method")),
        (205, plain.get("/header").header("x-a", "1")),
        (404, plain.get("/header").header("x-a", "2")),
        (206, plain.get("/header").header("x-r", "value")),
        (404, plain.get("/header").header("x-r", "a value")),
        (207, plain.get("/query?a=b&q=1")),
        (404, plain.get("/query?Q=1")),
        (404, plain.get("/exact").authority("other.example.org")),
        (201, plain.get("/exact").authority("A.Example.org:8080")),
    ] {
        assert_eq!(probe.send().await?.status, expected, "{probe:?}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn weights_with_an_invalid_share() -> Result<()> {
    let plain = Plain::with(vec![
        route(
            "/some",
            rule(Action::Forward(vec![
                to("a", 1),
                share(Target::Invalid, 2),
                to("b", 1),
            ])),
        ),
        route(
            "/valid",
            rule(Action::Forward(vec![to("a", 3), to("b", 1)])),
        ),
        route("/none", rule(Action::Forward(vec![]))),
        route("/zero", rule(Action::Forward(vec![to("a", 0)]))),
        route("/missing", rule(Action::Forward(vec![to("missing", 1)]))),
    ])
    .await?;
    let mut counts = [0; 3];
    for _ in 0..800 {
        let answer = plain.get("/some").send().await?;
        let at = match answer.status {
            500 => 2,
            _ => usize::from(said(&answer)?["name"] == "b"),
        };
        counts[at] += 1;
    }
    // Five standard deviations around 200, 200 and 400 of 800.
    assert!(
        (139..=261).contains(&counts[0]) && (139..=261).contains(&counts[1]),
        "{counts:?}"
    );
    assert!((330..=470).contains(&counts[2]), "{counts:?}");
    let before = plain.b.requests();
    for _ in 0..400 {
        assert_eq!(plain.get("/valid").send().await?.status, 200);
    }
    assert!(
        (57..=143).contains(&(plain.b.requests() - before)),
        "{}",
        plain.b.requests() - before
    );
    for (path, expected) in [("/none", 500), ("/zero", 500), ("/missing", 503)] {
        assert_eq!(plain.get(path).send().await?.status, expected, "{path}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn header_edits_of_rules_and_shares() -> Result<()> {
    let pairs = |list: &[(&str, &str)]| {
        list.iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect::<Vec<_>>()
    };
    let edits = |set: &[(&str, &str)], add: &[(&str, &str)], remove: &[&str]| HeaderEdits {
        set: pairs(set),
        add: pairs(add),
        remove: remove.iter().map(|name| (*name).to_owned()).collect(),
    };
    let mut shared = to("a", 1);
    shared.request_headers = edits(&[("x-both", "share")], &[], &[]);
    shared.response_headers = edits(&[("x-share", "yes")], &[], &[]);
    let edited = Rule {
        request_headers: edits(
            &[
                ("x-set", "100%REQ(:path)%"),
                ("x-both", "rule"),
                ("host", "evil"),
                ("x-empty", ""),
            ],
            &[("x-add", "2")],
            &["x-gone"],
        ),
        response_headers: edits(&[("content-type", "text/x")], &[("x-new", "1")], &[]),
        ..rule(Action::Forward(vec![shared.clone()]))
    };
    let several = Rule {
        action: Action::Forward(vec![shared.clone(), shared]),
        ..edited.clone()
    };
    let plain = Plain::with(vec![route("/several", several), route("/", edited)]).await?;
    for path in ["/", "/several"] {
        let probe = plain
            .get(path)
            .header("x-set", "0")
            .header("x-add", "1")
            .header("x-gone", "1");
        let answer = probe.header("x-both", "client").send().await?;
        let said = said(&answer)?;
        assert_eq!(
            said["headers"]["x-set"],
            serde_json::json!(["100%REQ(:path)%"]),
            "{path}"
        );
        assert_eq!(
            said["headers"]["x-both"],
            serde_json::json!(["share"]),
            "{path}"
        );
        assert_eq!(
            said["headers"]["x-add"],
            serde_json::json!(["1", "2"]),
            "{path}"
        );
        assert_eq!(
            said["headers"]["x-empty"],
            serde_json::json!([""]),
            "{path}"
        );
        assert_eq!(said["headers"].get("x-gone"), None, "{path}");
        assert_eq!(said["host"], HOST, "{path}");
        for (name, value) in [
            ("content-type", "text/x"),
            ("x-new", "1"),
            ("x-share", "yes"),
        ] {
            assert_eq!(header(&answer, name), Some(value), "{name} of {path}");
        }
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn redirects() -> Result<()> {
    let redirect = |scheme: Option<&str>, hostname: Option<&str>, port, path, status| {
        let (scheme, hostname) = (scheme.map(str::to_owned), hostname.map(str::to_owned));
        rule(Action::Redirect(Redirect {
            default_port: if scheme.is_some() { 443 } else { 80 },
            scheme,
            hostname,
            port,
            path,
            status,
        }))
    };
    let full = |p: &str| Some(PathRewrite::Full(p.to_owned()));
    let part = |p: &str| Some(PathRewrite::Prefix(p.to_owned()));
    let plain = Plain::with(vec![
        route("/https", redirect(Some("https"), None, None, None, 301)),
        route(
            "/port",
            redirect(Some("https"), None, Some(8443), None, 302),
        ),
        route(
            "/host",
            redirect(None, Some("b.example.org"), None, None, 303),
        ),
        route("/full", redirect(None, None, None, full("/new"), 307)),
        route("/root", redirect(None, None, None, part("/"), 308)),
        route("/part", redirect(None, None, None, part("/new/"), 302)),
    ])
    .await?;
    for (path, status, location) in [
        ("/https/x?q=1", 301, "https://a.example.org/https/x?q=1"),
        ("/port/x", 302, "https://a.example.org:8443/port/x"),
        ("/host", 303, "http://b.example.org/host"),
        ("/full/x?q=1", 307, "http://a.example.org/new?q=1"),
        ("/root/x?q=1", 308, "http://a.example.org/x?q=1"),
        ("/root", 308, "http://a.example.org/"),
        ("/part/x", 302, "http://a.example.org/new/x"),
        ("/part", 302, "http://a.example.org/new"),
    ] {
        for authority in [HOST, "a.example.org:8080"] {
            let answer = plain.get(path).authority(authority).send().await?;
            // A default port may be explicit.
            let found = header(&answer, "location")
                .map(|l| l.replace(".org:443/", ".org/").replace(".org:80/", ".org/"));
            assert_eq!(answer.status, status, "{path} at {authority}");
            assert_eq!(found.as_deref(), Some(location), "{path} at {authority}");
        }
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn rewrites() -> Result<()> {
    let rewritten = |hostname: Option<&str>, path| Rule {
        rewrite: Rewrite {
            hostname: hostname.map(str::to_owned),
            path,
        },
        ..to_a()
    };
    let full = |p: &str| Some(PathRewrite::Full(p.to_owned()));
    let part = |p: &str| Some(PathRewrite::Prefix(p.to_owned()));
    let mut own = to("b", 1);
    own.rewrite = Rewrite {
        hostname: Some("share.example.org".to_owned()),
        path: part("/share"),
    };
    let plain = Plain::with(vec![
        route("/host", rewritten(Some("b.example.org"), None)),
        route("/full", rewritten(None, full("/a\\1b"))),
        route("/root", rewritten(None, part("/"))),
        route("/part", rewritten(None, part("/new/"))),
        route(
            "/share",
            Rule {
                action: Action::Forward(vec![own]),
                ..rewritten(Some("rule.example.org"), part("/rule"))
            },
        ),
        route("/", rewritten(None, part("/deep"))),
    ])
    .await?;
    for (path, host, expected) in [
        ("/host/x?q=1", "b.example.org", "/host/x?q=1"),
        ("/full/x?q=1", HOST, "/a\\1b?q=1"),
        ("/root/x?q=1", HOST, "/x?q=1"),
        ("/root", HOST, "/"),
        ("/root/", HOST, "/"),
        ("/root?q=1", HOST, "/?q=1"),
        ("/part/x", HOST, "/new/x"),
        ("/part", HOST, "/new"),
        ("/share/x", "share.example.org", "/share/x"),
        ("/else%2Fx?q=1", HOST, "/deep/else%2Fx?q=1"),
        ("/", HOST, "/deep/"),
    ] {
        let said = said(&plain.get(path).send().await?)?;
        assert_eq!(said["host"].as_str(), Some(host), "{path}");
        assert_eq!(said["path"].as_str(), Some(expected), "{path}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn retries_and_timeouts() -> Result<()> {
    let retry = |codes: &[u16]| {
        Some(Retry {
            codes: codes.to_vec(),
            attempts: 2,
            backoff: Some(Duration::from_millis(1)),
        })
    };
    let short = Timeouts {
        request: None,
        backend_request: Some(Duration::from_millis(100)),
    };
    let plain = Plain::with(vec![
        route(
            "/status/503",
            Rule {
                retry: retry(&[503]),
                ..to_a()
            },
        ),
        route(
            "/status/500",
            Rule {
                retry: retry(&[503]),
                ..to_a()
            },
        ),
        route(
            "/status/404",
            Rule {
                retry: Some(Retry {
                    codes: vec![404],
                    attempts: 0,
                    backoff: None,
                }),
                ..to_a()
            },
        ),
        route(
            "/delay/5000",
            Rule {
                retry: retry(&[503, 504]),
                timeouts: short,
                ..to_a()
            },
        ),
        route(
            "/delay/5001",
            Rule {
                timeouts: short,
                ..to_a()
            },
        ),
        route(
            "/delay",
            Rule {
                timeouts: Timeouts {
                    request: Some(Duration::ZERO),
                    backend_request: None,
                },
                ..to_a()
            },
        ),
    ])
    .await?;
    for (path, status, tries) in [
        ("/status/503", 503, 3),
        ("/status/500", 500, 1),
        ("/status/404", 404, 1),
        ("/delay/5000", 504, 1),
        ("/delay/5001", 504, 1),
        ("/delay/300", 200, 1),
    ] {
        let before = plain.a.requests();
        assert_eq!(plain.get(path).send().await?.status, status, "{path}");
        // Envoy may give up before the backend has counted the request.
        for _ in 0..2000 {
            if plain.a.requests() - before >= tries {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(plain.a.requests() - before, tries, "{path}");
    }
    let before = plain.a.requests();
    let own = plain
        .get("/status/500")
        .header("x-envoy-retry-on", "5xx")
        .header("x-envoy-max-retries", "3");
    assert_eq!(
        own.clone()
            .header("x-forwarded-for", "10.0.0.1")
            .send()
            .await?
            .status,
        500
    );
    assert_eq!(
        plain.a.requests() - before,
        1,
        "a client does not configure Envoy"
    );
    let own = plain
        .get("/delay/300")
        .header("x-envoy-upstream-rq-timeout-ms", "1");
    assert_eq!(own.send().await?.status, 200);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn mirrors() -> Result<()> {
    let copies = |numerator| Mirror {
        backend: backend("b", AppProtocol::Http1),
        fraction: Fraction {
            numerator,
            denominator: 100,
        },
    };
    let plain = Plain::with(vec![
        route(
            "/all",
            Rule {
                mirrors: vec![copies(100), copies(100)],
                ..to_a()
            },
        ),
        route(
            "/none",
            Rule {
                mirrors: vec![copies(0)],
                ..to_a()
            },
        ),
    ])
    .await?;
    for path in ["/none", "/none", "/all"] {
        assert_eq!(said(&plain.get(path).send().await?)?["name"], "a");
    }
    while plain.b.requests() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(plain.b.requests(), 2);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn cors() -> Result<()> {
    let cors = |origins: &[&str], methods: &[&str], allow_credentials| {
        Some(Cors {
            allow_origins: origins
                .iter()
                .map(|o| Origin::parse(o).expect("an origin"))
                .collect(),
            allow_methods: methods.iter().map(|m| (*m).to_owned()).collect(),
            allow_headers: vec!["x-a".to_owned()],
            expose_headers: vec!["x-b".to_owned()],
            allow_credentials,
            max_age: Duration::from_secs(60),
        })
    };
    let plain = Plain::with(vec![
        route(
            "/some",
            Rule {
                cors: cors(
                    &["https://*.example.org", "https://b.test"],
                    &["GET", "PUT"],
                    true,
                ),
                ..to_a()
            },
        ),
        route(
            "/any",
            Rule {
                cors: cors(&["*"], &["*"], false),
                ..to_a()
            },
        ),
    ])
    .await?;
    let preflight = |path: &str, origin: &str| {
        plain
            .get(path)
            .method(Method::OPTIONS)
            .header("origin", origin)
            .header("access-control-request-method", "PUT")
    };
    for origin in [
        "https://b.test",
        "https://x.y.example.org",
        "https://x.example.org:443",
    ] {
        let answer = preflight("/some", origin).send().await?;
        assert_eq!(answer.status, 200, "{origin}");
        assert_eq!(header(&answer, "access-control-allow-origin"), Some(origin));
        assert_eq!(
            header(&answer, "access-control-allow-credentials"),
            Some("true")
        );
        assert_eq!(
            header(&answer, "access-control-allow-methods"),
            Some("GET, PUT")
        );
        assert_eq!(header(&answer, "access-control-allow-headers"), Some("x-a"));
        assert_eq!(header(&answer, "access-control-max-age"), Some("60"));
    }
    let answer = preflight("/some", "https://evil.test").send().await?;
    assert_eq!(header(&answer, "access-control-allow-origin"), None);
    let answer = preflight("/any", "https://evil.test").send().await?;
    assert!(header(&answer, "access-control-allow-origin").is_some());
    assert_eq!(plain.a.requests(), 0, "no preflight reaches a backend");
    let answer = plain
        .get("/some")
        .header("origin", "https://b.test")
        .send()
        .await?;
    assert_eq!(
        header(&answer, "access-control-allow-origin"),
        Some("https://b.test")
    );
    assert_eq!(
        header(&answer, "access-control-expose-headers"),
        Some("x-b")
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn challenges_are_answered_before_everything_else() -> Result<()> {
    let all = |status| vec![route("/", rule(Action::Respond(status)))];
    let plain = Plain::with_table(|site| Table {
        challenges: vec![Challenges {
            thumbprint: "the-thumbprint".into(),
            hosts: [HOST, GUEST].map(host).to_vec(),
        }],
        elsewhere: OtherListeners::NOWHERE,
        ..site.plain_table(HOST, all(201))
    })
    .await?;
    let challenge = plain
        .get("/.well-known/acme-challenge/token")
        .authority("unknown.example.org");
    assert_eq!(
        challenge.send().await?.status,
        404,
        "whose host is not known is not answered for"
    );
    for (host, otherwise) in [(HOST, 201), (GUEST, 404)] {
        let get = |path: &str| plain.get(path).authority(host);
        for path in [
            "/.well-known/acme-challenge/Tok_en-1",
            "/.well-known/acme-challenge/Tok_en-1?x=1",
        ] {
            let answer = get(path).send().await?;
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!(answer.status, 200, "{host}{path}");
            assert_eq!(body.as_str(), "Tok_en-1.the-thumbprint", "{host}{path}");
        }
        let challenge = "/.well-known/acme-challenge/a";
        for probe in [
            get("/.well-known/acme-challenge/a/b"),
            get("/.well-known/acme-challenge/"),
            get(challenge).method(Method::POST),
        ] {
            assert_eq!(probe.send().await?.status, otherwise, "{probe:?}");
        }
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn h2c_backends_are_spoken_to_in_http2() -> Result<()> {
    let site = Site::new()?;
    let echo = Echo::start("a").await?;
    let target = Target::Backend(site.backend("a", AppProtocol::H2c, Some(echo.address())));
    site.table(&site.plain_table(
        HOST,
        vec![route("/", rule(Action::Forward(vec![share(target, 1)])))],
    ));
    let _envoy = site.envoy().await?;
    let answer = Probe::http(site.plain_address(), HOST).send().await?;
    assert_eq!(said(&answer)?["version"], "HTTP/2.0");
    Ok(())
}
