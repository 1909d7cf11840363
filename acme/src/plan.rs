//! The plan: decides the next step for each certificate. Pure.
//!
//! In come the wanted certificates, the held ones, the budgets of the CAs, and the time; out comes
//! one step for each certificate. Every replica makes the same plan.

use std::cell::{Cell, OnceCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::budget::{Budget, Exempt, Reserve, Scope};
use crate::issuer::CertificateId;
use crate::names::Names;
use crate::renewal::{self, Window};

mod progress;

use progress::Groups;
pub use progress::{Obtained, Progress};

/// A wanted certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its stable name.
    pub id: CertificateId,
    /// The tenant that it belongs to: names of different tenants never share a certificate.
    pub tenant: String,
    /// The name of the issuer.
    pub issuer: String,
    /// Its names.
    pub names: Names,
    /// Validity of the certificate, where the issuer lets us choose.
    pub validity: Option<SignedDuration>,
    /// True if its names may share a certificate with others of the tenant, when the budget is
    /// short.
    pub may_share: bool,
    /// True if an operator wants a new certificate now, regardless of the held one.
    pub renew_now: bool,
    /// Time before which no attempt is made after failures, and the last error.
    pub hold: Option<(Timestamp, String)>,
}

/// A held certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its stable name.
    pub id: CertificateId,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The name of the issuer that issued it.
    pub issuer: String,
    /// Its names.
    pub names: Names,
    /// Start of its validity.
    pub not_before: Timestamp,
    /// End of its validity.
    pub not_after: Timestamp,
    /// Its identifier in ARI.
    pub ari_id: Option<String>,
    /// Its renewal window by ARI.
    pub window: Option<Window>,
    /// True if Envoys refuse it, or the one that was to replace it.
    pub refused: bool,
}

/// The budget of each issuer that has limits, by name.
pub type Budgets = BTreeMap<String, Budget>;

/// The step for one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Issue it now. Steps of this kind come first, the most urgent ahead.
    Issue(Box<Order<'a>>),
    /// Wait.
    Wait {
        /// The certificate.
        wanted: &'a Wanted,
        /// Time of the next check.
        until: Timestamp,
        /// The reason, as a sentence for its owner.
        because: String,
        /// The older certificate that is served meanwhile, if there is one.
        served: Option<&'a Held>,
    },
    /// Keep the held certificate.
    Keep {
        /// The wanted certificate.
        wanted: &'a Wanted,
        /// The held certificate that covers its names.
        held: &'a Held,
        /// Time of its renewal.
        until: Timestamp,
    },
    /// Retire a certificate that is no longer wanted.
    Retire(&'a Held),
}

/// An order for a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order<'a> {
    /// Its stable name.
    pub id: CertificateId,
    /// Its names: those of all wanted certificates that share it.
    pub names: Names,
    /// The wanted certificates that it serves; the first decides issuer and validity.
    pub serves: Vec<&'a Wanted>,
    /// The certificate it replaces.
    pub replaces: Option<&'a Held>,
    /// The reason to issue it now.
    pub reason: Reason,
    /// The limits that the order is exempt from.
    pub exempt: Exempt,
}

impl Order<'_> {
    /// Returns the ARI identifier for the order's `replaces` (RFC 9773, 5).
    pub fn replaces_id(&self) -> Option<String> {
        self.replaces
            .filter(|h| h.names.share_with(&self.names))
            .and_then(|h| h.ari_id.clone())
    }
}

/// The reason to issue a certificate now; in order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The CA's renewal window is in the past: the certificate was or will be revoked.
    Revoked,
    /// It is about to expire, or has expired.
    Expiring,
    /// None is held.
    Missing,
    /// Envoys refuse the one that was issued last.
    Refused,
    /// An operator asked for a new one.
    Forced,
    /// The time drawn from the CA's renewal window has come.
    Window,
    /// Two thirds of its validity are over.
    Renewal,
    /// It is valid, but by another issuer than the configured one.
    Changed,
}

impl Reason {
    fn reserve(self) -> Reserve {
        match self {
            Self::Revoked | Self::Expiring => Reserve::Emergency,
            Self::Forced => Reserve::Forced,
            Self::Missing | Self::Refused | Self::Window | Self::Renewal | Self::Changed => {
                Reserve::Ordinary
            }
        }
    }
}

/// Makes the plan without results of earlier attempts.
pub fn plan<'a>(
    wanted: &'a [Wanted],
    held: &'a [Held],
    budgets: &Budgets,
    now: Timestamp,
) -> Vec<Step<'a>> {
    plan_with(wanted, held, &Progress::default(), budgets, now)
}

/// Makes the plan.
pub fn plan_with<'a>(
    wanted: &'a [Wanted],
    held: &'a [Held],
    progress: &Progress,
    budgets: &Budgets,
    now: Timestamp,
) -> Vec<Step<'a>> {
    let index = HeldIndex::of(held);
    let mut used = vec![false; held.len()];
    let mut keep = Vec::with_capacity(wanted.len());
    let mut due: Vec<Candidate<'a>> = Vec::new();
    let mut renewing: HashMap<usize, usize> = HashMap::new();
    let mut missing = Vec::new();

    for want in wanted {
        let Some(index) = index.find(want, now) else {
            missing.push(want);
            continue;
        };
        used[index] = true;
        let have = &held[index];
        match due_now(want, have, progress.obtained.get(&have.id), now) {
            Err(until) => keep.push(Step::Keep {
                wanted: want,
                held: have,
                until,
            }),
            Ok(reason) => match renewing.get(&index) {
                // Wanted certificates that share a certificate renew it together.
                Some(&at) => {
                    let candidate: &mut Candidate<'a> = &mut due[at];
                    candidate.names = candidate.names.union(&want.names);
                    candidate.serves.push(want);
                    candidate.reason = candidate.reason.min(reason);
                }
                None => {
                    renewing.insert(index, due.len());
                    due.push(Candidate::renewal(want, have, reason));
                }
            },
        }
    }
    // A shared certificate is renewed as a whole: its users whose renewal is not due yet are
    // included.
    for step in &keep {
        if let Step::Keep {
            wanted, held: have, ..
        } = step
            && have.names.count() > 1
            && let Some(&at) = index.index_of(&have.id).and_then(|i| renewing.get(&i))
        {
            due[at].names = due[at].names.union(&wanted.names);
        }
    }
    due.extend(pack(missing, progress, budgets, now));
    due.sort_by(|a, b| a.rank().cmp(&b.rank()));
    let due = round_robin(due, progress);

    let mut budgets = budgets.clone();
    let mut steps = Vec::with_capacity(wanted.len());
    let mut waits = Vec::new();
    for candidate in due {
        match candidate.admit(progress, &mut budgets, now) {
            Ok(order) => steps.push(Step::Issue(Box::new(order))),
            Err(wait) => waits.extend(wait),
        }
    }
    steps.extend(waits);
    steps.extend(keep);
    steps.extend(
        held.iter()
            .zip(&used)
            .filter(|(_, used)| !**used)
            .map(|(h, _)| Step::Retire(h)),
    );
    steps
}

/// Returns the reason to renew a held certificate now, or else the time of its renewal.
fn due_now(
    want: &Wanted,
    have: &Held,
    obtained: Option<&Obtained>,
    now: Timestamp,
) -> Result<Reason, Timestamp> {
    // A time in the future shows that the clock was set back since: it is ignored.
    let obtained = obtained.filter(|obtained| obtained.at <= now);
    let due = due_by_itself(want, have, now).and_then(|reason| {
        match renewal_pause(have, reason, obtained) {
            Some(until) if until > now => Err(until),
            _ => Ok(reason),
        }
    });
    match (want.renew_now, due) {
        // A more urgent reason precedes the operator's.
        (true, due) => Ok(due.map_or(Reason::Forced, |reason| reason.min(Reason::Forced))),
        (false, due) => due,
    }
}

/// Returns the time until which a certificate that was just obtained is not renewed: a renewal
/// window or a wrong clock that demands its renewal would demand that of the next one as well, and
/// renewals would follow each other. A window that moves into the past later is exempt, unless that
/// was the reason of the last renewal.
fn renewal_pause(have: &Held, reason: Reason, obtained: Option<&Obtained>) -> Option<Timestamp> {
    let obtained = obtained?;
    match reason {
        // The back-off of failed attempts decides.
        Reason::Changed | Reason::Refused => return None,
        Reason::Revoked if !obtained.at_the_cas_request => return None,
        _ => {}
    }
    let life = have.not_after.duration_since(have.not_before);
    let left = have.not_after.duration_since(obtained.at);
    Some(
        obtained.at
            + (life / 8)
                .min(left / 2)
                .clamp(SignedDuration::ZERO, SignedDuration::from_hours(24)),
    )
}

fn due_by_itself(want: &Wanted, have: &Held, now: Timestamp) -> Result<Reason, Timestamp> {
    let life = (have.not_before, have.not_after);
    let window = have
        .window
        .as_ref()
        .filter(|w| have.ari_id.as_deref() == Some(&w.of));
    if window.is_some_and(|w| w.is_over(now)) {
        // The window is over before the certificate is due: the CA moved the window, or we were not
        // running.
        return Ok(Reason::Revoked);
    }
    if renewal::is_urgent(life, now) {
        return Ok(Reason::Expiring);
    }
    if have.refused {
        return Ok(Reason::Refused);
    }
    if have.issuer != want.issuer {
        return Ok(Reason::Changed);
    }
    let due = renewal::due(
        have.ari_id.as_deref().unwrap_or(have.id.as_str()),
        life,
        window,
    );
    match due.because {
        _ if due.at > now => Err(due.at),
        renewal::Because::Window => Ok(Reason::Window),
        renewal::Because::TwoThirds => Ok(Reason::Renewal),
        renewal::Because::Floor => Ok(Reason::Expiring),
    }
}

/// An index of the held certificates by the names that they cover.
struct HeldIndex<'a> {
    held: &'a [Held],
    /// Position at which the next wanted certificate is expected: in the usual case both lists are
    /// in the same order, and no index is needed.
    next: Cell<usize>,
    by_id: OnceCell<HashMap<&'a str, usize>>,
    by_name: OnceCell<HashMap<(&'a str, &'a str), Vec<usize>>>,
}

impl<'a> HeldIndex<'a> {
    fn of(held: &'a [Held]) -> Self {
        Self {
            held,
            next: Cell::new(0),
            by_id: OnceCell::new(),
            by_name: OnceCell::new(),
        }
    }

    fn by_name(&self) -> &HashMap<(&'a str, &'a str), Vec<usize>> {
        self.by_name.get_or_init(|| {
            let mut by_name: HashMap<_, Vec<usize>> = HashMap::new();
            for (i, h) in self.held.iter().enumerate() {
                for name in h.names.iter() {
                    by_name
                        .entry((h.tenant.as_str(), name.as_str()))
                        .or_default()
                        .push(i);
                }
            }
            by_name
        })
    }

    fn index_of(&self, id: &CertificateId) -> Option<usize> {
        let next = self.next.get();
        let index = if self.held.get(next).is_some_and(|h| h.id == *id) {
            next
        } else {
            *self
                .by_id
                .get_or_init(|| {
                    self.held
                        .iter()
                        .enumerate()
                        .map(|(i, h)| (h.id.as_str(), i))
                        .collect()
                })
                .get(id.as_str())?
        };
        self.next.set(index + 1);
        Some(index)
    }

    /// Returns the best certificate for a wanted one: of its tenant and with all its names;
    /// preferably not expired, then of the right issuer, then with the latest expiry.
    fn find(&self, want: &Wanted, now: Timestamp) -> Option<usize> {
        let fits = |i: usize| {
            let h = &self.held[i];
            h.tenant == want.tenant && (h.names == want.names || h.names.cover(&want.names))
        };
        if let Some(i) = self.index_of(&want.id)
            && fits(i)
            && self.held[i].not_after > now
            && self.held[i].issuer == want.issuer
        {
            return Some(i);
        }
        let first = want.names.first().as_str();
        self.by_name()
            .get(&(want.tenant.as_str(), first))?
            .iter()
            .copied()
            .filter(|&i| fits(i))
            .max_by_key(|&i| {
                (
                    self.held[i].not_after > now,
                    self.held[i].issuer == want.issuer,
                    self.held[i].not_after,
                )
            })
    }
}

/// An order that is not admitted yet.
struct Candidate<'a> {
    names: Names,
    serves: Vec<&'a Wanted>,
    replaces: Option<&'a Held>,
    reason: Reason,
}

impl<'a> Candidate<'a> {
    fn renewal(want: &'a Wanted, have: &'a Held, reason: Reason) -> Self {
        Self {
            names: want.names.clone(),
            serves: vec![want],
            replaces: Some(have),
            reason,
        }
    }

    /// Returns the sort key. Of orders for missing certificates, those that serve the most wanted
    /// certificates come first: they make the most of a budget.
    fn rank(&self) -> (Reason, Reverse<usize>, Option<Timestamp>, &CertificateId) {
        let serves = if self.reason == Reason::Missing {
            self.serves.len()
        } else {
            0
        };
        (
            self.reason,
            Reverse(serves),
            self.replaces.map(|h| h.not_after),
            &self.serves[0].id,
        )
    }

    fn id(&self) -> CertificateId {
        match (&self.replaces, self.serves.as_slice()) {
            (Some(h), _) if h.names == self.names => h.id.clone(),
            (_, [one]) => one.id.clone(),
            (_, several) => CertificateId::of(&several[0].tenant, &self.names),
        }
    }

    fn exempt(&self, now: Timestamp) -> Exempt {
        let Some(have) = self.replaces.filter(|h| h.issuer == self.serves[0].issuer) else {
            return Exempt::Nothing;
        };
        let in_window = have.window.as_ref().is_some_and(|w| {
            // A window in the past is the CA's request as well, if the CA moved it and explains
            // that.
            w.is_open(now) || (w.is_over(now) && w.explanation.is_some())
        });
        match () {
            () if in_window && have.ari_id.is_some() && have.names.share_with(&self.names) => {
                Exempt::Ari
            }
            () if have.names == self.names => Exempt::Renewal,
            () => Exempt::Nothing,
        }
    }

    fn admit(
        self,
        progress: &Progress,
        budgets: &mut Budgets,
        now: Timestamp,
    ) -> Result<Order<'a>, Vec<Step<'a>>> {
        let exempt = self.exempt(now);
        let served = self.replaces.filter(|h| h.not_after > now);
        let wait = |until: Timestamp, because: &str| {
            let because = because.to_owned();
            self.serves
                .iter()
                .map(|wanted| Step::Wait {
                    wanted,
                    until,
                    because: because.clone(),
                    served,
                })
                .collect::<Vec<_>>()
        };
        let hold = self
            .serves
            .iter()
            .filter_map(|w| w.hold.as_ref())
            .filter(|h| h.0 > now)
            .max_by_key(|h| h.0);
        if let Some((until, because)) = hold {
            return Err(wait(*until, because));
        }
        let id = self.id();
        let issuer = &self.serves[0].issuer;
        let underway = progress
            .underway(issuer, &id)
            .filter(|order| order.names == self.names);
        if let Some(budget) = budgets.get_mut(issuer) {
            let admitted = match underway {
                None => budget.admits(&self.names, exempt, self.reason.reserve(), now),
                Some(order) if order.placed => Ok(()),
                Some(_) => budget.admits_counted(&self.names, exempt, now),
            };
            if let Err(w) = admitted {
                return Err(wait(w.until, &w.to_string()));
            }
            if underway.is_none() {
                budget.spend(&self.names, exempt, now);
            }
        }
        Ok(Order {
            id,
            names: self.names,
            serves: self.serves,
            replaces: self.replaces,
            reason: self.reason,
            exempt,
        })
    }
}

/// Orders candidates of equal urgency in rounds, one of each tenant: a tenant with many takes
/// neither the place nor the budget of a tenant with one. Within a round, candidates that did not
/// fail before go ahead, then those of the tenants with the fewest: a single slot is not lost to
/// one of a thousand hosts that keep failing. The candidates of one tenant keep their order.
fn round_robin<'a>(due: Vec<Candidate<'a>>, progress: &Progress) -> Vec<Candidate<'a>> {
    let mut counts: HashMap<(Reason, &str), usize> = HashMap::new();
    let mut numbered: Vec<_> = due
        .into_iter()
        .map(|candidate| {
            let count = counts
                .entry((candidate.reason, candidate.serves[0].tenant.as_str()))
                .or_default();
            *count += 1;
            let failed = candidate
                .serves
                .iter()
                .any(|want| progress.failed.contains(&want.id));
            (*count, failed, candidate)
        })
        .collect();
    // The sort is stable: among equals the more urgent stays ahead.
    numbered.sort_by_key(|(number, failed, candidate)| {
        let all = counts[&(candidate.reason, candidate.serves[0].tenant.as_str())];
        (candidate.reason, *number, *failed, all)
    });
    numbered
        .into_iter()
        .map(|(.., candidate)| candidate)
        .collect()
}

/// Inverse of the share of a domain's certificates that goes to hosts with one each: a week may
/// bring more hosts.
const DOMAIN_SHARE: usize = 2;

/// Makes candidates for wanted certificates that have none: one each while the budget suffices,
/// else packed: names of one tenant and issuer, by registered domain first, as many as the CA
/// accepts in one certificate. A pending order that several share precedes all others.
fn pack<'a>(
    missing: Vec<&'a Wanted>,
    progress: &Progress,
    budgets: &Budgets,
    now: Timestamp,
) -> Vec<Candidate<'a>> {
    let of = |names: Names, serves| Candidate {
        names,
        serves,
        replaces: None,
        reason: Reason::Missing,
    };
    let single = |w: &'a Wanted| of(w.names.clone(), vec![w]);
    let mut by_issuer: BTreeMap<&str, Vec<&'a Wanted>> = BTreeMap::new();
    for want in missing {
        by_issuer.entry(&want.issuer).or_default().push(want);
    }
    let mut candidates = Vec::new();
    for (issuer, wants) in by_issuer {
        let Some(budget) = budgets.get(issuer) else {
            candidates.extend(wants.into_iter().map(single));
            continue;
        };
        // All hosts of a domain without a certificate will need one, also those whose back-off is
        // not over, and those whose order is under way and may fail.
        let mut needed: HashMap<&str, usize> = HashMap::new();
        for want in &wants {
            *needed
                .entry(want.names.first().registered_domain())
                .or_default() += 1;
        }
        let (mut share, alone): (Vec<_>, Vec<_>) =
            wants.into_iter().partition(|w| packable(w, &now));
        if let Some(orders) = progress
            .underway
            .get(issuer)
            .filter(|orders| !orders.is_empty())
        {
            let members = Groups::of(orders).members(share.iter().copied(), progress);
            let mut taken = HashSet::new();
            for (order, members) in orders.values().zip(members) {
                let is_free = members.iter().all(|w| !taken.contains(&w.id));
                if is_free && Groups::is_whole(order, &members) {
                    taken.extend(members.iter().map(|w| w.id.clone()));
                    candidates.push(of(order.names.clone(), members));
                }
            }
            share.retain(|w| !taken.contains(&w.id));
        }
        // Those that cannot share need their part of the budget as well.
        let due_alone = alone
            .iter()
            .filter(|w| w.hold.as_ref().is_none_or(|h| h.0 <= now));
        let all_fit = share.len() + due_alone.count() <= budget.ordinary(&Scope::Orders, now);
        candidates.extend(alone.into_iter().map(single));
        let mut groups: BTreeMap<(&str, &str), Vec<&'a Wanted>> = BTreeMap::new();
        for want in share {
            let domain = want.names.first().registered_domain();
            groups.entry((&want.tenant, domain)).or_default().push(want);
        }
        // By tenant, the rest when orders are scarce; packed across domains at the end.
        let mut scarce: BTreeMap<&str, Vec<&'a Wanted>> = BTreeMap::new();
        for ((tenant, domain), group) in groups {
            let left = budget.ordinary(&Scope::Domain(domain.to_owned()), now);
            let domain_fits = needed[domain] <= left / DOMAIN_SHARE;
            match (domain_fits, all_fit) {
                (true, true) => candidates.extend(group.into_iter().map(single)),
                (_, false) => scarce.entry(tenant).or_default().extend(group),
                (false, true) => candidates.extend(packs(group, budget.limits.names, progress)),
            }
        }
        for group in scarce.into_values() {
            candidates.extend(packs(group, budget.limits.names, progress));
        }
    }
    candidates
}

fn packable(w: &Wanted, now: &Timestamp) -> bool {
    w.may_share && !w.renew_now && w.hold.as_ref().is_none_or(|h| h.0 <= *now)
}

/// Fills certificates with names, one after the other.
fn packs<'a>(group: Vec<&'a Wanted>, most: usize, progress: &Progress) -> Vec<Candidate<'a>> {
    let mut packs: Vec<(usize, Candidate<'a>)> = Vec::new();
    for want in group {
        let most = progress
            .share_at_most
            .get(&want.id)
            .map_or(most, |own| most.min(*own));
        match packs.last_mut() {
            Some((full, pack)) if pack.names.count() + want.names.count() <= most.min(*full) => {
                pack.names = pack.names.union(&want.names);
                pack.serves.push(want);
                *full = most.min(*full);
            }
            _ => {
                let names = want.names.clone();
                let serves = vec![want];
                packs.push((
                    most,
                    Candidate {
                        names,
                        serves,
                        replaces: None,
                        reason: Reason::Missing,
                    },
                ));
            }
        }
    }
    packs.into_iter().map(|(_, pack)| pack).collect()
}

#[cfg(test)]
mod tests;
