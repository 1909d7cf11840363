//! Statuses of objects, from what the engine knows.

use super::certificate::Served;
use super::claims::{Family, claiming};
use super::emit::fingerprint;
use super::engine::{Dirty, Engine};
use super::fleet::Fleet;
use super::key::{ParentKey, RouteKey, Verdict};
use super::parent::{Parent, ParentListener, Protocol};
use super::status::{
    ClassStatus, GatewayStatus, ListenerSetStatus, ListenerStatus, ObjectStatus, Reported, RouteStatus, StatusBody,
};
use super::{features, fleet};
use crate::inputs::{Address, Kind, ObjectKey};
use crate::model::{Condition, ConditionType, GatewayAddress, Reason, Status};

impl Engine {
    /// Makes the status of an object anew, and hands it out where it is different.
    pub(super) fn report(&mut self, key: &ObjectKey, dirty: &mut Dirty) {
        self.counters.statuses += 1;
        let status = self.status_of(key);
        if key.kind == Kind::ListenerSet {
            self.count_listener_set(key, status.as_ref(), dirty);
        }
        let new =
            status.as_ref().map(|status| Reported { fingerprint: fingerprint(status), is_good: status.is_good() });
        let old = match new {
            Some(new) => self.reported.insert(key.clone(), new),
            None => self.reported.remove(key),
        };
        if old != new {
            dirty.delta.statuses.insert(key.clone(), status);
        }
    }

    fn status_of(&self, key: &ObjectKey) -> Option<ObjectStatus> {
        match key.kind {
            Kind::GatewayClass => self.class_status(key),
            Kind::Gateway => self.gateway_status(key),
            Kind::ListenerSet => self.listener_set_status(key),
            _ => self.route_status(&RouteKey::of(key)?),
        }
    }

    /// The status of an object, if it is one of ours.
    pub fn status(&self, key: &ObjectKey) -> Option<ObjectStatus> {
        self.status_of(key).filter(|_| self.reported.contains_key(key))
    }

    /// The statuses of all objects of ours, each made when it is asked for.
    pub fn statuses(&self) -> impl Iterator<Item = (&ObjectKey, ObjectStatus)> {
        self.reported.keys().filter_map(|key| Some((key, self.status_of(key)?)))
    }

    /// Routes with references that do not resolve, or rules that cannot be carried out, whoever serves their parents.
    pub fn unresolved(&self) -> impl Iterator<Item = (&RouteKey, &(Reason, String))> {
        self.resolved.iter().flat_map(|(key, resolved)| {
            let wrong = [resolved.references.as_ref().err(), resolved.invalid.as_deref()];
            wrong.into_iter().flatten().map(move |wrong| (key, wrong))
        })
    }

    /// How many objects of ours need nobody's attention, and how many do.
    pub fn good_and_bad(&self) -> (usize, usize) {
        let good = self.reported.values().filter(|reported| reported.is_good).count();
        (good, self.reported.len() - good)
    }

    fn class_status(&self, key: &ObjectKey) -> Option<ObjectStatus> {
        let class = self.store.class(&key.name.name).filter(|c| c.controller == self.settings.controller)?;
        let fleet = fleet::of_class(class, &self.store, &self.settings);
        let features = fleet.as_ref().map(|fleet| features::supported(*fleet)).unwrap_or_default();
        let conditions = vec![condition(ConditionType::Accepted, fleet.map(|_| ()), Reason::Accepted)];
        Some(ObjectStatus {
            generation: class.meta.generation,
            body: StatusBody::Class(ClassStatus { conditions, features }),
        })
    }

    fn gateway_status(&self, key: &ObjectKey) -> Option<ObjectStatus> {
        let parent = self.parents.get(&ParentKey::Gateway(key.name.clone()))?;
        let gateway = self.store.gateway(&key.name)?;
        let listeners = self.listener_statuses(parent);
        let accepted = listeners_verdict(parent, &listeners);
        let unusable = parent.stand.unusable.clone();
        let malformed = gateway.addresses.iter().find_map(|address| match address {
            Address::Malformed(text) => Some(format!("spec.addresses: {text:?} is no IP address")),
            _ => None,
        });
        let (addresses, reached) = match parent.stand.reach.fleet {
            Fleet::Dedicated => self.exposed(parent, gateway),
            Fleet::Shared => self.reached(fleet::addresses(&self.store, &self.settings)),
            Fleet::Own => {
                self.reached(self.addresses(&gateway.addresses).into_iter().map(GatewayAddress::Ip).collect())
            }
        };
        let programmed = if accepted.status != Status::True {
            Err((Reason::Invalid, "the Gateway is not accepted".to_owned()))
        } else if let Some(text) = unusable.clone().or(malformed) {
            Err((Reason::AddressNotUsable, text))
        } else if let Err(nowhere) = reached {
            Err(nowhere)
        } else if let Some(text) = self.taken(parent) {
            Err((Reason::AddressNotUsable, text))
        } else {
            any_programmed(&listeners, Reason::Invalid).map_err(|other| self.nowhere(parent).unwrap_or(other))
        };
        // A Gateway that is not accepted is not bound anywhere.
        let bound = accepted.status == Status::True && unusable.is_none();
        let addresses = if bound { addresses } else { Vec::new() };
        let conditions = vec![accepted, condition(ConditionType::Programmed, programmed, Reason::Programmed)];
        let body = StatusBody::Gateway(GatewayStatus {
            addresses,
            attached_listener_sets: self.accepted_sets.count(&key.name),
            conditions,
            listeners,
        });
        Some(ObjectStatus { generation: parent.generation, body })
    }

    /// Where a Gateway is bound that is reached where it is bound.
    fn reached(&self, all: Vec<GatewayAddress>) -> (Vec<GatewayAddress>, Verdict) {
        let verdict = match (&all[..], &self.settings.envoys) {
            ([], Some(service)) => Err((
                Reason::AddressNotAssigned,
                format!("Service {service} has no address yet: whatever gives addresses to load balancers does it"),
            )),
            ([], None) => Err((Reason::AddressNotAssigned, "there is no address to serve on".to_owned())),
            _ => Ok(()),
        };
        (all, verdict)
    }

    /// Says so where clients come to none of the ports that are served.
    fn nowhere(&self, parent: &Parent) -> Option<(Reason, String)> {
        let mut ports = claiming(parent).map(|listener| listener.port);
        let none = ports.clone().all(|port| self.unled(parent, std::iter::once(port)).is_some());
        none.then(|| self.unled(parent, &mut ports)).flatten().map(|text| (Reason::Pending, text))
    }

    /// Says which socket of a Gateway another one holds.
    fn taken(&self, parent: &Parent) -> Option<String> {
        let mut ports: Vec<u16> = claiming(parent).map(|l| l.port).collect();
        ports.sort_unstable();
        ports.dedup();
        let ids = ports.into_iter().map(|port| parent.frontend(port));
        let taken: Vec<String> = ids.filter(|id| self.rival(id).is_some()).map(|id| id.port.to_string()).collect();
        (!taken.is_empty()).then(|| {
            format!(
                "port {}: another Gateway holds it on the same address; give this one spec.addresses",
                taken.join(", ")
            )
        })
    }

    fn listener_set_status(&self, key: &ObjectKey) -> Option<ObjectStatus> {
        let parent = self.parents.get(&ParentKey::ListenerSet(key.name.clone()))?;
        let listeners = self.listener_statuses(parent);
        let accepted = listeners_verdict(parent, &listeners);
        let programmed = match (&parent.accepted, accepted.status) {
            (Err((Reason::NotAllowed, text)), _) => Err((Reason::NotAllowed, text.clone())),
            (Err((_, text)), _) => Err((Reason::ParentNotProgrammed, text.clone())),
            (Ok(()), Status::True) => any_programmed(&listeners, Reason::ListenersNotValid)
                .map_err(|other| self.nowhere(parent).unwrap_or(other)),
            (Ok(()), _) => Err((Reason::ListenersNotValid, accepted.message.clone())),
        };
        let conditions = vec![accepted, condition(ConditionType::Programmed, programmed, Reason::Programmed)];
        let body = StatusBody::ListenerSet(ListenerSetStatus { conditions, listeners });
        Some(ObjectStatus { generation: parent.generation, body })
    }

    /// Keeps `attachedListenerSets` of the Gateway up to date.
    fn count_listener_set(&mut self, key: &ObjectKey, status: Option<&ObjectStatus>, dirty: &mut Dirty) {
        let accepted = status.is_some_and(|status| match &status.body {
            StatusBody::ListenerSet(set) => {
                set.conditions.iter().any(|c| c.kind == ConditionType::Accepted && c.status == Status::True)
            }
            _ => false,
        });
        let gateway = self.parents.get(&ParentKey::ListenerSet(key.name.clone())).map(|p| p.stand.gateway.clone());
        let now = gateway.filter(|_| accepted);
        let before = match &now {
            Some(gateway) => self.set_counted.insert(key.name.clone(), gateway.clone()),
            None => self.set_counted.remove(&key.name),
        };
        if before == now {
            return;
        }
        if let Some(old) = &before {
            self.accepted_sets.remove(old, &key.name);
        }
        if let Some(new) = &now {
            self.accepted_sets.insert(new.clone(), key.name.clone());
        }
        let gateways = [before, now].into_iter().flatten().map(|name| ObjectKey::new(Kind::Gateway, name));
        dirty.statuses.extend(gateways);
    }

    fn listener_statuses(&self, parent: &Parent) -> Vec<ListenerStatus> {
        parent.listeners.iter().map(|listener| self.listener_status(parent, listener)).collect()
    }

    fn listener_status(&self, parent: &Parent, listener: &ParentListener) -> ListenerStatus {
        let id = parent.id(listener);
        let frontend = parent.frontend(listener.port);
        let conflict = self.conflicts.get(&id).map(|conflict| conflict.reason);
        let mut conditions = Vec::new();
        let conflict_text = |reason| self.conflict_text(reason, parent, listener);
        let accepted = match (conflict, &parent.accepted) {
            (Some(reason), _) => Err((reason, conflict_text(reason))),
            (None, Err((_, text))) => Err((Reason::Pending, text.clone())),
            // A Gateway that is bound nowhere has no rivals.
            (None, Ok(()))
                if listener.accepted.is_ok() && parent.stand.unusable.is_none() && self.rival(&frontend).is_some() =>
            {
                let text = format!("another Gateway holds port {} on the same address", listener.port);
                Err((Reason::PortUnavailable, text))
            }
            (None, Ok(())) => listener.accepted.clone(),
        };
        let programmed = if let Err((reason, text)) = &accepted {
            let as_accepted = conflict.is_some() || *reason == Reason::Pending;
            Err((if as_accepted { *reason } else { Reason::Invalid }, text.clone()))
        } else if let Some(text) = &parent.stand.unusable {
            Err((Reason::Invalid, text.clone()))
        } else if let Some(text) = self.unled(parent, std::iter::once(listener.port)) {
            Err((Reason::Pending, text))
        } else if self.frontends.get(&frontend).is_none_or(|f| f.addresses.is_empty()) {
            match parent.stand.reach.fleet {
                Fleet::Dedicated => Err((Reason::Pending, "the Gateway's Service does not lead here yet".to_owned())),
                Fleet::Own | Fleet::Shared => {
                    Err((Reason::Invalid, "the Gateway has no address to serve on".to_owned()))
                }
            }
        } else {
            self.listener_programmed(parent, listener)
        };
        let is_accepted = accepted.is_ok() && parent.stand.unusable.is_none();
        conditions.push(condition(ConditionType::Accepted, accepted, Reason::Accepted));
        let mut programmed = condition(ConditionType::Programmed, programmed, Reason::Programmed);
        if let (Status::True, Some(text)) = (programmed.status, &listener.warning) {
            programmed.message.clone_from(text);
        }
        conditions.push(programmed);
        let mut resolved = listener.resolved.clone();
        if let (Some(text), Err((_, told))) = (self.awaits(parent, listener), &mut resolved) {
            *told = text;
        }
        if let Err((reason @ Reason::InvalidTLSConfig, text)) = resolved {
            // The specification has no such reason for ResolvedRefs: a listener without any reference resolves them all.
            resolved = if listener.protocol.is_some() { Ok(()) } else { Err((reason, text)) };
        }
        conditions.push(condition(ConditionType::ResolvedRefs, resolved, Reason::ResolvedRefs));
        if let Some(reason) = conflict.filter(|reason| *reason != Reason::Pending) {
            let message = conflict_text(reason);
            conditions.push(Condition { kind: ConditionType::Conflicted, status: Status::True, reason, message });
        }
        let terminates = listener.protocol.is_some_and(Protocol::terminates);
        let overlap = self.frontends.get(&frontend).filter(|_| is_accepted && terminates).and_then(|frontend| {
            // Overlapping certificates are the graver of the two: clients reuse connections by them.
            if frontend.sans.overlap(&listener.hostname) {
                Some((Reason::OverlappingCertificates, "a certificate for names that overlap with this one's"))
            } else if frontend.overlaps(&listener.hostname) {
                Some((Reason::OverlappingHostnames, "a hostname that overlaps"))
            } else {
                None
            }
        });
        if let Some((reason, what)) = overlap {
            conditions.push(Condition {
                kind: ConditionType::OverlappingTLSConfig,
                status: Status::True,
                reason,
                message: format!("another listener of port {} has {what}", listener.port),
            });
        }
        ListenerStatus {
            name: listener.name.clone(),
            supported_kinds: listener.kinds.iter().map(|k| (k.kind().group(), k.kind().as_str())).collect(),
            attached_routes: self.attached.count(&id),
            conditions,
        }
    }

    fn route_status(&self, key: &RouteKey) -> Option<ObjectStatus> {
        let route = self.store.route(key)?;
        let resolved = self.resolved.get(key)?;
        let attachments = self.attachments.get(key)?;
        let references = resolved.references.clone().and_then(|()| self.endpoints_verdict(route));
        let mut parents = Vec::new();
        // A grant may reach several parents by one reference: it is accepted where one of them takes it.
        for reached in attachments.chunk_by(|(a, ..), (b, ..)| a == b) {
            let (index, _, first) = &reached[0];
            let verdict = reached.iter().map(|(.., attachment)| attachment).find(|a| a.accepted.is_ok());
            let accepted = match (&verdict.unwrap_or(first).accepted, &resolved.invalid) {
                (Ok(()), Some(invalid)) => Err((**invalid).clone()),
                (Ok(()), None) => self.names_verdict(key, reached),
                (verdict, _) => verdict.clone(),
            };
            let is_accepted = accepted.is_ok();
            let mut conditions = vec![
                condition(ConditionType::Accepted, accepted, Reason::Accepted),
                condition(ConditionType::ResolvedRefs, references.clone(), Reason::ResolvedRefs),
            ];
            if let (true, Some(text)) = (is_accepted, &resolved.note) {
                conditions[0].message = text.to_string();
            }
            if let (true, Some(text)) = (is_accepted, &resolved.partial) {
                conditions.push(Condition {
                    kind: ConditionType::PartiallyInvalid,
                    status: Status::True,
                    reason: Reason::UnsupportedValue,
                    message: text.to_string(),
                });
            }
            parents.push((route.parents[*index].clone(), conditions));
        }
        let body = StatusBody::Route(RouteStatus { parents });
        Some(ObjectStatus { generation: route.meta.generation, body })
    }
}

impl Engine {
    /// Whether there is something to serve for a listener that is accepted.
    fn listener_programmed(&self, parent: &Parent, listener: &ParentListener) -> Verdict {
        if listener.kinds.is_empty() {
            return Err((Reason::Invalid, "no route kind can attach".to_owned()));
        }
        if !listener.protocol.is_some_and(Protocol::terminates) || listener.served.certificate().is_some() {
            return Ok(());
        }
        if let Some(text) = self.awaits(parent, listener) {
            return Err((Reason::Pending, text));
        }
        match &listener.resolved {
            Err((reason @ Reason::InvalidTLSConfig, text)) => Err((*reason, text.clone())),
            Err((_, text)) => Err((Reason::Invalid, text.clone())),
            Ok(()) => Err((Reason::Invalid, "there is no certificate".to_owned())),
        }
    }

    /// What is told of a listener whose certificate is being issued: by whom, and what is in the way.
    fn awaits(&self, parent: &Parent, listener: &ParentListener) -> Option<String> {
        let (secret, what, by) = match &listener.served {
            Served::Issued(want, None) => {
                (&want.secret, format!("the certificate for {}", want.names[0]), want.issuer.to_string())
            }
            Served::Missing(secret) => {
                let by = self.awaited.get(secret)?;
                (secret, format!("Secret {secret} does not exist yet: its certificate"), by.to_string())
            }
            Served::None | Served::Certificate(_) | Served::Issued(_, Some(_)) | Served::NotAllowed(..) => return None,
        };
        Some(match self.troubles.get(secret) {
            _ if !self.is_granted(parent, listener) => {
                format!("{what} is not issued: nothing is ordered for a listener that is not accepted")
            }
            Some(trouble) => format!("{what} is not issued by {by} yet: {trouble}"),
            None => format!("{what} is being issued by {by}"),
        })
    }
}

impl Engine {
    /// Why a listener does not have its hostname. Says no more than the reader's own hostname and port: who has the name may
    /// be another tenant.
    fn conflict_text(&self, reason: Reason, parent: &Parent, listener: &ParentListener) -> String {
        let (port, place) = (listener.port, &parent.stand.place);
        let name = match listener.hostname.is_any() {
            true => "every name that nobody has".to_owned(),
            false => format!("hostname {}", listener.hostname),
        };
        match reason {
            Reason::Pending => {
                format!("{name} is being recorded as this namespace's, and is served once that is written")
            }
            Reason::ProtocolConflict if fleet::is_shared(place) => {
                let speaks = match self.frontends.get(&parent.frontend(port)).and_then(|f| f.claims.family()) {
                    Some(Family::Tls) => "speaks TLS: use protocol HTTPS or TLS there",
                    Some(Family::Http | Family::Tcp) => "speaks plain HTTP: use protocol HTTP there",
                    None => "is wanted for HTTP and for TLS by one Gateway: leave one of them out",
                };
                format!("port {port} of the shared fleet {speaks}, or take another port")
            }
            Reason::ProtocolConflict => {
                format!("port {port} is wanted by another listener too, whose protocol cannot share it with this one's")
            }
            _ if self.owned_by_another(parent, &listener.hostname) && listener.hostname.is_any() => {
                "another namespace has every name that nobody else has on this address: the first one keeps that; give \
                 this listener a hostname"
                    .to_owned()
            }
            _ if self.owned_by_another(parent, &listener.hostname) => {
                format!(
                    "{name} belongs to another namespace on this address, itself or by a wildcard over it: the first one \
                     keeps it; take another name, or ask the operator of the installation to release it"
                )
            }
            _ if listener.hostname.is_any() => {
                format!("port {port} conflicts with a listener of the same protocol and no hostname")
            }
            _ => format!("hostname {} on port {port} conflicts with another listener", listener.hostname),
        }
    }
}

/// A condition from a verdict; `good` is the reason when it holds.
fn condition(kind: ConditionType, verdict: Verdict, good: Reason) -> Condition {
    match verdict {
        Ok(()) => Condition { kind, status: Status::True, reason: good, message: String::new() },
        // What was not looked at is neither accepted nor refused (`ListenerReasonPending`).
        Err((reason @ Reason::Pending, message)) if kind == ConditionType::Accepted => {
            Condition { kind, status: Status::Unknown, reason, message }
        }
        Err((reason, message)) => Condition { kind, status: Status::False, reason, message },
    }
}

/// `Accepted` of a Gateway or ListenerSet, from its own verdict and its listeners' (Gateway API:
/// `GatewayReasonListenersNotValid`): true while at least one listener is valid. In a ListenerSet a listener that has
/// nothing to serve because of its references is not valid either (conformance test `ListenerSetReferenceGrant`).
fn listeners_verdict(parent: &Parent, listeners: &[ListenerStatus]) -> Condition {
    if let Err(error) = &parent.accepted {
        return condition(ConditionType::Accepted, Err(error.clone()), Reason::Accepted);
    }
    let is_true = |l: &ListenerStatus, kind| l.conditions.iter().any(|c| c.kind == kind && c.status == Status::True);
    let is_set = matches!(parent.key, ParentKey::ListenerSet(_));
    let is_valid = |l: &&ListenerStatus| {
        is_true(l, ConditionType::Accepted)
            && (!is_set || is_true(l, ConditionType::ResolvedRefs) || is_true(l, ConditionType::Programmed))
    };
    let invalid: Vec<&str> = listeners.iter().filter(|l| !is_valid(l)).map(|l| &*l.name).collect();
    let mut accepted = condition(ConditionType::Accepted, Ok(()), Reason::Accepted);
    if !invalid.is_empty() {
        accepted.reason = Reason::ListenersNotValid;
        accepted.message = format!("listeners that are not valid: {}", invalid.join(", "));
    }
    if invalid.len() == listeners.len() {
        accepted.status = Status::False;
    }
    accepted
}

/// `Programmed` of an accepted Gateway or ListenerSet: something of it has to be served.
fn any_programmed(listeners: &[ListenerStatus], reason: Reason) -> Verdict {
    let mut pending = false;
    for condition in listeners.iter().flat_map(|l| &l.conditions).filter(|c| c.kind == ConditionType::Programmed) {
        match condition.status {
            Status::True => return Ok(()),
            _ => pending |= condition.reason == Reason::Pending,
        }
    }
    Err((if pending { Reason::Pending } else { reason }, "no listener is programmed".to_owned()))
}
