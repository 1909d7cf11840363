//! Reading the filters of a listener (GEP-5224).

use std::sync::Arc;

use super::schema::{at_most, exact, same_shape};
use super::{AuthFilter, ParseError, Unsupported, external_auth};
use crate::gateway_api::gateways as gw;

/// A filter that stands before the routes of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerFilter {
    /// An authorization server, or what of it is not served.
    ExternalAuth(Box<Result<AuthFilter, Unsupported>>),
    /// Another kind of object, as text: we have none.
    Extension(Box<str>),
    /// Why none of the filters can be read: a newer or laxer schema admitted them.
    Unreadable(Box<str>),
}

/// Reads the filters of a listener in `namespace`, in their order.
pub(super) fn read(
    namespace: &Arc<str>,
    filters: Option<gw::GatewayListenersFilters>,
) -> Result<Vec<ListenerFilter>, ParseError> {
    let requests = filters
        .and_then(|filters| filters.requests)
        .unwrap_or_default();
    exact(
        at_most("filters.requests", 16, requests)?
            .into_iter()
            .map(|filter| one(namespace, filter)),
    )
}

fn one(
    namespace: &Arc<str>,
    filter: gw::GatewayListenersFiltersRequests,
) -> Result<ListenerFilter, ParseError> {
    let gw::GatewayListenersFiltersRequests {
        extension_ref,
        external_auth: auth,
        r#type: kind,
    } = filter;
    match (kind, auth, extension_ref) {
        (gw::GatewayListenersFiltersRequestsType::ExternalAuth, Some(auth), None) => {
            let auth = external_auth::read(namespace, same_shape(auth)?)?;
            Ok(ListenerFilter::ExternalAuth(Box::new(auth)))
        }
        (gw::GatewayListenersFiltersRequestsType::ExtensionRef, None, Some(r)) => {
            Ok(ListenerFilter::Extension(
                format!("{} {:?} of group {:?}", r.kind, r.name, r.group).into(),
            ))
        }
        (gw::GatewayListenersFiltersRequestsType::ExternalAuth, ..) => Err(own("ExternalAuth")),
        (gw::GatewayListenersFiltersRequestsType::ExtensionRef, ..) => Err(own("ExtensionRef")),
    }
}

fn own(kind: &str) -> ParseError {
    ParseError::Schema(format!(
        "filters.requests: a filter of type {kind} has its own settings"
    ))
}

impl ListenerFilter {
    /// The authorization server, where it can be asked.
    pub fn auth(&self) -> Option<&AuthFilter> {
        match self {
            ListenerFilter::ExternalAuth(auth) => (**auth).as_ref().ok(),
            ListenerFilter::Extension(_) | ListenerFilter::Unreadable(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(requests: Value) -> Result<Vec<ListenerFilter>, String> {
        let filters =
            serde_json::from_value(json!({"requests": requests})).expect("the shape is right");
        read(&Arc::from("a"), Some(filters)).map_err(|error| error.to_string())
    }

    #[test]
    fn filters_keep_their_order_and_are_not_merged() {
        fn auth(name: &str) -> Value {
            json!({"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP", "backendRef": {"name": name, "port": 80}}})
        }
        let extension = json!({"type": "ExtensionRef", "extensionRef": {"group": "x.org", "kind": "Jwt", "name": "b"}});
        let read =
            told(json!([auth("b"), auth("a"), extension, auth("b")])).expect("they can be read");
        let names: Vec<_> = read
            .iter()
            .map(|filter| filter.auth().map(|auth| &*auth.server.name.name))
            .collect();
        assert_eq!(names, [Some("b"), Some("a"), None, Some("b")]);
        assert_eq!(
            read[2],
            ListenerFilter::Extension("Jwt \"b\" of group \"x.org\"".into())
        );
        assert_eq!(told(json!([])), Ok(Vec::new()));
    }

    #[test]
    fn a_filter_has_the_settings_of_its_type_and_no_other() {
        let auth = json!({"protocol": "HTTP", "backendRef": {"name": "a", "port": 80}});
        let extension = json!({"group": "x.org", "kind": "Jwt", "name": "b"});
        for (filter, expected) in [
            (json!({"type": "ExternalAuth"}), "type ExternalAuth"),
            (
                json!({"type": "ExtensionRef", "externalAuth": auth}),
                "type ExtensionRef",
            ),
            (
                json!({"type": "ExternalAuth", "externalAuth": auth, "extensionRef": extension}),
                "type ExternalAuth",
            ),
        ] {
            let text = told(json!([filter])).expect_err("it is refused");
            assert!(text.contains(expected), "{text}");
        }
        let many: Vec<Value> = (0..17)
            .map(|_| json!({"type": "ExtensionRef", "extensionRef": extension}))
            .collect();
        assert!(
            told(Value::Array(many))
                .expect_err("it is refused")
                .contains("17 items")
        );
    }
}
