//! Assembles frontends from the outcomes of their units.

use std::collections::BTreeMap;

use crate::delta::{Resource, ResourceKey};
use crate::state::challenge_answers::ChallengeAnswers;
use crate::state::dirty::Dirty;
use crate::state::emissions::Emissions;
use crate::state::endpoints::ServiceEndpoints;
use crate::state::frontend_state::FrontendState;
use crate::state::frontends::Frontends;
use crate::state::http3::Http3Hosts;
use crate::state::register::Register;
use crate::state::secret_names::fixed_name;
use gatewright_objects::model::{
    Chain, ChainName, Family, Frontend, FrontendId, FrontendKind, Transport,
};

/// The states that a frontend is assembled from.
#[derive(Clone, Copy)]
pub(crate) struct Assembly<'a> {
    pub(crate) frontends: &'a Frontends,
    pub(crate) register: &'a Register,
    pub(crate) challenges: &'a ChallengeAnswers,
    pub(crate) service_endpoints: &'a ServiceEndpoints,
}

impl Assembly<'_> {
    /// Emits a frontend, or removes it.
    pub(crate) fn compile(self, id: &FrontendId, emissions: &mut Emissions, dirty: &mut Dirty) {
        emissions.emit(
            ResourceKey::Frontend(id.clone()),
            self.frontend(id).map(Resource::Frontend),
            dirty,
        );
        // HTTP/3 knows the other listeners of the port of TCP.
        let beside = id.over(Transport::Udp);
        let hosts = self.frontends.get(&beside).map(FrontendState::http3);
        if id.transport == Transport::Tcp && hosts.is_some_and(Http3Hosts::is_asked) {
            dirty.frontends.insert(beside);
        }
    }

    /// The hosts with HTTP/3 of a frontend of UDP without claims.
    fn http3(self, id: &FrontendId) -> Option<FrontendKind> {
        let served = self.frontends.get(id)?.http3().served();
        let tcp = self.frontends.get(&id.over(Transport::Tcp))?;
        let hosts = served
            .iter()
            .map(|hostname| (hostname.clone(), fixed_name(id, hostname)));
        (!served.is_empty()).then(|| FrontendKind::Http3 {
            hosts: hosts.collect(),
            elsewhere: tcp.other_listeners(),
        })
    }

    /// Returns the TLS frontends, if `listed` with every name in their SNI matchers, else as they
    /// are emitted. The work is proportional to the number of hosts: it is for times when clients
    /// request many names that no listener has.
    pub(crate) fn tls_frontends(self, listed: bool) -> Vec<Frontend> {
        let made = self.frontends.iter().filter_map(|(id, state)| {
            let mut frontend = self.frontend(id)?;
            let FrontendKind::Tls { sni_matcher, .. } = &mut frontend.kind else {
                return None;
            };
            if listed {
                sni_matcher.clone_from(state.matcher().all());
            }
            Some(frontend)
        });
        made.collect()
    }

    pub(crate) fn frontend(self, id: &FrontendId) -> Option<Frontend> {
        let frontend = self.frontends.get(id)?;
        let is_used = frontend.winners().len() > 0
            || frontend.is_plain() && frontend.has_challenges()
            || frontend.claims().is_empty() && frontend.http3().is_asked();
        if frontend.addresses().is_empty()
            || !is_used
            || self.frontends.rival(id, self.register).is_some()
        {
            return None;
        }
        let kind = match frontend.claims().family() {
            _ if frontend.is_plain() => FrontendKind::Http,
            None if frontend.claims().is_empty() => self.http3(id)?,
            None | Some(Family::Http) => return None,
            Some(Family::Tcp) => FrontendKind::Tcp {
                shares: frontend.shares().to_vec(),
            },
            Some(Family::Udp) => FrontendKind::Udp,
            Some(Family::Tls) if frontend.matcher().is_empty() => return None,
            Some(Family::Tls) => {
                let chains = frontend
                    .matcher()
                    .chains()
                    .map(|(name, class)| (name.clone(), frontend.chain(id, class)));
                let mut chains: BTreeMap<ChainName, Chain> = chains.collect();
                // Connections of a host with session tickets may be older than these.
                let classes = frontend.matcher().chains();
                let before = classes.filter_map(|(_, class)| class.without_tickets());
                chains.extend(before.map(|class| {
                    let chain = frontend.chain(id, &class);
                    (ChainName::from(class.to_string()), chain)
                }));
                chains.extend(self.challenges.tls_chain(&chains));
                FrontendKind::Tls {
                    chains,
                    sni_matcher: frontend.matcher().sent().clone(),
                }
            }
        };
        let addresses = frontend.addresses().to_vec();
        let cdn_id = self.service_endpoints.cdn_id();
        Some(Frontend {
            id: id.clone(),
            addresses,
            port: frontend.port(),
            cdn_id,
            clients: frontend.clients().clone(),
            access_log: frontend.access_log().cloned(),
            tracing: frontend.tracing().cloned(),
            kind,
        })
    }
}
