//! The program, its Envoy and Pebble, and rounds of steps: hosts are added, their routes and
//! certificates changed, and removed, so that after each round there are as many as before.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::echo::Echo;
use e2e::pebble::{Options, Pebble};
use e2e::probe::{Failure, Probe, roots_of};
use e2e::tls_backend::{Pair, TestRoot};
use e2e_inside::fuzz::Choice;
use futures::future::try_join_all;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use tokio::time::{Instant, sleep};

use super::clients::Clients;
use super::history;
use super::host::{BACKENDS, Host, Manifest, Protocol, Source, index_of, version};
use crate::certs::site::{LIMIT, Site};

/// Hosts with a certificate from a Secret, after each round.
const BY_SECRET: usize = 48;
/// Hosts with a certificate from Pebble, after each round.
const BY_ACME: usize = 16;
/// The hostnames of these. They are used again, because the program keeps the certificate of a
/// removed host for the host's return, until 30 days after its end: with new hostnames each time
/// its storage would grow as it should.
const ACME_NAMES: usize = 24;
/// The hosts of each source that are neither changed nor removed.
const STEADY: usize = 2;
/// Hosts that a round removes, and adds.
const REPLACED: usize = 6;
/// Hosts whose routes a round changes.
const REROUTED: usize = 8;
/// Hosts whose certificates a round rotates.
const ROTATED: usize = 6;
/// The answers in a row, over new connections, after which a change is complete. Each is of one of
/// Envoy's workers by chance, and workers take a change over one after the other.
const IN_A_ROW: usize = 8;

/// A step of a round.
enum Step {
    Add(Source),
    Reroute(String),
    Rotate(String),
}

/// A host as it is published.
struct Published {
    host: Arc<Host>,
    version: u64,
    pair: Option<Pair>,
}

/// What a step is waited for.
struct Change {
    name: String,
    /// The certificate that is replaced.
    replaced: Option<CertificateDer<'static>>,
    is_added: bool,
}

/// The installation, its hosts and their clients.
pub(super) struct Churn {
    /// The program and its counterparts.
    pub(super) site: Site,
    /// The process id of Envoy.
    pub(super) envoy: u32,
    /// The clients.
    pub(super) clients: Clients,
    /// The number of steps so far.
    pub(super) steps: u64,
    backends: Vec<Echo>,
    root: TestRoot,
    roots: BTreeMap<Source, RootCertStore>,
    published: BTreeMap<String, Published>,
    steady: Vec<String>,
    /// Hostnames for certificates from Pebble that no host has.
    free: Vec<String>,
    /// The number of hosts with a Secret that were ever made.
    made: u64,
    choice: Choice,
}

impl Churn {
    /// Starts everything, and returns when all hosts are served.
    pub(super) async fn start(seed: u64) -> Result<Self> {
        let options = Options {
            eager: true,
            ..Options::default()
        };
        let mut site = Site::with(Pebble::start(&options).await?).await?;
        let mut backends = Vec::new();
        for name in BACKENDS {
            backends.push(Echo::start(name).await?);
        }
        let root = TestRoot::new("soak")?;
        let of_pebble = roots_of(&site.pebble.issuing_root(0).await?)?;
        let roots = BTreeMap::from([
            (Source::Secret, roots_of(&root.pem())?),
            (Source::Acme, of_pebble),
        ]);
        let open = "  allowedListeners: {namespaces: {from: Same}}\n";
        site.publish_beside(&[("first.example.net", "internal-ca")], open)?;
        history::fill(site.state.path())?;
        site.start(&["--set", "issuers.acme.preflight=Strict"])?;
        let program = site.program.as_ref().context("it runs")?;
        let envoy = program.until_envoy().await?;
        let mut this = Self {
            site,
            envoy,
            clients: Clients::start(seed),
            steps: 0,
            backends,
            root,
            roots,
            published: BTreeMap::new(),
            steady: Vec::new(),
            free: (0..ACME_NAMES)
                .map(|number| format!("h{number}.example.com"))
                .collect(),
            made: 0,
            choice: Choice::new(seed),
        };
        this.fill().await?;
        Ok(this)
    }

    /// Adds the first hosts, and clients of those that never change.
    async fn fill(&mut self) -> Result<()> {
        self.clients.during("the first hosts are added");
        let mut all = Vec::new();
        for (source, count) in [(Source::Secret, BY_SECRET), (Source::Acme, BY_ACME)] {
            for number in 0..count {
                let change = self.apply(Step::Add(source))?;
                if number < STEADY {
                    self.steady.push(change.name.clone());
                }
                all.push(change);
            }
        }
        try_join_all(all.iter().map(|change| self.complete(change))).await?;
        for name in &self.steady {
            self.clients.stay(&self.published[name].host);
        }
        self.clients.check();
        Ok(())
    }

    /// Returns the number of persistent connections to hosts that never change.
    pub(super) fn steady_clients(&self) -> u64 {
        2 * self.steady.len() as u64
    }

    /// Returns the number of live hosts.
    pub(super) fn hosts(&self) -> usize {
        self.published.len()
    }

    /// Returns the path of one of the program's sockets.
    pub(super) fn socket(&self, name: &str) -> PathBuf {
        self.site.state.path().join(name)
    }

    fn address(&self) -> SocketAddr {
        self.site.address()
    }

    /// Replaces some hosts, and changes others. First the new ones come or first the old ones go.
    pub(super) async fn round(&mut self, number: u64) -> Result<()> {
        let old = self.some(REPLACED, |_| true);
        let new: Vec<Source> = old
            .iter()
            .map(|name| self.published[name].host.source)
            .collect();
        let comes_first = self.choice.below(2) == 0;
        if comes_first {
            self.change(number, &new, &old).await?;
            self.remove(number, &old).await
        } else {
            self.remove(number, &old).await?;
            self.change(number, &new, &[]).await
        }
    }

    /// Draws some hosts that may change.
    fn some(&mut self, most: usize, may_be: impl Fn(&str) -> bool) -> Vec<String> {
        let mut names: Vec<String> = self
            .published
            .keys()
            .filter(|name| !self.steady.contains(name) && may_be(name))
            .cloned()
            .collect();
        let mut drawn = Vec::new();
        while drawn.len() < most && !names.is_empty() {
            drawn.push(names.swap_remove(self.choice.below(names.len())));
        }
        drawn
    }

    /// Adds hosts, and changes others beside them, all at once.
    async fn change(&mut self, round: u64, new: &[Source], but: &[String]) -> Result<()> {
        self.clients
            .during(&format!("round {round}: hosts are added and changed"));
        let mut changed = self.some(REROUTED + ROTATED, |name| {
            !but.iter().any(|other| other == name)
        });
        let rotated = changed.split_off(REROUTED);
        let mut steps: Vec<Step> = new.iter().map(|source| Step::Add(*source)).collect();
        steps.extend(changed.into_iter().map(Step::Reroute));
        steps.extend(rotated.into_iter().map(Step::Rotate));
        let mut changes = Vec::new();
        while !steps.is_empty() {
            let step = steps.swap_remove(self.choice.below(steps.len()));
            changes.push(self.apply(step)?);
            self.steps += 1;
        }
        try_join_all(changes.iter().map(|change| self.complete(change))).await?;
        self.clients.check();
        Ok(())
    }

    /// Writes what a step changes.
    fn apply(&mut self, step: Step) -> Result<Change> {
        match step {
            Step::Add(source) => self.add(source),
            Step::Reroute(name) => {
                let published = self.published.get_mut(&name).context("it is published")?;
                published.version += 1;
                let next = published.version;
                published
                    .host
                    .expect(|expected| expected.versions.push(next));
                self.write(&name)?;
                Ok(Change {
                    name,
                    replaced: None,
                    is_added: false,
                })
            }
            Step::Rotate(name) => self.rotate(name),
        }
    }

    fn add(&mut self, source: Source) -> Result<Change> {
        let name = match source {
            Source::Secret => {
                let number = self.made;
                self.made += 1;
                // Some share a parent domain with many others, some with few.
                let parent = ["many", "many", "many", "few"][self.choice.below(4)];
                format!("h{number}.{parent}.example.org")
            }
            Source::Acme => {
                let at = self.choice.below(self.free.len());
                self.free.swap_remove(at)
            }
        };
        let pair = match source {
            Source::Secret => Some(self.root.issue(&name, None)?),
            Source::Acme => None,
        };
        let leaf = pair.as_ref().map(|pair| pair.certificate.der().clone());
        let roots = self.roots[&source].clone();
        let host = Host::new(&name, source, self.address(), roots, leaf);
        let published = Published {
            host: Arc::new(host),
            version: 0,
            pair,
        };
        self.published.insert(name.clone(), published);
        self.write(&name)?;
        Ok(Change {
            name,
            replaced: None,
            is_added: true,
        })
    }

    fn rotate(&mut self, name: String) -> Result<Change> {
        let published = self.published.get_mut(&name).context("it is published")?;
        let mut replaced = None;
        match published.host.source {
            Source::Secret => {
                let pair = self.root.issue(&name, None)?;
                let leaf = pair.certificate.der().clone();
                published.pair = Some(pair);
                published.host.expect(|expected| {
                    replaced = expected.leaves.first().cloned();
                    expected.leaves.push(leaf);
                });
                self.write(&name)?;
            }
            Source::Acme => {
                published.host.expect(|expected| {
                    replaced = expected.leaves.first().cloned();
                    expected.leaves.clear();
                });
                let (code, text) = self.site.ask(&["certs", "renew", &name])?;
                ensure!(code == 0, "{name} is not renewed: {text}");
            }
        }
        Ok(Change {
            name,
            replaced,
            is_added: false,
        })
    }

    fn write(&self, name: &str) -> Result<()> {
        let Published {
            host,
            version,
            pair,
        } = &self.published[name];
        let manifest = Manifest {
            version: *version,
            pair: pair.as_ref(),
            port: self.site.port,
            backend: self.backends[index_of(*version)].address().port(),
        };
        self.site.save(
            &format!("{}.yaml", host.object()),
            &host.manifests(&manifest),
        )
    }

    /// Waits until new connections show a change only. A new host is live, and gets requests, from
    /// its first answer on.
    async fn complete(&self, change: &Change) -> Result<()> {
        let Published {
            host, version: new, ..
        } = &self.published[&change.name];
        let in_a_row = if change.is_added { 1 } else { IN_A_ROW };
        let deadline = Instant::now() + LIMIT;
        let mut shown: Option<CertificateDer<'static>> = None;
        let mut row = 0;
        for attempt in 0.. {
            let protocol = Protocol::of(attempt);
            match host.ask(protocol, None).await {
                Ok(right)
                    if version(&right.answer) == Some(*new)
                        && change.replaced.as_ref() != Some(&right.leaf) =>
                {
                    if shown.as_ref() != Some(&right.leaf) {
                        row = 0;
                    }
                    row += 1;
                    shown = Some(right.leaf);
                }
                Ok(_) => row = 0,
                Err(why) if change.is_added => {
                    ensure!(
                        Instant::now() < deadline,
                        "{} is not live: {why}",
                        host.name
                    );
                }
                Err(why) => bail!("{} by {protocol:?} while it changes: {why}", host.name),
            }
            if row == in_a_row {
                break;
            }
            ensure!(Instant::now() < deadline, "{} stays as it was", host.name);
            sleep(Duration::from_millis(5)).await;
        }
        host.expect(|expected| {
            expected.versions = vec![*new];
            expected.leaves = shown.into_iter().collect();
        });
        self.clients.add(host);
        Ok(())
    }

    /// Removes hosts, and waits until they are not served.
    async fn remove(&mut self, round: u64, names: &[String]) -> Result<()> {
        self.clients
            .during(&format!("round {round}: hosts are removed"));
        self.clients.remove(names).await;
        for name in names {
            let Published { host, .. } = self.published.remove(name).context("it is published")?;
            let file = format!("{}.yaml", host.object());
            std::fs::remove_file(self.site.manifests.path().join(file))?;
            if host.source == Source::Acme {
                self.free.push(name.clone());
            }
            self.steps += 1;
        }
        for name in names {
            self.gone(name).await?;
        }
        self.clients.check();
        Ok(())
    }

    async fn gone(&self, name: &str) -> Result<()> {
        let probe = Probe::https(self.address(), name);
        let deadline = Instant::now() + LIMIT;
        loop {
            match probe.send().await {
                Ok(answer) if answer.status != 200 => return Ok(()),
                Err(Failure::Tls(_) | Failure::Reset(_) | Failure::Closed(_)) => return Ok(()),
                Err(other) => bail!("{name} is not refused: {other}"),
                Ok(_) => ensure!(Instant::now() < deadline, "{name} is served on"),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}
