//! What answers requests for each hostname, to be compared with what answered them before.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use super::super::key::{ListenerId, ParentKey, RouteKey};
use super::super::rule::certificate::Served;
use super::super::rule::protocol::Protocol;
use super::super::stage::plain_http::{https_port, plain_routes, redirected};
use super::super::stage::routes::Port;
use super::super::state::frontend_state::FrontendState;
use super::Explainer;
use gatewright_objects::model::{
    Action, FrontendId, Hostname, ObjectName, Route, Target, WeightedTarget,
};
use gatewright_objects::request_outcome::TO_HTTPS;

/// What answers requests for a hostname on a frontend. Nothing does if there are no routes, and no
/// redirect.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// The name; may be a wildcard, and is [`Hostname::any`] where the protocol has no hostnames.
    pub hostname: Hostname,
    /// The frontend.
    pub frontend: FrontendId,
    /// The addresses that the frontend is bound to.
    pub addresses: Vec<IpAddr>,
    /// The protocol.
    pub protocol: Protocol,
    /// The Gateway.
    pub gateway: ObjectName,
    /// The listener that has the hostname, itself or by a wildcard.
    pub listener: ListenerId,
    /// The certificate of the listener.
    pub certificate: Served,
    /// The routes that take requests.
    pub routes: BTreeSet<RouteKey>,
    /// The Service ports that get them.
    pub backends: BTreeSet<String>,
    /// The rules that answer requests, or a share of them, with an error, by their names in access
    /// logs.
    pub failing: BTreeSet<Arc<str>>,
    /// The port of HTTPS to which requests on plain HTTP are redirected.
    pub redirect: Option<u16>,
    /// A digest of all rules with all their settings, as Envoy gets them.
    pub digest: u64,
}

impl Serving {
    /// Returns whether anything answers.
    pub fn answers(&self) -> bool {
        !self.routes.is_empty() || self.redirect.is_some()
    }

    /// Adds the target of requests of a rule.
    fn add(&mut self, rule: &Arc<str>, shares: &[WeightedTarget]) {
        let backends = live(shares).filter_map(|share| match &share.target {
            Target::Backend(backend) => Some(backend.port.to_string()),
            Target::Invalid => None,
        });
        self.backends.extend(backends);
        if live(shares).next().is_none()
            || live(shares).any(|share| share.target == Target::Invalid)
        {
            self.failing.insert(rule.clone());
        }
    }
}

/// The shares that get requests.
fn live(shares: &[WeightedTarget]) -> impl Iterator<Item = &WeightedTarget> {
    shares.iter().filter(|share| share.weight > 0)
}

impl<'a> Explainer<'a> {
    /// What answers requests for each hostname of a listener, and each one that routes have there.
    pub(in super::super) fn servings(&self) -> Vec<Serving> {
        self.servings_by(|frontend| self.named(frontend))
    }

    /// The same, and for each other hostname that Envoys tell from the wider one over it, because
    /// of what other listeners and namespaces have: it is kept off, or redirected to HTTPS.
    pub(in super::super) fn placed_servings(&self) -> Vec<Serving> {
        self.servings_by(|frontend| {
            let mut names = self.named(frontend);
            names.extend(frontend.served_names());
            names
        })
    }

    fn servings_by(
        &self,
        names: impl Fn(&'a FrontendState) -> BTreeSet<&'a Hostname>,
    ) -> Vec<Serving> {
        let frontends = self.frontends().iter();
        let at = frontends.flat_map(|(id, frontend)| {
            let names = names(frontend).into_iter();
            names.map(move |name| (id, name))
        });
        at.filter_map(|(id, name)| self.serving(id, name)).collect()
    }

    /// The hostnames of the listeners of a frontend, and those that routes have there.
    fn named(&self, frontend: &'a FrontendState) -> BTreeSet<&'a Hostname> {
        let attachments = self.admission().attachments;
        let winners = frontend.winners();
        let of_routes = winners.flat_map(|(own, (listener, _))| {
            let names = attachments.names_of(listener);
            names.filter(move |name| {
                let owner = frontend.owner(name);
                own.covers(name) && owner.is_some_and(|(_, owner, _)| owner == listener)
            })
        });
        let own = frontend.winners().map(|(own, _)| own);
        own.chain(of_routes).collect()
    }

    /// What answers requests for a hostname, on the frontends where a listener or a route has it.
    pub(in super::super) fn servings_of(&self, name: &Hostname) -> Vec<Serving> {
        let attachments = self.admission().attachments;
        let frontends = self.frontends().iter().filter(|(_, frontend)| {
            let owner = frontend.owner(name);
            owner.is_some_and(|(own, listener, _)| {
                own == name || attachments.contributors(name, listener).next().is_some()
            })
        });
        frontends
            .filter_map(|(id, _)| self.serving(id, name))
            .collect()
    }

    /// The hostnames of the listeners of a parent, and those that routes have there.
    pub(in super::super) fn hostnames_at(&self, parent: &ParentKey) -> BTreeSet<Hostname> {
        let admission = self.admission();
        let mut hostnames = BTreeSet::new();
        let listeners = admission.parents.get(parent).into_iter();
        for listener in listeners.flat_map(|parent| &parent.listeners) {
            let id = ListenerId {
                parent: parent.clone(),
                name: listener.name.clone(),
            };
            hostnames.insert(listener.hostname.clone());
            hostnames.extend(admission.attachments.names_of(&id).cloned());
        }
        hostnames
    }

    /// The hostnames under which a route is attached to listeners.
    pub(in super::super) fn hostnames_of(&self, route: &RouteKey) -> BTreeSet<Hostname> {
        let attachments = self.admission().attachments.of(route).iter();
        let listeners = attachments.flat_map(|(.., attachment)| &attachment.listeners);
        listeners
            .flat_map(|attached| &attached.names)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// What answers requests for a hostname on a frontend; `None` if no listener has it.
    fn serving(&self, id: &FrontendId, name: &Hostname) -> Option<Serving> {
        let admission = self.admission();
        let frontend = self.frontends().get(id)?;
        let (own, listener, protocol) = frontend.owner(name)?;
        let parent = admission.parents.get(&listener.parent)?;
        let mut serving = Serving {
            hostname: name.clone(),
            frontend: id.clone(),
            addresses: frontend.addresses().to_vec(),
            protocol,
            gateway: parent.placement.gateway.clone(),
            listener: listener.clone(),
            certificate: parent.listener(&listener.name)?.served.clone(),
            routes: BTreeSet::new(),
            backends: BTreeSet::new(),
            failing: BTreeSet::new(),
            redirect: None,
            digest: 0,
        };
        if self.frontends().rival(id, admission.register).is_some() {
            return Some(serving);
        }
        let is_of_another = own != name
            && (admission.is_of_another(id, name, listener)
                || admission.is_of_another_admitted(name, listener));
        match protocol {
            Protocol::Http | Protocol::Https => {
                let is_plain = protocol == Protocol::Http;
                serving.redirect =
                    https_port(self.frontends(), admission.parents, (id, name), listener)
                        .filter(|_| is_plain);
                if !is_of_another || serving.redirect.is_some() {
                    self.add_requests(&mut serving, is_of_another);
                }
            }
            Protocol::TlsTerminate | Protocol::TlsPassthrough | Protocol::Tcp | Protocol::Udp => {
                if !is_of_another {
                    self.add_connections(&mut serving);
                }
            }
        }
        Some(serving)
    }

    /// Adds what answers requests.
    fn add_requests(&self, serving: &mut Serving, is_of_another: bool) {
        let routes = match serving.redirect {
            Some(https) if is_of_another => redirected(Vec::new(), &serving.hostname, https),
            _ => self.routes_for(serving),
        };
        let mut digest = DefaultHasher::new();
        routes.hash(&mut digest);
        serving.digest = digest.finish();
        if self.refuses(&serving.listener) {
            let filters = format!("filters of {}", serving.listener);
            serving.failing.insert(Arc::from(filters));
        }
        for route in &routes {
            match &route.rule.action {
                Action::Forward(shares) => serving.add(&route.name, shares),
                Action::Respond(status) if *status >= 500 => {
                    serving.failing.insert(route.name.clone());
                }
                Action::Respond(_) | Action::Redirect(_) | Action::Answer(_) => {}
            }
            let of_route = RouteKey::of_envoy_route(&route.name);
            serving
                .routes
                .extend(of_route.filter(|_| &*route.name != TO_HTTPS));
        }
    }

    /// Returns whether a listener has filters that cannot be carried out: it refuses every request.
    fn refuses(&self, listener: &ListenerId) -> bool {
        let parent = self.admission().parents.get(&listener.parent);
        let own = parent.and_then(|parent| parent.listener(&listener.name));
        own.is_some_and(|own| own.guard.refuses())
    }

    /// The routes of a hostname, or of the next wider one that has some.
    fn routes_for(&self, serving: &Serving) -> Vec<Route> {
        let Serving {
            frontend, listener, ..
        } = serving;
        let at = Port {
            number: frontend.port,
            tls: true,
        };
        let mut routes = candidates(&serving.hostname).map(|name| match serving.protocol {
            Protocol::Http => {
                plain_routes(self.routing, self.frontends(), (frontend, &name), listener)
            }
            _ => self.routing.host_routes(at, &name, listener),
        });
        routes.find_map(|routes| routes).unwrap_or_default()
    }

    /// Adds what gets connections.
    fn add_connections(&self, serving: &mut Serving) {
        let listener = serving.listener.clone();
        let mut best = None;
        for name in candidates(&serving.hostname) {
            best = self.routing.best_route(&name, &listener, None);
            let kept = self.admission().kept_for(&name, &listener);
            if best.is_none() && kept.is_some() {
                let mut wider = name.covering().chain([Hostname::any()]);
                best = wider.find_map(|wide| self.routing.best_route(&wide, &listener, kept));
                break;
            }
            if best.is_some() {
                break;
            }
        }
        let Some(route) = best else { return };
        let shares = self.routing.shares(&route);
        let mut digest = DefaultHasher::new();
        shares.hash(&mut digest);
        serving.digest = digest.finish();
        serving.add(&Arc::from(route.object().to_string()), &shares);
        serving.routes.insert(route);
    }
}

/// A hostname and those that cover it, the narrowest first.
fn candidates(hostname: &Hostname) -> impl Iterator<Item = Hostname> {
    let any = (!hostname.is_any()).then(Hostname::any);
    std::iter::once(hostname.clone())
        .chain(hostname.covering())
        .chain(any)
}
