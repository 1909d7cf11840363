//! The standalone program: who is started, who talks to whom, and how it ends. Decides nothing.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};
use xds::{Cache, Server, UnixPeers, View};

use acme::Denied;
use acme::storage::dir::Directory;

use crate::certificates::{self, Authority, Desk, DeskConfig, Door, Handout, TenantIssuers, Where, Wishing};
use crate::cli;
use crate::envoy::{Admin, AdsServer, BootstrapOptions, bootstrap};
use crate::heartbeat::{self, Heartbeat};
use crate::inputs::Kind;
use crate::manifest::{Outcome, Safety, Watcher};
use crate::model::ObjectName;
use crate::pipeline;
use crate::standalone::{
    Addresses, Ask, ClaimBook, Demo, Live, PrivateDir, Supervisor, Tenants, What, check, example, find, losers,
    serve_admin, tenants,
};
use crate::tasks::{ended, join};
use crate::tenancy;
use crate::translate::{Change, EndpointPolicy, Protocol, Settings, Unlisted};

/// The controller name of GatewayClasses that are ours.
pub const CONTROLLER: &str = "gatewright.io/gateway-controller";
/// How often the end of certificates is looked at.
const CERTIFICATES: Duration = Duration::from_secs(60);
/// How many orders may be on their way at a time.
const ORDERS: usize = 32;
/// How long `--once` waits for everything to be acknowledged.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the private directory is.
///
/// # Errors
/// When there is no home.
pub fn state_dir(state: &cli::State) -> Result<PathBuf> {
    match &state.state_dir {
        Some(path) => std::path::absolute(path).context("--state-dir"),
        None => Ok(PrivateDir::default_path("standalone")?),
    }
}

/// The bootstrap for an Envoy that speaks to the program of this private directory.
pub fn envoy_bootstrap(node: &str, dir: &std::path::Path, admin: Option<PathBuf>) -> serde_json::Value {
    bootstrap(&BootstrapOptions {
        node_id: node.to_owned(),
        node_cluster: "standalone".to_owned(),
        ads: AdsServer::Pipe(dir.join("xds.sock")),
        admin: Admin::Pipe(admin.unwrap_or_else(|| dir.join("envoy-admin.sock"))),
        ready: None,
        max_heap_bytes: 4 << 30,
        max_connections: 50_000,
    })
}

/// Which addresses endpoints may have beside an Envoy that is no pod.
pub fn endpoint_policy(options: &cli::Endpoints) -> EndpointPolicy {
    EndpointPolicy { denied: options.denied_endpoint_networks.clone(), ..EndpointPolicy::default() }
}

/// What tells this installation from others: the machine, and where the program keeps its state there.
fn installation(dir: &Path) -> Arc<str> {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    format!("{} {}", machine.trim(), dir.display()).into()
}

/// How TenantGateways are carried out by this program.
pub fn tenancy_settings(options: &cli::Tenants) -> tenancy::Settings {
    tenancy::Settings {
        listener_sets: true,
        certificates: tenancy::Source::Acme,
        cert_manager: false,
        claims: match options.hostname_claims {
            cli::HostnameClaims::Smallest => tenancy::Precedence::Smallest,
            cli::HostnameClaims::FirstCome => tenancy::Precedence::FirstCome,
        },
        unlabelled: options.names.unlabelled_namespaces == cli::Unlabelled::Allow,
        reserved: options.names.reserved(),
        ports: tenancy::Ports { http: options.tenant_http_port, https: options.tenant_https_port },
        ..tenancy::Settings::default()
    }
}

/// Runs until it is told to end. `Ok(false)` when `--once` found something.
///
/// # Errors
/// When it cannot start, or a part of it ends by itself.
pub async fn standalone(options: cli::Standalone) -> Result<bool> {
    let envoy = if options.no_envoy { None } else { Some(find(options.envoy.as_deref())?) };
    let dir = PrivateDir::open(&state_dir(&options.state)?)?;
    let admin = options.admin.clone().unwrap_or_else(|| dir.path().join("admin.sock"));
    let envoy_admin = options.envoy_admin.clone().unwrap_or_else(|| dir.path().join("envoy-admin.sock"));
    info!("private directory {}", dir.path().display());
    info!("admin socket {}, Envoy's {}", admin.display(), envoy_admin.display());

    let (stopper, stop) = watch::channel(false);
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    let cache = Cache::new();
    let view = View::new("standalone");
    let issuers = options.issuer_use.policy(&options.acme.issuers()?, Unlisted::Everybody)?;
    let settings = Settings {
        limits: options.limits,
        issuers,
        believes_creation_times: false,
        hold: u64::from(options.tenants.hostname_hold) * 3600,
        endpoints: endpoint_policy(&options.endpoints),
        installation: installation(dir.path()),
        ..Settings::new(CONTROLLER, options.addresses.clone())
    };
    let (places, mut places_asked) = mpsc::channel::<Where>(16);
    let desk = Arc::new(desk(&options, dir.path(), places).await?);
    let mut tenancy = tenancy_settings(&options.tenants);
    if options.dir.is_none() {
        tenancy.ports = Demo::ports().map_err(|text| anyhow!("the example: {text}"))?;
    }
    let (book, known) = match options.tenants.hostname_claims {
        cli::HostnameClaims::Smallest => (None, Vec::new()),
        cli::HostnameClaims::FirstCome => {
            let (book, records) = ClaimBook::<Tenants>::open(&dir.path().join("hostname-claims"))?;
            let known = records.into_iter().map(|(hostname, record)| tenancy::Change::Recorded(hostname, Some(record)));
            (Some(book), known.collect())
        }
    };
    let (owners, owned) = ClaimBook::<Addresses>::open(&dir.path().join("ownership"))?;
    let owned: Vec<Change> = owned.into_iter().map(|(what, owner)| Change::Recorded(what, Some(owner))).collect();
    let tenancy_http_port = tenancy.ports.http;
    let mut site = Site {
        live: Live::new(settings, tenancy, cache.clone(), view.clone()).within(options.edge.settings()),
        book,
        known,
        owners,
        owned,
        desk: desk.clone(),
        wishing: Wishing::new(TenantIssuers {
            installed: options.acme.issuers()?,
            http_port: tenancy_http_port,
            // Manifests are the operator's own.
            denied: Denied::default(),
            authorities: Denied::private().allowing(options.acme.acme_allowed_networks.iter().copied()),
        }),
        bundle: dir.path().join("ca.crt"),
        written: String::new(),
        start: Instant::now(),
    };

    // First everything is read and translated, then Envoys are answered: they never see half of it.
    let mut watcher = None;
    match &options.dir {
        Some(path) => {
            let safety = if options.allow_unsafe_manifests { Safety::Off } else { Safety::Strict };
            let (opened, outcome) = Watcher::open(path, safety)?;
            site.take(outcome)?;
            watcher = Some(opened);
        }
        None => {
            let demo = Demo::open(desk.authority()).await.map_err(|text| anyhow!("the example: {text}"))?;
            site.apply(demo.objects.into_iter().map(Change::Put).collect())?;
            for backend in demo.backends {
                let stop = stop.clone();
                tasks.spawn(async move {
                    backend.run(stop).await;
                    Ok(())
                });
            }
        }
    }

    if let Some(door) = desk.door() {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("TLS-ALPN-01")?;
        let way = Door::way(listener.local_addr().context("TLS-ALPN-01")?);
        site.apply(way.map_err(|text| anyhow!("TLS-ALPN-01: {text}"))?)?;
        let stop = stop.clone();
        tasks.spawn(async move {
            door.serve(listener, stop).await;
            Ok(())
        });
    }

    // Certificates that are there already are served from the start.
    site.hand_in(desk.settle())?;
    let (supply, mut supplied) = mpsc::channel(4);
    let (at_desk, desk_stop) = (desk.clone(), stop.clone());
    tasks.spawn(async move {
        at_desk.run(supply, desk_stop).await;
        Ok(())
    });
    if let Some(address) = options.acme.acme_responder {
        let listener =
            tokio::net::TcpListener::bind(address).await.with_context(|| format!("--acme-responder {address}"))?;
        info!("challenges are answered at {}", listener.local_addr().unwrap_or(address));
        let (desk, stop) = (desk.clone(), stop.clone());
        tasks.spawn(async move {
            certificates::respond(listener, desk, stop).await;
            Ok(())
        });
    }

    let socket = dir.path().join("xds.sock");
    let mut stopped = stop.clone();
    let listener = xds::bind_unix(&socket, 0o600).with_context(|| format!("xDS socket {}", socket.display()))?;
    // Envoys of the user this runs as.
    let user = std::fs::metadata(dir.path()).context("the private directory")?.uid();
    let limits = xds::Limits { on_demand_secrets: options.edge.envoy_certificates, ..Default::default() };
    let server = Server::new(cache.clone(), UnixPeers::new().allow(user, view.clone())).with_limits(limits);
    tasks.spawn(async move {
        let stopped = async move {
            // An error means that whoever could stop us is gone.
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        server.serve_unix(listener, stopped).await;
        Ok(())
    });
    let (asks, mut questions) = mpsc::channel::<Ask>(64);
    let admin_stop = stop.clone();
    let heartbeat = Heartbeat::new(Instant::now());
    let for_admin = heartbeat.clone();
    let about_certificates = certificates::routes(watch::channel(Some(desk.clone())).1);
    tasks.spawn(async move {
        serve_admin(&admin, asks, for_admin, about_certificates, admin_stop)
            .await
            .with_context(|| format!("admin socket {}", admin.display()))
    });
    if let Some(program) = envoy {
        let path = dir.path().join("bootstrap.json");
        let text = envoy_bootstrap("standalone", dir.path(), Some(envoy_admin)).to_string();
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        let supervisor = Supervisor { program, bootstrap: path, log: dir.path().join("envoy.log") };
        let stop = stop.clone();
        tasks.spawn(async move {
            supervisor.run(stop).await;
            Ok(())
        });
    }

    let (mut term, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut progress = cache.watch(&view);
    let mut unknown = cache.watch_unknown(&view);
    let mut certificates = tokio::time::interval(CERTIFICATES);
    let patience = tokio::time::sleep(PATIENCE);
    tokio::pin!(patience);
    let mut shown = options.dir.is_some() && !options.once;
    let mut beats = tokio::time::interval(heartbeat::PERIOD);
    let result = loop {
        heartbeat.beat(Instant::now());
        if !shown && site.desk.is_settled() && site.live.acknowledged() {
            shown = true;
            let good = site.show().await;
            if options.once {
                break good;
            }
        }
        tokio::select! {
            outcome = next(&mut watcher) => site.take(outcome)?,
            changed = progress.changed() => {
                changed.context("the cache is gone")?;
                site.settle();
            }
            changed = unknown.changed() => {
                changed.context("the cache is gone")?;
                let total = *unknown.borrow_and_update();
                if let Some(line) = site.live.asked_in_vain(total, site.start.elapsed()) {
                    warn!("{line}");
                }
            }
            Some(ask) = questions.recv() => site.answer(ask)?,
            Some(Where { host, thumbprint, answer }) = places_asked.recv() => {
                // Whoever asked may be gone.
                let _ = answer.send(site.live.engine().addresses_of(&host, thumbprint.as_deref()));
            }
            Some(handouts) = supplied.recv() => site.hand_in(handouts)?,
            _ = beats.tick() => {}
            _ = certificates.tick() => site.tend()?,
            Some(task) = tasks.join_next() => break Err(ended(task)),
            () = &mut patience, if options.once => {
                break Err(anyhow!("not everything was acknowledged within {PATIENCE:?}: {}", site.live.clients()));
            }
            _ = term.recv() => break Ok(true),
            _ = interrupt.recv() => break Ok(true),
        }
    };
    info!("ending");
    stopper.send_replace(true);
    join(tasks).await;
    result
}

/// The desk for certificates, with what is kept in the private directory.
async fn desk(options: &cli::Standalone, dir: &std::path::Path, places: mpsc::Sender<Where>) -> Result<Desk> {
    let authority = Authority::open(dir.join("ca"), Timestamp::now());
    let authority = authority.map_err(|text| anyhow!("the internal CA: {text}"))?;
    let authority = Arc::new(authority.within(options.internal_ca.limits()));
    let storage = Arc::new(Directory::open(dir.join("acme")).context("the storage of certificates")?);
    let issuers = options.acme.issuers()?;
    let places = Some(places);
    Ok(Desk::open(DeskConfig { storage, authority, issuers, at_once: ORDERS, places, cabinet: None }).await?)
}

async fn next(watcher: &mut Option<Watcher>) -> Outcome {
    match watcher {
        Some(watcher) => watcher.next().await,
        None => std::future::pending().await,
    }
}

/// What the one loop owns.
struct Site {
    live: Live,
    desk: Arc<Desk>,
    wishing: Wishing,
    /// Who had which hostname first, where that counts.
    book: Option<ClaimBook<Tenants>>,
    /// What the book had to say at the start.
    known: Vec<tenancy::Change>,
    /// Who owns what on addresses that namespaces share.
    owners: ClaimBook<Addresses>,
    /// What that had to say at the start.
    owned: Vec<Change>,
    bundle: PathBuf,
    /// What was last written there.
    written: String,
    start: Instant,
}

impl Site {
    fn take(&mut self, outcome: Outcome) -> Result<()> {
        for problem in outcome.problems {
            warn!("{problem}");
        }
        if outcome.changes.is_empty() { Ok(()) } else { self.apply(outcome.changes) }
    }

    fn apply(&mut self, changes: Vec<Change>) -> Result<()> {
        let keys = changes.iter().filter_map(Change::key).filter(|key| key.kind == Kind::Secret);
        let secrets: Vec<ObjectName> = keys.map(|key| key.name).collect();
        for line in self.publish(changes)? {
            info!("{line}");
        }
        self.certify(secrets);
        self.settle();
        Ok(())
    }

    /// Publishes what changes lead to, once it is recorded what the next run has to know. Returns what people should know.
    fn publish(&mut self, changes: Vec<Change>) -> Result<Vec<String>> {
        let (book, owners, known) = (&mut self.book, &mut self.owners, std::mem::take(&mut self.known));
        let mut record = |outcome: &pipeline::Outcome| {
            owners.append(&outcome.delta.records)?;
            book.as_mut().map_or(Ok(()), |book| book.append(&outcome.tenancy.records))
        };
        let changes = std::mem::take(&mut self.owned).into_iter().chain(changes).collect();
        Ok(self.live.apply(changes, known, &mut record, SystemTime::now(), self.start.elapsed())?)
    }

    fn settle(&mut self) {
        for line in self.live.settled(self.start.elapsed()) {
            info!("{line}");
        }
    }

    /// Does what time asks for: certificates begin and cease to be valid.
    fn tend(&mut self) -> Result<()> {
        if let Some(line) = self.live.tend(self.start.elapsed()) {
            info!("{line}");
        }
        let now = SystemTime::now();
        if self.live.engine().next_deadline().is_some_and(|deadline| deadline <= now) {
            self.apply(Vec::new())?;
        }
        Ok(())
    }

    /// Says which certificates are wished for, where that is different by what was published or by these Secrets.
    fn certify(&mut self, secrets: Vec<ObjectName>) {
        let wished = self.live.take_wished();
        let changes = self.wishing.changes(self.live.pipeline(), wished, secrets);
        if !changes.is_empty() {
            self.desk.change(changes);
        }
    }

    /// Takes in what comes of wishes: Secrets, answers to challenges, what is in the way.
    fn hand_in(&mut self, handouts: Vec<Handout>) -> Result<()> {
        if handouts.is_empty() {
            return Ok(());
        }
        // Whoever connects needs it first.
        let bundle = self.desk.authority().bundle(Timestamp::now());
        if bundle != self.written {
            match std::fs::write(&self.bundle, &bundle) {
                Ok(()) => self.written = bundle,
                Err(error) => warn!("{}: {error}", self.bundle.display()),
            }
        }
        let mut changes = Vec::with_capacity(handouts.len());
        for handout in handouts {
            match handout.change() {
                Ok(change) => changes.push(change),
                Err(problem) => warn!("a certificate cannot be served: {problem}"),
            }
        }
        // What goes on waiting for its certificate was told when it was published, and each failure by the keeper.
        for line in self.publish(changes)?.iter().filter(|line| !line.contains(" Pending: ")) {
            info!("{line}");
        }
        self.settle();
        Ok(())
    }

    fn answer(&mut self, ask: Ask) -> Result<()> {
        let text = match ask.what {
            What::Owners => self.live.owners().to_string(),
            What::Release(what) => match self.live.engine().owner(&what) {
                Some(_) => {
                    self.apply(vec![Change::Recorded(what, None)])?;
                    String::new()
                }
                None => format!("{what} has no owner"),
            },
            What::Status => self.live.statuses(Timestamp::now()).to_string(),
            What::Explain(question) => {
                serde_json::to_string(&self.live.explain(&question)).expect("strings and booleans")
            }
            What::Clients => self.live.clients().to_string(),
            What::Metrics => self.live.metrics(vec![Box::new(self.desk.figures())]),
            What::Ready => self.live.acknowledged().to_string(),
        };
        // Whoever asked may be gone.
        let _ = ask.answer.send(text);
        Ok(())
    }

    /// Fetches every page and prints the table. `Ok(false)` when one did not come.
    async fn show(&self) -> Result<bool> {
        let roots = self.desk.authority().bundle(Timestamp::now());
        let mut rows = vec![["HOST", "TENANTS", "CERTIFICATE", "UNTIL", "ANSWER"].map(str::to_owned)];
        let (mut good, mut curl) = (true, None);
        for host in self.live.engine().hosts() {
            let tls = host.protocol != Protocol::Http;
            let scheme = if tls { "https" } else { "http" };
            let name = example(&host);
            let answer = match check(&host, &roots).await {
                Ok(status) => {
                    good &= status < 500;
                    status.to_string()
                }
                Err(error) => {
                    good = false;
                    error.to_string()
                }
            };
            let (issuer, until) = match &host.certificate {
                Some(held) => {
                    let until = Timestamp::try_from(held.not_after).unwrap_or_default();
                    (held.issuer.to_string(), until.strftime("%Y-%m-%d").to_string())
                }
                None if tls => ("the backend's own".to_owned(), "-".to_owned()),
                None => ("-".to_owned(), "-".to_owned()),
            };
            let port = host.frontend.port;
            if tls && host.certificate.is_some() && curl.is_none() {
                let ip = host.addresses.first().map(ToString::to_string).unwrap_or_default();
                let ca = self.bundle.display();
                curl = Some(format!("curl --resolve {name}:{port}:{ip} --cacert {ca} https://{name}:{port}/"));
            }
            let tenants = tenants(self.live.pipeline(), &host);
            rows.push([format!("{scheme}://{}:{port}", host.hostname), tenants, issuer, until, answer]);
        }
        if rows.len() == 1 {
            bail!("nothing is served");
        }
        let mut out = io::stdout().lock();
        write!(out, "{}", table(&rows))?;
        for line in losers(self.live.pipeline()) {
            writeln!(out, "{line}")?;
        }
        if let Some(curl) = curl {
            writeln!(out, "\n{curl}")?;
        }
        out.flush()?;
        Ok(good)
    }
}

/// Rows in columns as wide as they need.
pub fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let line: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    text
}
