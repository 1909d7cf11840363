//! The controller in a cluster: starts the tasks, connects them by channels, and stops them.
//! Decides nothing.

mod last_good;
mod sealed;
mod session_tickets;
pub(crate) mod settings;
pub(crate) mod xds;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::xds::{Cache, Views};
use anyhow::{Context, Error, Result, anyhow, ensure};
use jiff::Timestamp;
use prometheus_client::collector::Collector;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use self::last_good::{Keeper, LastGoodMetrics, Standby, StatePaths, ViewAccess};
use self::settings::{check_issuers, tenancy_settings, translation_settings};
use self::xds::Xds;
use crate::about::about;
use crate::configuration::MetricsAccess;
use crate::envoy_identity::ZONE_FILE;
use crate::listening::listen;
use crate::wiring::{Senders, Wiring};
use crate::{cli, connection_pressure};
use gatewright_control::certificates::{self, AddressQuery, TenantIssuers};
use gatewright_control::envoy_access::EnvoyAccess;
use gatewright_control::envoy_certificates;
use gatewright_control::envoys;
use gatewright_control::{
    AdminQuery, AdminRequest, ControlPlane, FailureReports, Probes, ProbesTls, ReadMetrics,
    Readiness,
};
use gatewright_core::channel::Channel;
use gatewright_core::inputs::Kind;
use gatewright_core::model::Zone;
use gatewright_envoy::{
    Admin, AdsServer, BootstrapOptions, ConnectionLimit, MutualTls, Statistics, UdpSessions,
    bootstrap, keys_files,
};
use gatewright_kubernetes::claims::{self, Claims};
use gatewright_kubernetes::isolated;
use gatewright_kubernetes::issuance::{Issuance, IssuanceConfig, watch_answers};
use gatewright_kubernetes::keys::{EnvoyAccounts, Keys, PodCertificates};
use gatewright_kubernetes::lease::{self, Candidate, Term};
use gatewright_kubernetes::replicas::{self, Replica};
use gatewright_kubernetes::reports::{ReportCounts, Reporter};
use gatewright_kubernetes::{
    Fence, KubernetesRuntime, LastHeard, MetricsReaders, connect, watch_all, watch_definitions,
};

/// The maximum number of concurrent orders.
const ORDERS: usize = 32;
/// The maximum number of watch events that are taken in at once.
const AT_ONCE: usize = 16;
/// The Service through which Envoys that are not ours forward HTTP-01 requests to us.
const CHALLENGES: &str = "gatewright-challenges";
/// The name that Envoys verify in our server certificate; it does not depend on our address.
pub const XDS_NAME: &str = "xds.gatewright.io";

/// The options of an Envoy of the fleet.
#[derive(Clone, Debug)]
pub struct FleetEnvoy<'a> {
    /// Its node name.
    pub node: &'a str,
    /// The zone of its node, if it has one.
    pub zone: Option<Zone>,
    /// The host and port of the xDS server.
    pub xds: (&'a str, u16),
    /// The directory of its `tls.crt`, `tls.key` and `ca.crt`.
    pub tls: &'a Path,
    /// The admin interface.
    pub admin: Admin,
    /// The address of its readiness listener.
    pub ready: Option<SocketAddr>,
    /// Its listener for statistics.
    pub stats: Option<Statistics>,
    /// The memory limit in bytes.
    pub memory_limit: u64,
}

/// The zone that the controller told `gatewright envoy-identity` with the certificate in a
/// directory.
fn zone_beside(tls: &Path) -> Option<Zone> {
    let text = std::fs::read_to_string(tls.join(ZONE_FILE)).ok()?;
    Zone::parse(&text).ok()
}

/// Writes the bootstrap of an Envoy of the fleet, and the SDS files that refer to its keys beside
/// it.
///
/// # Errors
/// When a file cannot be written.
pub fn write_bootstrap(file: &Path, envoy: FleetEnvoy<'_>) -> Result<()> {
    let FleetEnvoy {
        node,
        zone,
        xds: (host, port),
        tls,
        admin,
        ready,
        stats,
        memory_limit,
    } = envoy;
    let file = std::path::absolute(file).context("--file")?;
    let folder = file.parent().context("--file: expected a file")?.to_owned();
    let server_name = XDS_NAME.to_owned();
    let zone = zone.or_else(|| zone_beside(tls));
    match &zone {
        Some(zone) => info!("zone {zone}: its endpoints come first where a Service asks for it"),
        None => info!("no zone: endpoints of all zones are used"),
    }
    let connections = match &admin {
        Admin::Pipe(socket) => connection_pressure::usual_limit(
            socket.parent().context("--envoy-admin: expected a file")?,
        ),
        Admin::Loopback(_) => ConnectionLimit::of(connection_pressure::usual_limit(&folder).most),
    };
    if let Err(text) =
        ConnectionLimit::check_most(connection_pressure::files(), UdpSessions::DEFAULT)
    {
        warn!("{text} of the controller, if its Gateways have UDP ports");
    }
    connection_pressure::reset(&connections)
        .context("the file with the pressure of connections")?;
    let made = bootstrap(&BootstrapOptions {
        node_id: node.to_owned(),
        node_cluster: "shared".to_owned(),
        zone,
        ads: AdsServer::Tcp {
            host: host.to_owned(),
            port,
            tls: MutualTls {
                dir: tls.to_owned(),
                files: folder.clone(),
                server_name,
            },
        },
        admin,
        ready,
        stats,
        // The rest is for stacks, and for memory that the allocator has not returned.
        max_heap_bytes: memory_limit / 10 * 9,
        connections,
    });
    let keys = keys_files(tls).map(|(name, value)| (folder.join(name), value));
    for (path, value) in keys.into_iter().chain([(file, made)]) {
        std::fs::write(&path, value.to_string()).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the metrics of the last good state with nothing counted: their names and descriptions.
pub fn described() -> Box<dyn Collector> {
    Box::new(LastGoodMetrics::default())
}

/// Runs until a signal ends it.
///
/// # Errors
/// When it cannot start, or one of its tasks ends by itself.
pub async fn controller(options: cli::Controller) -> Result<bool> {
    let configuration = options.configured.load()?;
    check_issuers(&configuration)?;
    let udp_sessions = configuration
        .connections
        .udp_sessions
        .map_or(UdpSessions::DEFAULT, UdpSessions::of);
    udp_sessions
        .check(configuration.limits.udp_ports)
        .map_err(Error::msg)
        .context("connections.udpSessions")?;
    let (term_sender, mut term) = watch::channel::<Term>(None);
    let lease = Duration::from_secs(configuration.lease.seconds);
    let client = connect(
        options.kubeconfig.as_deref(),
        &Fence::new(term.clone(), lease),
    )
    .await?;
    let resolvers = configuration.backends.external_names.resolvers.clone();
    let (mut wiring, Senders { names, places }, mut arrivals) = Wiring::start(resolvers);
    let identity = options
        .identity
        .clone()
        .unwrap_or_else(|| format!("gatewright-{}", std::process::id()));
    let cache = Cache::new();
    let fleet_views = configuration.envoys.views();
    ensure!(
        configuration.envoys.isolated_pod_template.is_none()
            || configuration.envoys.credentials.of_pods(),
        "envoys.isolatedPodTemplate requires envoys.credentials Pod or Both: these pods authenticate by their own service \
         accounts"
    );
    let views = Views::new();
    let metrics = LastGoodMetrics::default();
    let accounts = EnvoyAccounts {
        fleets: configuration.envoys.fleets(),
        access: EnvoyAccess::new(views.clone()),
    };
    let isolated = configuration
        .envoys
        .isolated_pod_template
        .as_ref()
        .map(|_| accounts.access.clone());
    let view_access = ViewAccess {
        views: views.clone(),
        fleets: configuration.envoys.fleets(),
        isolated,
    };
    let paths = StatePaths::of(&options);
    if let Some(file) = &options.keeping.last_good {
        last_good::prepare(file).with_context(|| format!("--last-good {}", file.display()))?;
    }
    let mut standby = Standby::open(
        paths.clone(),
        cache.clone(),
        &fleet_views,
        view_access,
        metrics.clone(),
    )
    .await;
    let namespaces = configuration.watched(&options.namespace);
    let settings = translation_settings(&options.namespace, &configuration);
    let tenancy = tenancy_settings(
        &options.namespace,
        options.challenges.is_some(),
        &configuration,
    );
    let http_port = tenancy.ports.http;
    let failures = FailureReports::default();
    let live = ControlPlane::in_cluster(settings, tenancy, cache.clone(), fleet_views.clone())
        .within(configuration.edge(udp_sessions))
        .reported(failures.clone());
    let live = live.admitting(accounts.access.clone());
    let live = match &options.keeping.last_good {
        None => live,
        Some(file) => {
            let path = file.with_file_name("history.jsonl");
            wiring.keep_history(path, live).await
        }
    };
    let replica = Replica {
        namespace: options.namespace.clone(),
        identity: identity.clone(),
        pod: options.pod_uid.clone(),
    };
    let kinds: Vec<Kind> = Kind::watched(
        configuration.tenancy.enabled,
        configuration.gateway_api.channel,
    )
    .collect();
    let denied = configuration.tenancy.denied();
    let authorities = denied.clone();
    let issuers = TenantIssuers {
        installed: configuration.issuers.clone(),
        http_port,
        denied,
        authorities,
    };
    let authority = configuration.internal_ca.limits();
    let issuance_config = IssuanceConfig {
        namespace: options.namespace.clone(),
        issuers,
        authority,
        at_once: ORDERS,
        places,
    };
    let issuance = Issuance::new(client.clone(), issuance_config, term.clone());
    let manager = issuance.manager();
    let thumbprint_index = issuance.thumbprint_index();
    let heard = LastHeard::default();
    let runtime = KubernetesRuntime::new(
        client.clone(),
        &configuration.gateway_api.controller_name,
        replica,
        live,
        issuance,
    );
    let mut runtime = runtime.watching(&kinds, heard.clone()).naming(names);
    let channel = configuration.gateway_api.channel;
    if channel == Channel::Experimental {
        runtime = runtime.awaiting_fields();
    }

    let candidate = Candidate {
        namespace: options.namespace.clone(),
        name: lease::NAME.to_owned(),
        identity: identity.clone(),
        duration: lease,
    };
    let for_lease = client.clone();
    wiring.spawn("lease", |stop| async move {
        Ok(lease::run(for_lease, candidate, term_sender, stop).await?)
    });
    // A small buffer: a watch waits while we are busy, and the server keeps further events.
    let (sender, mut watch_events) = mpsc::channel(16);
    let definitions = watch_definitions(client.clone(), kinds.clone(), channel, sender.clone());
    wiring.spawn_infallible("definitions", |_| definitions);
    let reports = ReportCounts::default();
    let reporter = Reporter {
        client: client.clone(),
        installation: options.namespace.clone(),
        identity,
        namespaces: namespaces.clone(),
        asks: wiring.asks.clone(),
        manager: manager.clone(),
        cache: cache.clone(),
        term: term.clone(),
        counts: reports.clone(),
    };
    wiring.spawn_infallible("reports", |stop| reporter.run(stop));
    let watches = watch_all(client.clone(), kinds, namespaces, heard, sender);
    wiring.spawn_infallible("watches", |_| watches);
    let namespace = &options.namespace;
    let (tell_records, mut replica_events) = mpsc::channel(16);
    let records = replicas::watch(client.clone(), namespace.clone(), tell_records);
    wiring.spawn_infallible("records of replicas", |_| records);
    let (tell_answers, mut answers) = mpsc::channel(4);
    let challenges = watch_answers(client.clone(), namespace.clone(), tell_answers);
    wiring.spawn_infallible("answers to challenges", |_| challenges);
    let (tell_claims, mut claim_events) = mpsc::channel(16);
    runtime = runtime.recording(Claims::new(client.clone(), namespace));
    let recorded = claims::watch(client.clone(), namespace.clone(), tell_claims);
    wiring.spawn_infallible("claims", |_| recorded);
    let (tell_isolated, mut isolated_events) = mpsc::channel(16);
    if let Some(template) = configuration.envoys.isolated_pod_template.clone() {
        runtime = runtime.isolating(client.clone(), namespace, &template);
        let isolated = isolated::watch(client.clone(), namespace.clone(), template, tell_isolated);
        wiring.spawn_infallible("Envoys of Gateways' own", |_| isolated);
    }
    let (tell_tickets, mut ticket_keys) = mpsc::channel(1);
    runtime = runtime.awaiting_ticket_keys();
    let overlap = Duration::from_secs(configuration.envoys.ca_overlap_seconds);
    let keys = Keys::new(client.clone(), namespace, overlap);
    let by_term = term.clone();
    wiring.spawn_infallible("keys of session tickets", |stop| {
        session_tickets::keep(keys, by_term, tell_tickets, stop)
    });
    let probes = listen(options.probes)
        .await
        .with_context(|| format!("--probes {}", options.probes))?;
    let scheme = if options.probes_tls_dir.is_some() {
        "https"
    } else {
        "http"
    };
    info!("probes and metrics at {scheme}://{}", probes.local_addr()?);
    let readiness = Readiness::default();
    let access = (configuration.metrics.access == MetricsAccess::Authorized)
        .then(|| Arc::new(MetricsReaders::new(client.clone())) as Arc<dyn ReadMetrics>);
    let serving = Probes {
        heartbeat: wiring.heartbeat.clone(),
        readiness: readiness.clone(),
        asks: wiring.asks.clone(),
        access,
        tls: options.probes_tls_dir.clone().map(|dir| ProbesTls { dir }),
    };
    wiring.spawn("probes", |stop| async move {
        serving
            .serve(probes, stop)
            .await
            .map_err(|why| anyhow!("probes: {why}"))
    });
    if let Some(address) = options.challenges {
        let listener = listen(address)
            .await
            .with_context(|| format!("--challenges {address}"))?;
        info!("challenges are answered at {}", listener.local_addr()?);
        wiring.spawn_infallible("challenges", |stop| {
            certificates::respond(listener, thumbprint_index, stop)
        });
    }
    let (revocations_asked, revocations) = mpsc::channel(4);
    let credentials = configuration.envoys.credentials;
    let revoker = envoys::Revoker {
        asks: revocations_asked,
        pods: credentials.of_pods(),
    };
    if let Some(admin) = options.admin.clone() {
        let routes = envoys::routes(cache.clone(), Some(revoker));
        let about = about("controller", None, &configuration);
        let others = certificates::routes(manager).merge(routes);
        wiring.serve_admin(admin, runtime.live(), others, about);
    }
    let (shown, told_shown) = watch::channel(None);
    let (synced, is_synced) = watch::channel(false);
    if let Some(paths) = paths {
        let (cache, views, metrics) = (cache.clone(), fleet_views.clone(), metrics.clone());
        let access = accounts.access.clone();
        let keeper = Keeper {
            paths,
            cache,
            views,
            access,
            shown: told_shown,
            synced: is_synced,
            metrics,
        };
        wiring.spawn_infallible("last good state", |stop| keeper.keep(stop));
    }
    let (signing, by_what) = watch::channel(None);
    let certified = envoy_certificates::Answers::default();
    if credentials.of_pods() {
        let address = options.envoy_identity;
        let listener = listen(address)
            .await
            .with_context(|| format!("--envoy-identity {address}"))?;
        info!("certificates of Envoys at {}", listener.local_addr()?);
        let (client, namespace) = (client.clone(), options.namespace.clone());
        let (accounts, life) = (accounts.clone(), configuration.envoys.certificate_life());
        let certifier = Arc::new(PodCertificates {
            client,
            namespace,
            accounts,
            life,
            signing: by_what,
        });
        let certified = certified.clone();
        wiring.spawn_infallible("certificates of Envoys", |stop| {
            envoy_certificates::serve(listener, certifier, certified, stop)
        });
    }
    let mut xds = Some(Xds {
        client,
        options,
        configuration,
        accounts,
        cache: cache.clone(),
        reports: failures,
        views,
        kept: None,
        shown,
        signing,
        revocations,
    });

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut progress = cache.watch_all();
    let mut unknown = cache.watch_all_unknown();
    let result = loop {
        wiring.heartbeat.beat(Instant::now());
        // Envoys get resources once the first translation of a complete view is done, so that they
        // never see a part of it. Until then they get the last good state, if the API server is
        // unavailable.
        if !*synced.borrow() {
            if runtime.knows_gateways() {
                synced.send_replace(true);
                standby.end(runtime.live().views());
                if let Some(xds) = xds.take() {
                    wiring.spawn("xDS", |stop| xds.serve(term.clone(), stop));
                }
            } else if let Some(kept) = standby.begin(runtime.has_answer(), Instant::now()).await
                && let Some(xds) = xds.take()
            {
                let xds = Xds {
                    kept: Some(kept),
                    ..xds
                };
                wiring.spawn("xDS", |stop| xds.serve(term.clone(), stop));
            }
        }
        match ready(&runtime, &standby) {
            Ok(lines) => readiness.ready(lines),
            Err(lines) => readiness.waiting(lines),
        }
        runtime.write(now(&term));
        tokio::select! {
            event = watch_events.recv() => match event {
                Some(event) => {
                    runtime.take_in(event, now(&term));
                    // Events that have arrived meanwhile are part of the next batch.
                    for event in std::iter::from_fn(|| watch_events.try_recv().ok()).take(AT_ONCE) {
                        runtime.take_in(event, now(&term));
                    }
                }
                None => break Err(anyhow!("the watches ended")),
            },
            Some(event) = replica_events.recv() => runtime.take_replica_event(event, now(&term)),
            Some(event) = claim_events.recv() => runtime.take_claims(event, now(&term)),
            Some(event) = isolated_events.recv() => runtime.see_isolated(event),
            Some(changes) = arrivals.resolved.recv() => runtime.take_names(changes, now(&term)),
            Some(keys) = ticket_keys.recv() => runtime.take_ticket_keys(keys, now(&term)),
            Some(answers) = answers.recv() => runtime.take_answers(answers, now(&term)),
            Some(AddressQuery { host, validation, answer }) = arrivals.places.recv() => {
                // The receiver may be gone.
                let _ = answer.send(runtime.addresses_of(&host, validation.as_ref()));
            }
            event = runtime.next() => runtime.take_event(event, now(&term)),
            changed = term.changed() => {
                // Renewals of the Lease change the term as well.
                let term = *term.borrow_and_update();
                if changed.is_ok() {
                    runtime.lead(term);
                }
            }
            changed = progress.changed() => {
                changed.context("the cache is gone")?;
                runtime.take_acknowledgements(now(&term));
            }
            changed = unknown.changed() => {
                changed.context("the cache is gone")?;
                runtime.count_unknown_names();
            }
            Some(ask) = arrivals.questions.recv() => answer(&mut runtime, &standby, || vec![Box::new(metrics.clone()), Box::new(certified.clone()), Box::new(reports.clone())], ask, now(&term)),
            _ = arrivals.beats.tick() => {}
            _ = arrivals.certificates.tick() => runtime.tick(now(&term)),
            why = wiring.ended() => break Err(why),
            _ = terminate.recv() => break Ok(true),
            _ = interrupt.recv() => break Ok(true),
        }
    };
    info!("shutting down");
    // Writes in progress end before the Lease is released.
    runtime.stop().await;
    drop(watch_events);
    drop(replica_events);
    drop(answers);
    drop(claim_events);
    drop(isolated_events);
    wiring.end().await;
    result
}

/// Returns the present term. The value is copied, since a borrow that is held while the term is
/// renewed would deadlock.
fn now(term: &watch::Receiver<Term>) -> Term {
    *term.borrow()
}

/// Returns whether Envoys get resources: `Ok` with notices for people, or `Err` with what is
/// pending.
fn ready(runtime: &KubernetesRuntime, standby: &Standby) -> Result<Vec<String>, Vec<String>> {
    match (standby.is_serving(), runtime.serving()) {
        // It would never be replaced by a state of now: a rollout that takes the right away has to
        // stop here.
        (true, _) if runtime.lacks_a_right() => {
            Err([runtime.pending_work(), standby.lines()].concat())
        }
        (true, _) => Ok([standby.lines(), runtime.pending_work()].concat()),
        // Envoys are served; the pending work says which part of the view is stale.
        (false, true) if runtime.awaited_owners().is_none() => {
            Ok([runtime.late_views(), runtime.pending_work()].concat())
        }
        (false, true) => Err(runtime.awaited_owners().into_iter().collect()),
        (false, false) => Err(runtime.pending_work()),
    }
}

fn answer(
    runtime: &mut KubernetesRuntime,
    standby: &Standby,
    others: impl Fn() -> Vec<Box<dyn Collector>>,
    ask: AdminRequest,
    term: Term,
) {
    let text = match ask.what {
        AdminQuery::Status(query) => {
            let live = runtime.live();
            live.statuses(&query, Timestamp::now()).to_string()
        }
        AdminQuery::Hosts(query) => {
            let hosts = runtime.live().hosts(&query, Timestamp::now());
            serde_json::to_string(&hosts).expect("strings and numbers")
        }
        AdminQuery::History(query, visibility) => {
            serde_json::to_string(&runtime.live().history(&query, &visibility))
                .expect("strings and numbers")
        }
        AdminQuery::Explain(question) => {
            serde_json::to_string(&runtime.explain(&question, term)).expect("strings and booleans")
        }
        AdminQuery::Owners(visibility) => runtime.live().owners(&visibility).to_string(),
        AdminQuery::Release(what) => runtime.release(what, term).err().unwrap_or_default(),
        AdminQuery::BroughtCertificates(visibility) => {
            serde_json::to_string(&runtime.live().brought_certificates(&visibility))
                .expect("strings and times")
        }
        AdminQuery::Clients => runtime.live().clients().to_string(),
        AdminQuery::Metrics => runtime.metrics(term, others()),
        AdminQuery::Ready => match ready(runtime, standby) {
            Ok(lines) => [vec!["true".to_owned()], lines].concat().join("\n"),
            Err(lines) => lines.join("\n"),
        },
    };
    // The receiver may be gone.
    let _ = ask.answer.send(text);
}
