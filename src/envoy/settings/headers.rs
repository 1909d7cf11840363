//! `headers`: Envoy's header mutation filter. It removes each header before it sets it, since a
//! value that is empty is not set.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{
    HeaderMutation, header_mutation::Action,
};
use envoy_types::pb::envoy::config::core::v3::{
    TypedExtensionConfig, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutation as Filter, Mutations,
};

use super::{Filters, Phase};
use crate::headers::{MUTATION, mutation};
use crate::proto::extension;
use gatewright_core::model::ObjectName;
use gatewright_core::settings::{HeaderValue, KnownHeader, KnownHeaders, Visit};

impl Visit<KnownHeaders> for Filters<'_> {
    fn visit(&mut self, _: &ObjectName, headers: &KnownHeaders) {
        self.add(Phase::Headers, filter(headers));
    }
}

fn filter(KnownHeaders { request, response }: &KnownHeaders) -> TypedExtensionConfig {
    let filter = Filter {
        mutations: Some(Mutations {
            request_mutations: request.iter().flat_map(replaced).collect(),
            response_mutations: response.iter().flat_map(replaced).collect(),
            ..Default::default()
        }),
        ..Default::default()
    };
    extension(MUTATION, &filter)
}

fn replaced(KnownHeader { name, value }: &KnownHeader) -> Vec<HeaderMutation> {
    let removed = HeaderMutation {
        action: Some(Action::Remove(name.to_string())),
    };
    let set = format(value)
        .map(|value| mutation(name, &value, HeaderAppendAction::OverwriteIfExistsOrAdd));
    std::iter::once(removed).chain(set).collect()
}

/// A value in a format of Envoy's.
fn format(value: &HeaderValue) -> Option<String> {
    let operator = match value {
        HeaderValue::Text(text) => return Some(text.replace('%', "%%")),
        HeaderValue::ClientAddress => "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
        HeaderValue::Host => "REQ(:AUTHORITY)",
        HeaderValue::RequestId => "REQ(X-REQUEST-ID)",
        // Of the connection, or of a trusted proxy: clients of HTTP/2 write `:scheme` themselves.
        HeaderValue::Scheme => "REQ(X-FORWARDED-PROTO)",
        HeaderValue::ClientCertificateSubject => "DOWNSTREAM_PEER_SUBJECT",
        HeaderValue::ClientCertificateFingerprint => "DOWNSTREAM_PEER_FINGERPRINT_256",
        HeaderValue::ClientCertificate => "DOWNSTREAM_PEER_CERT",
        // Each listener has said which it is.
        HeaderValue::Port | HeaderValue::Nothing => return None,
    };
    Some(format!("%{operator}%"))
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn a_header_is_removed_and_then_set_and_a_text_has_no_operators() {
        let header = |name: &str, value| KnownHeader {
            name: name.into(),
            value,
        };
        let made = filter(&KnownHeaders {
            request: vec![
                header("x-text", HeaderValue::Text("100%REQ(cookie)%".into())),
                header("x-cert", HeaderValue::Nothing),
            ],
            response: vec![header("x-host", HeaderValue::Host)],
        });
        let config = made.typed_config.expect("a configuration");
        let made = Filter::decode(config.value.as_slice()).expect("the filter");
        let mutations = made.mutations.expect("mutations");
        let told = |mutations: &[HeaderMutation]| -> Vec<String> {
            let mutations = mutations.iter();
            mutations
                .map(
                    |mutation| match mutation.action.as_ref().expect("an action") {
                        Action::Remove(name) => format!("-{name}"),
                        Action::Append(option) => {
                            let header = option.header.as_ref().expect("a header");
                            format!("{}: {}", header.key, header.value)
                        }
                        other => panic!("{other:?}"),
                    },
                )
                .collect()
        };
        assert_eq!(
            told(&mutations.request_mutations),
            ["-x-text", "x-text: 100%%REQ(cookie)%%", "-x-cert"]
        );
        assert_eq!(
            told(&mutations.response_mutations),
            ["-x-host", "x-host: %REQ(:AUTHORITY)%"]
        );
    }
}
