//! Header edits of the Gateway API as Envoy's lists.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{HeaderMutation, header_mutation};
use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, TypedExtensionConfig, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as MutationFilter, Mutations,
};

use super::proto::extension;
use gatewright_core::model::HeaderEdits;

/// The name of the filter that changes headers.
pub(super) const MUTATION: &str = "envoy.filters.http.header_mutation";
/// The name of the filter that copies headers into metadata.
pub(super) const HEADER_TO_METADATA: &str = "envoy.filters.http.header_to_metadata";

/// The header mutations of a route, or of a share of one, in one direction.
#[derive(Default)]
pub(super) struct Headers {
    /// Headers to set or to append, in order.
    pub(super) add: Vec<HeaderValueOption>,
    /// Names of headers to remove.
    pub(super) remove: Vec<String>,
}

/// The mutations of several layers in turn; within each layer set, add, remove, in that order.
///
/// Envoy removes before it adds; so a header that a later layer removes is not added at all. Envoy
/// refuses mutations of `Host` and pseudo-headers here, and one refused route would hold back all
/// resources that are sent with it: such names are left out (the host is changed by a rewrite).
pub(super) fn headers(layers: &[&HeaderEdits]) -> Headers {
    let mut headers = Headers::default();
    for (at, HeaderEdits { set, add, remove }) in layers.iter().enumerate() {
        let set = set
            .iter()
            .map(|header| (header, HeaderAppendAction::OverwriteIfExistsOrAdd));
        let add = add
            .iter()
            .map(|header| (header, HeaderAppendAction::AppendIfExistsOrAdd));
        let kept = set
            .chain(add)
            .filter(|((name, _), _)| editable(name) && !removed(name, &at, layers));
        headers
            .add
            .extend(kept.map(|(header, action)| option(header, action)));
        headers
            .remove
            .extend(remove.iter().filter(|name| editable(name)).cloned());
    }
    headers
}

fn removed(name: &str, at: &usize, layers: &[&HeaderEdits]) -> bool {
    layers[*at..]
        .iter()
        .any(|layer| layer.remove.iter().any(|r| r.eq_ignore_ascii_case(name)))
}

/// A mutation of ours, whose value may have command operators.
pub(super) fn mutation(name: &str, value: &str, action: HeaderAppendAction) -> HeaderMutation {
    let option = HeaderValueOption {
        header: Some(HeaderValue {
            key: name.to_owned(),
            value: value.to_owned(),
            ..Default::default()
        }),
        append_action: action.into(),
        ..Default::default()
    };
    HeaderMutation {
        action: Some(header_mutation::Action::Append(option)),
    }
}

/// The filter of one mutation of responses.
pub(super) fn response_mutation(mutation: HeaderMutation) -> TypedExtensionConfig {
    let filter = MutationFilter {
        mutations: Some(Mutations {
            response_mutations: vec![mutation],
            ..Default::default()
        }),
        ..Default::default()
    };
    extension(MUTATION, &filter)
}

/// Overwrites a header that is there, also with an empty value.
pub(super) fn overwriting(name: &str, value: &str) -> HeaderMutation {
    let option = HeaderValueOption {
        header: Some(HeaderValue {
            key: name.to_owned(),
            value: value.to_owned(),
            ..Default::default()
        }),
        append_action: HeaderAppendAction::OverwriteIfExists.into(),
        keep_empty_value: true,
        ..Default::default()
    };
    HeaderMutation {
        action: Some(header_mutation::Action::Append(option)),
    }
}

fn editable(name: &str) -> bool {
    !name.starts_with(':') && !name.eq_ignore_ascii_case("host")
}

fn option((name, value): &(String, String), action: HeaderAppendAction) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: name.clone(),
            // A percent sign starts a command operator of Envoy's access-log format, which header
            // values have.
            value: value.replace('%', "%%"),
            ..Default::default()
        }),
        append_action: action.into(),
        keep_empty_value: true,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(set: &[(&str, &str)], add: &[(&str, &str)], remove: &[&str]) -> Headers {
        headers(&[&layer(set, add, remove)])
    }

    fn layer(set: &[(&str, &str)], add: &[(&str, &str)], remove: &[&str]) -> HeaderEdits {
        fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
            list.iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect()
        }
        HeaderEdits {
            set: pairs(set),
            add: pairs(add),
            remove: remove.iter().map(|n| (*n).to_owned()).collect(),
        }
    }

    fn values(headers: &Headers) -> Vec<(&str, &str, HeaderAppendAction)> {
        headers
            .add
            .iter()
            .map(|o| {
                let header = o.header.as_ref().expect("a header");
                (
                    header.key.as_str(),
                    header.value.as_str(),
                    o.append_action(),
                )
            })
            .collect()
    }

    #[test]
    fn set_replaces_and_add_appends() {
        let made = edits(&[("X-A", "1")], &[("X-A", "2")], &[]);
        let expected = [
            ("X-A", "1", HeaderAppendAction::OverwriteIfExistsOrAdd),
            ("X-A", "2", HeaderAppendAction::AppendIfExistsOrAdd),
        ];
        assert_eq!(values(&made), expected);
    }

    #[test]
    fn a_removed_name_is_not_added_first() {
        let made = edits(&[("X-A", "1")], &[("x-a", "2"), ("X-B", "3")], &["x-A"]);
        assert_eq!(values(&made).len(), 1);
        assert_eq!(made.remove, ["x-A"]);
    }

    #[test]
    fn a_later_layer_sees_what_an_earlier_one_did() {
        let rule = layer(&[("x-a", "1"), ("x-b", "1")], &[], &["x-c"]);
        let share = layer(&[("x-c", "2")], &[], &["x-a"]);
        let made = headers(&[&rule, &share]);
        let names: Vec<_> = values(&made)
            .into_iter()
            .map(|(name, value, _)| (name, value))
            .collect();
        assert_eq!(names, [("x-b", "1"), ("x-c", "2")]);
        assert_eq!(made.remove, ["x-c", "x-a"]);
    }

    #[test]
    fn a_percent_sign_is_only_a_percent_sign() {
        let made = edits(&[("X-A", "100%REQ(cookie)%")], &[], &[]);
        assert_eq!(values(&made)[0].1, "100%%REQ(cookie)%%");
    }

    #[test]
    fn host_and_pseudo_headers_are_left_alone() {
        let made = edits(
            &[("Host", "a"), (":path", "/")],
            &[],
            &["host", ":method", "x-a"],
        );
        assert!(values(&made).is_empty());
        assert_eq!(made.remove, ["x-a"]);
    }
}
