//! The ends of the certificates in use.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::key::ParentKey;
use gatewright_objects::model::Certificate;

/// The longest time before the end of a certificate at which it counts as ending.
const NOTICE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The part of its lifetime in which a certificate for a short time counts as ending: its renewal
/// is overdue.
const OVERDUE: u32 = 6;

/// The ends of the certificates in use, as of some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateEnds {
    /// The next end.
    pub next: Option<SystemTime>,
    /// The number of certificates that end soon: within a week, and in the last sixth of their
    /// lifetime.
    pub soon: usize,
    /// The number of certificates that have ended.
    pub ended: usize,
}

/// The ends of the certificates of each Gateway and ListenerSet.
#[derive(Default)]
pub(crate) struct Ends {
    /// The number of certificates with this end.
    ends: BTreeMap<(SystemTime, ParentKey), usize>,
    /// The number of certificates that count as ending from this time on.
    notices: BTreeMap<(SystemTime, ParentKey), usize>,
    of: BTreeMap<ParentKey, Box<[(SystemTime, SystemTime)]>>,
}

impl Ends {
    /// Sets the certificates of one.
    pub(crate) fn set<'a>(
        &mut self,
        key: &ParentKey,
        certificates: impl Iterator<Item = &'a Certificate>,
    ) {
        for (notice, end) in self.of.remove(key).into_iter().flatten() {
            self.notices.remove(&(notice, key.clone()));
            self.ends.remove(&(end, key.clone()));
        }
        // A certificate that several listeners serve counts once.
        let distinct: BTreeMap<&[u8], &Certificate> =
            certificates.map(|one| (&*one.leaf, one)).collect();
        let times: Box<[(SystemTime, SystemTime)]> = distinct
            .into_values()
            .map(|one| (notice(one), one.not_after))
            .collect();
        for (notice, end) in &times {
            *self.notices.entry((*notice, key.clone())).or_default() += 1;
            *self.ends.entry((*end, key.clone())).or_default() += 1;
        }
        if !times.is_empty() {
            self.of.insert(key.clone(), times);
        }
    }

    /// Returns the ends as of a time.
    pub(crate) fn at(&self, now: SystemTime) -> CertificateEnds {
        let ended = past(&self.ends, &now);
        let next = self.ends.keys().map(|(end, _)| *end).find(|end| *end > now);
        CertificateEnds {
            next,
            soon: past(&self.notices, &now) - ended,
            ended,
        }
    }
}

fn past(all: &BTreeMap<(SystemTime, ParentKey), usize>, now: &SystemTime) -> usize {
    all.iter()
        .take_while(|((at, _), _)| *at <= *now)
        .map(|(_, count)| count)
        .sum::<usize>()
}

/// Returns the time from which on a certificate counts as ending.
fn notice(certificate: &Certificate) -> SystemTime {
    let lifetime = certificate
        .not_after
        .duration_since(certificate.not_before)
        .unwrap_or_default();
    certificate
        .not_after
        .checked_sub(NOTICE.min(lifetime / OVERDUE))
        .unwrap_or(certificate.not_before)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use super::*;
    use gatewright_objects::model::{ObjectName, PrivateKey};

    const DAY: u32 = 24;

    fn at(hours: u32) -> SystemTime {
        UNIX_EPOCH + hours * Duration::from_secs(60 * 60)
    }

    fn certificate(leaf: &str, from: u32, until: u32) -> Certificate {
        Certificate {
            leaf: leaf.as_bytes().into(),
            issuers: Arc::from(""),
            key: PrivateKey::new(&[]),
            names: Vec::new(),
            not_before: at(from),
            not_after: at(until),
            issuer: Arc::from("ca"),
        }
    }

    fn key(name: &str) -> ParentKey {
        ParentKey::Gateway(ObjectName::new("a", name))
    }

    #[test]
    fn an_ended_certificate_hides_no_other() {
        let mut ends = Ends::default();
        let ended = certificate("ended", 0, 90 * DAY);
        let soon = certificate("soon", 0, 95 * DAY);
        let late = certificate("late", 0, 180 * DAY);
        ends.set(&key("one"), [&ended, &ended, &soon].into_iter());
        ends.set(&key("two"), [&late].into_iter());
        fn told(ends: &Ends, day: u32) -> (Option<SystemTime>, usize, usize) {
            let CertificateEnds { next, soon, ended } = ends.at(at(day * DAY));
            (next, soon, ended)
        }
        assert_eq!(told(&ends, 80), (Some(at(90 * DAY)), 0, 0));
        assert_eq!(told(&ends, 84), (Some(at(90 * DAY)), 1, 0));
        assert_eq!(told(&ends, 89), (Some(at(90 * DAY)), 2, 0));
        assert_eq!(told(&ends, 91), (Some(at(95 * DAY)), 1, 1));
        ends.set(&key("one"), [&soon].into_iter());
        assert_eq!(told(&ends, 91), (Some(at(95 * DAY)), 1, 0));
        ends.set(&key("one"), [].into_iter());
        assert_eq!(told(&ends, 91), (Some(at(180 * DAY)), 0, 0));
        ends.set(&key("two"), [].into_iter());
        assert_eq!(told(&ends, 200), (None, 0, 0));
    }

    #[test]
    fn a_certificate_for_a_short_time_ends_soon_where_its_renewal_is_overdue() {
        let mut ends = Ends::default();
        ends.set(&key("one"), [&certificate("short", 0, 6 * DAY)].into_iter());
        assert_eq!(ends.at(at(4 * DAY)).soon, 0);
        assert_eq!(ends.at(at(5 * DAY)).soon, 1);
    }
}
