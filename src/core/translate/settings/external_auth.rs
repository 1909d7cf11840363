//! `externalAuth` of an AccessPolicy.

use std::sync::Arc;

use super::explained::ExplainedAccess;
use super::judging::Judging;
use crate::rule::experimental;
use gatewright_objects::inputs::AuthFilter;
use gatewright_objects::model::{ExternalAuth, ObjectName, Reason};
use gatewright_objects::settings::{Judge, Refusal, Visit};

impl Judge<ExternalAuth> for Judging<'_> {
    /// The server is a Service, and gets no more of a body than the filter of a route may send.
    fn judge(&mut self, rules: &Arc<AuthFilter>) -> Result<Option<ExternalAuth>, Refusal> {
        experimental::body(rules, self.limits).map_err(|text| (Reason::Invalid, text))?;
        let auth = self.referrer().auth(rules, "externalAuth.backendRef")?;
        Ok(Some(auth))
    }
}

impl Visit<ExternalAuth> for ExplainedAccess<'_> {
    /// Whether the server answers is said of the server.
    fn visit(&mut self, _: &ObjectName, auth: &ExternalAuth) {
        self.parts.push(format!(
            "only requests that the authorization server at Service {} permits, others get its answer",
            auth.server.port
        ));
    }
}
