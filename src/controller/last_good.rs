//! The last good state of what Envoys are told, encrypted in a file: what is served after a start for as long as the API server
//! does not say how things are.
//!
//! It is of the output, not of objects: the resources as they were published, and what the xDS server shows and trusts. So a
//! start needs nothing of what is away, decides nothing anew, and writes nothing. It is in a view of its own; once the API
//! server's state is whole, Envoys are let go and come back for the real one.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ::xds::{Cache, Fingerprint, Kind, Pair, Resource, RevokedClients, Suspects, Update, Views};
use anyhow::{Context, Result, bail};
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::secret::Type;
use envoy_types::pb::envoy::service::runtime::v3::Runtime;
use gatewright_control::fleet_views::{FleetViews, Generations};
use gatewright_control::metrics::gauge;
use gatewright_core::model::EnvoyFleet;
use gatewright_kubernetes::keys;
use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prost::Message;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};
use x509_parser::pem::Pem;
use zeroize::Zeroizing;

use super::sealed::{self, Sealer};
use crate::cli;
use crate::replace::replace;

/// The state is looked at so often, and written if it changed.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);
/// Writing may take one part in so many of the time.
const MAX_SAVE_SHARE: u32 = 20;
/// So long after the start, an API server that has said nothing counts as away.
const SILENT: Duration = Duration::from_secs(2);
/// So long after the start, one that has not said all counts as away.
const SLOW: Duration = Duration::from_secs(30);
/// How many hosts with an ended certificate are named.
const NAMED: usize = 3;

/// Where the file is, and where its key.
#[derive(Clone, Debug)]
pub(super) struct Place {
    file: PathBuf,
    key: PathBuf,
}

impl Place {
    pub(super) fn of(options: &cli::Controller) -> Option<Place> {
        let (file, key) = (options.keeping.last_good.clone()?, options.keeping.last_good_key.clone()?);
        Some(Place { file, key })
    }

    /// The key, as it is now.
    fn key(&self) -> io::Result<Zeroizing<Vec<u8>>> {
        std::fs::read(&self.key).map(Zeroizing::new)
    }
}

/// What the xDS server shows, and the roots of the clients that it takes.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) pair: Pair,
    pub(super) roots: String,
    /// Clients that are refused all the same.
    pub(super) revoked: RevokedClients,
}

/// The first record of the file.
#[derive(Serialize, Deserialize)]
struct Head {
    /// When it was written, in seconds since 1970.
    at: u64,
    certificate: String,
    key: String,
    roots: String,
    /// What Envoys refused of the first view.
    #[serde(default)]
    suspects: Suspects,
    /// A file of an earlier version has none.
    #[serde(default)]
    revoked: BTreeSet<Fingerprint>,
    /// The same by a name in their certificates.
    #[serde(default)]
    revoked_names: BTreeSet<String>,
    /// The views after the first, where not all fleets see the same: their resources are the last ones.
    #[serde(default)]
    more: Vec<More>,
}

/// A view after the first.
#[derive(Serialize, Deserialize)]
struct More {
    /// How many resources it has.
    resources: usize,
    suspects: Suspects,
}

/// What a view has, to be written.
#[derive(Default)]
struct ViewState {
    resources: Vec<Resource>,
    /// What Envoys refused of them.
    suspects: Suspects,
}

/// Which Envoys are let in to see what.
#[derive(Clone, Debug)]
pub(super) struct Grants {
    pub(super) views: Views,
    /// The fleets that have an identity.
    pub(super) fleets: Vec<EnvoyFleet>,
}

impl Grants {
    /// From now on Envoys see these.
    fn allow(&self, views: &FleetViews) {
        for fleet in &self.fleets {
            if let Some(view) = views.of(fleet) {
                self.views.allow(keys::identity_of(fleet), view.clone());
            }
        }
    }
}

/// What a file had in it, but for the refused parts.
struct Kept {
    at: SystemTime,
    shown: Shown,
    /// The resources of each view.
    views: Vec<Vec<Resource>>,
    /// Hosts whose certificate has ended.
    ended: Vec<String>,
}

impl Kept {
    fn count(&self) -> usize {
        self.views.iter().map(Vec::len).sum()
    }
}

/// When the served state is of, and when the last one was written; shown as metrics.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures(Arc<[AtomicU64; 2]>);

impl Figures {
    fn serves(&self, at: Option<SystemTime>) {
        self.0[0].store(at.map_or(0, seconds), Ordering::Relaxed);
    }

    fn wrote(&self, at: SystemTime) {
        self.0[1].store(seconds(at), Ordering::Relaxed);
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let [served, written] = [0, 1].map(|at| self.0[at].load(Ordering::Relaxed));
        let age = if served == 0 { 0 } else { seconds(SystemTime::now()).saturating_sub(served) };
        let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let help = "Whether Envoys are told the last good state from before the start";
        gauge(&mut encoder, "last_good_served", help, usize::from(served != 0))?;
        gauge(&mut encoder, "last_good_age_seconds", "How old the last good state is that is served", number(age))?;
        let help = "When the last good state was written last, in seconds since 1970";
        gauge(&mut encoder, "last_good_written_timestamp_seconds", help, number(written))
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// What is served while the API server's state is not whole.
pub(super) struct Standby {
    kept: Option<Kept>,
    /// What Envoys refused before the start, by view: of the last good state, and of the real one after it.
    suspects: Vec<Suspects>,
    started: Instant,
    cache: Cache,
    views: FleetViews,
    grants: Grants,
    figures: Figures,
    serving: Option<Serving>,
}

/// What is served, of when.
struct Serving {
    at: SystemTime,
    ended: Vec<String>,
}

impl Standby {
    /// Reads what is kept for as many views as `live` has, if there is anything that can be read. What cannot is said, and no
    /// reason not to start.
    pub(super) async fn read(
        place: Option<Place>,
        cache: Cache,
        live: &FleetViews,
        grants: Grants,
        figures: Figures,
    ) -> Self {
        let started = Instant::now();
        let views = live.called("last good");
        let loaded: Option<(Kept, Vec<Suspects>)> = match place {
            None => None,
            Some(place) => tokio::task::spawn_blocking(move || match load(&place) {
                Ok(loaded) => loaded,
                Err(error) => {
                    warn!("last good state: {error:#}; it is not used");
                    None
                }
            })
            .await
            .unwrap_or_default(),
        };
        // Whose a resource is cannot be told afterwards: what all saw may not be for the Envoys of one fleet.
        let loaded = loaded.filter(|(kept, _)| {
            let fits = kept.views.len() == views.iter().count();
            if !fits {
                warn!("last good state: it was kept while Envoys of the fleets saw something else than now; it is not used");
            }
            fits
        });
        let (kept, suspects) = loaded.unzip();
        if let Some(kept) = &kept {
            info!("last good state: {} resources of {}", kept.count(), time(kept.at));
        }
        let suspects = suspects.unwrap_or_default();
        Self { kept, suspects, started, cache, views, grants, figures, serving: None }
    }

    /// Begins to serve, where it is time and there is something: `heard` is whether the API server answers. Returns what the
    /// xDS server is to show.
    pub(super) fn begin(&mut self, heard: bool, now: Instant) -> Option<Shown> {
        let silence = if heard { SLOW } else { SILENT };
        if now.saturating_duration_since(self.started) < silence {
            return None;
        }
        let kept = self.kept.take()?;
        let count = kept.count();
        let Kept { at, shown, views, ended } = kept;
        self.suspect(&self.views);
        for ((_, view), resources) in self.views.iter().zip(views) {
            self.cache.publish(view, Update { upserts: resources, removals: Vec::new() });
        }
        self.grants.allow(&self.views);
        self.figures.serves(Some(at));
        self.serving = Some(Serving { at, ended });
        let lines = self.lines();
        warn!(
            "the API server does not say how things are: {count} resources are served as they were; {}",
            lines.join("; ")
        );
        Some(shown)
    }

    /// The state of the API server is whole: from now on `live` is served.
    pub(super) fn end(&mut self, live: &FleetViews) {
        self.kept = None;
        self.suspect(live);
        self.suspects.clear();
        self.grants.allow(live);
        if self.serving.take().is_none() {
            return;
        }
        self.figures.serves(None);
        info!("the API server's state is whole, and served from now on");
        for (_, view) in self.views.iter() {
            // Streams look whether they may go on when something changes. Nobody subscribes to this.
            let change = Resource::new("last good state is over", &Runtime::default());
            self.cache.publish(view, Update { upserts: vec![change], removals: Vec::new() });
            let (cache, view) = (self.cache.clone(), view.clone());
            crate::tasks::spawn("end of the last good state", async move {
                let mut clients = cache.watch(&view);
                while !cache.progress(&view).nodes.is_empty() && clients.changed().await.is_ok() {}
                cache.replace(&view, Vec::new());
            });
        }
    }

    /// Has the parts that were refused before the start sent last in these views.
    fn suspect(&self, views: &FleetViews) {
        for ((_, view), suspects) in views.iter().zip(&self.suspects).filter(|(_, suspects)| !suspects.is_empty()) {
            self.cache.suspect(view, suspects.clone());
        }
    }

    /// Lines for people, for as long as it is served.
    pub(super) fn lines(&self) -> Vec<String> {
        let Some(Serving { at, ended }) = &self.serving else { return Vec::new() };
        let age = at.elapsed().unwrap_or_default().as_secs();
        let mut lines = vec![format!("serving the last good state, of {}: {age} seconds old", time(*at))];
        if !ended.is_empty() {
            let named = ended.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if ended.len() > NAMED { ", ..." } else { "" };
            lines.push(format!("certificates in it that have ended: {} ({named}{more})", ended.len()));
        }
        lines
    }

    /// Whether it is served now.
    pub(super) fn is_serving(&self) -> bool {
        self.serving.is_some()
    }
}

fn time(at: SystemTime) -> String {
    Timestamp::from_second(i64::try_from(seconds(at)).unwrap_or_default()).unwrap_or_default().to_string()
}

/// Writes the state of the views whenever it changed, as long as it is whole.
pub(super) struct Keeper {
    pub(super) place: Place,
    pub(super) cache: Cache,
    pub(super) views: FleetViews,
    /// What the xDS server shows.
    pub(super) shown: watch::Receiver<Option<Shown>>,
    /// Whether the state of the API server is whole.
    pub(super) whole: watch::Receiver<bool>,
    pub(super) figures: Figures,
}

impl Keeper {
    /// Keeps it until it is told to stop.
    pub(super) async fn keep(mut self, mut stop: watch::Receiver<bool>) {
        let mut pause = SAVE_INTERVAL;
        let mut written: Option<Generations> = None;
        let mut suspects = self.views.each(|place| self.cache.suspects(&self.views[place]));
        let mut said = String::new();
        loop {
            tokio::select! {
                () = sleep(pause) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            pause = SAVE_INTERVAL;
            let is_suspected = suspects.values().any(|suspects| suspects.has_changed().unwrap_or(false));
            let is_new = self.shown.has_changed().unwrap_or(false) || is_suspected;
            let Some(shown) = self.shown.borrow_and_update().clone().filter(|_| *self.whole.borrow()) else { continue };
            let all = self.views.each(|place| self.cache.resources(&self.views[place]));
            let generations = self.views.each(|place| all[place].0);
            if written.as_ref() == Some(&generations) && !is_new {
                continue;
            }
            let of_view = |(place, suspects): (_, &mut watch::Receiver<Arc<Suspects>>)| ViewState {
                resources: all[place].1.clone(),
                suspects: Suspects::clone(&suspects.borrow_and_update()),
            };
            let views: Vec<ViewState> = suspects.iter_mut().map(of_view).collect();
            let (begun, at, place) = (Instant::now(), SystemTime::now(), self.place.clone());
            let ended = tokio::task::spawn_blocking(move || save(&place, at, &shown, &views)).await;
            let failure = match ended {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("{error:#}")),
                Err(_) => Some("writing it panicked".to_owned()),
            };
            match &failure {
                None => {
                    written = Some(generations);
                    self.figures.wrote(at);
                }
                Some(text) if said != *text => {
                    warn!("last good state: {text}");
                }
                Some(_) => {}
            }
            said = failure.unwrap_or_default();
            pause = SAVE_INTERVAL.max(begun.elapsed() * MAX_SAVE_SHARE);
        }
    }
}

fn save(place: &Place, at: SystemTime, shown: &Shown, views: &[ViewState]) -> Result<()> {
    let key = place.key().with_context(|| format!("key {}", place.key.display()))?;
    let Shown { pair: Pair { certificate, key: private }, roots, revoked } = shown.clone();
    let RevokedClients { certificates: revoked, names: revoked_names } = revoked;
    let suspects = views.first().map(|view| view.suspects.clone()).unwrap_or_default();
    let more = |view: &ViewState| More { resources: view.resources.len(), suspects: view.suspects.clone() };
    let more = views.iter().skip(1).map(more).collect();
    let head = Head { at: seconds(at), certificate, key: private, roots, suspects, revoked, revoked_names, more };
    let head = Zeroizing::new(serde_json::to_vec(&head)?);
    let written = replace(&place.file, |file| {
        let mut sealer = Sealer::new(file, &key)?;
        sealer.record(&head)?;
        let mut resources = views.iter().flat_map(|view| &view.resources);
        resources.try_for_each(|resource| sealer.record(&resource.to_bytes()))?;
        sealer.finish()
    });
    written.with_context(|| place.file.display().to_string())
}

/// What is kept, and the parts that Envoys refused of each view; `None` where there is no file.
fn load(place: &Place) -> Result<Option<(Kept, Vec<Suspects>)>> {
    let file = match File::open(&place.file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.with_context(|| place.file.display().to_string())?,
    };
    let key = place.key().with_context(|| format!("key {}", place.key.display()))?;
    let invalid = |error: &dyn fmt::Display| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let (mut head, mut resources) = (None::<Head>, Vec::new());
    let read = sealed::open(BufReader::new(file), &key, |record| {
        match &head {
            None => head = Some(serde_json::from_slice(record).map_err(|error| invalid(&error))?),
            Some(_) => resources.push(Resource::from_bytes(record).map_err(|error| invalid(&error))?),
        }
        Ok(())
    });
    read.with_context(|| place.file.display().to_string())?;
    let Some(Head { at, certificate, key, roots, suspects, revoked, revoked_names, more }) = head else {
        bail!("{}: it is empty", place.file.display())
    };
    let now = SystemTime::now();
    if ends(certificate.as_bytes()).is_none_or(|end| end <= now) {
        bail!("{}: the certificate of the xDS server has ended: Envoys would not take it", place.file.display());
    }
    let ended = resources.iter().filter(|resource| has_ended(resource, now)).map(|r| r.name().to_owned()).collect();
    let revoked = RevokedClients { certificates: revoked, names: revoked_names };
    let shown = Shown { pair: Pair { certificate, key }, roots, revoked };
    let (mut views, mut refused) = (Vec::new(), Vec::new());
    for More { resources: count, suspects } in more.into_iter().rev() {
        let Some(first) = resources.len().checked_sub(count) else {
            bail!("{}: it has fewer resources than it says", place.file.display())
        };
        views.push(resources.split_off(first));
        refused.push(suspects);
    }
    views.push(resources);
    refused.push(suspects);
    views.reverse();
    refused.reverse();
    Ok(Some((Kept { at: UNIX_EPOCH + Duration::from_secs(at), shown, views, ended }, refused)))
}

/// Whether it is a certificate of a host that has ended.
fn has_ended(resource: &Resource, now: SystemTime) -> bool {
    if resource.kind() != Kind::Secret {
        return false;
    }
    let Ok(Secret { r#type: Some(Type::TlsCertificate(tls)), .. }) = Secret::decode(&*resource.body()) else {
        return false;
    };
    let end = match tls.certificate_chain.and_then(|chain| chain.specifier) {
        Some(Specifier::InlineString(text)) => ends(text.as_bytes()),
        Some(Specifier::InlineBytes(bytes)) => ends(&bytes),
        _ => None,
    };
    end.is_some_and(|end| end <= now)
}

/// When the first certificate of a PEM text ends.
fn ends(pem: &[u8]) -> Option<SystemTime> {
    let pem = Pem::iter_from_buffer(pem).next()?.ok()?;
    let end = pem.parse_x509().ok()?.validity().not_after.timestamp();
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(end).unwrap_or_default()))
}

/// The file's directory, made for this user alone where it is not there.
pub(super) fn prepare(file: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(dir) = file.parent().filter(|dir| !dir.as_os_str().is_empty()) else { return Ok(()) };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(test)]
mod tests {
    use ::xds::{Authority, View};
    use envoy_types::pb::envoy::config::core::v3::DataSource;
    use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::TlsCertificate;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn shown(life: Duration) -> Shown {
        let now = SystemTime::now();
        let authority = Authority::new("test", 2 * DAY, now).expect("made");
        let pair = authority.issue_server(&["xds".to_owned()], life, now).expect("issued");
        let certificates = BTreeSet::from([Fingerprint::of(b"revoked")]);
        let revoked = RevokedClients { certificates, names: ["spiffe://pod".to_owned()].into() };
        Shown { pair, roots: authority.certificate().to_owned(), revoked }
    }

    /// A host with a certificate that ends then, in seconds from now.
    fn host(name: &str, shown: &Shown) -> Resource {
        let text = |text: &str| {
            Some(DataSource { specifier: Some(Specifier::InlineString(text.to_owned())), ..Default::default() })
        };
        let tls = TlsCertificate {
            certificate_chain: text(&shown.pair.certificate),
            private_key: text(&shown.pair.key),
            ..Default::default()
        };
        Resource::new(name, &Secret { name: name.to_owned(), r#type: Some(Type::TlsCertificate(tls)) })
    }

    fn place(dir: &Path) -> Place {
        std::fs::write(dir.join("key"), [3; 32]).expect("written");
        Place { file: dir.join("state"), key: dir.join("key") }
    }

    fn suspects() -> Suspects {
        let one =
            r#"[{"kind": "rds", "name": "t", "virtual_host": "m", "parts": ["00112233445566778899aabbccddeeff"]}]"#;
        serde_json::from_str(one).expect("it is ours")
    }

    #[test]
    fn a_state_comes_back_as_it_was_and_nothing_of_it_is_in_clear_text() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = place(dir.path());
        assert!(load(&place).expect("there is none").is_none());
        let (good, over, suspects) = (shown(DAY), shown(Duration::ZERO), suspects());
        let resources = vec![host("a.example.org", &good), host("b.example.org", &over)];
        let view = || ViewState { resources: resources.clone(), suspects: suspects.clone() };
        let dedicated = || ViewState { resources: vec![host("d.example.org", &good)], ..ViewState::default() };
        let at = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        save(&place, at, &good, &[view(), dedicated()]).expect("written");
        let (kept, refused) = load(&place).expect("readable").expect("there");
        let [shared, of_dedicated] = &kept.views[..] else { panic!("{} views", kept.views.len()) };
        assert_eq!((of_dedicated.len(), of_dedicated[0].name()), (1, "d.example.org"));
        assert_eq!(refused, [suspects.clone(), Suspects::default()]);
        assert_eq!((kept.at, kept.shown.pair.key.as_str()), (at, good.pair.key.as_str()));
        assert_eq!(kept.shown.revoked, good.revoked);
        assert_eq!(kept.ended, ["b.example.org"]);
        let versions =
            |all: &[Resource]| all.iter().map(|r| (r.name().to_owned(), r.version().to_owned())).collect::<Vec<_>>();
        assert_eq!(versions(shared), versions(&resources), "Envoys are sent nothing that they have");

        let bytes = std::fs::read(&place.file).expect("there");
        for text in ["PRIVATE KEY", "example.org", "BEGIN CERTIFICATE"] {
            assert!(!bytes.windows(text.len()).any(|part| part == text.as_bytes()), "{text}");
        }
        // Of no use with another key, or to a server whose own certificate has ended.
        std::fs::write(&place.key, [4; 32]).expect("written");
        let error = format!("{:#}", load(&place).err().expect("another key"));
        assert!(error.contains("sealed by another key"), "{error}");
        save(&place, at, &over, &[view()]).expect("written");
        let error = format!("{:#}", load(&place).err().expect("it is over"));
        assert!(error.contains("has ended"), "{error}");
    }

    #[tokio::test]
    async fn it_is_served_where_the_api_server_is_away_and_not_where_it_answers() {
        let dir = tempfile::tempdir().expect("a directory");
        let place = place(dir.path());
        let good = shown(DAY);
        let view = ViewState { resources: vec![host("a.example.org", &good)], suspects: suspects() };
        save(&place, SystemTime::now(), &good, &[view]).expect("written");
        let (cache, live) = (Cache::new(), FleetViews::from(View::new("shared")));
        let read_for = async |views: FleetViews| {
            let grants = Grants { views: Views::new(), fleets: EnvoyFleet::OF_MANY.to_vec() };
            Standby::read(Some(place.clone()), cache.clone(), &views, grants, Figures::default()).await
        };
        let read = async || read_for(live.clone()).await;
        let mut standby = read().await;
        let started = standby.started;
        assert!(standby.begin(false, started).is_none());
        assert!(standby.begin(true, started + SILENT).is_none(), "it answers");
        assert!(standby.begin(true, started + SLOW).is_some());
        assert!(standby.is_serving() && standby.lines()[0].contains("last good state"));
        let kept = standby.views[standby.views.shared()].clone();
        assert_eq!(cache.len(&kept, Kind::Secret), 1);
        assert!(!cache.suspects(&kept).borrow().is_empty());
        standby.end(&live);
        assert_eq!(**cache.suspects(&View::new("shared")).borrow(), suspects());
        assert!(!standby.is_serving() && standby.lines().is_empty());

        let mut standby = read().await;
        assert!(standby.begin(false, standby.started + SILENT).is_some());
        let mut standby = read().await;
        standby.end(&live);
        assert!(standby.begin(false, standby.started + SLOW).is_none(), "what is real comes first");
        let mut standby = read_for(FleetViews::apart()).await;
        assert!(
            standby.begin(false, standby.started + SLOW).is_none(),
            "it has what neither fleet may see of the other"
        );
    }
}
