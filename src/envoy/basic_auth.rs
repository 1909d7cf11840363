//! Envoy's filter of users with passwords for AccessPolicies. It replaces what a client writes in
//! the header with the name of the user; requests with `_` in the name of a header are refused
//! before, so that there is no second spelling.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{
    HeaderMutation, header_mutation::Action,
};
use envoy_types::pb::envoy::config::core::v3::{
    DataSource, TypedExtensionConfig, data_source::Specifier,
};
use envoy_types::pb::envoy::extensions::filters::http::basic_auth::v3::BasicAuth as Filter;
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as MutationFilter, Mutations,
};

use super::proto::extension;
use gatewright_core::model::BasicAuth;

/// The name of the filter.
const BASIC_AUTH: &str = "envoy.filters.http.basic_auth";

/// The name of the filter that removes headers.
const MUTATION: &str = "envoy.filters.http.header_mutation";

/// The header with the credentials of users.
const AUTHORIZATION: &str = "authorization";

/// Admits users with their password.
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

/// Removes the credentials of users, behind all filters that verify them.
pub(super) fn without_credentials() -> TypedExtensionConfig {
    let mutation = HeaderMutation {
        action: Some(Action::Remove(AUTHORIZATION.to_owned())),
    };
    let filter = MutationFilter {
        mutations: Some(Mutations {
            request_mutations: vec![mutation],
            ..Default::default()
        }),
        ..Default::default()
    };
    extension(MUTATION, &filter)
}
