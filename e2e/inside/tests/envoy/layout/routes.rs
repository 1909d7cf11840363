//! Routes over plain HTTP: the effect of each kind of rule on a request.

mod edits;

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::echo::Echo;
use e2e::envoy::Envoy;
use e2e::probe::{Answer, Probe};
use gatewright_core::model::{
    Action, AppProtocol, Cors, Fraction, HeaderEdits, HeaderMatch, Match, Mirror, Origin,
    PathMatch, PathRewrite, QueryMatch, Redirect, Requests, Retry, Rewrite, Route, Rule, Scope,
    StringMatch, Target, Timeouts,
};
use hyper::Method;
use serde_json::Value;

use super::site::{Site, backend, route, route_on, rule, share, to};

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
        Self::with_scopes(|site| vec![site.plain_scope(HOST, routes)]).await
    }

    async fn with_scopes(scopes: impl FnOnce(&Site) -> Vec<Scope>) -> Result<Self> {
        let site = Site::new()?;
        let a = site.echo("a").await?;
        let b = site.echo("b").await?;
        scopes(&site).iter().for_each(|scope| site.put(scope));
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
async fn retries_and_timeouts() -> Result<()> {
    let retry = |codes: &[u16]| {
        Some(Retry {
            codes: codes.to_vec(),
            attempts: 2,
            backoff: Some(Duration::from_millis(1)),
            kept_bytes: 64 * 1024,
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
                    kept_bytes: 64 * 1024,
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
    let account = || "the-thumbprint".into();
    let plain = Plain::with_scopes(|site| {
        let of = |hostname, routes, requests| Scope {
            requests,
            ..site.plain_scope(hostname, routes)
        };
        vec![
            of(HOST, all(201), Requests::Plain(Some(account()))),
            of(GUEST, Vec::new(), Requests::Challenges(account())),
        ]
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
    site.put(&site.plain_scope(
        HOST,
        vec![route("/", rule(Action::Forward(vec![share(target, 1)])))],
    ));
    let _envoy = site.envoy().await?;
    let answer = Probe::http(site.plain_address(), HOST).send().await?;
    assert_eq!(said(&answer)?["version"], "HTTP/2.0");
    Ok(())
}
