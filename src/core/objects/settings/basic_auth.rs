//! `basicAuth` of an AccessPolicy: clients by name and password, by the scheme Basic (RFC 7617).

use std::sync::Arc;

use serde::Deserialize;

use super::parts::{Credentials, WrittenSecret, told_header};
use super::{Amount, Setting};
use crate::cost::{Bytes, RuleSize};
use crate::inputs::{ClassPolicyLimits, LocalRef};
use crate::model::Users;

/// The authentication of users, a user, and a byte of their names and hashes.
const BASIC_AUTH: Bytes = Bytes::of(7_000, 200);
const USER: Bytes = Bytes::of(200, 0);
const USER_TEXT: Bytes = Bytes::of(3, 2);

/// Clients by name and password.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BasicAuth {
    /// What the policy says.
    pub rules: Arc<BasicAuthRules>,
    /// The users.
    pub users: Users,
}

/// What a policy says of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BasicAuthRules {
    /// The Secret with the users.
    pub secret: LocalRef,
    /// The lower-case name of the header in which backends get the name of the user.
    pub forward_username: Option<Arc<str>>,
    /// True if backends get the credentials as well.
    pub forwards_credentials: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenBasicAuth {
    users: WrittenSecret,
    forward_username_header: Option<String>,
    #[serde(default)]
    credentials: Credentials,
}

impl Setting for BasicAuth {
    type Written = WrittenBasicAuth;
    type Rules = Arc<BasicAuthRules>;

    fn read(written: WrittenBasicAuth, namespace: &Arc<str>) -> Result<Self::Rules, String> {
        let WrittenBasicAuth {
            users,
            forward_username_header,
            credentials,
        } = written;
        Ok(Arc::new(BasicAuthRules {
            secret: users.target("basicAuth.users", namespace)?,
            forward_username: forward_username_header
                .map(|header| told_header("basicAuth.forwardUsernameHeader", &header))
                .transpose()?,
            forwards_credentials: credentials.are_forwarded(),
        }))
    }

    fn rehearsed(_: &Self::Rules) -> Result<(), (&'static str, &'static str)> {
        Err(("basicAuth", "passwords are not verified"))
    }

    fn references(rules: &Self::Rules) -> Vec<&LocalRef> {
        vec![&rules.secret]
    }

    fn amounts(&self, limits: &ClassPolicyLimits) -> Vec<Amount> {
        vec![Amount {
            asked: ("basicAuth", self.users.count()),
            limit: ("users", limits.users),
        }]
    }

    fn cost(&self, _: RuleSize) -> Bytes {
        BASIC_AUTH + USER * self.users.count() as u64 + USER_TEXT * self.users.size() as u64
    }
}
