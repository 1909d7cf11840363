//! Hosts per second until Envoy serves them over HTTPS with a certificate from Pebble, for each
//! kind of challenge, with one and with 25 names in a certificate; with and without the self-check;
//! and compared with caddy, where it is installed, and with a client that only orders.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::bind::{Bind, BindKey, BindZone};
use e2e::caddy::{self, Caddy};
use e2e::echo::Echo;
use e2e::gatewright::{CONFIGURATION, Gatewright};
use e2e::pebble::{Options, Pebble};
use e2e::port::free_port;
use e2e::private_dir::private_dir;
use e2e::probe::{Probe, roots_of};
use e2e::usage::{child, processor_time};
use e2e_inside::responders::Responder;
use futures::StreamExt;
use instant_acme::KeyAuthorization;
use tokio::time::sleep;

use crate::plain_client;

const HOSTS: usize = 300;
/// Rounds of the comparison with a client that only orders.
const ROUNDS: usize = 5;
/// Orders at a time of that client: as many as the program has at a CA.
const WORKERS: usize = 16;
/// Time limit of a run. A run that exceeds it is void: some runs with Pebble do not end, and
/// without the self-check the CA may validate before Envoy knows a host, which is then retried a
/// minute later.
const WATCHDOG: Duration = Duration::from_secs(60);
const SECRET: &str = "Zm9yIHRlc3RzIG9ubHk6IGZvcnR5LWVpZ2h0IGJ5dGVzIG9mIGEga2V5IQ==";

/// The kind of challenge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Http,
    TlsAlpn,
    Dns,
}

/// The arguments of one measurement.
struct Case {
    way: Way,
    /// Names in a certificate.
    names: usize,
    preflight: &'static str,
}

/// The results of one measurement.
struct Run {
    first: Duration,
    all: Duration,
    /// Processor time of the program per certificate.
    work: Duration,
    /// Processor time of Envoy for all of them.
    envoy: Duration,
    /// Processor time of Pebble for all of them.
    ca: Duration,
    certificates: usize,
    orders: usize,
}

/// Runs all cases, or those of one kind of challenge; with the given number of hosts or the
/// default.
pub(crate) async fn served(hosts: Option<usize>, only: Option<&str>) -> Result<()> {
    let hosts = hosts.unwrap_or(HOSTS);
    match only {
        Some("caddy") => return by_caddy(hosts).await,
        Some("ceiling") => return ceiling(hosts).await,
        _ => {}
    }
    println!("{hosts} hosts of Pebble's until each is served by Envoy over HTTPS:");
    let one = measured(
        &Case {
            way: Way::Http,
            names: 1,
            preflight: "Warn",
        },
        1,
    )
    .await?;
    println!(
        "  the first certificate of a program that just started: {:.2} s",
        one.first.as_secs_f64()
    );
    for (way, told, name) in [
        (Way::Http, "HTTP-01", "http"),
        (Way::TlsAlpn, "TLS-ALPN-01", "tls-alpn"),
        (Way::Dns, "DNS-01, BIND", "dns"),
    ] {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        for names in [1, 25] {
            for preflight in ["Skip", "Warn"] {
                let Ok(run) = measured(
                    &Case {
                        way,
                        names,
                        preflight,
                    },
                    hosts,
                )
                .await
                else {
                    println!("  {told:<13} {names:>2} a certificate, preflight {preflight}: void");
                    continue;
                };
                println!(
                    "  {told:<13} {names:>2} a certificate, preflight {preflight}: {:6.1} hosts/s, {:5.2} s, \
                     {:6.2} ms of processor a certificate ({} of {} orders)",
                    hosts as f64 / run.all.as_secs_f64(),
                    run.all.as_secs_f64(),
                    run.work.as_secs_f64() * 1e3,
                    run.certificates,
                    run.orders,
                );
            }
        }
    }
    if only.is_none() {
        by_caddy(hosts).await
    } else {
        Ok(())
    }
}

async fn measured(case: &Case, hosts: usize) -> Result<Run> {
    for _ in 0..3 {
        match tokio::time::timeout(WATCHDOG, run(case, hosts)).await {
            Ok(run) => return run,
            Err(_) => println!("  no end within {WATCHDOG:?}, the run is void"),
        }
    }
    bail!("three void runs")
}

fn host(i: usize) -> String {
    format!("h{i}.example.test")
}

async fn run(case: &Case, hosts: usize) -> Result<Run> {
    let key = BindKey {
        name: "k".to_owned(),
        algorithm: "hmac-sha256".to_owned(),
        secret: SECRET.to_owned(),
    };
    let bind = Bind::start(&[key], &[BindZone::new("example.test").open_to("k")]).await?;
    let resolver = (case.way == Way::Dns).then(|| bind.address());
    let pebble = eager(resolver).await?;
    let echo = Echo::start("web").await?;
    let manifests = tempfile::tempdir()?;
    let state = private_dir()?;
    let port = if case.way == Way::TlsAlpn {
        pebble.tls_port
    } else {
        free_port()?
    };
    let issuers = state.path().join("issuers.yaml");
    let warm = Case {
        preflight: "Warn",
        ..*case
    };
    fs::write(
        &issuers,
        issuer(&warm, &pebble, &bind, state.path(), hosts)?,
    )?;
    let publish = |hosts: usize| -> Result<()> {
        let new = manifests.path().join(".all.new");
        fs::write(&new, objects(port, echo.address().port(), hosts))?;
        Ok(fs::rename(new, manifests.path().join("all.yaml"))?)
    };
    publish(1)?;
    let config = issuers.display().to_string();
    let allowed = "tenancy.allowedNetworks=[127.0.0.0/8]";
    let options = ["--config", &config, "--set", allowed];
    let start = Instant::now();
    let mut program = Gatewright::standalone(manifests.path(), state.path(), &options)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let first = until_served(&pebble, address, 1, start).await?;
    if case.preflight != warm.preflight {
        // Without the self-check the first order may be too early for Envoy: the listener exists
        // before the others are placed.
        drop(program);
        fs::write(&issuers, issuer(case, &pebble, &bind, state.path(), hosts)?)?;
        program = Gatewright::standalone(manifests.path(), state.path(), &options)?;
        until_served(&pebble, address, 1, start).await?;
    }
    let before = processor_time(program.pid())?;
    let envoy = child(program.pid(), "envoy")?;
    let (envoy_before, ca_before) = (processor_time(envoy)?, pebble.processor_time()?);
    let start = Instant::now();
    publish(hosts)?;
    let all = until_served(&pebble, address, hosts, start).await?;
    let certificates = pebble.issued();
    let orders = pebble.orders();
    let work = (processor_time(program.pid())? - before) / u32::try_from(certificates.max(1))?;
    ensure!(certificates <= hosts, "{certificates} certificates");
    Ok(Run {
        first,
        all,
        work,
        envoy: processor_time(envoy)? - envoy_before,
        ca: pebble.processor_time()? - ca_before,
        certificates,
        orders,
    })
}

/// Starts a Pebble that validates names, and sends no `Retry-After`.
async fn eager(resolver: Option<SocketAddr>) -> Result<Pebble> {
    let options = Options {
        eager: true,
        resolver,
        ..Options::default()
    };
    Pebble::start(&options).await
}

/// Returns the content of the configuration. Names share a certificate only where the CA's
/// limit requires it.
fn issuer(case: &Case, pebble: &Pebble, bind: &Bind, dir: &Path, hosts: usize) -> Result<String> {
    let ca = pebble.ca_pem();
    fs::write(dir.join("pebble.pem"), ca)?;
    fs::write(dir.join("tsig"), SECRET)?;
    let mut text = format!(
        "{CONFIGURATION}issuers:\n  acme:\n    directory: \"{}\"\n    caBundle: {}\n    agreeToTerms: true\n    preflight: {}\n",
        pebble.directory(),
        dir.join("pebble.pem").display(),
        case.preflight
    );
    if case.names > 1 {
        // A fifth of a limit is reserved.
        let orders = hosts.div_ceil(case.names) * 5 / 4 + 5;
        text +=
            &format!("    limits: {{certificatesPerDomain: {{count: {orders}, hours: 168}}}}\n");
    }
    text += &match case.way {
        Way::Http => format!("    httpPort: {}\n", pebble.http_port),
        Way::TlsAlpn => format!("    tlsAlpnPort: {}\n", pebble.tls_port),
        Way::Dns => format!(
            "    resolvers: [\"{at}\"]\n    allowedNetworks: [127.0.0.0/8]\n    dns:\n      authorityPort: {}\n      \
             rfc2136: {{nameserver: \"{at}\", keyName: k, keyFile: {}}}\n",
            bind.address().port(),
            dir.join("tsig").display(),
            at = bind.address(),
        ),
    };
    Ok(text)
}

fn objects(port: u16, backend: u16, hosts: usize) -> String {
    let listeners: String = (0..hosts)
        .map(|i| {
            format!(
                "  - {{name: l{}, hostname: {}, protocol: HTTPS, port: {port}, \
                 tls: {{options: {{gatewright.io/issuer: acme}}}}}}\n",
                i % 60,
                host(i)
            )
        })
        .collect::<Vec<_>>()
        .chunks(60)
        .enumerate()
        .map(|(n, chunk)| match n {
            0 => format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge}}\nspec:\n  \
                 gatewayClassName: ours\n  allowedListeners: {{namespaces: {{from: Same}}}}\n  listeners:\n{}---\n",
                chunk.concat()
            ),
            _ => format!(
                "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {{name: more{n}}}\nspec:\n  \
                 parentRef: {{name: edge}}\n  listeners:\n{}---\n",
                chunk.concat()
            ),
        })
        .collect();
    let parents: String = (1..hosts.div_ceil(60))
        .map(|n| {
            format!(", {{group: gateway.networking.k8s.io, kind: ListenerSet, name: more{n}}}")
        })
        .collect();
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{ports: [{{port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: web, labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\n\
         endpoints: [{{addresses: [127.0.0.1]}}]\nports: [{{port: {backend}}}]\n---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {{name: ours}}\n\
         spec: {{controllerName: gatewright.io/gateway-controller}}\n---\n{listeners}\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: web}}\nspec:\n  \
         parentRefs: [{{name: edge}}{parents}]\n  rules:\n  - backendRefs: [{{name: web, port: 80}}]\n"
    )
}

/// Returns the time at which `hosts` hosts have answered 200 with a certificate by Pebble's root.
async fn until_served(
    pebble: &Pebble,
    address: SocketAddr,
    hosts: usize,
    start: Instant,
) -> Result<Duration> {
    let roots = roots_of(&pebble.issuing_root(0).await?)?;
    let asked = (0..hosts).map(|i| {
        let probe = Probe::https(address, &host(i)).roots(roots.clone());
        async move {
            while !probe.send().await.is_ok_and(|answer| answer.status == 200) {
                sleep(Duration::from_millis(20)).await;
            }
            start.elapsed()
        }
    });
    // Few at a time: a request before the certificate is issued is work for Envoy.
    let done: Vec<Duration> = futures::stream::iter(asked)
        .buffer_unordered(8)
        .collect()
        .await;
    done.into_iter().max().context("there is a host")
}

/// Measures a client that only orders, and answers HTTP-01 by itself, beside the program with
/// Envoy, in alternating order.
async fn ceiling(hosts: usize) -> Result<()> {
    let case = Case {
        way: Way::Http,
        names: 1,
        preflight: "Warn",
    };
    println!(
        "{hosts} hosts of Pebble's by HTTP-01, until each is served, and a client that only orders:"
    );
    let mut parts = Vec::new();
    for round in 0..ROUNDS {
        let early = if round % 2 == 0 {
            Some(plain(hosts).await?)
        } else {
            None
        };
        let ours = measured(&case, hosts).await?;
        let (plain, plain_ca) = match early {
            Some(run) => run,
            None => plain(hosts).await?,
        };
        // One of them was served before.
        let rate = (hosts - 1) as f64 / ours.all.as_secs_f64();
        let most = hosts as f64 / plain.as_secs_f64();
        println!(
            "  {rate:5.1} hosts/s of {most:5.1}; processor: program {:.1} ms each, Envoy {:.1} ms, Pebble {:.1} ms ({:.1} for the client that only orders)",
            millis(ours.work),
            millis(ours.envoy) / hosts as f64,
            millis(ours.ca) / hosts as f64,
            millis(plain_ca) / hosts as f64
        );
        parts.push((100.0 * rate / most) as usize);
    }
    parts.sort_unstable();
    println!(
        "  {} % of the ceiling (rounds: {parts:?})",
        parts[ROUNDS / 2]
    );
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The time that a client needs that only orders, and Pebble's processor time for it.
async fn plain(hosts: usize) -> Result<(Duration, Duration)> {
    let pebble = eager(None).await?;
    let ca = pebble.ca_pem();
    let responder = Arc::new(Responder::start(pebble.http_port, "").await?);
    let account = plain_client::account(pebble.directory(), ca).await?;
    let before = pebble.processor_time()?;
    let start = Instant::now();
    let answering = move |key: &KeyAuthorization| {
        if let Some((_token, thumbprint)) = key.as_str().split_once('.') {
            responder.set_thumbprint(thumbprint);
        }
    };
    let names = (0..hosts).map(host).collect();
    plain_client::issue(&account, names, WORKERS, answering).await?;
    Ok((start.elapsed(), pebble.processor_time()? - before))
}

/// Measures caddy, the usual choice for a few hosts: it obtains and serves certificates by itself.
async fn by_caddy(hosts: usize) -> Result<()> {
    let program = match caddy::binary() {
        Ok(program) => program,
        Err(error) => {
            println!("  {error:#}");
            return Ok(());
        }
    };
    let pebble = eager(None).await?;
    let ca = pebble.ca_pem();
    let dir = private_dir()?;
    let port = free_port()?;
    fs::write(dir.path().join("ca.pem"), ca)?;
    let names: Vec<String> = (0..hosts).map(host).collect();
    let caddyfile = format!(
        "{{\n admin off\n http_port {}\n https_port {port}\n acme_ca {}\n acme_ca_root {}\n email a@example.com\n}}\n\
         {} {{\n respond \"x\"\n}}\n",
        pebble.http_port,
        pebble.directory(),
        dir.path().join("ca.pem").display(),
        names.join(", ")
    );
    let start = Instant::now();
    let running = Caddy::start(&program, dir.path(), &caddyfile)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let all = tokio::time::timeout(WATCHDOG, until_served(&pebble, address, hosts, start)).await;
    drop(running);
    match all {
        Ok(all) => println!(
            "  caddy         {:6.1} hosts/s",
            hosts as f64 / all?.as_secs_f64()
        ),
        Err(_) => {
            println!(
                "  caddy         {:6.1} hosts/s, not all of them",
                pebble.issued() as f64 / WATCHDOG.as_secs_f64()
            );
        }
    }
    Ok(())
}
