//! The standalone program: starts the tasks, connects them by channels, and stops them. Decides
//! nothing.

mod queue;
mod release;
mod responders;
mod runtime;
mod show;
mod unserved_log;

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Error, Result, anyhow};
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};
use xds::{Cache, Server, UnixPeers, View};

use acme::DeniedNetworks;
use acme::storage::dir::Directory;

use crate::about::about;
use crate::cli;
use crate::configuration::{Backends, CONTROLLER, Configuration, StatisticsPort, Tenancy};
use crate::connection_pressure;
use crate::manifest::{Outcome, Watcher};
use crate::standalone::{
    ClaimLog, Demo, FirstSeen, Lifetime, Order, Ownership, PortProbe, PrivateDir, Supervisor,
    SuspectsFile, TicketFile, access_log, find, hand_over_routes, take_over,
};
use crate::tasks;
use crate::wiring::{Senders, Wiring};
use gatewright_control::certificates::{
    self, AddressQuery, Authority, CertificateManager, CertificateManagerConfig, ManagerWatch,
    TenantIssuers, WantedTracker,
};
use gatewright_control::envoys;
use gatewright_control::event::Severity;
use gatewright_control::names::FIRST_LOOKUPS;
use gatewright_control::{ControlPlane, FailureReports};
use gatewright_core::fair_queue::FairQueue;
use gatewright_core::model::Zone;
use gatewright_core::ownership::Recording;
use gatewright_core::tenancy;
use gatewright_core::translate::{
    Change, EndpointPolicy, EnvoyLogs, Fact, OwnSocket, Settings, Unlisted,
};
use gatewright_envoy::{
    Admin, AdsServer, BootstrapOptions, ConnectionLimit, Statistics, UdpSessions, bootstrap,
    is_bind_error,
};
use queue::until;
use responders::Responders;
use runtime::StandaloneRuntime;
use unserved_log::UnservedLog;

/// The maximum number of concurrent orders.
const ORDERS: usize = 32;
/// The maximum time that `--once` waits until everything is acknowledged.
const ONCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the path of the private directory.
///
/// # Errors
/// When there is no home directory.
pub fn state_dir(state: &cli::State) -> Result<PathBuf> {
    match &state.state_dir {
        Some(path) => std::path::absolute(path).context("--state-dir"),
        None => Ok(PrivateDir::default_path("standalone")?),
    }
}

/// Returns the bootstrap of an Envoy that connects to the program with this private directory. It
/// has the limits of this process; nobody tells it how near its connections are to them.
pub fn envoy_bootstrap(
    node: &str,
    zone: Option<Zone>,
    dir: &Path,
    admin: Option<PathBuf>,
) -> serde_json::Value {
    let ConnectionLimit { most, .. } = connection_pressure::usual_limit(dir);
    envoy_bootstrap_within(ConnectionLimit::of(most), (node, zone), dir, admin, None)
}

/// The zone of an Envoy; `None` for an empty text, as that of a label that a pod does not have.
///
/// # Errors
/// When it is no value of a label.
pub fn zone(text: Option<&str>) -> Result<Option<Zone>> {
    text.filter(|text| !text.is_empty())
        .map(Zone::parse)
        .transpose()
        .map_err(Error::msg)
        .context("--zone")
}

/// The same with a limit of connections, and a port for statistics.
fn envoy_bootstrap_within(
    connections: ConnectionLimit,
    (node, zone): (&str, Option<Zone>),
    dir: &Path,
    admin: Option<PathBuf>,
    stats: Option<Statistics>,
) -> serde_json::Value {
    bootstrap(&BootstrapOptions {
        node_id: node.to_owned(),
        node_cluster: "standalone".to_owned(),
        zone,
        ads: AdsServer::Pipe(dir.join("xds.sock")),
        admin: Admin::Pipe(admin.unwrap_or_else(|| dir.join("envoy-admin.sock"))),
        ready: None,
        stats,
        max_heap_bytes: 4 << 30,
        connections,
    })
}

/// Returns the policy for addresses of endpoints of an Envoy that is not in a pod.
pub fn endpoint_policy(backends: &Backends) -> EndpointPolicy {
    EndpointPolicy {
        denied: backends.denied_networks(),
        ..EndpointPolicy::default()
    }
}

/// Returns the identity of this installation: the machine, and the path of the private directory.
fn installation(dir: &Path) -> Arc<str> {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    format!("{} {}", machine.trim(), dir.display()).into()
}

/// Returns the sinks of access logs: the standard output of an Envoy that this program starts is
/// read by nobody.
fn envoy_logs(options: &cli::Standalone, dir: &Path) -> EnvoyLogs {
    if options.no_envoy {
        return EnvoyLogs::Stdout;
    }
    let path = access_log(dir);
    let path = std::path::absolute(&path).unwrap_or(path);
    EnvoyLogs::File(path.to_string_lossy().into())
}

/// Returns the sockets that no backend may be.
fn own_sockets(responders: &Responders, statistics: Option<&Statistics>) -> Result<Vec<OwnSocket>> {
    let statistics = statistics.map(|statistics| OwnSocket {
        address: statistics.address,
        service: None,
    });
    let mut sockets = responders.sockets()?;
    sockets.extend(statistics);
    Ok(sockets)
}

/// Returns the settings of tenancy of this program.
pub fn tenancy_settings(tenancy: &Tenancy) -> tenancy::Settings {
    tenancy::Settings {
        listener_sets: true,
        certificates: tenancy::Source::Acme,
        cert_manager: false,
        ports: tenancy.ports(),
        ..tenancy.settings(Recording::ThisProcess)
    }
}

/// Returns the settings of commands that only read manifests.
pub fn offline_settings(configuration: &Configuration, addresses: Vec<IpAddr>) -> Settings {
    Settings {
        limits: configuration.limits.clone(),
        endpoints: endpoint_policy(&configuration.backends),
        external_names: configuration.backends.external_names.policy(),
        system_roots: configuration.backends.system_roots(),
        issuers: configuration.issuer_policy(Unlisted::Everybody),
        envoy_logs: EnvoyLogs::Either("access.log".into()),
        channel: configuration.gateway_api.channel,
        ..Settings::new(
            configuration.gateway_api.controller_name.as_str(),
            addresses,
        )
    }
}

/// Runs until a signal ends it. Returns `Ok(false)` when `--once` found a problem.
///
/// # Errors
/// When it cannot start, or one of its tasks ends by itself.
pub async fn standalone(options: cli::Standalone) -> Result<bool> {
    let envoy = if options.no_envoy {
        None
    } else {
        Some(find(options.envoy.as_deref())?)
    };
    let configuration = options.configured.load()?;
    let lifetime = lifetime(&options);
    let state = state_dir(&options.state)?;
    let admin = options
        .admin
        .clone()
        .unwrap_or_else(|| state.join("admin.sock"));
    let dir = if options.envoy_process.take_over {
        take_over(&state, &admin).await?
    } else {
        PrivateDir::open(&state)?
    };
    let envoy_admin = options
        .envoy_admin
        .clone()
        .unwrap_or_else(|| dir.path().join("envoy-admin.sock"));
    info!("private directory {}", dir.path().display());
    info!(
        "admin socket {}, Envoy's {}",
        admin.display(),
        envoy_admin.display()
    );

    let resolvers = configuration.backends.external_names.resolvers.clone();
    let (mut wiring, Senders { names, places }, mut arrivals) = Wiring::start(resolvers);
    let cache = Cache::new();
    let view = View::new("standalone");
    let files = connection_pressure::files();
    let limits = configuration.limits.clone();
    let udp_sessions = configuration.connections.udp_sessions.map_or_else(
        || UdpSessions::within(files, limits.udp_ports),
        UdpSessions::of,
    );
    udp_sessions
        .check(limits.udp_ports)
        .map_err(Error::msg)
        .context("connections.udpSessions")?;
    ConnectionLimit::check_least(files, udp_sessions).map_err(Error::msg)?;
    let edge = configuration.edge(udp_sessions);
    let statistics = configuration
        .envoys
        .statistics
        .as_ref()
        .map(StatisticsPort::read)
        .transpose()
        .context("envoys.statistics")?;
    let issuers = configuration.issuer_policy(Unlisted::Everybody);
    let manager = Arc::new(manager(&configuration, dir.path(), places).await?);
    let responders = Responders::bind(&manager, options.challenges).await?;
    let settings = Settings {
        limits,
        channel: configuration.gateway_api.channel,
        issuers,
        believes_creation_times: false,
        hold: configuration.tenancy.hold(),
        endpoints: endpoint_policy(&configuration.backends),
        external_names: configuration.backends.external_names.policy(),
        installation: installation(dir.path()),
        // The Envoy on this machine reads the same files.
        system_roots: configuration
            .backends
            .system_roots()
            .filter(|file| Path::new(&**file).is_file()),
        own_sockets: own_sockets(&responders, statistics.as_ref())?,
        named_hosts: configuration.envoys.traffic_metrics.need_owners(),
        envoy_logs: envoy_logs(&options, dir.path()),
        ..Settings::new(CONTROLLER, options.addresses.clone())
    };
    let mut tenancy = tenancy_settings(&configuration.tenancy);
    if options.dir.is_none() {
        tenancy.ports = Demo::ports().map_err(|text| anyhow!("the example: {text}"))?;
    }
    let (claim_log, recorded) = ClaimLog::<Ownership>::open(&dir.path().join("ownership"))?;
    let recorded: Vec<Change> = recorded
        .into_iter()
        .map(|(what, owner)| Change::Fact(Fact::Recorded(what, Some(owner))))
        .collect();
    let suspects_file = SuspectsFile::at(dir.path().join("refused-parts"));
    wiring.spawn("refused parts", |stop| {
        suspects_file.carry_over(&cache, &view, stop)
    });
    let tenancy_http_port = tenancy.ports.http;
    let reports = FailureReports::default();
    let live = ControlPlane::new(settings, tenancy, cache.clone(), view.clone())
        .within(edge)
        .reported(reports.clone());
    let history = dir.path().join("history.jsonl");
    let live = wiring.keep_history(history, live).await;
    let mut site = StandaloneRuntime {
        live,
        names,
        queue: FairQueue::default(),
        claim_log,
        recorded,
        manager: manager.clone(),
        wanted_tracker: WantedTracker::new(TenantIssuers {
            installed: configuration.issuers.clone(),
            http_port: tenancy_http_port,
            // The operator is the author of all manifests.
            denied: DeniedNetworks::default(),
            authorities: configuration.tenancy.denied(),
        }),
        written: std::fs::read_to_string(dir.path().join("ca.crt")).unwrap_or_default(),
        first_seen: FirstSeen::open(&dir.path().join("first-seen"))?,
        port_probe: envoy
            .is_some()
            .then(|| PortProbe::new(dir.path().to_owned())),
        bundle: dir.path().join("ca.crt"),
        roots_wait: false,
        start: Instant::now(),
        unserved: UnservedLog::default(),
        tickets: TicketFile::open(dir.path().join("session-tickets"), SystemTime::now())?,
    };

    // Everything is read and translated before Envoys are answered, so that they never see a part
    // of it.
    let mut watcher = None;
    match &options.dir {
        Some(path) => {
            let safety = options.manifests.safety();
            let store = dir.path().join("last-good");
            let limits = &configuration.limits.object;
            let trust = configuration.manifests.trust(safety);
            let (opened, outcome) = Watcher::open(path, trust, limits, Some(&store))?;
            if outcome.changes.is_empty() {
                let dir = path.display();
                warn!(
                    "{dir} has no object: expected files ending in .yaml, .yml or .json with a GatewayClass, a Gateway and \
                     routes; they are served once they are there"
                );
            }
            site.begin(outcome);
            site.take_all()?;
            watcher = Some(opened);
        }
        None => {
            let demo = Demo::open(manager.authority())
                .await
                .map_err(|text| anyhow!("the example: {text}"))?;
            site.apply(demo.objects.into_iter().map(Change::put).collect())?;
            for backend in demo.backends {
                wiring.spawn_infallible("example", |stop| backend.run(stop));
            }
        }
    }

    site.apply(responders.endpoint_objects()?)?;
    site.apply(vec![site.ticket_keys()])?;

    // Stored certificates are served from the start.
    site.hand_in(manager.take_updates())?;
    // Envoys that run on would lose the endpoints that they have.
    let patience = tokio::time::Instant::now() + FIRST_LOOKUPS;
    while site.live.engine().awaits_names()
        && let Ok(Some(changes)) = tokio::time::timeout_at(patience, arrivals.resolved.recv()).await
    {
        site.apply(changes)?;
    }
    let (supply, mut supplied) = mpsc::channel(4);
    let running = manager.clone();
    wiring.spawn_infallible("certificates", |stop| async move {
        running.run(supply, stop).await;
    });
    responders.serve(&manager, &mut wiring);

    let socket = dir.path().join("xds.sock");
    let listener = xds::bind_unix(&socket, 0o600)
        .with_context(|| format!("xDS socket {}", socket.display()))?;
    // Only Envoys of the user that this program runs as are admitted.
    let user = std::fs::metadata(dir.path())
        .context("the private directory")?
        .uid();
    let limits = xds::Limits {
        on_demand_secrets: configuration.envoys.host_certificates,
        on_demand_secret_memory: configuration.envoys.certificate_memory(),
        is_temporary: is_bind_error,
        ..Default::default()
    };
    let server = Server::new(cache.clone(), UnixPeers::new().allow(user, view.clone()))
        .with_limits(limits)
        .reporting(Arc::new(reports));
    wiring.spawn_infallible("xDS", |mut stop| async move {
        let stopped = async move {
            // An error means that the sender was dropped.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        server.serve_unix(listener, stopped).await;
    });
    let (successor, mut hand_over) = mpsc::channel(1);
    let others = certificates::routes(ManagerWatch::always(manager.clone()));
    let others = others
        .merge(hand_over_routes(lifetime, successor))
        .merge(envoys::routes(cache.clone(), None));
    let about = about("standalone", options.dir.as_deref(), &configuration);
    wiring.serve_admin(admin, &site.live, others, about);
    let zone = configuration.envoys.zone.clone();
    let (orders, ordered) = watch::channel(Order::Run);
    let private = dir.path().to_owned();
    let patience = options.envoy_process.envoy_patience;
    let mut supervising = tasks::spawn("envoy", async move {
        match envoy {
            Some(program) => {
                let connections = connection_pressure::limit(udp_sessions, &private);
                let admin = Some(envoy_admin.clone());
                let supervisor = Supervisor {
                    program,
                    bootstrap: envoy_bootstrap_within(
                        connections.clone(),
                        ("standalone", zone),
                        &private,
                        admin,
                        statistics,
                    )
                    .to_string(),
                    connections,
                    admin: envoy_admin,
                    dir: private,
                    lifetime,
                    patience,
                };
                supervisor.run(ordered).await;
            }
            None => no_envoy(ordered).await,
        }
    });

    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut upgrade = signal(SignalKind::user_defined2())?;
    let mut progress = cache.watch(&view);
    let mut unknown = cache.watch_unknown(&view);
    let patience = tokio::time::sleep(ONCE_TIMEOUT);
    tokio::pin!(patience);
    let mut shown = options.dir.is_some() && !options.once;
    let result = loop {
        wiring.heartbeat.beat(Instant::now());
        if !shown && site.queue.is_empty() && site.manager.is_settled() && site.live.acknowledged()
        {
            shown = true;
            let good = site.show().await;
            if options.once {
                break good.map(|good| (good, Order::End));
            }
        }
        let due = site.queue.due(site.live.reached(), Instant::now());
        tokio::select! {
            outcome = next(&mut watcher) => site.take(outcome.context("the thread that reads manifests has failed")?),
            () = until(due) => {
                // Changes that have arrived meanwhile are part of this batch.
                while let Some(outcome) = watcher.as_mut().and_then(Watcher::ready) {
                    site.take(outcome);
                }
                site.take_turn()?;
            }
            changed = progress.changed() => {
                changed.context("the cache is gone")?;
                site.log_acknowledgements();
            }
            changed = unknown.changed() => {
                changed.context("the cache is gone")?;
                let total = *unknown.borrow_and_update();
                let shared = site.live.views().shared();
                site.live.count_unknown_names(shared, total, site.start.elapsed()).log(Severity::Info);
            }
            Some(ask) = arrivals.questions.recv() => site.answer(ask, watcher.as_ref().map(Watcher::stale).unwrap_or_default())?,
            Some(AddressQuery { host, validation, answer }) = arrivals.places.recv() => {
                // The receiver may be gone.
                let _ = answer.send(site.live.engine().addresses_of(&host, validation.as_ref()));
            }
            Some(certificate_updates) = supplied.recv() => site.hand_in(certificate_updates)?,
            Some(changes) = arrivals.resolved.recv() => site.queue.push(changes),
            _ = arrivals.beats.tick() => site.write_again(),
            _ = arrivals.certificates.tick() => site.tick()?,
            why = wiring.ended() => break Err(why),
            () = &mut patience, if options.once => {
                break Err(anyhow!("not everything was acknowledged within {ONCE_TIMEOUT:?}: {}", site.live.clients()));
            }
            ended = &mut supervising => break Err(tasks::why("envoy", ended.map(Ok))),
            _ = term.recv() => break Ok((true, Order::End)),
            _ = interrupt.recv() => break Ok((true, Order::End)),
            Some(()) = hand_over.recv() => break Ok((true, Order::Leave)),
            _ = upgrade.recv() => match lifetime {
                Lifetime::Independent => break Ok((true, Order::Leave)),
                Lifetime::WithProgram => warn!("SIGUSR2: Envoy ends with this program (--envoy-lifetime): nothing is done"),
            },
        }
    };
    info!("shutting down");
    // Envoy ends first, and is answered until then. After a failure of this program Envoy is left
    // to the next start.
    let order = match (&result, lifetime) {
        (Ok((_, order)), _) => *order,
        (Err(_), Lifetime::Independent) => Order::Leave,
        (Err(_), Lifetime::WithProgram) => Order::EndNow,
    };
    orders.send_replace(order);
    if !supervising.is_finished() {
        tokio::select! {
            // The result of the task is not needed any more.
            _ = &mut supervising => {}
            _ = term.recv() => hurry(&orders, supervising).await,
            _ = interrupt.recv() => hurry(&orders, supervising).await,
        }
    }
    wiring.end().await;
    result.map(|(good, _)| good)
}

/// Ends Envoy at once.
async fn hurry(orders: &watch::Sender<Order>, supervising: JoinHandle<()>) {
    orders.send_replace(Order::EndNow);
    // The task ends in any case.
    let _ = supervising.await;
}

/// Takes the place of the supervisor with `--no-envoy`.
async fn no_envoy(mut orders: watch::Receiver<Order>) {
    // An error means that the sender was dropped.
    let _ = orders.wait_for(|order| *order != Order::Run).await;
}

/// Returns what happens to Envoy when this program is killed or fails.
fn lifetime(options: &cli::Standalone) -> Lifetime {
    match options.envoy_process.envoy_lifetime {
        Some(cli::EnvoyLifetime::Independent) => Lifetime::Independent,
        Some(cli::EnvoyLifetime::WithProgram) => Lifetime::WithProgram,
        // There is no next start after the example, or after a check. With the first process of a
        // container all others end.
        None if options.dir.is_none() || options.once || std::process::id() == 1 => {
            Lifetime::WithProgram
        }
        None => Lifetime::Independent,
    }
}

/// Opens the certificate manager on the storage in the private directory.
async fn manager(
    configuration: &Configuration,
    dir: &std::path::Path,
    places: mpsc::Sender<AddressQuery>,
) -> Result<CertificateManager> {
    let authority = Authority::open(dir.join("ca"), Timestamp::now());
    let authority = authority.map_err(|text| anyhow!("the internal CA: {text}"))?;
    let authority = Arc::new(authority.within(configuration.internal_ca.limits()));
    let storage =
        Arc::new(Directory::open(dir.join("acme")).context("the storage of certificates")?);
    let issuers = configuration.issuers.clone();
    let places = Some(places);
    Ok(CertificateManager::open(CertificateManagerConfig {
        storage,
        authority,
        issuers,
        at_once: ORDERS,
        places,
        secret_targets: None,
    })
    .await?)
}

async fn next(watcher: &mut Option<Watcher>) -> Option<Outcome> {
    match watcher {
        Some(watcher) => watcher.next().await,
        None => std::future::pending().await,
    }
}
