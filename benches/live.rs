//! One change of many hosts on a real Envoy: the time from the object to the acknowledgement and to
//! the first answer.
//!
//! `cargo bench -p e2e-inside --bench live [64 1000] [siblings own mixed]`. Each host has a certificate, a ListenerSet and an HTTPRoute
//! of its own; each row adds, changes, rotates and removes hosts beside N others. The classic
//! layout, one filter chain per host, is that of all other controllers; it is pushed through the
//! same server to the same Envoy, so that only the layout differs. Then a flood of requests for
//! unknown hostnames, below an apex of ours and outside. Times are of this machine; read ratios.

#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

mod names;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::echo::Echo;
use e2e::probe::Probe;
use e2e_inside::world::{World, api, class, free_port, secret, service};
use envoy_types::pb::envoy::config::listener::v3::{
    FilterChain, FilterChainMatch, filter::ConfigType,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use gatewright_control::publish;
use gatewright_core::inputs::ObjectChange;
use gatewright_core::model::{
    Action, Addresses, AppProtocol, BackendId, CertificateSource, Chain, Cluster, ClusterId,
    Endpoints, Frontend, FrontendId, FrontendKind, Handler, HeaderEdits, Hostname, Match,
    ObjectName, OtherListeners, PathMatch, Rewrite, Route, Rule, Secret, SecretName, ServicePort,
    Table, TableId, Target, Termination, TlsParams, VirtualHost, WeightedTarget,
};
use gatewright_core::translate::{Change, Resource};
use names::Names;
use prost::Message;
use serde_json::json;
use xds::Update;

const ROUNDS: usize = 60;
const CLASSIC_ROUNDS: usize = 5;
const FLOOD: u32 = 500;

fn listener_set(n: usize, port: u16, names: Names) -> Change {
    let listener = json!({"name": "https", "port": port, "protocol": "HTTPS", "hostname": names.of(n),
        "tls": {"certificateRefs": [{"name": format!("c{n}")}]}});
    api(
        "ListenerSet",
        &format!("s{n}"),
        json!({"parentRef": {"name": "edge"}, "listeners": [listener]}),
    )
}

fn route(n: usize, header: &str) -> Change {
    let filter = json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "x-round", "value": header}]}});
    api(
        "HTTPRoute",
        &format!("r{n}"),
        json!({"parentRefs": [{"kind": "ListenerSet", "name": format!("s{n}")}],
        "rules": [{"filters": [filter], "backendRefs": [{"name": "web", "port": 80}]}]}),
    )
}

fn host(n: usize, port: u16, names: Names) -> Result<Vec<Change>> {
    Ok(vec![
        secret(&format!("c{n}"), &names.of(n))?,
        listener_set(n, port, names),
        route(n, "0"),
    ])
}

/// The cost of one kind of change, over all rounds.
#[derive(Default)]
struct Row {
    bytes: Vec<u64>,
    gate: Vec<u64>,
    ours: Vec<Duration>,
    ack: Vec<Duration>,
    live: Vec<Duration>,
    envoy: Vec<Duration>,
}

impl Row {
    fn print(&mut self, count: usize, what: &str) {
        fn at(all: &mut [Duration], percent: usize) -> Duration {
            all.sort();
            all.get((all.len() * percent / 100).min(all.len().saturating_sub(1)))
                .copied()
                .unwrap_or_default()
        }
        self.bytes.sort_unstable();
        self.gate.sort_unstable();
        fn ms(time: Duration) -> f64 {
            time.as_secs_f64() * 1000.0
        }
        println!(
            "{count:>6} | {what:<14} | {:>6} B | {:>7} B | {:>6.0} us | {:>6.1} ms | {:>6.1} ms | {:>6.1} ms | {:>6.1} ms",
            self.bytes[self.bytes.len() / 2],
            self.gate[self.gate.len() / 2],
            at(&mut self.ours, 50).as_secs_f64() * 1e6,
            ms(at(&mut self.ack, 50)),
            ms(at(&mut self.live, 50)),
            ms(at(&mut self.live, 99)),
            ms(at(&mut self.envoy, 50)),
        );
    }
}

struct Bench {
    world: World,
    port: u16,
    names: Names,
}

impl Bench {
    fn probe(&self, n: usize) -> Probe {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        Probe::https(address, &self.names.of(n)).limit(Duration::from_secs(5))
    }

    /// Applies a change and measures until `seen` holds for an answer.
    async fn change(
        &self,
        row: &mut Row,
        n: usize,
        changes: Vec<Change>,
        seen: impl Fn(Option<&e2e::probe::Answer>) -> bool,
    ) -> Result<()> {
        let cpu = self.world.envoy.main_thread_cpu()?;
        let start = Instant::now();
        let (delta, generation) = self.world.apply(changes);
        row.ours.push(start.elapsed());
        self.world.acknowledged(generation).await?;
        row.ack.push(start.elapsed());
        loop {
            let answer = self.probe(n).send().await;
            if seen(answer.as_ref().ok()) {
                break;
            }
            ensure!(
                start.elapsed() < Duration::from_secs(20),
                "host {n} never came: {answer:?}"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        row.live.push(start.elapsed());
        row.envoy
            .push(self.world.envoy.main_thread_cpu()?.saturating_sub(cpu));
        let mut bytes = 0;
        let mut gate = 0;
        for resource in delta.resources.values().flatten() {
            let encoded = gatewright_control::publish::encode(resource);
            let size =
                (encoded.body().len() + encoded.name().len() + encoded.version().len()) as u64;
            match encoded.kind() {
                xds::Kind::Listener => gate += size,
                _ => bytes += size,
            }
        }
        row.bytes.push(bytes);
        row.gate.push(gate);
        Ok(())
    }
}

async fn run(count: usize, names: Names) -> Result<()> {
    println!("{count:>6} | {names:?}");
    let port = free_port()?;
    let echo = Echo::start("web").await?;
    let plain = json!([{"name": "http", "port": free_port()?, "protocol": "HTTP"}]);
    let gateway = json!({"gatewayClassName": "ours", "listeners": plain, "allowedListeners": {"namespaces": {"from": "Same"}}});
    let mut changes = vec![class(), api("Gateway", "edge", gateway)];
    changes.extend(service("web", echo.address()));
    let bench = Bench {
        world: World::start(changes).await?,
        port,
        names,
    };
    let idle = bench.world.envoy.resident()?;

    let mut all = Vec::new();
    for n in 0..count {
        all.extend(host(n, port, names)?);
    }
    let start = Instant::now();
    let (_, generation) = bench.world.apply(all);
    let ours = start.elapsed();
    bench.world.acknowledged(generation).await?;
    let acked = start.elapsed();
    let last = bench
        .probe(count - 1)
        .send()
        .await
        .map_err(|error| anyhow::anyhow!("the last host: {error}"))?;
    ensure!(last.status == 200, "the last host answers {}", last.status);
    let live = start.elapsed();
    let memory = bench.world.envoy.resident()?.saturating_sub(idle);
    println!(
        "{count:>6} | all at once    | ours {:.0} ms, acknowledged {:.0} ms, last host 200 after {:.0} ms, Envoy {:.1} KB per host",
        ours.as_secs_f64() * 1000.0,
        acked.as_secs_f64() * 1000.0,
        live.as_secs_f64() * 1000.0,
        memory as f64 / 1024.0 / count as f64
    );

    let mut held = bench.probe(0).connect().await?;
    let mut add = Row::default();
    let mut change = Row::default();
    let mut rotate = Row::default();
    let mut remove = Row::default();
    for round in 0..ROUNDS {
        let n = count + round;
        bench
            .change(&mut add, n, host(n, port, names)?, |a| {
                a.is_some_and(|a| a.status == 200)
            })
            .await?;
        let wanted = format!("round-{round}");
        bench
            .change(&mut change, n, vec![route(n, &wanted)], |a| {
                a.is_some_and(|a| {
                    a.headers
                        .get("x-round")
                        .is_some_and(|v| v.as_bytes() == wanted.as_bytes())
                })
            })
            .await?;
        let before = bench
            .probe(n)
            .send()
            .await?
            .peer
            .context("over TLS")?
            .serial;
        bench
            .change(
                &mut rotate,
                n,
                vec![secret(&format!("c{n}"), &names.of(n))?],
                |a| {
                    a.and_then(|a| a.peer.as_ref())
                        .is_some_and(|p| p.serial != before)
                },
            )
            .await?;
    }
    for round in 0..ROUNDS {
        let n = count + round;
        let gone = host(n, port, names)?
            .into_iter()
            .map(|change| match change {
                Change::Object(ObjectChange::Put(object)) => Change::delete(object.key()),
                gone => gone,
            });
        bench
            .change(&mut remove, n, gone.collect(), |a| a.is_none())
            .await?;
    }
    ensure!(
        held.ask(&bench.probe(0)).await?.status == 200,
        "the held connection was drained"
    );
    add.print(count, "add a host");
    change.print(count, "change a route");
    rotate.print(count, "rotate");
    remove.print(count, "remove a host");
    for (what, suffix) in [
        ("under our suffix", "bench.example.org"),
        ("anywhere else", "elsewhere.example.net"),
    ] {
        let cpu = bench.world.envoy.main_thread_cpu()?;
        for n in 0..FLOOD {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let answer = Probe::https(address, &format!("unknown{n}.{suffix}"))
                .limit(Duration::from_secs(5))
                .send()
                .await;
            ensure!(answer.is_err(), "a name that nobody owns was served");
        }
        let cpu = bench.world.envoy.main_thread_cpu()?.saturating_sub(cpu);
        println!(
            "{count:>6} | flood of names {what}: Envoy main {:.0} us a name",
            cpu.as_secs_f64() * 1e6 / f64::from(FLOOD)
        );
    }
    classic(count, names, &add).await
}

/// Measures the layout of others: one filter chain, one regular SDS secret and one route table per
/// host.
async fn classic(count: usize, names: Names, ours: &Row) -> Result<()> {
    let port = free_port()?;
    let echo = Echo::start("web").await?;
    let world = World::start(vec![class()]).await?;
    let backend = BackendId::new(
        ServicePort::tcp(ObjectName::new("default", "web"), 80),
        AppProtocol::Http1,
    );
    let addresses = Addresses::Alike([echo.address()].into());
    let endpoints = Endpoints {
        cluster: ClusterId::Backend(backend.clone()),
        addresses,
    };
    let shared = [
        Resource::Cluster(Cluster::Backend(backend.clone().into())),
        Resource::Endpoints(endpoints),
    ];
    let mut update = Update {
        upserts: shared.iter().map(publish::encode).collect(),
        removals: Vec::new(),
    };
    let mut listener = Classic {
        port,
        names,
        backend,
        chains: Vec::new(),
    };
    for n in 0..count {
        update.upserts.extend(listener.add(n)?);
    }
    update.upserts.push(listener.encode());
    let start = Instant::now();
    world.acknowledged(world.publish(update)).await?;
    fn probe(name: &str, port: u16) -> Probe {
        Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), name)
            .limit(Duration::from_secs(5))
    }
    live(&probe(&names.of(count - 1), port), start).await?;
    let cold = start.elapsed();
    let mut bytes = 0;
    let mut times = Vec::new();
    let mut main = Vec::new();
    for n in count..count + CLASSIC_ROUNDS {
        let mut update = Update {
            upserts: listener.add(n)?,
            removals: Vec::new(),
        };
        update.upserts.push(listener.encode());
        bytes = update
            .upserts
            .iter()
            .map(|resource| resource.body().len())
            .sum();
        let cpu = world.envoy.main_thread_cpu()?;
        let start = Instant::now();
        world.acknowledged(world.publish(update)).await?;
        live(&probe(&names.of(n), port), start).await?;
        times.push(start.elapsed());
        main.push(world.envoy.main_thread_cpu()?.saturating_sub(cpu));
    }
    times.sort();
    main.sort();
    let (time, main) = (times[times.len() / 2], main[main.len() / 2]);
    let mine = ours.live[ours.live.len() / 2];
    let my_bytes = ours.bytes[ours.bytes.len() / 2].max(1) + ours.gate[ours.gate.len() / 2];
    println!(
        "{count:>6} | classic layout: last host 200 after {:.0} ms; add a host: {bytes} B, live p50 {:.1} ms, Envoy main {:.1} ms \
         = {:.0}x our bytes, {:.0}x our time",
        cold.as_secs_f64() * 1000.0,
        time.as_secs_f64() * 1000.0,
        main.as_secs_f64() * 1000.0,
        bytes as f64 / my_bytes as f64,
        time.as_secs_f64() / mine.as_secs_f64()
    );
    Ok(())
}

/// Requests until the answer is 200.
async fn live(probe: &Probe, start: Instant) -> Result<()> {
    while !probe.send().await.is_ok_and(|answer| answer.status == 200) {
        ensure!(
            start.elapsed() < Duration::from_secs(120),
            "the host never came"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// A listener with one filter chain per host.
struct Classic {
    port: u16,
    names: Names,
    backend: BackendId,
    chains: Vec<FilterChain>,
}

impl Classic {
    fn id(&self) -> FrontendId {
        FrontendId::tcp(ObjectName::new("default", "classic"), self.port)
    }

    /// Adds a host's chain; its secret and routes are returned.
    fn add(&mut self, n: usize) -> Result<Vec<xds::Resource>> {
        let hostname = Hostname::parse(&self.names.of(n))?;
        let table = TableId {
            frontend: self.id(),
            listener: hostname.clone(),
        };
        let secret_name = SecretName::Fixed(self.id(), n.to_string().into());
        let tls = Termination {
            certificate: CertificateSource::Fixed(secret_name.clone()),
            alpn: vec!["h2".to_owned(), "http/1.1".to_owned()],
            params: TlsParams::default(),
            clients: None,
        };
        let chain = Chain {
            tls: Some(tls),
            handler: Handler::Table(table.clone()),
        };
        let mut made = gatewright_envoy::listener(&self.frontend(&hostname, chain));
        let mut chain = made.filter_chains.remove(0);
        chain.filter_chain_match = Some(FilterChainMatch {
            server_names: vec![self.names.of(n)],
            ..Default::default()
        });
        chain.name = self.names.of(n);
        plain(&mut chain)?;
        self.chains.push(chain);

        let share = WeightedTarget {
            target: Target::Backend(self.backend.clone()),
            weight: 1,
            request_headers: HeaderEdits::default(),
            response_headers: HeaderEdits::default(),
            rewrite: Rewrite::default(),
            session: None,
            external_name: None,
            hash: None,
        };
        let rule = Rule::new(Action::Forward(vec![share]));
        let matches = Match {
            path: PathMatch::Prefix("/".to_owned()),
            call: None,
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        };
        let route = Route {
            name: "r".into(),
            matches,
            rule: rule.into(),
        };
        let table = Table {
            id: table,
            virtual_hosts: vec![VirtualHost::new(hostname, vec![route])],
            elsewhere: OtherListeners::NOWHERE,
        };
        let made = rcgen::generate_simple_self_signed([self.names.of(n)])?;
        let certificate = gatewright_core::inputs::parse_certificate(
            made.cert.pem().as_bytes(),
            made.signing_key.serialize_pem().as_bytes(),
        )?;
        let secret = Secret {
            name: secret_name,
            certificate: certificate.into(),
            params: Default::default(),
        };
        Ok([Resource::Secret(secret), Resource::Table(table)]
            .iter()
            .map(publish::encode)
            .collect())
    }

    fn frontend(&self, hostname: &Hostname, chain: Chain) -> Frontend {
        let kind = FrontendKind::Tls {
            chains: [("chain".into(), chain)].into(),
            sni_matcher: [(hostname.clone(), "chain".into())].into(),
        };
        Frontend {
            id: self.id(),
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            port: self.id().port,
            cdn_id: "bench".into(),
            clients: Default::default(),
            access_log: None,
            tracing: None,
            kind,
        }
    }

    fn encode(&self) -> xds::Resource {
        let mut made = gatewright_envoy::listener(&Frontend {
            id: self.id(),
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            port: self.id().port,
            cdn_id: "bench".into(),
            clients: Default::default(),
            access_log: None,
            tracing: None,
            kind: FrontendKind::Http,
        });
        let hostname = Hostname::any();
        let chain = Chain {
            tls: None,
            handler: Handler::Tcp(Vec::new()),
        };
        made.listener_filters =
            gatewright_envoy::listener(&self.frontend(&hostname, chain)).listener_filters;
        made.filter_chains.clone_from(&self.chains);
        xds::Resource::new(self.id().to_string(), &made)
    }
}

/// Reduces the connection manager of a chain to what every layout needs: its routes and the router.
fn plain(chain: &mut FilterChain) -> Result<()> {
    let filter = chain.filters.last_mut().context("a connection manager")?;
    let Some(ConfigType::TypedConfig(config)) = &mut filter.config_type else {
        bail!("it has a configuration")
    };
    let full = HttpConnectionManager::decode(config.value.as_slice())?;
    let router = full.http_filters.last().cloned().context("a router")?;
    let manager = HttpConnectionManager {
        stat_prefix: full.stat_prefix,
        route_specifier: full.route_specifier,
        http_filters: vec![router],
        ..Default::default()
    };
    config.value = manager.encode_to_vec();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    println!(
        " hosts | change         | on wire  | listener  | ours p50  | ack p50   | live p50  | live p99  | Envoy main"
    );
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut counts: Vec<usize> = arguments
        .iter()
        .filter_map(|arg| arg.parse().ok())
        .collect();
    if counts.is_empty() {
        counts = vec![64, 1_000, 10_000];
    }
    let mut kinds: Vec<Names> = arguments
        .iter()
        .filter_map(|arg| Names::named(arg))
        .collect();
    if kinds.is_empty() {
        kinds = vec![Names::Siblings, Names::Own, Names::Mixed];
    }
    for names in kinds {
        for count in &counts {
            run(*count, names).await?;
        }
    }
    Ok(())
}
