//! Explains a URL, with what Envoys acknowledged and rejected.

use std::time::SystemTime;

use xds::{Kind, Rejection, View};

use super::ControlPlane;
use super::rejections::{clipped_message, concerns, rejected_name};
use gatewright_core::translate::{Answers, Explanation, Link, Question};

/// The text of link `envoys` of an explanation, in a replica without connected Envoys that does not
/// hold the Lease.
const NO_ENVOY_HERE: &str =
    "no Envoy is connected to this replica; the lease holder knows those of all replicas";

impl ControlPlane {
    /// Explains a URL: the objects that serve it, and the Envoys. `knows_all` is true if this
    /// replica knows the Envoys of all replicas; in any other one it is no failure that no Envoy is
    /// connected.
    pub fn explain(&self, question: &Question, knows_all: bool) -> Explanation {
        let mut explanation = self.engine().explain(question);
        crate::tenants::explain(&self.pipeline, question, &mut explanation);
        let owner = explanation.owner.clone().filter(|_| explanation.ok());
        if let Some((frontend, hostname)) = owner {
            let secret = self.engine().secret_name(&frontend, &hostname).to_string();
            let progress = self.progress();
            // The frontend of a shared fleet is as new as the newest of its Gateways.
            let (acks, view) = if frontend.is_shared() {
                let shared = self.views.shared();
                let acks = self.acks_of_view(shared, &progress);
                (acks, Some(&self.views[shared]))
            } else {
                let gateway = &frontend.gateway;
                let view = self.views.of(&self.engine().fleet_of(gateway));
                (self.acks_of(gateway, &progress), view)
            };
            if !view.is_some_and(|view| self.meet(view, &question.host, &mut explanation)) {
                explanation.leave_unasked(if acks.all > 0 {
                    "its Envoys do not report to this replica"
                } else {
                    "no Envoy of it is connected"
                });
            }
            if !explanation.ok() {
                return explanation;
            }
            let here = || self.rejections(&progress).filter(|r| Some(&r.view) == view);
            if let Some(rejected) = here().find(|r| is_certificate_of(r, &secret)) {
                refuse_certificate(&mut explanation, rejected);
                return explanation;
            }
            let frontend = frontend.to_string();
            let rejected = here().find(|r| concerns(r, &frontend, &question.host));
            let (ok, text) = match rejected {
                Some(rejected) => (
                    false,
                    format!("refused {}: {}", rejected_name(rejected), rejected.text),
                ),
                None if acks.all == 0 && !knows_all => (true, NO_ENVOY_HERE.to_owned()),
                None => (acks.are_complete(), acks.text()),
            };
            explanation.links.push(Link::new("envoys", ok, text));
        }
        explanation
    }

    /// Adds what the Envoys of a view that are connected to this replica met at backends, and at
    /// handshakes of clients. Returns whether there are any.
    fn meet(&self, view: &View, host: &str, explanation: &mut Explanation) -> bool {
        let now = SystemTime::now();
        let asked = self.reports.read(view, |seen| {
            let handshakes = seen.handshakes.of(|failed| failed.as_str() == host, now);
            let mut links = explanation.links.iter_mut();
            if let Some(link) = links.find(|link| link.what == "certificate") {
                for failed in handshakes {
                    link.text = format!("{}; NOTE: {failed}", link.text);
                }
            }
            explanation.meet(
                |cluster, endpoint| seen.failures.of(cluster, endpoint, now).cloned(),
                Answers::Reported,
                now,
            );
        });
        asked.is_some()
    }
}

/// Returns whether a rejection is about the certificate under this name.
fn is_certificate_of(rejection: &Rejection, secret: &str) -> bool {
    rejection.kind == Kind::Secret && *rejection.name == *secret
}

/// Makes the link of the certificate the last one, which fails.
fn refuse_certificate(explanation: &mut Explanation, rejected: &Rejection) {
    let Some(at) = explanation
        .links
        .iter()
        .position(|link| link.what == "certificate")
    else {
        return;
    };
    explanation.links.truncate(at + 1);
    let link = &mut explanation.links[at];
    link.ok = false;
    link.text = format!("{}; {}", link.text, clipped_message(&rejected.text));
}
