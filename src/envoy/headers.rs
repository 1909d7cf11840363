//! Header edits of the Gateway API as Envoy's lists.

use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
};

use crate::model::HeaderEdits;

/// What a route, or a share of one, does to the headers of one direction.
#[derive(Default)]
pub(super) struct Headers {
    /// In order.
    pub(super) add: Vec<HeaderValueOption>,
    /// Names.
    pub(super) remove: Vec<String>,
}

/// Set, add, remove, in that order.
///
/// Envoy removes before it adds; so what is to be removed is not added in the first place. Envoy refuses to touch
/// `Host` and pseudo-headers here, and one refused route would hold back everything sent with it: such names are left
/// out (the host is changed by a rewrite).
pub(super) fn headers(edits: &HeaderEdits) -> Headers {
    let HeaderEdits { set, add, remove } = edits;
    let editable = |name: &str| !name.starts_with(':') && !name.eq_ignore_ascii_case("host");
    let removed = |name: &str| remove.iter().any(|r| r.eq_ignore_ascii_case(name));
    let option = |(name, value): &(String, String), action: HeaderAppendAction| HeaderValueOption {
        header: Some(HeaderValue {
            key: name.clone(),
            // A percent sign starts a command of Envoy's access-log format, which header values are.
            value: value.replace('%', "%%"),
            ..Default::default()
        }),
        append_action: action.into(),
        keep_empty_value: true,
        ..Default::default()
    };
    let set = set.iter().map(|header| (header, HeaderAppendAction::OverwriteIfExistsOrAdd));
    let add = add.iter().map(|header| (header, HeaderAppendAction::AppendIfExistsOrAdd));
    Headers {
        add: set
            .chain(add)
            .filter(|((name, _), _)| editable(name) && !removed(name))
            .map(|(header, action)| option(header, action))
            .collect(),
        remove: remove.iter().filter(|name| editable(name)).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(set: &[(&str, &str)], add: &[(&str, &str)], remove: &[&str]) -> Headers {
        let pairs = |list: &[(&str, &str)]| list.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        headers(&HeaderEdits {
            set: pairs(set),
            add: pairs(add),
            remove: remove.iter().map(|n| (*n).to_owned()).collect(),
        })
    }

    fn values(headers: &Headers) -> Vec<(&str, &str, HeaderAppendAction)> {
        headers
            .add
            .iter()
            .map(|o| {
                let header = o.header.as_ref().expect("a header");
                (header.key.as_str(), header.value.as_str(), o.append_action())
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
    fn a_percent_sign_is_only_a_percent_sign() {
        let made = edits(&[("X-A", "100%REQ(cookie)%")], &[], &[]);
        assert_eq!(values(&made)[0].1, "100%%REQ(cookie)%%");
    }

    #[test]
    fn host_and_pseudo_headers_are_left_alone() {
        let made = edits(&[("Host", "a"), (":path", "/")], &[], &["host", ":method", "x-a"]);
        assert!(values(&made).is_empty());
        assert_eq!(made.remove, ["x-a"]);
    }
}
