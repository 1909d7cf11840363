//! What `explain` says of the settings at a rule, for the request of a question.

use crate::explain::Question;
use gatewright_objects::model::ObjectName;

/// The refusal of a request.
pub(crate) struct Denial {
    /// The reason in words.
    pub(crate) why: String,
    /// The status of the answer.
    pub(crate) status: u16,
    /// The cause that the request has.
    pub(crate) cause: &'static str,
}

/// What an AccessPolicy asks for.
pub(crate) struct ExplainedAccess<'a> {
    pub(super) question: &'a Question,
    /// What it asks for, in parts of a sentence.
    pub(crate) parts: Vec<String>,
    /// The findings about the client and credentials of the request, as far as they are known.
    pub(crate) findings: Vec<Result<String, Denial>>,
}

impl<'a> ExplainedAccess<'a> {
    pub(crate) fn new(question: &'a Question) -> Self {
        Self {
            question,
            parts: Vec::new(),
            findings: Vec::new(),
        }
    }
}

/// What TrafficPolicies ask for.
pub(crate) struct ExplainedTraffic<'a> {
    pub(super) question: &'a Question,
    /// The steps of a request, with what is done.
    pub(crate) steps: Vec<(&'static str, String)>,
}

impl<'a> ExplainedTraffic<'a> {
    pub(crate) fn new(question: &'a Question) -> Self {
        Self {
            question,
            steps: Vec::new(),
        }
    }

    /// Adds what a policy does in a step.
    pub(super) fn add(&mut self, step: &'static str, policy: &ObjectName, text: &str) {
        self.steps
            .push((step, format!("TrafficPolicy {policy}: {text}")));
    }
}

/// The most networks, and the most values of a claim, that are told.
pub(super) const SHOWN: usize = 5;
