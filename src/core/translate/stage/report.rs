//! Computes the statuses of objects from the states of the engine.

mod conflicts;
mod http3;
mod programmed;
mod routes;
mod session_tickets;

pub use programmed::{BEING_ISSUED, NOT_ISSUED};

use std::fmt::Write;

use self::conflicts::{holder, same_hash_text};
use super::admission::Admission;
use super::bind;
use super::certificate_condition;
use super::exposure;
use super::fleet;
use super::routability::{self, Assignment};
use super::verdict::{any_programmed, condition, listeners_verdict, with_programmed};
use crate::key::{ParentKey, RouteKey, Verdict};
use crate::rule::gateway_exposure::{Fleet, is_shared};
use crate::rule::internal_ports::exhausted;
use crate::rule::protocol::Protocol;
use crate::rule::settings::Settings;
use crate::state::attachments::Attachments;
use crate::state::by_record::admitted;
use crate::state::claims::claiming;
use crate::state::endpoints::ServiceEndpoints;
use crate::state::frontends::Frontends;
use crate::state::gateway_services::GatewayServices;
use crate::state::issuance::Issuance;
use crate::state::named_service;
use crate::state::parent::{Parent, ParentListener};
use crate::state::parents::Parents;
use crate::state::policies::Policies;
use crate::state::register::Register;
use crate::state::resolutions::Resolutions;
use crate::state::session_tickets::SessionTickets;
use crate::state::statuses::Statuses;
use crate::state::wanted_index::ListenerOutcomes;
use gatewright_objects::channel::Channel;
use gatewright_objects::inputs::{Address, Kind, ObjectKey, SetKey};
use gatewright_objects::model::{
    Condition, ConditionType, FrontendId, GatewayAddress, ListenerFilters, Reason, Routability,
    Status, StatusAddress, TransportPort,
};
use gatewright_objects::status::{
    GatewayStatus, ListenerSetStatus, ListenerStatus, ObjectStatus, StatusBody,
};
use gatewright_objects::status_maxima::CONDITIONS;
use gatewright_objects::store::Store;

/// The states from which statuses are computed: the results of all earlier stages.
#[derive(Clone, Copy)]
pub(crate) struct Report<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) parents: &'a Parents,
    pub(crate) attachments: &'a Attachments,
    pub(crate) register: &'a Register,
    pub(crate) resolutions: &'a Resolutions,
    pub(crate) policies: &'a Policies,
    pub(crate) frontends: &'a Frontends,
    pub(crate) service_endpoints: &'a ServiceEndpoints,
    pub(crate) issuance: &'a Issuance,
    pub(crate) tickets: &'a SessionTickets,
    pub(crate) gateway_services: &'a GatewayServices,
    /// Reported statuses, with the number of accepted ListenerSets.
    pub(crate) statuses: &'a Statuses,
}

impl Report<'_> {
    /// The status of an object; `None` if it is not ours.
    pub(crate) fn status(self, key: &ObjectKey) -> Option<ObjectStatus> {
        match key.kind {
            Kind::GatewayClass => self.class_status(key),
            Kind::Gateway => self.gateway_status(key),
            Kind::ListenerSet | Kind::XListenerSet => self.listener_set_status(SetKey::of(key)?),
            kind if kind.is_policy() => self.policy_status(key),
            _ => self.route_status(&RouteKey::of(key)?),
        }
    }

    fn gateway_status(self, key: &ObjectKey) -> Option<ObjectStatus> {
        let parent = self.parents.get(&ParentKey::Gateway(key.name.clone()))?;
        let gateway = self.store.gateway(&key.name)?;
        let listeners = self.listener_statuses(parent);
        let accepted = listeners_verdict(parent, &listeners);
        let unusable = parent.placement.unusable.clone();
        let malformed = gateway.addresses.iter().find_map(|address| match address {
            Address::Malformed(text) => Some(format!("spec.addresses: {text:?} is no IP address")),
            _ => None,
        });
        let (addresses, reached) = match parent.placement.exposure.fleet {
            Fleet::Dedicated | Fleet::Isolated => {
                exposure::reached(parent, gateway, self.gateway_services, self.store)
            }
            Fleet::Shared => self.reached(fleet::addresses(self.store, self.settings)),
            Fleet::Own => self.reached(
                bind::addresses(self.settings, &gateway.addresses)
                    .into_iter()
                    .map(GatewayAddress::Ip)
                    .collect(),
            ),
        };
        let assignment = (self.settings.channel == Channel::Experimental).then(|| {
            let offered = routability::offered(
                &parent.placement.exposure,
                gateway,
                || addresses.clone(),
                self.store,
                self.settings,
            );
            routability::assign(&gateway.requests, &offered)
        });
        let is_scoped = gateway
            .requests
            .iter()
            .any(|request| request.routability != Routability::Default);
        let reached = match &assignment {
            Some(assignment) if is_scoped => routability::reached(parent, assignment, reached),
            _ => reached,
        };
        let programmed = if accepted.status == Status::Unknown {
            Err((Reason::Pending, accepted.message.clone()))
        } else if accepted.status != Status::True {
            Err((Reason::Invalid, "the Gateway is not accepted".to_owned()))
        } else if let Some(wrong) = unusable
            .clone()
            .or(malformed.map(|text| (Reason::AddressNotUsable, text)))
        {
            Err(wrong)
        } else if let Err(nowhere) = reached {
            Err(nowhere)
        } else if let Some(text) = self.taken(parent) {
            Err((Reason::AddressNotUsable, text))
        } else {
            any_programmed(&listeners, Reason::Invalid)
                .map_err(|other| self.nowhere(parent).unwrap_or(other))
        };
        // A Gateway that is not accepted is bound nowhere.
        let is_accepted = accepted.status == Status::True;
        let (addresses, assigned) =
            self.assigned(addresses, assignment.filter(|_| is_accepted), unusable);
        let addresses = if is_accepted { addresses } else { Vec::new() };
        let mut conditions = with_programmed(accepted, programmed);
        conditions.extend(assigned);
        if let Some(client) = &parent.client {
            conditions.push(condition(
                ConditionType::ResolvedRefs,
                client.resolved.clone(),
                Reason::ResolvedRefs,
            ));
        }
        conditions.extend(certificate_condition::of_gateway(parent));
        conditions.extend(self.log_of_gateway(parent));
        if let Some(default) = &parent.default {
            let mut default = condition(
                ConditionType::DefaultGateway,
                default.clone(),
                Reason::DefaultGateway,
            );
            if default.status == Status::True {
                default.message = "default scope All".to_owned();
            }
            conditions.push(default);
        }
        if parent.placement.clients.is_insecure() {
            conditions.push(Condition {
                kind: ConditionType::InsecureFrontendValidationMode,
                status: Status::True,
                reason: Reason::ConfigurationChanged,
                message: "AllowInsecureFallback: clients are let in without a valid certificate"
                    .to_owned(),
            });
        }
        // The schema has room for no more.
        if conditions.len() < CONDITIONS {
            conditions.extend(self.affected(key, parent));
        }
        let body = StatusBody::Gateway(GatewayStatus {
            addresses,
            attached_listener_sets: self.statuses.accepted_sets(&key.name),
            conditions,
            listeners,
        });
        Some(ObjectStatus {
            generation: parent.generation,
            body,
        })
    }

    /// The addresses that a status says, and whether they are those that the Gateway asks for,
    /// where the channel has a condition for that.
    fn assigned(
        self,
        addresses: Vec<GatewayAddress>,
        assignment: Option<Assignment>,
        unusable: Option<(Reason, String)>,
    ) -> (Vec<StatusAddress>, Option<Condition>) {
        match (assignment, unusable) {
            (Some(_), Some((_, text))) => {
                (Vec::new(), Some(said(Err((Reason::NotAssigned, text)))))
            }
            (None, Some(_)) => (Vec::new(), None),
            (Some(assignment), None) => {
                let verdict = assignment.verdict();
                (assignment.assigned, Some(said(verdict)))
            }
            (None, None) => (
                addresses
                    .into_iter()
                    .map(|address| StatusAddress {
                        address,
                        routability: None,
                    })
                    .collect(),
                None,
            ),
        }
    }

    /// The addresses of a Gateway that clients reach at the addresses it is bound to.
    fn reached(self, all: Vec<GatewayAddress>) -> (Vec<GatewayAddress>, Verdict) {
        let verdict = match (&all[..], &self.settings.envoys) {
            ([], Some(service)) => Err((
                Reason::AddressNotAssigned,
                format!(
                    "Service {service} has no address yet: check the load-balancer controller of the cluster"
                ),
            )),
            ([], None) => Err((
                Reason::AddressNotAssigned,
                "there is no address to serve on".to_owned(),
            )),
            _ => Ok(()),
        };
        (all, verdict)
    }

    /// The message if clients can reach none of the ports that are served.
    fn nowhere(self, parent: &Parent) -> Option<(Reason, String)> {
        let mut ports = claiming(parent).map(ParentListener::transport_port);
        let none = ports.clone().all(|port| {
            fleet::missing_shared_ports(parent, std::iter::once(port), self.store, self.settings)
                .is_some()
        });
        none.then(|| fleet::missing_shared_ports(parent, &mut ports, self.store, self.settings))
            .flatten()
            .map(|text| (Reason::Pending, text))
    }

    /// Ok if a listener has its port, if its Gateway stands on a Service.
    fn shared(self, parent: &Parent, listener: &ParentListener) -> Verdict {
        let (at, Some(service)) = (listener.transport_port(), &parent.placement.service) else {
            return Ok(());
        };
        match self
            .gateway_services
            .port_outcomes(&parent.placement.gateway)
            .get(&at)
        {
            Some(Err(refusal)) => Err((
                Reason::PortUnavailable,
                named_service::refused(&service.name, at, refusal),
            )),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    /// The message about a port of a Gateway that its Service does not lead to Envoys.
    fn unled(self, parent: &Parent, port: TransportPort) -> String {
        if self.gateway_services.lacks(&parent.placement.gateway, port) {
            exhausted(port)
        } else {
            "the Gateway's Service does not lead to Envoys yet".to_owned()
        }
    }

    /// The message about a socket of a Gateway that another Gateway holds.
    fn taken(self, parent: &Parent) -> Option<String> {
        let mut ports: Vec<TransportPort> = claiming(parent)
            .map(ParentListener::transport_port)
            .collect();
        ports.sort_unstable();
        ports.dedup();
        let ids = ports.into_iter().map(|port| parent.frontend(port));
        let taken: Vec<(FrontendId, &FrontendId)> = ids
            .filter_map(|id| Some((id.clone(), self.frontends.rival(&id, self.register)?)))
            .collect();
        let (_, first) = taken.first()?;
        let ports: Vec<String> = taken
            .iter()
            .map(|(id, _)| id.transport_port().to_string())
            .collect();
        let (holder, remedy) = (holder(parent, first), self.remedy_for_address(parent));
        Some(format!(
            "port {}: {holder} holds it on the same address; {remedy}",
            ports.join(", ")
        ))
    }

    /// What to do if another Gateway has a port of a Gateway on the same address.
    fn remedy_for_address(self, parent: &Parent) -> &'static str {
        if self.store.is_governed(&parent.placement.gateway) {
            "give its TenantGateway another address by the annotation gatewright.io/addresses"
        } else {
            "give this one spec.addresses, or both spec.fleet: Shared in their GatewayParameters, by which hostnames tell \
             them apart"
        }
    }

    fn listener_set_status(self, key: SetKey) -> Option<ObjectStatus> {
        let kind = key.kind;
        let parent = self.parents.get(&ParentKey::ListenerSet(key))?;
        let listeners = self.listener_statuses(parent);
        let mut accepted = listeners_verdict(parent, &listeners);
        // Their entries cannot be written: the schema of an XListenerSet's status has no port 0.
        let unassigned = parent
            .listeners
            .iter()
            .filter(|listener| listener.port == 0 && parent.accepted.is_ok());
        for (name, text) in
            unassigned.filter_map(|l| Some((&l.name, &l.accepted.as_ref().err()?.1)))
        {
            let _ = write!(accepted.message, "; {name} {text}");
        }
        let programmed = match (&parent.accepted, accepted.status) {
            (Err((Reason::NotAllowed, text)), _) => Err((Reason::NotAllowed, text.clone())),
            (Err((_, text)), _) => Err((Reason::ParentNotProgrammed, text.clone())),
            (Ok(()), Status::True) => any_programmed(&listeners, Reason::ListenersNotValid)
                .map_err(|other| self.nowhere(parent).unwrap_or(other)),
            (Ok(()), Status::Unknown) => Err((Reason::Pending, accepted.message.clone())),
            (Ok(()), Status::False) => Err((Reason::ListenersNotValid, accepted.message.clone())),
        };
        let mut conditions = with_programmed(accepted, programmed);
        conditions.extend(self.affected(&parent.key.object(), parent));
        let body = StatusBody::ListenerSet(ListenerSetStatus {
            kind,
            conditions,
            listeners,
        });
        Some(ObjectStatus {
            generation: parent.generation,
            body,
        })
    }

    fn listener_statuses(self, parent: &Parent) -> Vec<ListenerStatus> {
        parent
            .listeners
            .iter()
            .map(|listener| self.listener_status(parent, listener))
            .collect()
    }

    /// True if a wildcard or catch-all listener does not serve all hostnames that it covers: the
    /// platform granted some to others.
    fn keeps_granted(self, parent: &Parent, listener: &ParentListener) -> bool {
        let namespace = &parent.key.name().namespace;
        let frontend = self
            .frontends
            .get(&parent.frontend(listener.transport_port()));
        let winner = frontend.and_then(|frontend| frontend.winner(&listener.hostname));
        if winner.is_none_or(|(winner, _)| *winner != parent.id(listener)) {
            return false;
        }
        let decides = is_shared(&parent.placement.frontend_owner) || admitted(parent).is_some();
        let mut below = self.register.granted().below(&listener.hostname);
        decides
            && listener.has_hostnames()
            && below.any(|name| !self.register.granted().has(name, namespace))
    }

    pub(crate) fn listener_status(
        self,
        parent: &Parent,
        listener: &ParentListener,
    ) -> ListenerStatus {
        let id = parent.id(listener);
        let port = listener.transport_port();
        let frontend = parent.frontend(port);
        let conflict = self.frontends.conflict(&id).map(|conflict| conflict.reason);
        let mut conditions = Vec::new();
        let conflict_text = |reason| self.conflict_text(reason, parent, listener);
        // A Gateway that is bound nowhere has no rivals.
        let is_bound = listener.accepted.is_ok() && parent.placement.unusable.is_none();
        let rival = self
            .frontends
            .rival(&frontend, self.register)
            .filter(|_| is_bound);
        let accepted = match (conflict, &parent.accepted, rival) {
            (Some(reason), _, _) => Err((reason, conflict_text(reason))),
            (None, Err((_, text)), _) => Err((Reason::Pending, text.clone())),
            (None, Ok(()), Some(rival)) => {
                let (holder, remedy) = (holder(parent, rival), self.remedy_for_address(parent));
                Err((
                    Reason::PortUnavailable,
                    format!("{holder} holds port {port} on the same address; {remedy}"),
                ))
            }
            (None, Ok(()), None) if self.has_hash_of_another(&frontend, listener) => {
                Err((Reason::HostnameConflict, same_hash_text(listener)))
            }
            (None, Ok(()), None) => {
                let own = listener
                    .accepted
                    .clone()
                    .and(self.shared(parent, listener))
                    .and(listener.clients.verdict());
                own.and(listener.guard.accepted.clone())
            }
        };
        let programmed = if let Err((reason, text)) = &accepted {
            let as_accepted = conflict.is_some() || *reason == Reason::Pending;
            Err((
                if as_accepted {
                    *reason
                } else {
                    Reason::Invalid
                },
                text.clone(),
            ))
        } else if let Some((_, text)) = &parent.placement.unusable {
            Err((Reason::Invalid, text.clone()))
        } else if let Some(text) =
            fleet::missing_shared_ports(parent, std::iter::once(port), self.store, self.settings)
        {
            Err((Reason::Pending, text))
        } else if self
            .frontends
            .get(&frontend)
            .is_none_or(|f| f.addresses().is_empty())
        {
            match parent.placement.exposure.fleet {
                Fleet::Dedicated | Fleet::Isolated => {
                    Err((Reason::Pending, self.unled(parent, port)))
                }
                Fleet::Own | Fleet::Shared => Err((
                    Reason::Invalid,
                    "the Gateway has no address to serve on".to_owned(),
                )),
            }
        } else {
            self.listener_programmed(parent, listener)
        };
        let is_accepted = accepted.is_ok() && parent.placement.unusable.is_none();
        let mut accepted = condition(ConditionType::Accepted, accepted, Reason::Accepted);
        if accepted.status == Status::True && self.keeps_granted(parent, listener) {
            accepted.message =
                "serves no names that the platform granted to other namespaces".to_owned();
        }
        let without = [
            self.without_http3(parent, listener),
            self.without_tickets(listener),
        ];
        let without: Vec<String> = without.into_iter().flatten().collect();
        if accepted.status == Status::True && !without.is_empty() {
            accepted.message = without.join("; ");
        }
        conditions.extend(with_programmed(accepted, programmed));
        let mut resolved = listener.resolved.clone();
        // A listener whose certificate is being issued may lack something else, such as the CA
        // certificates of clients.
        if let (Err((Reason::InvalidCertificateRef, message)), Some(text)) =
            (&mut resolved, self.awaits(parent, listener))
        {
            *message = text;
        }
        if let Err((reason @ Reason::InvalidTLSConfig, text)) = resolved {
            // The specification has no such reason for ResolvedRefs: for a listener without
            // references the condition is True.
            resolved = if listener.protocol.is_some() {
                Ok(())
            } else {
                Err((reason, text))
            };
        }
        if let (Ok(()), Some(ListenerFilters::Ask(servers))) =
            (&resolved, listener.guard.filters.as_deref())
        {
            resolved = self
                .service_endpoints
                .verdict(servers.iter().map(|auth| auth.server.port.clone()));
        }
        conditions.push(condition(
            ConditionType::ResolvedRefs,
            resolved,
            Reason::ResolvedRefs,
        ));
        if let Some(reason) =
            conflict.filter(|reason| !matches!(reason, Reason::Pending | Reason::LimitReached))
        {
            let message = conflict_text(reason);
            conditions.push(Condition {
                kind: ConditionType::Conflicted,
                status: Status::True,
                reason,
                message,
            });
        }
        let terminates = listener.protocol.is_some_and(Protocol::terminates);
        let overlap = self
            .frontends
            .get(&frontend)
            .filter(|_| is_accepted && terminates)
            .and_then(|frontend| {
                // Overlapping certificates are the graver case: clients reuse connections by them.
                if frontend.overlaps_by_certificate(&listener.hostname) {
                    Some((
                        Reason::OverlappingCertificates,
                        "a certificate for names that overlap with this one's",
                    ))
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
        conditions.extend(
            certificate_condition::of_listener(listener, self.issuance).filter(|_| is_accepted),
        );
        ListenerStatus {
            name: listener.name.clone(),
            port: listener.port,
            supported_kinds: listener
                .kinds
                .iter()
                .map(|k| (k.kind().group(), k.kind().as_str()))
                .collect(),
            attached_routes: self.attachments.count(&id),
            conditions,
        }
    }

    pub(super) fn admission(&self) -> Admission<'_> {
        Admission {
            parents: self.parents,
            attachments: self.attachments,
            register: self.register,
        }
    }
}

impl<'a> Report<'a> {
    pub(crate) fn listener_outcomes(self) -> ListenerOutcomes<'a> {
        let Self {
            store,
            parents,
            frontends,
            gateway_services,
            register,
            ..
        } = self;
        ListenerOutcomes {
            store,
            parents,
            frontends,
            gateway_services,
            register,
        }
    }
}

fn said(verdict: Result<(), (Reason, String)>) -> Condition {
    condition(
        ConditionType::AddressesAssigned,
        verdict,
        Reason::AddressesAssigned,
    )
}
