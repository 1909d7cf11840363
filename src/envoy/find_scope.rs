//! The filter that looks for the scope of a request again, where the first look-up finds no virtual
//! host: Envoy's filter chain filter. Every scope switches it off, so that it costs nothing where a
//! scope is found.

use envoy_types::pb::envoy::config::core::v3::{
    DataSource, SubstitutionFormatString, TypedExtensionConfig, data_source::Specifier,
    header_value_option::HeaderAppendAction, substitution_format_string::Format,
};
use envoy_types::pb::envoy::extensions::filters::common::set_filter_state::v3::{
    FilterStateValue, filter_state_value,
};
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as MutatesHeaders, Mutations,
};
use envoy_types::pb::envoy::extensions::filters::http::set_filter_state::v3::Config as SetFilterState;

use super::headers::mutation;
use super::internal_headers::SCOPE_HEADER;
use super::proto::extension;

/// The filter's name, under which scopes switch it off.
pub(super) const FILTER: &str = "gatewright.find_scope";

pub(super) const SET_FILTER_STATE: &str = "envoy.filters.http.set_filter_state";

const HEADER_MUTATION: &str = "envoy.filters.http.header_mutation";

/// The filters that look for the route of another scope: of the one with this header.
pub(super) fn look_up(attempt: &str, scope: String) -> [TypedExtensionConfig; 3] {
    let overwrite = mutation(
        SCOPE_HEADER,
        &scope,
        HeaderAppendAction::OverwriteIfExistsOrAdd,
    );
    let mutations = Mutations {
        request_mutations: vec![overwrite],
        ..Default::default()
    };
    let set = MutatesHeaders {
        mutations: Some(mutations),
        ..Default::default()
    };
    let forget = SetFilterState {
        on_request_headers: vec![state(&format!("gatewright.scope.{attempt}"), "-", None)],
        clear_route_cache: true,
    };
    // It asks for its own configuration of the route, so that the route is looked up.
    let ask = MutatesHeaders::default();
    [
        extension(HEADER_MUTATION, &set),
        extension(SET_FILTER_STATE, &forget),
        extension(HEADER_MUTATION, &ask),
    ]
}

/// A value of the filter state of a request.
pub(super) fn state(
    key: &str,
    format: &str,
    formatter: Option<TypedExtensionConfig>,
) -> FilterStateValue {
    let text = DataSource {
        specifier: Some(Specifier::InlineString(format.to_owned())),
        ..Default::default()
    };
    let value = SubstitutionFormatString {
        format: Some(Format::TextFormatSource(text)),
        formatters: formatter.into_iter().collect(),
        ..Default::default()
    };
    FilterStateValue {
        key: Some(filter_state_value::Key::ObjectKey(key.to_owned())),
        factory_key: "envoy.string".to_owned(),
        value: Some(filter_state_value::Value::FormatString(value)),
        ..Default::default()
    }
}
