//! Explains a URL from what the user of a kubeconfig may read.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

use super::ClusterView;
use super::logged_failures::LoggedFailures;
use super::stand_ins::{Place, StandIns};
use gatewright_control::explain_tenants;
use gatewright_core::inputs::{Kind, Object, ObjectKey};
use gatewright_core::model::Hostname;
use gatewright_core::pipeline::Pipeline;
use gatewright_core::translate::{Explanation, Link, Question};

/// A step of an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Step {
    what: &'static str,
    ok: bool,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// True if it is about an object that may not be read, so that statuses alone say whether it
    /// holds.
    #[serde(skip_serializing_if = "is_false")]
    unread: bool,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl From<Link> for Step {
    fn from(link: Link) -> Self {
        let is_asked = link.server.is_some();
        let text = link.text;
        Self {
            what: link.what,
            ok: link.ok,
            text: if is_asked {
                format!("{text}; not asked: Envoys reach it, and this machine need not")
            } else {
                text
            },
            reason: link.reason,
            unread: false,
        }
    }
}

impl ClusterView {
    /// Explains a URL. The answer has the form of that of a running program; steps that rest on
    /// what may not be read have `unread`, and failures in access logs are notes.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn explain(&self, question: &Question, logged: &LoggedFailures) -> Result<Value> {
        let stand_ins = StandIns::new(
            |key| self.view.objects.get(key),
            &self.unread,
            self.controller(),
            Some(question),
        );
        let places = self.places_of(&stand_ins.places, question);
        let pipeline = self.pipeline(stand_ins.objects).await?;
        let direct = follow(&pipeline, question, logged);
        let frontend = direct.owner.as_ref().map(|(id, _)| id.to_string());
        let notes = direct.notes.clone();
        // A listener that may not be read may be said to have this port.
        let is_of_a_place = places.iter().any(|place| place.port == question.port);
        let is_found = direct.owner.is_some() && !is_of_a_place;
        let steps = if is_found || !self.lacks_gateways() {
            self.steps(&pipeline, direct)
        } else if places.is_empty() {
            self.without_place(direct, question)
        } else {
            places
                .iter()
                .flat_map(|place| self.steps_at(&pipeline, place, (question, logged)))
                .collect()
        };
        Ok(json!({"links": steps, "frontend": frontend, "notes": notes}))
    }

    /// Returns whether there may be Gateways that the user may not read.
    fn lacks_gateways(&self) -> bool {
        self.view
            .partly_read()
            .any(|(kind, _)| matches!(kind, Kind::Gateway | Kind::GatewayClass | Kind::ListenerSet))
    }

    /// The listeners that routes for a host name, at Gateways that may not be read, each with these
    /// routes.
    fn places_of(&self, places: &[Place], question: &Question) -> Vec<Place> {
        let Ok(host) = Hostname::parse(&question.host) else {
            return Vec::new();
        };
        let places = places.iter().map(|place| {
            let routes = place.routes.iter().filter(|route| self.names(route, &host));
            Place {
                routes: routes.cloned().collect(),
                ..place.clone()
            }
        });
        let here = places.filter(|place| {
            !place.routes.is_empty() && place.said_port.is_none_or(|port| port == question.port)
        });
        let here: Vec<Place> = here.collect();
        // A route that names no listener is at all of them.
        if here.iter().any(|place| place.section.is_some()) {
            let mut named = here;
            named.retain(|place| place.section.is_some());
            return named;
        }
        here
    }

    /// Returns whether a route is for a host: by a hostname, or since it has none.
    fn names(&self, route: &ObjectKey, host: &Hostname) -> bool {
        let Some(Object::Route(route)) = self.view.objects.get(route) else {
            return false;
        };
        let mut hostnames = route.hostnames.iter().filter_map(|name| name.as_ref().ok());
        route.hostnames.is_empty() || hostnames.any(|name| name.covers(host))
    }

    /// The answer where no Gateway that may be read is asked, and no route for the host is there.
    fn without_place(&self, direct: Explanation, question: &Question) -> Vec<Step> {
        let mut steps: Vec<Step> = direct.links.into_iter().map(Step::from).collect();
        if let Some(last) = steps.last_mut() {
            last.unread = true;
            last.text = format!(
                "{}; there are Gateways that you may not read, and no route that you may read names {}",
                last.text, question.host
            );
        }
        steps
    }

    /// The steps at a listener that may not be read: what its Gateway does is replaced by what
    /// statuses say.
    fn steps_at(
        &self,
        pipeline: &Pipeline,
        place: &Place,
        (question, logged): (&Question, &LoggedFailures),
    ) -> Vec<Step> {
        let question = Question {
            port: place.port,
            ..question.clone()
        };
        let explanation = follow(pipeline, &question, logged);
        let mut steps = vec![self.mark_of(place)];
        let mut links = self.steps(pipeline, explanation);
        let begin = links.iter().position(|step| {
            step.what != "gateway" && (matches!(step.what, "preflight" | "route") || !step.ok)
        });
        steps.extend(links.drain(begin.unwrap_or(links.len())..));
        steps
    }

    fn mark_of(&self, place: &Place) -> Step {
        let mut mark = self.mark(&place.parent, "gateway", &place.routes);
        if let Some(section) = &place.section {
            mark.text = format!("listener {section:?} of {}", mark.text);
        }
        mark
    }

    /// The step in place of those about an object that may not be read.
    fn mark<'a>(
        &self,
        target: &ObjectKey,
        what: &'static str,
        referrers: impl IntoIterator<Item = &'a ObjectKey>,
    ) -> Step {
        let said = self.said(target, referrers.into_iter());
        Step {
            what,
            ok: said.ok,
            text: said.text,
            reason: None,
            unread: !said.is_refused,
        }
    }

    /// The steps of an explanation, with marks in place of those about objects that may not be
    /// read, and what the status of the Gateway says of its Envoys.
    fn steps(&self, pipeline: &Pipeline, explanation: Explanation) -> Vec<Step> {
        let holds = explanation.ok();
        let gateway = explanation.parent.clone();
        let mut steps: Vec<Step> = self.unread_class(gateway.as_ref()).into_iter().collect();
        // The Service that links are about, since the last one that names a backend.
        let mut service: Option<ObjectKey> = None;
        for link in explanation.links {
            if let Some(name) = &link.service {
                let key = ObjectKey::new(Kind::Service, name.clone());
                if self.unread.contains_key(&key) {
                    steps.push(self.mark(&key, "backend", self.referrers(&key)));
                }
                service = Some(key);
            }
            if service
                .as_ref()
                .is_some_and(|key| self.unread.contains_key(key))
            {
                continue;
            }
            let is_by_name = service
                .as_ref()
                .is_some_and(|key| is_by_name(pipeline, key));
            steps.push(match link.what {
                "endpoints" if is_by_name => addresses_of_a_name(),
                "endpoints" if !self.knows_pods(service.as_ref()) => {
                    let mut step = Step::from(link);
                    step.text += "; you may not read the pods, by which they are admitted";
                    step.unread = true;
                    step
                }
                _ => self.step(pipeline, link, gateway.as_ref()),
            });
        }
        steps.extend(gateway.filter(|_| holds).and_then(|key| self.envoys(&key)));
        steps
    }

    fn knows_pods(&self, service: Option<&ObjectKey>) -> bool {
        service.is_none_or(|key| self.view.may_read_pods(&key.name.namespace))
    }

    /// The step about the class of a Gateway, if it may not be read.
    fn unread_class(&self, gateway: Option<&ObjectKey>) -> Option<Step> {
        let gateway = gateway?;
        let (class, _) = self.unread.iter().find(|(key, referrers)| {
            key.kind == Kind::GatewayClass && referrers.contains(gateway)
        })?;
        Some(self.mark(class, "class", [gateway]))
    }

    fn referrers(&self, key: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.unread.get(key).into_iter().flatten()
    }

    /// A step that is not about an unread backend.
    fn step(&self, pipeline: &Pipeline, link: Link, gateway: Option<&ObjectKey>) -> Step {
        let hidden = gateway.filter(|key| self.unread.contains_key(key));
        match (link.what, hidden) {
            // Its addresses are those of a stand-in.
            ("frontend", Some(gateway)) => self.mark(gateway, "gateway", self.referrers(gateway)),
            ("frontend", None) if !self.knows_addresses() => Step {
                text: self.frontend(gateway).unwrap_or_else(|| link.text.clone()),
                ..Step::from(link)
            },
            ("certificate", _) => match self.unread_certificate(pipeline, gateway) {
                Some(secret) => self.mark(&secret, "certificate", gateway),
                None => Step::from(link),
            },
            (what, _) => {
                let fails = !link.ok;
                let mut step = Step::from(link);
                let target = self.unread.keys().find(|key| depends_on(what, key.kind));
                if let Some(target) = target.filter(|_| fails) {
                    step.unread = true;
                    step.text = format!("{}; you may not read {target}", step.text);
                }
                step
            }
        }
    }

    /// The addresses of a Gateway by its status.
    fn frontend(&self, gateway: Option<&ObjectKey>) -> Option<String> {
        let gateway = gateway?;
        let status = self.view.observed.get(gateway)?.status();
        let addresses = status["addresses"].as_array()?.iter();
        let addresses: Vec<&str> = addresses
            .filter_map(|address| address["value"].as_str())
            .collect();
        Some(format!(
            "{gateway}, which its status says is on {}",
            addresses.join(", ")
        ))
    }

    /// A Secret with a certificate that may not be read: of this Gateway, or of a ListenerSet.
    fn unread_certificate(
        &self,
        pipeline: &Pipeline,
        gateway: Option<&ObjectKey>,
    ) -> Option<ObjectKey> {
        let named = self.unread.iter().find(|(key, referrers)| {
            let mut referrers = referrers.iter();
            key.kind == Kind::Secret
                && referrers.any(|key| key.kind == Kind::ListenerSet || Some(key) == gateway)
        });
        named
            .map(|(secret, _)| secret.clone())
            .or_else(|| self.unread_issued(pipeline).next())
    }

    /// What the status of a Gateway says of its Envoys.
    fn envoys(&self, gateway: &ObjectKey) -> Option<Step> {
        let status = self.view.observed.get(gateway)?.status();
        let conditions = status["conditions"].as_array()?;
        let programmed = conditions
            .iter()
            .find(|condition| condition["type"] == "Programmed")?;
        let text = programmed["message"].as_str().unwrap_or_default();
        Some(Step {
            what: "envoys",
            ok: programmed["status"] == "True",
            text: text.to_owned(),
            reason: None,
            unread: false,
        })
    }
}

fn follow(pipeline: &Pipeline, question: &Question, logged: &LoggedFailures) -> Explanation {
    let mut explanation = pipeline.engine().explain(question);
    explain_tenants(pipeline, question, &mut explanation);
    logged.tell(&mut explanation);
    explanation
}

/// Returns whether the endpoints of a Service are the addresses of a name.
fn is_by_name(pipeline: &Pipeline, service: &ObjectKey) -> bool {
    let store = pipeline.engine().store();
    let service = store.service(&service.name);
    service.is_some_and(|service| matches!(store.external_name(service), Some(Ok(_))))
}

/// The step about endpoints that are the addresses of a name: this machine may have others for it.
fn addresses_of_a_name() -> Step {
    Step {
        what: "endpoints",
        ok: true,
        text: "the addresses of its name, which is not looked up here".to_owned(),
        reason: None,
        unread: true,
    }
}

/// Returns whether a step rests on the content of objects of a kind.
fn depends_on(what: &str, kind: Kind) -> bool {
    match kind {
        Kind::Secret => matches!(what, "access" | "client certificate" | "backend TLS"),
        Kind::ConfigMap => matches!(what, "client certificate" | "backend TLS" | "backend"),
        _ => false,
    }
}
