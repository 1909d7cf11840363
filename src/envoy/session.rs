//! Session persistence as Envoy's stateful sessions.
//!
//! The client sends back the address of an endpoint. Envoy uses it only if the cluster of the route
//! has that endpoint; else it balances, and sends the client another one (`strict` is off).

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3::StatefulSession;
use envoy_types::pb::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use envoy_types::pb::envoy::extensions::http::stateful_session::header::v3::HeaderBasedSessionState;
use envoy_types::pb::envoy::r#type::http::v3::{Cookie, CookieAttribute};

use super::proto::{duration, extension};
use gatewright_core::model::{Session, SessionCookie};

/// The filter of a rule.
pub(super) fn filter(session: &Session) -> TypedExtensionConfig {
    let state = match session {
        Session::Cookie(cookie) => extension(
            "envoy.http.stateful_session.cookie",
            &CookieBasedSessionState {
                cookie: Some(set_cookie(cookie)),
            },
        ),
        Session::Header(name) => extension(
            "envoy.http.stateful_session.header",
            &HeaderBasedSessionState { name: name.clone() },
        ),
    };
    let filter = StatefulSession {
        session_state: Some(state),
        ..Default::default()
    };
    extension("envoy.filters.http.stateful_session", &filter)
}

/// The cookie. Envoy adds `HttpOnly` by itself. GEP-1619 requires the other attributes, which keep
/// a cookie to its site.
fn set_cookie(cookie: &SessionCookie) -> Cookie {
    let SessionCookie {
        name,
        path,
        lifetime,
        secure,
    } = cookie;
    let secure = secure.then(|| attribute("Secure", ""));
    Cookie {
        name: name.clone(),
        ttl: lifetime.and_then(duration),
        path: path.clone(),
        attributes: secure
            .into_iter()
            .chain([attribute("SameSite", "Strict")])
            .collect(),
    }
}

fn attribute(name: &str, value: &str) -> CookieAttribute {
    CookieAttribute {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}
