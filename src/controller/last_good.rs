//! The last good state of the resources of Envoys, encrypted in a file: it is served after a start
//! for as long as the API server is unavailable.
//!
//! The file has the output and not the input objects: the resources as they were published, and the
//! certificates of the xDS server. So a start depends on nothing that is unavailable, decides
//! nothing, and writes nothing. The state is served in views of its own; once the view of the API
//! server is complete, the streams of Envoys are ended, and they reconnect to the real views.

mod file;
mod pieces;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ::xds::{Cache, Generation, Pair, Resource, RevokedClients, Suspects, Update, View, Views};
use envoy_types::pb::envoy::service::runtime::v3::Runtime;
use gatewright_control::envoy_access::EnvoyAccess;
use gatewright_control::event::LAST_GOOD;
use gatewright_control::fleet_views::FleetViews;
use gatewright_control::metrics::gauge;
use gatewright_control::tasks::blocking;
use gatewright_core::model::{EnvoyFleet, ObjectName};
use gatewright_kubernetes::keys;
use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use self::file::{Kept, MAX_BYTES, StateFile, ViewState, open, save, seconds};
pub(super) use self::file::{StatePaths, prepare};

/// The interval at which the state is compared, and written if it has changed.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum share of the time that is spent writing, as a divisor.
const MAX_SAVE_SHARE: u32 = 20;
/// The time after the start at which an API server without any answer counts as unavailable.
const SILENT: Duration = Duration::from_secs(2);
/// The time after the start at which an API server without a complete view counts as unavailable.
const SLOW: Duration = Duration::from_secs(30);
/// The maximum number of hosts with an expired certificate that a message names.
const NAMED: usize = 3;

/// The certificate of the xDS server, and the roots of its clients.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) pair: Pair,
    pub(super) roots: String,
    /// The revoked clients.
    pub(super) revoked: RevokedClients,
}

/// The admission of Envoys to views.
#[derive(Clone, Debug)]
pub(super) struct ViewAccess {
    pub(super) views: Views,
    /// The fleets that have an identity.
    pub(super) fleets: Vec<EnvoyFleet>,
    /// The admission of Gateways' own Envoys, where Gateways may have some.
    pub(super) isolated: Option<EnvoyAccess>,
}

impl ViewAccess {
    /// Admits the Envoys of fleets to these views.
    fn allow(&self, views: &FleetViews) {
        for fleet in &self.fleets {
            if let Some(view) = views.of(fleet) {
                self.views.allow(keys::identity_of(fleet), view.clone());
            }
        }
    }

    /// Returns whether a view is served: that of a Gateway's own Envoys only where Gateways may
    /// have some.
    fn serves(&self, gateway: Option<&ObjectName>) -> bool {
        gateway.is_none() || self.isolated.is_some()
    }

    /// Admits Envoys to these views instead of the real ones.
    fn stand_in(&self, views: &FleetViews) {
        self.allow(views);
        if let Some(access) = &self.isolated {
            access.stand_in(
                views
                    .iter()
                    .filter_map(|(id, view)| Some((views.gateway(id)?.clone(), view.clone()))),
            );
        }
    }

    /// Admits Envoys to the real views again.
    fn end_stand_in(&self, live: &FleetViews) {
        self.allow(live);
        if let Some(access) = &self.isolated {
            access.end_stand_in();
        }
    }
}

/// The served state and the last write, as metrics.
#[derive(Clone, Debug, Default)]
pub(super) struct LastGoodMetrics(Arc<Numbers>);

/// Times are in seconds since 1970; 0 for none.
#[derive(Debug, Default)]
struct Numbers {
    served: AtomicU64,
    written: AtomicU64,
    bytes: AtomicU64,
    is_too_large: AtomicBool,
}

impl LastGoodMetrics {
    fn serves(&self, at: Option<SystemTime>) {
        self.0
            .served
            .store(at.map_or(0, seconds), Ordering::Relaxed);
    }

    fn wrote(&self, at: SystemTime, bytes: u64) {
        self.0.written.store(seconds(at), Ordering::Relaxed);
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }

    fn is_too_large(&self, is: bool) {
        self.0.is_too_large.store(is, Ordering::Relaxed);
    }
}

impl Collector for LastGoodMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Numbers {
            served,
            written,
            bytes,
            is_too_large,
        } = &*self.0;
        let [served, written, bytes] =
            [served, written, bytes].map(|number| number.load(Ordering::Relaxed));
        let age = if served == 0 {
            0
        } else {
            seconds(SystemTime::now()).saturating_sub(served)
        };
        let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let help = "Whether Envoys are told the last good state from before the start";
        gauge(
            &mut encoder,
            "last_good_served",
            help,
            usize::from(served != 0),
        )?;
        gauge(
            &mut encoder,
            "last_good_age_seconds",
            "How old the last good state is that is served",
            number(age),
        )?;
        let help = "When the last good state was written last, in seconds since 1970";
        gauge(
            &mut encoder,
            "last_good_written_timestamp_seconds",
            help,
            number(written),
        )?;
        gauge(
            &mut encoder,
            "last_good_bytes",
            "How large the last good state was when it was written last",
            number(bytes),
        )?;
        let help = "Whether the last good state is not written because it is larger than 256 MiB";
        gauge(
            &mut encoder,
            "last_good_too_large",
            help,
            usize::from(is_too_large.load(Ordering::Relaxed)),
        )
    }
}

/// The state that is served while the view of the API server is not complete.
pub(super) struct Standby {
    /// The file, of which no more is read until it is needed.
    file: Option<StateFile>,
    /// The rejections by Envoys before the start, for each view, or for each Gateway with Envoys of
    /// its own: for the last good state, and for the real one after it.
    suspects: Vec<(Option<ObjectName>, Suspects)>,
    started: Instant,
    cache: Cache,
    views: FleetViews,
    view_access: ViewAccess,
    metrics: LastGoodMetrics,
    serving: Option<Serving>,
}

/// The state that is served: its time, and the ends of its certificates by host.
struct Serving {
    at: SystemTime,
    ends: Vec<(String, SystemTime)>,
}

impl Standby {
    /// Opens the file for the fleets that `live` has views of, and for Gateways with Envoys of
    /// their own. A file that cannot be read is logged, and does not prevent the start.
    pub(super) async fn open(
        paths: Option<StatePaths>,
        cache: Cache,
        live: &FleetViews,
        view_access: ViewAccess,
        metrics: LastGoodMetrics,
    ) -> Self {
        let started = Instant::now();
        let opened = match paths {
            None => None,
            Some(paths) => {
                usable(blocking("last good state", move || open(&paths)).await).flatten()
            }
        };
        // The fleet of a resource cannot be determined afterwards: a resource of a common view may
        // not be meant for the Envoys of one fleet.
        let of_many = live.of_many().count();
        let file = opened.filter(|file| {
            let fits = file.suspects.iter().filter(|(gateway, _)| gateway.is_none()).count() == of_many;
            if !fits {
                let why =
                    "it was stored with other views of the fleets (--dedicated-envoys, --fleet-views); it is not used";
                warn!(event = LAST_GOOD, "last good state: {why}");
            }
            fits
        });
        let mut suspects = file
            .as_ref()
            .map(|file| file.suspects.clone())
            .unwrap_or_default();
        suspects.retain(|(gateway, _)| view_access.serves(gateway.as_ref()));
        let views = live.called(
            "last good",
            suspects.iter().filter_map(|(gateway, _)| gateway.as_ref()),
        );
        if let Some(file) = &file {
            info!(
                event = LAST_GOOD,
                "last good state: {} resources of {}",
                file.count(),
                time(file.at)
            );
        }
        Self {
            file,
            suspects,
            started,
            cache,
            views,
            view_access,
            metrics,
            serving: None,
        }
    }

    /// Starts to serve the state, if it is time and there is a state: `has_answer` is whether the
    /// API server has answered. Returns the certificates of the xDS server.
    pub(super) async fn begin(&mut self, has_answer: bool, now: Instant) -> Option<Shown> {
        let silence = if has_answer { SLOW } else { SILENT };
        if now.saturating_duration_since(self.started) < silence {
            return None;
        }
        let file = self.file.take()?;
        let at = file.at;
        let count = file.count();
        let shown = file.shown.clone();
        let Kept { mut views, ends } =
            usable(blocking("last good state", move || file.load()).await)?;
        views.retain(|view| self.view_access.serves(view.gateway.as_ref()));
        self.suspect(&self.views);
        for ((_, view), state) in self.views.iter().zip(views) {
            self.cache.publish(
                view,
                Update {
                    upserts: state.resources,
                    removals: Vec::new(),
                },
            );
        }
        self.view_access.stand_in(&self.views);
        self.metrics.serves(Some(at));
        self.serving = Some(Serving { at, ends });
        let lines = self.lines();
        warn!(
            event = LAST_GOOD,
            "the view of the API server is not complete: {count} resources of the last good state are served; {}",
            lines.join("; ")
        );
        Some(shown)
    }

    /// Ends the last good state, since the view of the API server is complete: from now on `live`
    /// is served.
    pub(super) fn end(&mut self, live: &FleetViews) {
        self.file = None;
        self.suspect(live);
        self.suspects.clear();
        self.view_access.end_stand_in(live);
        if self.serving.take().is_none() {
            return;
        }
        self.metrics.serves(None);
        info!(
            event = LAST_GOOD,
            "the view of the API server is complete, and is served instead of the last good state"
        );
        for (_, view) in self.views.iter() {
            // Streams check whether they may go on when a resource changes. No client subscribes to
            // this one.
            let change = Resource::new("last good state is over", &Runtime::default());
            self.cache.publish(
                view,
                Update {
                    upserts: vec![change],
                    removals: Vec::new(),
                },
            );
            let (cache, view) = (self.cache.clone(), view.clone());
            crate::tasks::spawn("end of the last good state", async move {
                let mut clients = cache.watch(&view);
                while !cache.progress(&view).nodes.is_empty() && clients.changed().await.is_ok() {}
                cache.replace(&view, Vec::new());
                drop(clients);
                cache.remove(&view);
            });
        }
    }

    /// Marks the parts that were rejected before the start as suspects in these views, so that they
    /// are sent last.
    fn suspect(&self, views: &FleetViews) {
        let of_many = views.of_many().map(|id| &views[id]);
        let isolated = self
            .suspects
            .iter()
            .filter_map(|(gateway, suspects)| Some((gateway.clone()?, suspects)));
        let isolated = isolated
            .filter_map(|(gateway, s)| Some((views.of(&EnvoyFleet::Isolated(gateway))?, s)));
        let shared = self
            .suspects
            .iter()
            .filter(|(gateway, _)| gateway.is_none())
            .map(|(_, suspects)| suspects);
        for (view, suspects) in of_many
            .zip(shared)
            .chain(isolated)
            .filter(|(_, suspects)| !suspects.is_empty())
        {
            self.cache.suspect(view, suspects.clone());
        }
    }

    /// Returns notices for people, while the state is served.
    pub(super) fn lines(&self) -> Vec<String> {
        let Some(Serving { at, ends }) = &self.serving else {
            return Vec::new();
        };
        let now = SystemTime::now();
        let ended: Vec<&str> = ends
            .iter()
            .filter(|(_, end)| *end <= now)
            .map(|(host, _)| &**host)
            .collect();
        let age = at.elapsed().unwrap_or_default().as_secs();
        let mut lines = vec![format!(
            "serving the last good state, of {}: {age} seconds old",
            time(*at)
        )];
        if !ended.is_empty() {
            let named = ended[..ended.len().min(NAMED)].join(", ");
            let more = if ended.len() > NAMED { ", ..." } else { "" };
            lines.push(format!(
                "expired certificates in it: {} ({named}{more})",
                ended.len()
            ));
        }
        lines
    }

    /// Returns whether the state is served now.
    pub(super) fn is_serving(&self) -> bool {
        self.serving.is_some()
    }
}

/// Returns what was read; a failure is logged.
fn usable<T, E>(read: Result<anyhow::Result<T>, E>) -> Option<T> {
    match read.ok()? {
        Ok(read) => Some(read),
        Err(error) => {
            warn!(
                event = LAST_GOOD,
                "last good state: {error:#}; it is not used"
            );
            None
        }
    }
}

fn time(at: SystemTime) -> String {
    Timestamp::from_second(i64::try_from(seconds(at)).unwrap_or_default())
        .unwrap_or_default()
        .to_string()
}

/// Writes the state of the views when it has changed, while the view of the API server is complete.
pub(super) struct Keeper {
    pub(super) paths: StatePaths,
    pub(super) cache: Cache,
    /// The views of fleets that serve many Gateways.
    pub(super) views: FleetViews,
    /// The registry with the views of Gateways with Envoys of their own.
    pub(super) access: EnvoyAccess,
    /// The certificates of the xDS server.
    pub(super) shown: watch::Receiver<Option<Shown>>,
    /// Receives true once the view of the API server is complete.
    pub(super) synced: watch::Receiver<bool>,
    pub(super) metrics: LastGoodMetrics,
}

impl Keeper {
    /// Writes the state until `stop`.
    pub(super) async fn keep(mut self, mut stop: watch::Receiver<bool>) {
        let mut pause = SAVE_INTERVAL;
        let mut written: Option<BTreeMap<View, Generation>> = None;
        let mut suspects: BTreeMap<View, watch::Receiver<Arc<Suspects>>> = BTreeMap::new();
        let mut said = String::new();
        loop {
            tokio::select! {
                () = sleep(pause) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            pause = SAVE_INTERVAL;
            let isolated = self
                .access
                .isolated()
                .into_iter()
                .map(|(gateway, view)| (Some(gateway), view));
            let of_many = self
                .views
                .of_many()
                .map(|id| (None, self.views[id].clone()));
            let views: Vec<(Option<ObjectName>, View)> = of_many.chain(isolated).collect();
            suspects.retain(|view, _| views.iter().any(|(_, there)| there == view));
            for (_, view) in &views {
                suspects
                    .entry(view.clone())
                    .or_insert_with(|| self.cache.suspects(view));
            }
            let is_suspected = suspects
                .values()
                .any(|suspects| suspects.has_changed().unwrap_or(false));
            let is_new = self.shown.has_changed().unwrap_or(false) || is_suspected;
            let Some(shown) = self
                .shown
                .borrow_and_update()
                .clone()
                .filter(|_| *self.synced.borrow())
            else {
                continue;
            };
            let states = views.into_iter().map(|(gateway, view)| {
                let (generation, resources) = self.cache.resources(&view);
                let suspects = suspects
                    .get_mut(&view)
                    .map(|suspects| Suspects::clone(&suspects.borrow_and_update()));
                let suspects = suspects.unwrap_or_default();
                (
                    (view, generation),
                    ViewState {
                        gateway,
                        resources,
                        suspects,
                    },
                )
            });
            let (generations, views): (BTreeMap<View, Generation>, Vec<ViewState>) = states.unzip();
            if written.as_ref() == Some(&generations) && !is_new {
                continue;
            }
            let begun = Instant::now();
            let at = SystemTime::now();
            let paths = self.paths.clone();
            let ended = blocking("last good state", move || {
                save(&paths, at, &shown, &views, MAX_BYTES)
            })
            .await;
            let failure = match ended {
                Ok(Ok(bytes)) => {
                    written = Some(generations);
                    self.metrics.wrote(at, bytes);
                    self.metrics.is_too_large(false);
                    None
                }
                Ok(Err(error)) => {
                    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
                    let is_too_large = kind == Some(io::ErrorKind::FileTooLarge);
                    self.metrics.is_too_large(is_too_large);
                    // After other failures the next attempt is made even if nothing changes.
                    written = Some(generations).filter(|_| is_too_large);
                    Some(format!("{error:#}"))
                }
                Err(_) => {
                    written = None;
                    Some("writing it panicked".to_owned())
                }
            };
            if let Some(text) = failure.as_ref().filter(|text| **text != said) {
                warn!(event = LAST_GOOD, "last good state: {text}");
            }
            said = failure.unwrap_or_default();
            pause = SAVE_INTERVAL.max(begun.elapsed() * MAX_SAVE_SHARE);
        }
    }
}

#[cfg(test)]
mod tests {
    use ::xds::Kind;

    use super::file::tests::{DAY, host, paths, shown, suspects};
    use super::*;

    #[tokio::test]
    async fn it_is_served_where_the_api_server_is_away_and_not_where_it_answers() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = paths(dir.path());
        let good = shown(DAY);
        let of = |gateway, name: &str| ViewState {
            gateway,
            resources: vec![host(name, &good)],
            suspects: suspects(),
        };
        let [bank, gone] = ["bank", "gone"].map(|namespace| ObjectName::new(namespace, "edge"));
        let isolated = [&bank, &gone].map(|gateway| of(Some(gateway.clone()), "i.example.org"));
        let all: Vec<ViewState> = [of(None, "a.example.org")]
            .into_iter()
            .chain(isolated)
            .collect();
        save(&paths, SystemTime::now(), &good, &all, MAX_BYTES).expect("written");
        let cache = Cache::new();
        let live = FleetViews::from(View::new("shared"));
        let granted = Views::new();
        let access = EnvoyAccess::new(granted.clone());
        let read_for = async |views: FleetViews, isolated: Option<EnvoyAccess>| {
            let view_access = ViewAccess {
                views: granted.clone(),
                fleets: EnvoyFleet::OF_MANY.to_vec(),
                isolated,
            };
            Standby::open(
                Some(paths.clone()),
                cache.clone(),
                &views,
                view_access,
                LastGoodMetrics::default(),
            )
            .await
        };
        let read = async || read_for(live.clone(), Some(access.clone())).await;
        let seen = |fleet: EnvoyFleet| {
            granted
                .of(&keys::identity_of(&fleet))
                .map(|view| view.name().to_owned())
        };
        let [of_bank, of_gone] = [bank, gone].map(EnvoyFleet::Isolated);
        let mut standby = read().await;
        let started = standby.started;
        assert!(standby.begin(false, started).await.is_none());
        assert!(
            standby.begin(true, started + SILENT).await.is_none(),
            "it answers"
        );
        assert!(standby.begin(true, started + SLOW).await.is_some());
        assert!(standby.is_serving() && standby.lines()[0].contains("last good state"));
        let kept = standby.views[standby.views.shared()].clone();
        assert_eq!(cache.len(&kept, Kind::Secret), 1);
        assert!(!cache.suspects(&kept).borrow().is_empty());
        assert_eq!(
            seen(EnvoyFleet::Shared).as_deref(),
            Some("last good shared")
        );
        for (fleet, name) in [
            (&of_bank, "last good isolated/bank/edge"),
            (&of_gone, "last good isolated/gone/edge"),
        ] {
            assert_eq!(seen(fleet.clone()).as_deref(), Some(name));
            let names: Vec<_> = cache
                .resources(&View::new(name))
                .1
                .iter()
                .map(|r| r.name().to_owned())
                .collect();
            assert_eq!(names, ["i.example.org"], "its own and nothing else");
        }
        let live_now = live.called("now", [&ObjectName::new("bank", "edge")]);
        standby.end(&live_now);
        assert_eq!(
            **cache
                .suspects(live_now.of(&of_bank).expect("a view"))
                .borrow(),
            suspects()
        );
        assert_eq!(seen(of_bank.clone()), None, "nobody has admitted them");
        assert_eq!(seen(of_gone), None, "nobody has admitted them");
        let mut standby = read_for(live.clone(), None).await;
        assert!(standby.begin(true, standby.started + SLOW).await.is_some());
        assert_eq!(seen(of_bank), None, "it is switched off");
        standby.end(&live);
        assert_eq!(**cache.suspects(&View::new("shared")).borrow(), suspects());
        assert!(!standby.is_serving() && standby.lines().is_empty());

        let mut standby = read().await;
        assert!(
            standby
                .begin(false, standby.started + SILENT)
                .await
                .is_some()
        );
        let mut standby = read().await;
        standby.end(&live);
        assert!(
            standby.begin(false, standby.started + SLOW).await.is_none(),
            "what is real comes first"
        );
        let mut standby = read_for(FleetViews::apart(), None).await;
        assert!(
            standby.begin(false, standby.started + SLOW).await.is_none(),
            "it has what neither fleet may see of the other"
        );
    }
}
