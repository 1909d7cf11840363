//! Redirects on a real Envoy where the hostname is not known before a request: no default port in
//! `Location`.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use e2e::probe::Probe;
use e2e_inside::world::{World, api, class, edge, free_port, secret};
use serde_json::{Value, json};

const WILDCARD: &str = "*.red.example.org";

fn redirect(path: &str, to: Value) -> Value {
    json!({"matches": [{"path": {"value": path}}], "filters": [{"type": "RequestRedirect", "requestRedirect": to}]})
}

fn route(name: &str, hostnames: &[&str]) -> Value {
    let replaced = json!({"scheme": "https", "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}});
    json!({"parentRefs": [{"name": "edge", "sectionName": name}], "hostnames": hostnames, "rules": [
        redirect("/https", json!({"scheme": "https"})),
        redirect("/http", json!({"scheme": "http"})),
        redirect("/https-443", json!({"scheme": "https", "port": 443})),
        redirect("/https-80", json!({"scheme": "https", "port": 80})),
        redirect("/https-8443", json!({"scheme": "https", "port": 8443})),
        redirect("/own", json!({"statusCode": 301})),
        redirect("/old", replaced),
    ]})
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn no_location_has_the_default_port_of_its_scheme() -> Result<()> {
    let http = free_port()?;
    let https = free_port()?;
    let listeners = json!([
        {"name": "http", "port": http, "protocol": "HTTP"},
        {"name": "https", "port": https, "protocol": "HTTPS", "hostname": WILDCARD,
            "tls": {"certificateRefs": [{"name": "red"}]}},
    ]);
    let _world = World::start(vec![
        class(),
        edge(listeners),
        api("HTTPRoute", "any", route("http", &[])),
        api("HTTPRoute", "wild", route("https", &[WILDCARD])),
        secret("red", WILDCARD)?,
    ])
    .await?;
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let plain = Probe::http(at(http), "a.red.example.org");
    let tls = Probe::https(at(https), "a.red.example.org");
    for (probe, alpn, own) in [
        (&plain, "http/1.1", format!("http://HOST:{http}")),
        (&tls, "http/1.1", format!("https://HOST:{https}")),
        (&tls, "h2", format!("https://HOST:{https}")),
    ] {
        for (path, location) in [
            (
                "/https/x?to=https://b:443/",
                "https://HOST/https/x?to=https://b:443/",
            ),
            ("/http/x", "http://HOST/http/x"),
            ("/https-443", "https://HOST/https-443"),
            ("/https-80", "https://HOST:80/https-80"),
            ("/https-8443", "https://HOST:8443/https-8443"),
            ("/own", &format!("{own}/own")),
            ("/old/x?q", "https://HOST/new/x?q"),
        ] {
            for port in ["", ":443", ":80", ":8080", ":"] {
                let host = "a.red.example.org";
                let probe = probe
                    .clone()
                    .alpn(&[alpn])
                    .authority(&format!("{host}{port}"))
                    .path(path);
                let answer = probe.send().await?;
                let found = answer
                    .headers
                    .get("location")
                    .context("a Location")?
                    .to_str()?;
                assert_eq!(
                    found,
                    location.replace("HOST", host),
                    "{path} of {host}{port} over {alpn}"
                );
            }
        }
    }
    for (host, location) in [
        ("[::1]:8080", "https://[::1]/https"),
        ("127.0.0.1:443", "https://127.0.0.1/https"),
    ] {
        let answer = plain.clone().authority(host).path("/https").send().await?;
        assert_eq!(
            answer
                .headers
                .get("location")
                .context("a Location")?
                .to_str()?,
            location,
            "an address"
        );
    }
    Ok(())
}
