//! Leader election by a Lease: at most one replica writes at a time, and clocks need not be
//! synchronized.
//!
//! The holder renews every third of the Lease's duration and stops writing after two thirds without
//! a renewal; another replica takes over only when it has seen no renewal for the whole duration,
//! by its own clock (as client-go's `leaderelection` does).

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use gatewright_control::event::LEASE;

use crate::watch::observed::newer;

/// The name of the Lease of an installation.
pub const NAME: &str = "gatewright-controller";

/// The Lease, and our identity as a candidate.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// Our identity; a process that restarts with the same one continues as the holder.
    pub identity: String,
    /// The time without a renewal after which a holder loses the Lease.
    pub duration: Duration,
}

/// The time until which we may write; `None` while we do not hold the Lease.
pub type Term = Option<Instant>;

/// Returns whether the term has not ended.
pub fn leads(term: Term) -> bool {
    term.is_some_and(|until| Instant::now() < until)
}

/// The Lease has an older version than one that was seen: the API server has lost later writes, as
/// after etcd was restored from a backup. A watch would resume at its resource version and miss all
/// events until the numbers are reached again, so everything must be read again.
#[derive(Debug, thiserror::Error)]
#[error(
    "the API server's state is older than what was seen (lease {lease} went from version {seen} to {now}); was etcd restored? starting anew"
)]
pub struct WentBack {
    lease: String,
    seen: String,
    now: String,
}

/// Acquires the Lease when it is free and renews it until `stop`; then releases it.
///
/// # Errors
/// When the API server's state is older than before.
pub async fn run(
    client: Client,
    candidate: Candidate,
    term: watch::Sender<Term>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), WentBack> {
    let api: Api<Lease> = Api::namespaced(client, &candidate.namespace);
    let mut rival = Rival::default();
    let mut held: Option<Lease> = None;
    let mut logged = String::new();
    let object = format!("lease {}/{}", candidate.namespace, candidate.name);
    loop {
        let asked = Instant::now();
        let attempt = timeout(
            candidate.duration / 3,
            attempt(&api, &candidate, &mut rival, held.take()),
        )
        .await;
        match attempt {
            Ok(Ok(Some(lease))) => {
                if term
                    .send_replace(Some(asked + candidate.duration * 2 / 3))
                    .is_none()
                {
                    let identity = &candidate.identity;
                    info!(event = LEASE, %object, identity, "holding the {object} as {identity}");
                }
                logged.clear();
                held = Some(lease);
            }
            Ok(Ok(None)) => {
                if term.send_replace(None).is_some() {
                    warn!(event = LEASE, %object, identity = candidate.identity, "the {object} went to another replica");
                }
                logged.clear();
            }
            other => {
                let text = match other {
                    Ok(Err(error)) => explain(&error, &candidate),
                    _ => "the API server does not answer".to_owned(),
                };
                if logged != text {
                    warn!(event = LEASE, %object, identity = candidate.identity, "{object}: {text}");
                    logged = text;
                }
                // The present term ends by itself at its deadline.
                term.send_if_modified(|term| {
                    let over = term.is_some() && !leads(*term);
                    if over {
                        *term = None;
                    }
                    over
                });
            }
        }
        if let Some(now) = rival.went_back.take() {
            // The state that was seen is from another history, so nothing may be written by it.
            term.send_replace(None);
            let lease = format!("{}/{}", candidate.namespace, candidate.name);
            return Err(WentBack {
                lease,
                seen: rival.version,
                now,
            });
        }
        tokio::select! {
            () = sleep(candidate.duration / if held.is_some() { 3 } else { 6 }) => {}
            // An error means that the sender was dropped.
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    if term.send_replace(None).is_some() {
        // Another replica can acquire it at once; without the release it can after the Lease's
        // duration.
        let _ = timeout(candidate.duration / 3, release(&api, &candidate)).await;
    }
    Ok(())
}

/// The holder and the renewal that were seen last, and the time since which they have not changed.
#[derive(Default)]
struct Rival {
    seen: Option<(Option<String>, Option<MicroTime>, Instant)>,
    /// The newest version of the Lease, and an older one that was read after it.
    version: String,
    went_back: Option<String>,
}

impl Rival {
    /// Notes the version of a Lease that was read or written.
    fn note(&mut self, lease: &Lease) {
        let Some(version) = &lease.metadata.resource_version else {
            return;
        };
        if newer(&self.version, version) {
            self.went_back = Some(version.clone());
        } else {
            self.version.clone_from(version);
        }
    }

    /// Returns whether a Lease has not been renewed for its duration.
    fn expired(&mut self, spec: &LeaseSpec, now: Instant) -> bool {
        let record = (spec.holder_identity.clone(), spec.renew_time.clone());
        match &self.seen {
            Some((holder, renewed, since)) if (holder, renewed) == (&record.0, &record.1) => {
                let seconds = spec
                    .lease_duration_seconds
                    .and_then(|s| u64::try_from(s).ok())
                    .unwrap_or(15);
                now.duration_since(*since) >= Duration::from_secs(seconds)
            }
            _ => {
                self.seen = Some((record.0, record.1, now));
                false
            }
        }
    }
}

/// Acquires or renews the Lease. Returns `None` when another replica holds it.
async fn attempt(
    api: &Api<Lease>,
    candidate: &Candidate,
    rival: &mut Rival,
    held: Option<Lease>,
) -> Result<Option<Lease>, Error> {
    let found = match held {
        Some(lease) => Some(lease),
        None => api
            .get_opt(&candidate.name)
            .await?
            .inspect(|lease| rival.note(lease)),
    };
    if rival.went_back.is_some() {
        return Ok(None);
    }
    let Some(mut lease) = found else {
        let metadata = ObjectMeta {
            name: Some(candidate.name.clone()),
            ..ObjectMeta::default()
        };
        let lease = Lease {
            metadata,
            spec: Some(spec(candidate, None)),
        };
        return match api.create(&PostParams::default(), &lease).await {
            Ok(lease) => {
                rival.note(&lease);
                Ok(Some(lease))
            }
            // Another replica acquired it first.
            Err(Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => Err(error),
        };
    };
    let old = lease.spec.clone().unwrap_or_default();
    let holder = old.holder_identity.as_deref().unwrap_or_default();
    if !holder.is_empty() && holder != candidate.identity && !rival.expired(&old, Instant::now()) {
        return Ok(None);
    }
    lease.spec = Some(spec(candidate, Some(&old)));
    match api
        .replace(&candidate.name, &PostParams::default(), &lease)
        .await
    {
        Ok(lease) => {
            rival.note(&lease);
            Ok(Some(lease))
        }
        // Another replica acquired it first, or it was edited or deleted: it is read again.
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        Err(error) => Err(error),
    }
}

fn spec(candidate: &Candidate, old: Option<&LeaseSpec>) -> LeaseSpec {
    let now = MicroTime(Timestamp::now());
    let same = old.filter(|old| old.holder_identity.as_deref() == Some(&candidate.identity));
    let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
    let is_change = old.is_some() && same.is_none();
    LeaseSpec {
        holder_identity: Some(candidate.identity.clone()),
        lease_duration_seconds: i32::try_from(candidate.duration.as_secs().max(1)).ok(),
        acquire_time: same
            .and_then(|old| old.acquire_time.clone())
            .or_else(|| Some(now.clone())),
        renew_time: Some(now),
        // At its end the counter stays: the API server refuses a negative one.
        lease_transitions: Some(transitions.saturating_add(i32::from(is_change))),
        ..LeaseSpec::default()
    }
}

async fn release(api: &Api<Lease>, candidate: &Candidate) -> Result<(), Error> {
    let mut lease = api.get(&candidate.name).await?;
    let Some(spec) = lease
        .spec
        .as_mut()
        .filter(|s| s.holder_identity.as_deref() == Some(&candidate.identity))
    else {
        return Ok(());
    };
    spec.holder_identity = Some(String::new());
    api.replace(&candidate.name, &PostParams::default(), &lease)
        .await
        .map(|_| ())
}

fn explain(error: &Error, candidate: &Candidate) -> String {
    match error {
        Error::Api(status) if status.code == 403 => format!(
            "not allowed: give the service account the verbs get, create and update on leases in namespace {}",
            candidate.namespace
        ),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_older_than_before_is_noticed() {
        let lease = |version: &str| {
            let metadata = ObjectMeta {
                resource_version: Some(version.into()),
                ..ObjectMeta::default()
            };
            Lease {
                metadata,
                spec: None,
            }
        };
        let mut rival = Rival::default();
        for version in ["9", "10", "10", "200"] {
            rival.note(&lease(version));
            assert_eq!(rival.went_back, None);
        }
        rival.note(&lease("99"));
        assert_eq!(rival.went_back.as_deref(), Some("99"));
    }

    fn candidate() -> Candidate {
        let text = str::to_owned;
        Candidate {
            namespace: text("n"),
            name: text("l"),
            identity: text("me"),
            duration: Duration::from_secs(15),
        }
    }

    #[test]
    fn a_rival_expires_only_after_its_duration_without_a_renewal() {
        let now = Instant::now();
        fn at(seconds: u64, now: &Instant) -> Instant {
            *now + Duration::from_secs(seconds)
        }
        let mut rival = Rival::default();
        let other = Candidate {
            identity: "other".into(),
            ..candidate()
        };
        let held = spec(&other, None);
        assert!(!rival.expired(&held, at(0, &now)));
        assert!(!rival.expired(&held, at(14, &now)));
        assert!(rival.expired(&held, at(15, &now)));
        let mut renewed = spec(&other, Some(&held));
        renewed.renew_time = Some(MicroTime("2030-01-01T00:00:00Z".parse().expect("a time")));
        assert!(
            !rival.expired(&renewed, at(60, &now)),
            "a renewal begins anew"
        );
    }

    #[test]
    fn a_change_of_hands_is_counted_and_a_renewal_is_not() {
        let first = spec(&candidate(), None);
        assert_eq!(first.lease_transitions, Some(0));
        let renewed = spec(&candidate(), Some(&first));
        assert_eq!(
            renewed.lease_transitions,
            Some(0),
            "a renewal is no change of hands"
        );
        assert_eq!(
            renewed.acquire_time, first.acquire_time,
            "the lease is held since it was acquired"
        );
        let other = Candidate {
            identity: "other".into(),
            ..candidate()
        };
        assert_eq!(spec(&other, Some(&renewed)).lease_transitions, Some(1));
        let worn = LeaseSpec {
            lease_transitions: Some(i32::MAX),
            ..renewed
        };
        assert_eq!(
            spec(&other, Some(&worn)).lease_transitions,
            Some(i32::MAX),
            "the Lease is taken all the same"
        );
    }
}
