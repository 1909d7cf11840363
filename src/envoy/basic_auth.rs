//! Envoy's filter of users with passwords for AccessPolicies. It replaces what a client writes in
//! the header with the name of the user; requests with `_` in the name of a header are refused
//! before, so that there is no second spelling.

use envoy_types::pb::envoy::config::core::v3::{
    DataSource, TypedExtensionConfig, data_source::Specifier,
};
use envoy_types::pb::envoy::extensions::filters::http::basic_auth::v3::BasicAuth as Filter;

use super::proto::extension;
use gatewright_core::model::BasicAuth;

/// The name of the filter.
const BASIC_AUTH: &str = "envoy.filters.http.basic_auth";

/// Admits users with their password, behind [`super::credentials::basic`].
pub(super) fn filter(auth: &BasicAuth) -> TypedExtensionConfig {
    let BasicAuth {
        secret: _,
        users,
        forward_username,
        forwards_credentials: _,
    } = auth;
    let filter = Filter {
        users: Some(DataSource {
            specifier: Some(Specifier::InlineString(users.expose().to_owned())),
            ..Default::default()
        }),
        forward_username_header: forward_username.as_deref().unwrap_or_default().to_owned(),
        ..Default::default()
    };
    extension(BASIC_AUTH, &filter)
}
