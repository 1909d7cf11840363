//! The address of a client behind load balancers: the PROXY protocol of HAProxy and of strangers,
//! and proxies that append to `X-Forwarded-For`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::echo::Echo;
use e2e::haproxy::{HaProxy, Header};
use e2e::http1::read_answer;
use e2e::port::free_port;
use e2e::probe::{Answer, Probe};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::edge::status;
use crate::site::{LIMIT, Site};

/// The load balancer, whose headers are believed.
const SENDER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Somebody else on the way to the Envoy.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: alice.example.org\r\nConnection: close\r\n";
const V1: &str = "PROXY TCP4 203.0.113.7 192.0.2.1 4000 80\r\n";
/// Signature, and the version with the command PROXY.
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21";

/// A header of version 2 for a connection by IPv4 from 203.0.113.7, with this TLV.
fn v2(tlv: &[u8]) -> Vec<u8> {
    let length = u16::try_from(12 + tlv.len()).expect("a length");
    let addresses = [203, 0, 113, 7, 192, 0, 2, 1, 0x0f, 0xa0, 0, 80];
    [V2, &[0x11], &length.to_be_bytes(), &addresses, tlv].concat()
}

/// A TLV of the type for custom data with so many bytes in all.
fn tlv(bytes: usize) -> Vec<u8> {
    let length = u16::try_from(bytes - 3).expect("a length");
    let mut made = vec![0xe0];
    made.extend(length.to_be_bytes());
    made.resize(bytes, b'x');
    made
}

async fn connect(from: Ipv4Addr, port: u16) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    Ok(socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?)
}

/// Sends these bytes from an address; returns the answer, or what came before the connection ended.
async fn say(from: Ipv4Addr, port: u16, bytes: &[u8]) -> Result<String> {
    let exchange = async {
        let mut stream = connect(from, port).await?;
        let _early = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _reset = read_answer(&mut stream, &mut answer).await;
        anyhow::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    timeout(LIMIT, exchange)
        .await
        .context("neither an answer nor an end")?
}

/// Sends a request after a header; returns it as the backend received it.
async fn asked(port: u16, header: &[u8], more: &str) -> Result<Value> {
    let request = format!("{REQUEST}{more}\r\n");
    let answer = say(SENDER, port, &[header, request.as_bytes()].concat()).await?;
    ensure!(status(&answer) == Some(200), "{header:?}: {answer}");
    let start = answer.find('{').context("JSON")?;
    let end = answer.rfind('}').context("JSON")?;
    Ok(serde_json::from_str(&answer[start..=end])?)
}

/// The values of a header of a request, as the backend received it.
fn of(asked: &Value, name: &str) -> String {
    let values = asked["headers"][name].as_array();
    let values = values.into_iter().flatten().filter_map(Value::as_str);
    values.collect::<Vec<_>>().join("|")
}

/// The connections in a row of which some reach each worker of Envoy: workers take a change one
/// after the other.
const IN_A_ROW: usize = 10;

/// Waits until requests after a header are answered so that `done` by every worker.
async fn until(port: u16, header: &[u8], more: &str, done: impl Fn(&Value) -> bool) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    let mut row = 0;
    loop {
        let last = asked(port, header, more).await;
        if last.as_ref().is_ok_and(&done) {
            row += 1;
        } else {
            row = 0;
            sleep(Duration::from_millis(50)).await;
        }
        if row == IN_A_ROW {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{last:?}");
    }
}

/// Sets `spec.clients` of the Gateway's parameters, and adds listeners to it.
fn believe(site: &Site, base: &str, clients: &str, listeners: &str) -> Result<()> {
    let class = "gatewayClassName: ours\n";
    let reference = "  infrastructure: {parametersRef: {group: gatewright.io, kind: GatewayParameters, name: edge}}\n";
    let parameters = format!(
        "apiVersion: gatewright.io/v1alpha1\nkind: GatewayParameters\nmetadata: {{name: edge, namespace: infra}}\n\
         spec:\n  clients: {clients}\n---\n"
    );
    let gateway = base
        .replace(class, &format!("{class}{reference}"))
        .replace("  listeners:\n", &format!("  listeners:\n{listeners}"));
    site.save("base.yaml", &(parameters + &gateway))
}

fn base(site: &Site) -> Result<String> {
    Ok(std::fs::read_to_string(
        site.manifests.path().join("base.yaml"),
    )?)
}

/// A Service with one endpoint, and a route of a kind without HTTP that leads there.
fn other_route(kind: &str, name: &str, hostnames: &str, address: SocketAddr) -> String {
    crate::site::service("infra", address)
        .replace("name: web", &format!("name: {name}"))
        .replace("service-name: web", &format!("service-name: {name}"))
        + &format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: infra}}\n\
             spec:\n  parentRefs: [{{name: edge, sectionName: {name}}}]\n{hostnames}  \
             rules: [{{backendRefs: [{{name: {name}, port: 80}}]}}]\n---\n"
        )
}

/// A server that speaks first, as those of mail do, and counts its connections.
struct Greeter {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Greeter {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let _gone = stream.write_all(b"220 hello\r\n").await;
            }
        });
        Ok(Self {
            address,
            connections,
            accepting,
        })
    }
}

impl Drop for Greeter {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn json(answer: &Answer) -> Result<Value> {
    ensure!(answer.status == 200, "answered {}", answer.status);
    Ok(serde_json::from_slice(&answer.body)?)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and HAProxy"]
async fn a_load_balancer_tells_the_client_over_http_tls_and_tcp() -> Result<()> {
    let site = Site::start(&[]).await?;
    let made = rcgen::generate_simple_self_signed(["pass.example.org".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let passed = Echo::start_tls("passed", vec![made.cert.der().clone()], key).await?;
    let greeter = Greeter::start().await?;
    let (tcp, pass) = (free_port()?, free_port()?);
    let routes = other_route("TCPRoute", "tcp", "", greeter.address)
        + &other_route(
            "TLSRoute",
            "pass",
            "  hostnames: [pass.example.org]\n",
            passed.address(),
        );
    site.save("other.yaml", &routes)?;
    let clients = format!(
        "[{{ports: [{}, {}, {tcp}, {pass}], proxyProtocol: {{mode: Required, from: [{SENDER}/32]}}}}]",
        site.http, site.https
    );
    let listeners = format!(
        "  - {{name: tcp, protocol: TCP, port: {tcp}}}\n  \
         - {{name: pass, protocol: TLS, port: {pass}, hostname: pass.example.org, tls: {{mode: Passthrough}}}}\n"
    );
    believe(&site, &base(&site)?, &clients, &listeners)?;
    until(site.http, V1.as_bytes(), "", |asked| {
        of(asked, "x-forwarded-for") == "203.0.113.7"
    })
    .await?;

    let targets = [Header::V1, Header::V2].map(|header| {
        [
            (header, site.http),
            (header, site.https),
            (header, tcp),
            (header, pass),
        ]
    });
    let proxy = HaProxy::start(SENDER, &targets.concat()).await?;
    let client = HaProxy::ADDRESS.to_string();
    for first in [0, 4] {
        let plain = Probe::http(proxy.address(first), "alice.example.org");
        let secure = Probe::https(proxy.address(first + 1), "alice.example.org");
        for (probe, version) in [
            (plain, "HTTP/1.1"),
            (secure.clone().alpn(&["http/1.1"]), "HTTP/1.1"),
            (secure.clone().alpn(&["h2"]), "HTTP/2.0"),
        ] {
            let deadline = Instant::now() + LIMIT;
            let answer = loop {
                match probe.send().await {
                    Ok(answer) => break answer,
                    Err(error) => ensure!(Instant::now() < deadline, "{probe:?}: {error}"),
                }
                sleep(Duration::from_millis(50)).await;
            };
            let asked = json(&answer)?;
            ensure!(
                of(&asked, "x-forwarded-for") == client,
                "{version} by {probe:?}: {asked}"
            );
        }
        let mut stream = TcpStream::connect(proxy.address(first + 2)).await?;
        let mut greeting = Vec::new();
        timeout(LIMIT, stream.read_to_end(&mut greeting))
            .await
            .context("no greeting")??;
        ensure!(greeting == b"220 hello\r\n", "{greeting:?}");
        let through = Probe::https(proxy.address(first + 3), "pass.example.org")
            .send()
            .await?;
        ensure!(json(&through)?["name"] == "passed", "{through:?}");
    }

    // Strangers: no byte comes back, and no backend is connected for them.
    let before = greeter.connections.load(Ordering::SeqCst);
    let asked_before = site.alice.requests();
    let request = format!("{REQUEST}\r\n");
    for port in [site.http, site.https, tcp, pass] {
        for header in [V1.as_bytes(), &v2(&[]), b""] {
            let bytes = [header, request.as_bytes()].concat();
            let answer = say(STRANGER, port, &bytes).await?;
            ensure!(answer.is_empty(), "{port} {header:?}: {answer}");
        }
        // Without a header a sender is closed as well.
        let answer = say(SENDER, port, request.as_bytes()).await?;
        ensure!(answer.is_empty(), "{port}: {answer}");
    }
    ensure!(
        greeter.connections.load(Ordering::SeqCst) == before,
        "a backend was connected for a stranger"
    );
    ensure!(
        site.alice.requests() == asked_before,
        "a backend was asked for a stranger"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn headers_of_all_forms_are_read_or_close_their_connection() -> Result<()> {
    let site = Site::start(&[]).await?;
    let port = site.http;
    let clients = format!(
        "[{{ports: [{port}], proxyProtocol: {{mode: Required, from: [{SENDER}/32, 198.18.0.0/15]}}}}]"
    );
    let written = base(&site)?;
    believe(&site, &written, &clients, "")?;
    until(port, V1.as_bytes(), "", |asked| {
        of(asked, "x-forwarded-for") == "203.0.113.7"
    })
    .await?;

    let v1_six = b"PROXY TCP6 2001:db8::7 2001:db8::1 4000 80\r\n";
    let addresses = "203.0.113.7";
    for (header, client) in [
        (v1_six.to_vec(), "2001:db8::7"),
        (v2(&[]), addresses),
        (v2(&tlv(64)), addresses),
        (v2(&tlv(60_000)), addresses),
    ] {
        let asked = asked(port, &header, "X-Forwarded-For: 192.0.2.99\r\n").await?;
        ensure!(
            of(&asked, "x-forwarded-for") == format!("192.0.2.99,{client}"),
            "{client}: {asked}"
        );
        ensure!(
            of(&asked, "x-envoy-external-address") == client,
            "{client}: {asked}"
        );
    }
    // Health checks of load balancers speak for themselves.
    let local = [V2[..12].to_vec(), b"\x20\x00\x00\x00".to_vec()].concat();
    for header in [b"PROXY UNKNOWN\r\n".to_vec(), local] {
        let asked = asked(port, &header, "").await?;
        ensure!(!of(&asked, "x-forwarded-for").contains("203.0"), "{asked}");
    }
    let request = format!("{REQUEST}\r\n");
    let mut cut = v2(&[]);
    cut.truncate(20);
    for wrong in [
        b"PROXY TCP4 nobody 192.0.2.1 4000 80\r\n".to_vec(),
        b"PROXY TCP4 203.0.113.7 192.0.2.1 4000\r\n".to_vec(),
        b"PROXY TCP4 224.0.0.1 192.0.2.1 4000 80\r\n".to_vec(),
        format!("PROXY TCP4 {} 192.0.2.1 4000 80\r\n", "1".repeat(200)).into_bytes(),
        [V2, &[0x11, 0, 4], &[203, 0, 113, 7]].concat(),
        [V2, &[0x31, 0, 0]].concat(),
        [V2, &[0x11, 0xff, 0xff], &[1; 12]].concat(),
        b"\x16\x03\x01 a client hello".to_vec(),
    ] {
        let answer = say(SENDER, port, &[&wrong, request.as_bytes()].concat()).await?;
        ensure!(
            status(&answer) != Some(200),
            "{}: {answer}",
            String::from_utf8_lossy(&wrong)
        );
    }
    // Whoever sends half a header is closed as well, and has held nobody up.
    let mut half = connect(SENDER, port).await?;
    half.write_all(&cut).await?;
    asked(port, V1.as_bytes(), "").await?;
    let mut end = Vec::new();
    let ended = timeout(LIMIT, half.read_to_end(&mut end)).await;
    let _reset = ended.context("half a header holds its connection")?;
    ensure!(end.is_empty(), "{end:?}");

    // More senders, on the same connection: they change in place.
    let mut held = connect(SENDER, port).await?;
    held.write_all(V1.as_bytes()).await?;
    let keep = "GET / HTTP/1.1\r\nHost: alice.example.org\r\n\r\n";
    held.write_all(keep.as_bytes()).await?;
    let first = answer(&mut held).await?;
    ensure!(status(&first) == Some(200), "{first}");
    let more = clients.replace("198.18.0.0/15", &format!("{STRANGER}/32"));
    believe(&site, &written, &more, "")?;
    let deadline = Instant::now() + LIMIT;
    let bytes = [V1.as_bytes(), request.as_bytes()].concat();
    while status(&say(STRANGER, port, &bytes).await?) != Some(200) {
        ensure!(Instant::now() < deadline, "{}", site.program.output());
        sleep(Duration::from_millis(50)).await;
    }
    held.write_all(keep.as_bytes()).await?;
    let second = answer(&mut held).await?;
    ensure!(
        status(&second) == Some(200) && !second.to_ascii_lowercase().contains("connection: close"),
        "{second}"
    );

    // The PROXY protocol is optional for its senders alone: connections of strangers are closed.
    believe(
        &site,
        &written,
        &clients.replace("Required", "Optional"),
        "",
    )?;
    until(port, b"", "", |asked| {
        !of(asked, "x-forwarded-for").contains("203.0")
    })
    .await?;
    let asked = asked(port, V1.as_bytes(), "").await?;
    ensure!(of(&asked, "x-forwarded-for") == "203.0.113.7", "{asked}");
    for header in [V1.as_bytes(), b""] {
        let bytes = [header, request.as_bytes()].concat();
        let answer = say(STRANGER, port, &bytes).await?;
        ensure!(answer.is_empty(), "{header:?}: {answer}");
    }
    Ok(())
}

/// Reads one answer of the backend from a connection that stays open.
async fn answer(stream: &mut TcpStream) -> Result<String> {
    let mut all = Vec::new();
    let read = async {
        loop {
            let mut chunk = [0; 4096];
            let count = stream.read(&mut chunk).await?;
            ensure!(count > 0, "closed");
            all.extend_from_slice(&chunk[..count]);
            let text = String::from_utf8_lossy(&all);
            if text.contains("\"version\"") && text.trim_end().ends_with('}') {
                return anyhow::Ok(text.into_owned());
            }
        }
    };
    timeout(LIMIT, read).await.context("no answer")?
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn as_many_proxies_are_believed_as_stand_in_front() -> Result<()> {
    let site = Site::start(&[]).await?;
    let port = site.http;
    let written = base(&site)?;
    let said = "X-Forwarded-For: 192.0.2.99, 198.51.100.5, 203.0.113.9\r\nX-Forwarded-Proto: https\r\n\
                X-Forwarded-Port: 443\r\nX-Forwarded-Host: evil.example\r\nX-Real-IP: 192.0.2.99\r\n\
                Forwarded: for=192.0.2.99\r\nX-Forwarded-Ports: 1\r\nX-Envoy-External-Address: 192.0.2.99\r\n";
    let nobody = asked(port, b"", said).await?;
    ensure!(of(&nobody, "x-forwarded-proto") == "http", "{nobody}");
    ensure!(of(&nobody, "x-forwarded-port").is_empty(), "{nobody}");
    ensure!(
        !of(&nobody, "x-envoy-external-address").contains('9'),
        "{nobody}"
    );
    for (hops, client) in [(1, "203.0.113.9"), (2, "198.51.100.5")] {
        let clients = format!("[{{ports: [{port}], forwardedFor: {{hops: {hops}}}}}]");
        believe(&site, &written, &clients, "")?;
        until(port, b"", said, |asked| {
            of(asked, "x-envoy-external-address") == client
        })
        .await?;
        let asked = asked(port, b"", said).await?;
        ensure!(
            of(&asked, "x-forwarded-for").starts_with("192.0.2.99, 198.51.100.5, 203.0.113.9,"),
            "{asked}"
        );
        ensure!(of(&asked, "x-forwarded-proto") == "https", "{asked}");
        ensure!(of(&asked, "x-forwarded-port") == "443", "{asked}");
        for name in [
            "x-real-ip",
            "forwarded",
            "x-forwarded-host",
            "x-forwarded-ports",
        ] {
            ensure!(asked["headers"].get(name).is_none(), "{name}: {asked}");
        }
    }
    // Fewer entries than proxies: the client is the peer.
    let short = asked(port, b"", "X-Forwarded-For: 192.0.2.99\r\n").await?;
    ensure!(
        of(&short, "x-envoy-external-address") != "192.0.2.99",
        "{short}"
    );

    // A load balancer that speaks the PROXY protocol, behind a proxy that speaks HTTP.
    let clients = format!(
        "[{{ports: [{port}], proxyProtocol: {{mode: Required, from: [{SENDER}/32]}}, forwardedFor: {{hops: 1}}}}]"
    );
    believe(&site, &written, &clients, "")?;
    until(port, V1.as_bytes(), said, |asked| {
        of(asked, "x-envoy-external-address") == "203.0.113.9"
    })
    .await?;
    let both = asked(port, V1.as_bytes(), said).await?;
    ensure!(
        of(&both, "x-forwarded-for") == "192.0.2.99, 198.51.100.5, 203.0.113.9,203.0.113.7",
        "{both}"
    );

    // Nobody again, and other ports of the Gateway never believed anybody.
    site.save("base.yaml", &written)?;
    until(port, b"", said, |asked| {
        of(asked, "x-forwarded-proto") == "http" && of(asked, "x-forwarded-port").is_empty()
    })
    .await?;
    let secure = site
        .tls("alice.example.org")
        .header("x-forwarded-proto", "http")
        .send()
        .await?;
    ensure!(
        of(&json(&secure)?, "x-forwarded-proto") == "https",
        "{secure:?}"
    );
    Ok(())
}

/// A header of version 2 for a connection by IPv6 from the IPv4-mapped address of a client.
fn v2_mapped(client: Ipv4Addr) -> Vec<u8> {
    let addresses = [
        client.to_ipv6_mapped().octets(),
        Ipv6Addr::LOCALHOST.octets(),
    ];
    [
        V2,
        &[0x21, 0, 36],
        addresses.as_flattened(),
        &[0x0f, 0xa0, 0, 80],
    ]
    .concat()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_mapped_address_in_a_header_is_a_client_of_ipv4() -> Result<()> {
    let site = Site::start(&[]).await?;
    let policy = "apiVersion: gatewright.io/v1alpha1\nkind: AccessPolicy\nmetadata: {name: deny, namespace: infra}\n\
                  spec:\n  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge}]\n  \
                  clientAddress: {deny: [203.0.113.7/32]}\n";
    site.save("deny.yaml", policy)?;
    // The sender in its mapped form as well.
    let clients = format!(
        "[{{ports: [{}], proxyProtocol: {{mode: Required, from: [\"::ffff:{SENDER}/128\"]}}}}]",
        site.http
    );
    believe(&site, &base(&site)?, &clients, "")?;
    let [seven, eight] = [7, 8].map(|last| Ipv4Addr::new(203, 0, 113, last));
    let other = v2_mapped(eight);
    until(site.http, &other, "", |asked| {
        of(asked, "x-forwarded-for").ends_with("203.0.113.8")
    })
    .await?;
    let request = format!("{REQUEST}\r\n");
    for header in [
        V1.as_bytes().to_vec(),
        v2(&[]),
        b"PROXY TCP6 ::ffff:203.0.113.7 ::1 4000 80\r\n".to_vec(),
        b"PROXY TCP6 ::FFFF:CB00:7107 ::1 4000 80\r\n".to_vec(),
        b"PROXY TCP6 0:0:0:0:0:ffff:cb00:7107 ::1 4000 80\r\n".to_vec(),
        v2_mapped(seven),
    ] {
        let deadline = Instant::now() + LIMIT;
        loop {
            let bytes = [&header, request.as_bytes()].concat();
            let answer = say(SENDER, site.http, &bytes).await?;
            if status(&answer) == Some(403) {
                break;
            }
            ensure!(Instant::now() < deadline, "{header:?}: {answer}");
            sleep(Duration::from_millis(50)).await;
        }
    }
    let answer = asked(site.http, &other, "").await?;
    ensure!(
        of(&answer, "x-forwarded-for").ends_with("203.0.113.8"),
        "{answer}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_mistake_is_told_with_its_field_and_nothing_is_served_with_less_protection() -> Result<()>
{
    let site = Site::start(&[]).await?;
    let written = base(&site)?;
    let clients = format!(
        "[{{ports: [{}], proxyProtocol: {{mode: Required, from: [0.0.0.0/0]}}}}]",
        site.http
    );
    believe(&site, &written, &clients, "")?;
    let deadline = Instant::now() + LIMIT;
    while !site
        .program
        .output()
        .contains("clients[0].proxyProtocol.from: 0.0.0.0/0: everybody could claim any address")
    {
        ensure!(Instant::now() < deadline, "{}", site.program.output());
        sleep(Duration::from_millis(50)).await;
    }
    // The Gateway is not served without its parameters.
    while connect(STRANGER, site.http).await.is_ok() {
        ensure!(Instant::now() < deadline, "{}", site.program.output());
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
