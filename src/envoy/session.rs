//! Session persistence as Envoy's stateful sessions.
//!
//! What the client sends back is the address of an endpoint. Envoy takes it only where the cluster that the route chose has
//! that endpoint; else it balances, and hands out another (`strict` is off).

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
            &CookieBasedSessionState { cookie: Some(set_cookie(cookie)) },
        ),
        Session::Header(name) => {
            extension("envoy.http.stateful_session.header", &HeaderBasedSessionState { name: name.clone() })
        }
    };
    let filter = StatefulSession { session_state: Some(state), ..Default::default() };
    extension("envoy.filters.http.stateful_session", &filter)
}

/// Envoy adds `HttpOnly` by itself. GEP-1619 asks for the other attributes that keep a cookie to its site.
fn set_cookie(cookie: &SessionCookie) -> Cookie {
    let SessionCookie { name, path, lifetime, secure } = cookie;
    let attribute = |name: &str, value: &str| CookieAttribute { name: name.to_owned(), value: value.to_owned() };
    let secure = secure.then(|| attribute("Secure", ""));
    Cookie {
        name: name.clone(),
        ttl: lifetime.and_then(duration),
        path: path.clone(),
        attributes: secure.into_iter().chain([attribute("SameSite", "Strict")]).collect(),
    }
}
