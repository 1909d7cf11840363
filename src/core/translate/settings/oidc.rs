//! `oidc` of an AccessPolicy.

use std::sync::Arc;

use super::explained::ExplainedAccess;
use super::judging::Judging;
use gatewright_objects::inputs::{OIDC_CLIENT_TYPE, credentials};
use gatewright_objects::model::{BackendId, ObjectName};
use gatewright_objects::settings::{Judge, Login, LoginRules, Refusal, Visit};

impl Judge<Login> for Judging<'_> {
    /// The token endpoint is a Service. The credentials of the client are no part of routes.
    fn judge(&mut self, rules: &Arc<LoginRules>) -> Result<Option<Login>, Refusal> {
        let server = self.backend(&rules.server, rules.port, "oidc.provider.backendRef")?;
        let server = BackendId::new(server.port, server.protocol.of_logins());
        let at = (&rules.secret.name, OIDC_CLIENT_TYPE);
        let secret = self.content("oidc.clientSecret", at, |found| &found.client_secret)?;
        self.credentials = Some(credentials(secret, self.name()));
        Ok(Some(Login {
            rules: rules.clone(),
            server,
        }))
    }
}

impl Visit<Login> for ExplainedAccess<'_> {
    fn visit(&mut self, _: &ObjectName, login: &Login) {
        let LoginRules {
            issuer, client_id, ..
        } = &*login.rules;
        self.parts.push(format!(
            "only clients that have logged in at {issuer} (client {client_id}), browsers are sent there, others \
             are answered 401"
        ));
    }
}
