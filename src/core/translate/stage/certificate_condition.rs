//! The condition with the warnings about certificates: of listeners, of Gateways, and of routes
//! with hostnames that a listener's certificate is not valid for.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::key::{ParentKey, RouteKey};
use crate::rule::certificate::{Served, rfc3339};
use crate::rule::certificate_warning::{CertificateWarning, named};
use crate::state::attachments::{Attachment, Way};
use crate::state::dirty::Dirty;
use crate::state::issuance::Issuance;
use crate::state::parent::{Parent, ParentListener};
use crate::state::parents::Parents;
use gatewright_objects::inputs::CERT_MANAGER;
use gatewright_objects::model::{Condition, ConditionType, Hostname, ObjectName, Reason, Status};
use gatewright_objects::store::Store;

/// The largest number of hostnames of a route that a text has.
const NAMED: usize = 8;

/// The condition of a listener.
pub(crate) fn of_listener(listener: &ParentListener, issuance: &Issuance) -> Option<Condition> {
    let is_renewed = match &listener.served {
        Served::Certificate(secret, _) => issuance
            .awaited(secret)
            .is_some_and(|by| **by != *CERT_MANAGER),
        _ => false,
    };
    let unrenewed = unrenewed(&listener.served, issuance);
    let warnings = listener
        .warnings
        .iter()
        .filter(|warning| !(is_renewed && warning.reason == Reason::CertificateExpiring));
    condition(warnings.chain(&unrenewed))
}

/// The warning about a certificate whose renewals fail.
fn unrenewed(served: &Served, issuance: &Issuance) -> Option<CertificateWarning> {
    let (secret, certificate) = match served {
        Served::Certificate(secret, certificate) => (secret, certificate),
        Served::Issued(want, Some(certificate)) => (&want.secret, certificate),
        Served::Issued(_, None) | Served::NotAllowed(..) | Served::Missing(_) | Served::None => {
            return None;
        }
    };
    let trouble = issuance.trouble(secret)?;
    let end = rfc3339(certificate.not_after);
    Some(CertificateWarning {
        reason: Reason::CertificateNotRenewed,
        text: format!(
            "the certificate in Secret {secret} ends at {end}, and its renewal fails: {trouble}"
        ),
    })
}

/// The condition of a Gateway, about its client certificate.
pub(crate) fn of_gateway(parent: &Parent) -> Option<Condition> {
    condition(parent.client.iter().flat_map(|client| &client.warnings))
}

/// One condition for warnings, with the reason of the first.
fn condition<'a>(warnings: impl Iterator<Item = &'a CertificateWarning>) -> Option<Condition> {
    let told: Vec<_> = warnings.collect();
    let texts: Vec<&str> = told.iter().map(|warning| warning.text.as_str()).collect();
    Some(warning(told.first()?.reason, texts.join("; ")))
}

/// The condition of a route at the parents that one of its parentRefs reaches. `all` are all its
/// attachments: a narrower listener of the same port serves a hostname in place of a wider one.
pub(crate) fn of_route(
    reached: &[(Way, ParentKey, Attachment)],
    all: &[(Way, ParentKey, Attachment)],
    parents: &Parents,
    issuance: &Issuance,
) -> Option<Condition> {
    let mut texts = Vec::new();
    for (parent, listener, taken) in
        attached(reached, parents).filter(|(_, listener, _)| listener.terminates_many())
    {
        let Some(names) = names(listener, issuance) else {
            continue;
        };
        let id = parent.frontend(listener.transport_port());
        let is_refused = |hostname: &&Hostname| {
            **hostname != listener.hostname && !hostname.is_certified_by(names)
        };
        let is_served_here = |hostname: &&Hostname| {
            !attached(all, parents).any(|(at, other, _)| {
                is_narrower(&other.hostname, &listener.hostname)
                    && other.hostname.covers(hostname)
                    && at.frontend(other.transport_port()) == id
            })
        };
        let refused: BTreeSet<&Hostname> = taken
            .iter()
            .map(|(hostname, _)| hostname)
            .filter(is_refused)
            .collect();
        let refused: Vec<String> = refused
            .into_iter()
            .filter(is_served_here)
            .take(NAMED)
            .map(ToString::to_string)
            .collect();
        if !refused.is_empty() {
            texts.push(format!(
                "clients refuse the certificate of listener {} of {} for {}: it names {}, and a wildcard stands for one label \
                 (RFC 9525, 6.3); give the hostname a listener with a certificate that names it",
                listener.name,
                parent.key.object(),
                refused.join(", "),
                named(names)
            ));
        }
    }
    (!texts.is_empty()).then(|| warning(Reason::CertificateNotForHostname, texts.join("; ")))
}

fn is_narrower(other: &Hostname, listener_hostname: &Hostname) -> bool {
    *other != *listener_hostname && listener_hostname.covers(other)
}

pub(crate) type Names = [(Hostname, Hostname)];

/// The listeners of attachments, each with the hostnames that it takes.
pub(crate) fn attached<'a>(
    attachments: &'a [(Way, ParentKey, Attachment)],
    parents: &'a Parents,
) -> impl Iterator<Item = (&'a Parent, &'a ParentListener, &'a Names)> {
    let parents = attachments
        .iter()
        .filter_map(|(_, key, attachment)| Some((parents.get(key)?, attachment)));
    parents.flat_map(|(parent, attachment)| {
        attachment.listeners.iter().filter_map(move |attached| {
            Some((
                parent,
                parent.listener(&attached.listener)?,
                &attached.names[..],
            ))
        })
    })
}

/// Marks the statuses of the routes at a parent, if the names of a certificate changed by which
/// they are judged.
pub(crate) fn touch_routes(
    old: Option<&Parent>,
    new: Option<&Parent>,
    store: &Store,
    dirty: &mut Dirty,
) {
    let (Some(old), Some(new)) = (old, new) else {
        return;
    };
    if judged(Some(old)) != judged(Some(new)) {
        touch_routes_at(new, store, dirty);
    }
}

fn judged(parent: Option<&Parent>) -> Vec<(Arc<str>, Option<Vec<Hostname>>)> {
    let listeners = parent
        .into_iter()
        .flat_map(|parent| &parent.listeners)
        .filter(|listener| listener.terminates_many());
    listeners
        .map(|listener| {
            (
                listener.name.clone(),
                known_names(&listener.served).map(<[_]>::to_vec),
            )
        })
        .collect()
}

/// Marks the statuses of the routes at a parent, if they are judged by the certificate that a
/// Secret will have.
pub(crate) fn touch_awaiting(
    parent: &Parent,
    secret: &ObjectName,
    store: &Store,
    dirty: &mut Dirty,
) {
    let awaits = |listener: &ParentListener| {
        listener.terminates_many() && listener.served == Served::Missing(secret.clone())
    };
    if parent.listeners.iter().any(awaits) {
        touch_routes_at(parent, store, dirty);
    }
}

/// Marks the statuses of the routes at a parent.
pub(crate) fn touch_routes_at(parent: &Parent, store: &Store, dirty: &mut Dirty) {
    let routes = store.routes_reaching(&parent.key, parent.is_default());
    dirty.statuses.extend(
        routes
            .chain(store.indexes().granted_by_parent(&parent.key))
            .map(RouteKey::object),
    );
}

/// The names of the certificate that a listener serves, or will have; `None` if they are not known.
fn names<'a>(listener: &'a ParentListener, issuance: &Issuance) -> Option<&'a [Hostname]> {
    match &listener.served {
        Served::Missing(secret) if issuance.awaited(secret).is_some() => {
            Some(std::slice::from_ref(&listener.hostname))
        }
        served => known_names(served),
    }
}

/// The names of a certificate that is there or wanted.
fn known_names(served: &Served) -> Option<&[Hostname]> {
    match served {
        Served::Issued(want, _) => Some(&want.names),
        Served::Certificate(_, certificate) | Served::NotAllowed(_, Some(certificate)) => {
            Some(&certificate.names)
        }
        Served::Missing(_) | Served::None | Served::NotAllowed(_, None) => None,
    }
}

fn warning(reason: Reason, message: String) -> Condition {
    Condition {
        kind: ConditionType::CertificateWarning,
        status: Status::True,
        reason,
        message,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::{Value, json};

    use super::*;
    use crate::{Change, Engine, Fact, Settings, StatusBody};
    use gatewright_objects::inputs::{Kind, Object, ObjectKey, Secret};
    use gatewright_objects::model::PrivateKey;

    fn put(value: Value) -> Change {
        Change::put(Object::parse(value).expect("an object"))
    }

    fn warnings(engine: &Engine) -> Vec<(Reason, String)> {
        let key = ObjectKey::new(Kind::Gateway, ObjectName::new("a", "edge"));
        let Some(StatusBody::Gateway(status)) = engine.status(&key).map(|status| status.body)
        else {
            panic!("a Gateway has a status")
        };
        let conditions = status.listeners[0].conditions.iter();
        conditions
            .filter(|condition| condition.kind == ConditionType::CertificateWarning)
            .map(|condition| (condition.reason, condition.message.clone()))
            .collect()
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)
    }

    /// Tells the problem of a certificate, and returns the warnings then.
    fn tell(engine: &mut Engine, text: Option<&str>) -> Vec<(Reason, String)> {
        let secret = ObjectName::new("a", "tls");
        let problem = Fact::IssuanceProblem(secret, text.map(str::to_owned));
        let delta = engine.apply(vec![Change::Fact(problem)], now());
        assert_eq!(delta.statuses.len(), 1, "the status is told again");
        warnings(engine)
    }

    #[test]
    fn a_renewal_that_fails_is_told_until_it_succeeds() {
        let now = now();
        let mut engine = Engine::new(Settings::new("c", vec![[127, 0, 0, 1].into()]));
        let api = "gateway.networking.k8s.io/v1";
        let certificate = gatewright_objects::model::Certificate {
            leaf: b"leaf".as_slice().into(),
            issuers: Arc::from(""),
            key: PrivateKey::new(b"key"),
            names: vec![crate::confluence::hostname("a.example.org")],
            not_before: SystemTime::UNIX_EPOCH,
            not_after: now + Duration::from_secs(90 * 86_400),
            issuer: Arc::from("test"),
        };
        let secret = ObjectName::new("a", "tls");
        engine.apply(
            vec![
                put(
                    json!({"apiVersion": api, "kind": "GatewayClass", "metadata": {"name": "g"},
                    "spec": {"controllerName": "c"}}),
                ),
                put(
                    json!({"apiVersion": api, "kind": "Gateway", "metadata": {"namespace": "a", "name": "edge"},
                    "spec": {"gatewayClassName": "g", "listeners": [{"name": "s", "protocol": "HTTPS",
                        "port": 443, "hostname": "a.example.org",
                        "tls": {"certificateRefs": [{"name": "tls"}]}}]}}),
                ),
                Change::put(Object::Secret(Secret::with_certificate(
                    secret.clone(),
                    Arc::new(certificate),
                ))),
            ],
            now,
        );
        assert_eq!(warnings(&engine), [], "all is well");
        let told = tell(&mut engine, Some("CAA forbids it"));
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].0, Reason::CertificateNotRenewed);
        assert!(
            told[0].1.ends_with("and its renewal fails: CAA forbids it"),
            "{told:?}"
        );
        assert_eq!(tell(&mut engine, None), [], "it was renewed");
    }
}
