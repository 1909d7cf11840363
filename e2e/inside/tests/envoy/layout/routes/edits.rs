//! Edits of headers, redirects and rewrites.

use super::*;

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
