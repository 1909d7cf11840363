//! A plan as text for people.

use std::collections::BTreeSet;

use super::hosts::{Effect, HostChange, Place, PlaceChange};
use super::objects::{ObjectChange, State};
use super::{CertificateChange, Plan, Step};
use crate::table::table;

/// The number of names that a list has.
const LISTED: usize = 3;

impl Plan {
    /// The text: hostnames first, then objects, certificates and Envoys.
    pub fn text(&self) -> String {
        let hosts: Vec<[String; 4]> = self.hosts.iter().map(host).collect();
        let mut text = table(&hosts);
        let objects: Vec<[String; 4]> = self.objects.iter().filter_map(object).collect();
        add(&mut text, "Objects", &table(&objects));
        let certificates: Vec<[String; 4]> = self.certificates.iter().map(certificate).collect();
        add(&mut text, "Certificates", &table(&certificates));
        for of in &self.orders {
            text += &format!(
                "  {} of {}: {} of {} in {} hours\n",
                counted(of.orders, "order"),
                of.domain,
                of.orders,
                of.of,
                of.hours
            );
        }
        add(&mut text, "Envoys", &self.envoys());
        add(&mut text, "Quotas", &self.quotas());
        text + &self.summary()
    }

    fn envoys(&self) -> String {
        let mut text = String::new();
        if self.resources.count() > 0 {
            let types = self.resources.types.iter();
            let types =
                types.map(|(name, of)| format!("{} {name}", of.added + of.changed + of.removed));
            text += &format!(
                "{}, {} bytes: {}\n",
                counted(self.resources.count(), "resource"),
                self.resources.bytes(),
                types.collect::<Vec<_>>().join(", ")
            );
        }
        for drain in &self.resources.drains {
            let what = match &drain.chains {
                None => "all connections".to_owned(),
                Some(chains) => format!("connections of {}", listed(chains)),
            };
            text += &format!("listener {} drains {what}\n", drain.listener);
        }
        text
    }

    fn quotas(&self) -> String {
        let lines = self.quotas.iter().map(|of| {
            format!(
                "{} of {} {} → {} of {}\n",
                of.quota, of.namespace, of.before, of.after, of.of
            )
        });
        lines.collect()
    }

    fn summary(&self) -> String {
        let is_nothing = self.hosts.is_empty()
            && self.objects.is_empty()
            && self.certificates.is_empty()
            && self.resources.count() == 0;
        if is_nothing {
            return "nothing changes\n".to_owned();
        }
        let changed = self.hosts.len();
        let lost = self.hosts.iter().filter(|host| host.is_lost).count();
        let losses = match lost {
            0 => "nothing that is served is lost".to_owned(),
            _ => format!("{lost} lost: stopped, taken over, failing or without TLS"),
        };
        let separator = if self.hosts.is_empty() { "" } else { "\n" };
        format!(
            "{separator}{} changed, {losses}\n",
            counted(changed, "host")
        )
    }
}

/// Adds a section, if it has lines.
fn add(text: &mut String, head: &str, lines: &str) {
    if lines.is_empty() {
        return;
    }
    if !text.is_empty() {
        text.push('\n');
    }
    *text += &format!("{head}\n");
    for line in lines.lines() {
        *text += &format!("  {line}\n");
    }
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}

fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(LISTED);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 {
        shown
    } else {
        format!("{shown} and {more} more")
    }
}

/// The mark, the hostname, what happens, and why.
fn host(host: &HostChange) -> [String; 4] {
    let worst = host.effects.first().copied();
    let place = host
        .places
        .iter()
        .find(|place| worst.is_some_and(|worst| has(place, worst)))
        .or(host.places.first());
    let what = match (worst, place) {
        (Some(worst), Some(place)) => happens(worst, place, host.in_clear),
        _ => String::new(),
    };
    let why = place.map(|place| reasons(host, place)).unwrap_or_default();
    let why = if why.is_empty() {
        String::new()
    } else {
        format!("({})", why.join("; "))
    };
    [mark(host).to_owned(), name(host), what, why]
}

/// Returns whether an effect of a host is that of a place: a new place of a host that was served
/// elsewhere is a move.
fn has(place: &PlaceChange, effect: Effect) -> bool {
    place.effects.contains(&effect)
        || effect == Effect::Moves && place.effects.contains(&Effect::Appears)
}

fn mark(host: &HostChange) -> &'static str {
    let warns = [
        Effect::LosesTls,
        Effect::AwaitsCertificate,
        Effect::LosesRedirect,
        Effect::Fails,
    ];
    let effects = &host.effects;
    if effects.contains(&Effect::Ends) && host.places.iter().all(|place| place.after.is_none()) {
        "-"
    } else if effects.contains(&Effect::ChangesHands) {
        "~"
    } else if warns.iter().any(|effect| effects.contains(effect))
        || effects.contains(&Effect::Appears) && host.in_clear
    {
        "!"
    } else if effects.contains(&Effect::Appears) {
        "+"
    } else {
        "~"
    }
}

/// The hostname; of a port without hostnames, or with a listener for all, the port.
fn name(host: &HostChange) -> String {
    let place = host
        .places
        .iter()
        .find_map(|place| place.after.as_ref().or(place.before.as_ref()));
    match place {
        Some(place) if host.hostname == "*" => match place.port {
            Some(port) => format!("* port {port} {}", place.protocol),
            None => "*".to_owned(),
        },
        _ => host.hostname.clone(),
    }
}

fn happens(effect: Effect, place: &PlaceChange, in_clear: bool) -> String {
    let (before, after) = (place.before.as_ref(), place.after.as_ref());
    match effect {
        Effect::Ends => match place.before.as_ref().and_then(|place| place.port) {
            Some(port) => format!("not served any more on port {port}"),
            None => "not served any more".to_owned(),
        },
        Effect::ChangesHands => arrow(before, after, |place| &place.routes),
        Effect::LosesTls if in_clear => "plain HTTP only, and had TLS".to_owned(),
        Effect::LosesTls => "no TLS any more".to_owned(),
        Effect::AwaitsCertificate => "no TLS until its certificate is issued".to_owned(),
        Effect::LosesRedirect => "answered on plain HTTP, and was redirected to HTTPS".to_owned(),
        Effect::Fails => {
            let known: BTreeSet<&String> = before.iter().flat_map(|place| &place.failing).collect();
            let failing = after.iter().flat_map(|place| &place.failing);
            let failing = failing.filter(|rule| !known.contains(rule)).cloned();
            format!("answers errors: {}", listed(&failing.collect::<Vec<_>>()))
        }
        Effect::ChangesApplication => {
            if before.map(|place| &place.routes) == after.map(|place| &place.routes) {
                format!("backends {}", arrow(before, after, |place| &place.backends))
            } else {
                arrow(before, after, |place| &place.routes)
            }
        }
        Effect::ChangesListener => "another listener".to_owned(),
        Effect::Moves => match after.and_then(|place| place.port) {
            Some(port) => format!("also on port {port}"),
            None => "also elsewhere".to_owned(),
        },
        Effect::ChangesCertificate => "another certificate".to_owned(),
        Effect::ChangesRules => "other rules or settings".to_owned(),
        Effect::Redirects => "redirected to HTTPS".to_owned(),
        Effect::GetsTls => "gets TLS".to_owned(),
        Effect::Recovers => "no errors any more".to_owned(),
        Effect::Appears => {
            let routes = after.map(|place| listed(&place.routes));
            let clear = if in_clear { ", plain HTTP only" } else { "" };
            routes.unwrap_or_default() + clear
        }
    }
}

/// What was and what will be; of kinds only where they differ.
fn arrow(
    before: Option<&Place>,
    after: Option<&Place>,
    list: fn(&Place) -> &Vec<String>,
) -> String {
    let (old, new) = (before.map(list), after.map(list));
    let kinds: BTreeSet<&str> = [old, new]
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|name| Some(name.split_once(' ')?.0))
        .collect();
    let is_one_kind = kinds.len() == 1;
    format!("{} → {}", short(old, is_one_kind), short(new, is_one_kind))
}

/// Names of objects, without their kind if all have one.
fn short(names: Option<&Vec<String>>, is_one_kind: bool) -> String {
    let names = names.into_iter().flatten();
    let names = names.map(|name| match name.split_once(' ') {
        Some((_, rest)) if is_one_kind => rest.to_owned(),
        _ => name.clone(),
    });
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        listed(&names)
    }
}

/// What explains a change, or what clients have to know.
fn reasons(host: &HostChange, place: &PlaceChange) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(after) = &place.after {
        let is_other = place.effects.contains(&Effect::ChangesListener);
        if place.new_listener || is_other {
            let new = if place.new_listener { "new " } else { "" };
            reasons.push(format!(
                "{new}listener {:?} of {}",
                after.listener, after.parent
            ));
        }
        let certificate = after.certificate.as_ref();
        let ordered = certificate.filter(|certificate| !certificate.is_there);
        if let Some(issuer) = ordered.and_then(|certificate| certificate.issuer.as_ref()) {
            reasons.push(format!("certificate: {issuer}"));
        }
        if place.effects.contains(&Effect::Appears) && !after.failing.is_empty() {
            reasons.push(format!("answers errors: {}", listed(&after.failing)));
        }
    }
    if host.is_unread {
        reasons.push("you may not read its Gateway".to_owned());
    }
    reasons
}

/// What becomes of a condition that is or was wrong.
fn object(change: &ObjectChange) -> Option<[String; 4]> {
    let word = if change.is_worse() {
        "wrong"
    } else if change.is_better() {
        "right"
    } else {
        return None;
    };
    let state: &State = change.after.as_ref()?;
    // Envoys program it, and issuers issue what is among the certificates.
    if change.condition == "Programmed" && state.reason == "Pending" {
        return None;
    }
    let condition = format!("{}={} {}", change.condition, state.status, state.reason);
    let message = if state.ok {
        String::new()
    } else {
        state.message.clone()
    };
    Some([word.to_owned(), change.object.clone(), condition, message])
}

fn certificate(change: &CertificateChange) -> [String; 4] {
    let step = match change.step {
        Step::Ordered => "order",
        Step::Reissued => "order again",
        Step::Withdrawn => "not wanted",
    };
    [
        step.to_owned(),
        listed(&change.hostnames),
        change.issuer.clone(),
        format!("secret {}", change.secret),
    ]
}
