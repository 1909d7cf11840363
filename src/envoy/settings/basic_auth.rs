//! `basicAuth`: Envoy's filter of users with passwords. It replaces what a client writes in
//! the header with the name of the user; requests with `_` in the name of a header are refused
//! before, so that there is no second spelling.

use envoy_types::pb::envoy::config::core::v3::{
    DataSource, TypedExtensionConfig, data_source::Specifier,
};
use envoy_types::pb::envoy::extensions::filters::http::basic_auth::v3::BasicAuth as Filter;

use super::report::Report;
use super::{Filters, Phase};
use crate::credentials;
use crate::proto::extension;
use gatewright_core::model::ObjectName;
use gatewright_core::settings::{BasicAuth, Visit};

/// The name of the filter.
const BASIC_AUTH: &str = "envoy.filters.http.basic_auth";

impl Visit<BasicAuth> for Filters<'_> {
    fn visit(&mut self, policy: &ObjectName, auth: &BasicAuth) {
        self.add(Phase::Realm, credentials::basic(policy));
        self.add(Phase::Password, filter(auth));
        if !auth.rules.forwards_credentials {
            self.add(Phase::ForgetCredentials, credentials::without_credentials());
        }
    }
}

impl Visit<BasicAuth> for Report<'_, '_> {
    /// Passwords are not verified: no policy that reports has them.
    fn visit(&mut self, _: &ObjectName, _: &BasicAuth) {}
}

/// Admits users with their password, behind [`credentials::basic`].
fn filter(auth: &BasicAuth) -> TypedExtensionConfig {
    let BasicAuth { rules, users } = auth;
    let filter = Filter {
        users: Some(DataSource {
            specifier: Some(Specifier::InlineString(users.expose().to_owned())),
            ..Default::default()
        }),
        forward_username_header: rules
            .forward_username
            .as_deref()
            .unwrap_or_default()
            .to_owned(),
        ..Default::default()
    };
    extension(BASIC_AUTH, &filter)
}
