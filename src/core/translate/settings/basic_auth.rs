//! `basicAuth` of an AccessPolicy.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::explained::ExplainedAccess;
use super::judging::Judging;
use gatewright_objects::inputs::{HTPASSWD_TYPE, Kind};
use gatewright_objects::model::{ObjectName, Reason};
use gatewright_objects::settings::{BasicAuth, BasicAuthRules, Judge, Refusal, Visit};

/// The most users of a policy on a Gateway or ListenerSet: each route there has a copy, those of
/// other namespaces as well, which is nothing that they asked for.
const USERS_OF_ALL: usize = 250;

impl Judge<BasicAuth> for Judging<'_> {
    fn judge(&mut self, rules: &Arc<BasicAuthRules>) -> Result<Option<BasicAuth>, Refusal> {
        let at = (&rules.secret.name, HTPASSWD_TYPE);
        let users = self.content("basicAuth.users", at, |found| &found.users)?;
        let count = users.count();
        let mut targets = self.policy.targets.iter();
        let of_all =
            targets.any(|target| matches!(target.object.kind, Kind::Gateway | Kind::ListenerSet));
        if of_all && count > USERS_OF_ALL {
            let text = format!(
                "basicAuth.users: {count} users, a policy on a Gateway or ListenerSet has at most {USERS_OF_ALL}: use policies \
                 on routes"
            );
            return Err((Reason::Invalid, text));
        }
        Ok(Some(BasicAuth {
            rules: rules.clone(),
            users: users.clone(),
        }))
    }
}

impl Visit<BasicAuth> for ExplainedAccess<'_> {
    fn visit(&mut self, _: &ObjectName, auth: &BasicAuth) {
        let BasicAuth { rules, users } = auth;
        self.parts.push(format!(
            "only users of Secret {} ({}), by name and password, others are answered 401",
            rules.secret.name,
            users.count()
        ));
        self.find_credentials("Basic", |credentials| {
            let decoded = STANDARD.decode(credentials).ok();
            let decoded = decoded.and_then(|decoded| String::from_utf8(decoded).ok());
            let Some((name, _)) = decoded.as_deref().and_then(|text| text.split_once(':')) else {
                return Err("the credentials are not base64 of NAME:PASSWORD");
            };
            if users.has(name) {
                Ok("the user exists, the password is not checked here")
            } else {
                Err("there is no such user")
            }
        });
    }
}
