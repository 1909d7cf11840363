//! Bytes of clients and backends that are not UTF-8, or that a cut makes so: log records and spans
//! reach a collector that takes valid protobuf only, and so do those of others in the same batch.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use e2e::collector::{Collector, Span};
use e2e_inside::world::{World, api, class, free_port, object, service};
use gatewright_core::translate::Change;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const HOST: &str = "app.example.org";
/// What a client may write in a header: Latin-1, half a character, a surrogate, an overlong form, a
/// number above those of Unicode.
const BROKEN: [&[u8]; 5] = [
    b"caf\xe9",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\xf4\x90\x80\x80",
];

/// A backend whose headers are not UTF-8, as an answer of gRPC and of others.
async fn backend() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    Ok(address)
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = [0; 16 << 10];
    while stream.read(&mut request).await? > 0 {
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ngrpc-status: 3\r\n\
                  grpc-message: gm\xe9\r\nx-name: caf\xe9\r\ncontent-length: 0\r\n\r\n",
            )
            .await?;
    }
    Ok(())
}

/// Sends a request of HTTP/1.1 with header lines.
async fn send(port: u16, path: &str, lines: &[(&str, &[u8])]) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let mut request = format!("GET {path} HTTP/1.1\r\nhost: {HOST}\r\n").into_bytes();
    for (name, value) in lines {
        request.extend([name.as_bytes(), b": ", *value, b"\r\n"].concat());
    }
    request.extend(b"connection: close\r\n\r\n");
    stream.write_all(&request).await?;
    answered(stream, |received| received.starts_with(b"HTTP/1.1 200")).await
}

/// Sends a request of HTTP/2 for a path that HTTP/1.1 could not have.
async fn send_path(port: u16, path: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    // `:method: GET`, `:scheme: http`, then literals of the names `:path` and `:authority`
    // (RFC 7541, Appendix A and 6.2.2).
    let block = [
        &[0x82, 0x86, 0x04, u8::try_from(path.len())?],
        path,
        &[0x01, u8::try_from(HOST.len())?],
        HOST.as_bytes(),
    ]
    .concat();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let headers = [0, 0, u8::try_from(block.len())?, 1, 5, 0, 0, 0, 1];
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await?;
    stream
        .write_all(&[&settings[..], &headers, &block].concat())
        .await?;
    // The answer is a frame of headers on stream 1.
    answered(stream, |received| {
        let mut frames = received.windows(6);
        frames.any(|frame| frame[0] == 1 && frame[2..] == [0, 0, 0, 1])
    })
    .await
}

/// Reads until the answer is there.
async fn answered(mut stream: TcpStream, is_answer: fn(&[u8]) -> bool) -> Result<()> {
    let mut received = Vec::new();
    while !is_answer(&received) {
        let count = stream.read_buf(&mut received).await?;
        ensure!(count > 0, "{:?}", String::from_utf8_lossy(&received));
    }
    Ok(())
}

fn objects(port: u16, web: SocketAddr, collector: SocketAddr) -> Vec<Change> {
    let sink =
        json!({"type": "OpenTelemetry", "openTelemetry": {"service": "collector", "port": 80}});
    let log = json!({"mode": "All", "sinks": [sink], "query": "Keep",
        "requestHeaders": ["user-agent"], "responseHeaders": ["x-name"]});
    let parameters = json!({"parametersRef": {"group": "gatewright.io", "kind": "GatewayParameters", "name": "logged"}});
    let tracing = json!({"mode": "Enabled", "provider": {"backendRef": {"name": "collector", "port": 80}},
        "attributes": [
            {"name": "tenant", "sourceType": "Header", "headerName": "X-Tenant"},
            {"name": "path", "sourceType": "Attribute", "attributeKey": "url.path"},
            {"name": "agent", "sourceType": "Attribute", "attributeKey": "user_agent.original"}]});
    let mut all = vec![
        class(),
        object(
            json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "GatewayParameters",
            "metadata": {"namespace": "default", "name": "logged"}, "spec": {"accessLog": log}}),
        ),
        api(
            "Gateway",
            "edge",
            json!({"gatewayClassName": "ours", "infrastructure": parameters,
                "listeners": [{"name": "http", "port": port, "protocol": "HTTP"}]}),
        ),
        api(
            "HTTPRoute",
            "app",
            json!({"parentRefs": [{"name": "edge"}], "hostnames": [HOST],
                "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}),
        ),
        object(
            json!({"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XTelemetryPolicy",
            "metadata": {"namespace": "default", "name": "traces"}, "spec": {"tracing": tracing,
                "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}]}}),
        ),
    ];
    all.extend(service("web", web));
    all.extend(service("collector", collector));
    all
}

/// A collector, and an Envoy whose records and spans it gets.
struct Site {
    port: u16,
    collector: Collector,
    _world: World,
}

impl Site {
    async fn start() -> Result<Self> {
        let (port, collector) = (free_port()?, Collector::start().await?);
        let changes = objects(port, backend().await?, collector.address());
        Ok(Self {
            port,
            collector,
            _world: World::start(changes).await?,
        })
    }

    /// The value of a header in the record of a request.
    async fn logged(&self, path: &str, field: &str, header: &str) -> Result<Value> {
        let record = self.collector.record(path).await?;
        Ok(record.attributes[field][header].clone())
    }

    async fn span(&self, path: &str) -> Result<Span> {
        let url = format!("http://{HOST}{path}");
        let received = self
            .collector
            .until(|received| {
                let mut spans = received.spans.iter();
                spans.any(|span| span.attributes["http.url"] == url)
            })
            .await?;
        let mut spans = received.spans.into_iter();
        let found = spans.find(|span| span.attributes["http.url"] == url);
        found.context("the span was there")
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn headers_that_are_no_utf8_lose_no_record_of_others() -> Result<()> {
    let site = Site::start().await?;
    for (index, bytes) in BROKEN.into_iter().enumerate() {
        send(
            site.port,
            &format!("/broken/{index}"),
            &[("user-agent", bytes)],
        )
        .await?;
    }
    // 1,024 bytes end within a character.
    let long = format!("x{}", "é".repeat(800));
    send(site.port, "/long", &[("user-agent", long.as_bytes())]).await?;
    send(site.port, "/quoted", &[("user-agent", br#"a "b" \c"#)]).await?;
    send(site.port, "/other", &[("user-agent", b"neighbour")]).await?;
    for (path, expected) in [
        ("/other", "neighbour".to_owned()),
        ("/quoted", r#"a "b" \c"#.to_owned()),
        ("/broken/0", "caf\u{fffd}".to_owned()),
        ("/long", format!("x{}", "é".repeat(255))),
    ] {
        let found = site.logged(path, "request_headers", "user-agent").await?;
        assert_eq!(found, expected, "{path}");
    }
    let found = site.logged("/other", "response_headers", "x-name").await?;
    assert_eq!(found, "caf\u{fffd}", "of the backend");
    for index in 1..BROKEN.len() {
        site.collector.record(&format!("/broken/{index}")).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn spans_of_whatever_bytes_reach_a_collector() -> Result<()> {
    let site = Site::start().await?;
    let parent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".as_slice();
    for (index, bytes) in BROKEN.into_iter().enumerate() {
        let call = [b"application/grpc+".as_slice(), bytes].concat();
        let lines = [
            ("user-agent", bytes),
            ("traceparent", parent),
            ("tracestate", bytes),
            ("x-tenant", bytes),
            ("x-client-trace-id", bytes),
            ("x-envoy-downstream-service-cluster", bytes),
            ("grpc-timeout", bytes),
            ("content-type", call.as_slice()),
        ];
        send(site.port, &format!("/broken/{index}"), &lines).await?;
    }
    send(
        site.port,
        "/other",
        &[("user-agent", b"curl"), ("x-tenant", b"red")],
    )
    .await?;
    let other = site.span("/other").await?;
    assert_eq!(other.attributes["user_agent"], "curl", "{other:#?}");
    assert_eq!(other.attributes["agent"], "curl", "{other:#?}");
    assert_eq!(other.attributes["tenant"], "red", "{other:#?}");
    assert_eq!(
        other.attributes["grpc.path"],
        Value::Null,
        "no call: {other:#?}"
    );
    for index in 0..BROKEN.len() {
        let span = site.span(&format!("/broken/{index}")).await?;
        let note = "(not ASCII)";
        for attribute in [
            "user_agent",
            "tenant",
            "agent",
            "grpc.timeout",
            "grpc.content_type",
        ] {
            assert_eq!(span.attributes[attribute], note, "{attribute}: {span:#?}");
        }
        assert_eq!(
            span.attributes["grpc.message"], "",
            "of the backend: {span:#?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_path_of_http2_that_is_no_utf8_reaches_a_collector() -> Result<()> {
    let site = Site::start().await?;
    send_path(site.port, b"/caf\xe9").await?;
    site.collector.record("/caf%E9").await?;
    Ok(())
}
