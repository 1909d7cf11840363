//! Tests of the fixtures with each other, and with a real Envoy between them.

use std::time::Duration;

use anyhow::Result;
use e2e::echo::Echo;
use e2e::envoy::Envoy;
use e2e::probe::{Failure, Probe, Stage};
use hyper::Method;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

async fn tls_echo(name: &str) -> Result<(Echo, rustls::RootCertStore)> {
    let made = rcgen::generate_simple_self_signed(vec!["echo.example.com".to_owned()])?;
    let der = made.cert.der().clone();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(der.clone())?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    Ok((Echo::start_tls(name, vec![der], key).await?, roots))
}

fn said(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("the echo backend answers JSON")
}

#[tokio::test]
async fn echo_tells_what_it_was_asked_over_both_versions_of_http() -> Result<()> {
    let echo = Echo::start("one").await?;
    for (alpn, version) in [("http/1.1", "HTTP/1.1"), ("h2", "HTTP/2.0")] {
        let probe = Probe::http(echo.address(), "Echo.Example.com:8080")
            .alpn(&[alpn])
            .method(Method::POST);
        let answer = probe
            .path("/a?b=c")
            .header("x-test", "1")
            .header("x-test", "2")
            .body("hello")
            .send()
            .await?;
        let said = said(&answer.body);
        assert_eq!(answer.status, 200);
        assert_eq!(said["name"], "one");
        assert_eq!(said["method"], "POST");
        assert_eq!(said["path"], "/a?b=c");
        assert_eq!(said["version"], version);
        assert_eq!(
            said["host"], "Echo.Example.com:8080",
            "the spelling of the authority survives over {alpn}"
        );
        assert_eq!(said["headers"]["x-test"], serde_json::json!(["1", "2"]));
        assert_eq!(said["body"], "hello");
    }
    assert_eq!(
        Probe::http(echo.address(), "a")
            .path("/status/503")
            .send()
            .await?
            .status,
        503
    );
    assert_eq!(echo.requests(), 3);
    Ok(())
}

#[tokio::test]
async fn a_held_connection_takes_many_authorities() -> Result<()> {
    let (echo, _) = tls_echo("held").await?;
    let probe = Probe::https(echo.address(), "echo.example.com").alpn(&["h2"]);
    let mut connection = probe.connect().await?;
    for authority in [
        "echo.example.com",
        "other.example.com",
        "UPPER.example.com:443",
    ] {
        let answer = connection.ask(&probe.clone().authority(authority)).await?;
        assert_eq!(said(&answer.body)["host"], authority);
    }
    assert!(!connection.is_closed());
    Ok(())
}

#[tokio::test]
async fn the_peer_is_told_and_checked() -> Result<()> {
    let (echo, roots) = tls_echo("tls").await?;
    let probe = Probe::https(echo.address(), "echo.example.com");
    let trusting = probe
        .clone()
        .roots(roots.clone())
        .versions(&[&rustls::version::TLS12])
        .alpn(&["http/1.1"]);
    let peer = trusting.send().await?.peer.expect("TLS has a peer");
    assert_eq!(peer.dns_names, ["echo.example.com"]);
    assert_eq!(peer.version, Some(rustls::ProtocolVersion::TLSv1_2));
    assert_eq!(peer.alpn.as_deref(), Some("http/1.1"));
    assert_eq!(peer.chain.len(), 1);
    assert!(!peer.serial.is_empty());
    let wrong = Probe::https(echo.address(), "other.example.com")
        .roots(roots)
        .send()
        .await;
    assert!(
        matches!(
            wrong,
            Err(Failure::Tls(rustls::Error::InvalidCertificate(_)))
        ),
        "{wrong:?}"
    );
    let unknown = probe.roots(rustls::RootCertStore::empty()).send().await;
    assert!(unknown.is_err(), "an empty set of roots vouches for nobody");
    Ok(())
}

#[tokio::test]
async fn a_sni_goes_out_as_it_was_spelled_or_not_at_all() -> Result<()> {
    for (sni, expected) in [(Some("eChO.Example.com"), true), (None, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let probe = Probe::https(listener.local_addr()?, "fallback.invalid");
        let probe = match sni {
            Some(name) => probe.sni(name),
            None => probe.no_sni(),
        };
        let hello = async {
            let (mut stream, _) = listener.accept().await?;
            let mut bytes = vec![0; 4096];
            let length = stream.read(&mut bytes).await?;
            bytes.truncate(length);
            anyhow::Ok(bytes)
        };
        let (hello, failed) = tokio::join!(hello, probe.send());
        let hello = hello?;
        assert!(
            matches!(
                failed,
                Err(Failure::Closed(Stage::Handshake) | Failure::Reset(Stage::Handshake))
            ),
            "{failed:?}"
        );
        let spelled = hello
            .windows(16)
            .any(|window| window == b"eChO.Example.com");
        assert_eq!(spelled, expected);
        assert!(
            !hello.windows(7).any(|window| window == b"invalid"),
            "no placeholder leaks into the hello"
        );
    }
    Ok(())
}

#[tokio::test]
async fn each_failure_has_its_name() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let silent = Probe::https(address, "a.example.com")
        .limit(Duration::from_millis(50))
        .send()
        .await;
    assert!(
        matches!(silent, Err(Failure::Timeout(Stage::Handshake))),
        "{silent:?}"
    );
    let waiting = Probe::http(address, "a.example.com")
        .limit(Duration::from_millis(50))
        .send()
        .await;
    assert!(
        matches!(waiting, Err(Failure::Timeout(Stage::Exchange))),
        "{waiting:?}"
    );
    drop(listener);
    let refused = Probe::https(address, "a.example.com").send().await;
    assert!(matches!(refused, Err(Failure::Refused)), "{refused:?}");
    let closing = TcpListener::bind("127.0.0.1:0").await?;
    let probe = Probe::http(closing.local_addr()?, "a.example.com");
    let close = async {
        let (mut stream, _) = closing.accept().await?;
        let mut byte = [0; 4096];
        let _request = stream.read(&mut byte).await?;
        stream.shutdown().await
    };
    let (closed, failed) = tokio::join!(close, probe.send());
    closed?;
    assert!(
        matches!(failed, Err(Failure::Closed(Stage::Exchange))),
        "{failed:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_dropped_echo_refuses() -> Result<()> {
    let echo = Echo::start("gone").await?;
    let probe = Probe::http(echo.address(), "a");
    let mut held = probe.connect().await?;
    assert_eq!(held.ask(&probe).await?.status, 200);
    drop(echo);
    assert!(
        held.ask(&probe).await.is_err(),
        "its connections are gone with it"
    );
    assert!(matches!(probe.send().await, Err(Failure::Refused)));
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy: e2e/tools install envoy"]
async fn envoy_serves_a_static_configuration() -> Result<()> {
    let echo = Echo::start("behind").await?;
    let bootstrap = format!(
        r#"
node: {{id: static, cluster: test}}
static_resources:
  listeners:
  - name: web
    address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{{match: {{prefix: /}}, route: {{cluster: echo}}}}]
  clusters:
  - name: echo
    load_assignment:
      cluster_name: echo
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}}}
"#,
        echo.address().port()
    );
    let mut envoy = Envoy::start(&bootstrap).await?;
    envoy.ready().await?;
    let answer = Probe::http(envoy.listener("web").await?, "web.example.com")
        .path("/hello")
        .send()
        .await?;
    assert_eq!(answer.status, 200);
    assert_eq!(said(&answer.body)["path"], "/hello");
    assert_eq!(envoy.stat("http.web.downstream_rq_total").await?, 1);
    assert!(envoy.config_dump().await?["configs"].is_array());
    assert!(envoy.resident()? > 1024 * 1024);
    assert!(envoy.main_thread_cpu()? > Duration::ZERO);
    let pid = envoy.pid();
    drop(envoy);
    assert!(
        !std::path::Path::new(&format!("/proc/{pid}")).exists(),
        "Envoy dies with its fixture"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy: e2e/tools install envoy"]
async fn a_refused_bootstrap_fails_with_envoys_own_words() -> Result<()> {
    let failed = Envoy::start("static_resources: {no_such_field: 1}")
        .await
        .expect_err("Envoy refuses unknown fields");
    assert!(
        format!("{failed:#}").contains("no_such_field"),
        "{failed:#}"
    );
    Ok(())
}
