//! Envoy's filter of users with passwords for AccessPolicies. It replaces what a client writes in
//! the header with the name of the user; requests with `_` in the name of a header are refused
//! before, so that there is no second spelling.
//!
//! Envoy's realm is the URL of the request. Browsers ask for the password once for each realm, and
//! so at each directory of a site; a filter in front gives the policy one realm.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{
    HeaderMutation, header_mutation::Action,
};
use envoy_types::pb::envoy::config::core::v3::{
    DataSource, TypedExtensionConfig, data_source::Specifier,
    header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::extensions::filters::http::basic_auth::v3::BasicAuth as Filter;
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as MutationFilter, Mutations,
};

use super::headers::{MUTATION, mutation, response_mutation};
use super::proto::extension;
use gatewright_core::model::{BasicAuth, ObjectName};

/// The name of the filter.
const BASIC_AUTH: &str = "envoy.filters.http.basic_auth";

/// The header with the credentials of users.
const AUTHORIZATION: &str = "authorization";

/// Gives the challenges of Envoy's filters behind it the realm of a policy. Those of backends stay.
pub(super) fn realm(policy: &ObjectName) -> TypedExtensionConfig {
    let challenge = "www-authenticate";
    let value = format!(
        "%CEL(response.code_details.endsWith('_for_basic_auth') ? 'Basic realm=\"{policy}\"' : \
         response.headers['{challenge}'])%"
    );
    response_mutation(mutation(
        challenge,
        &value,
        HeaderAppendAction::OverwriteIfExists,
    ))
}

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
