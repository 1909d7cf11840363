//! Reads `sessionPersistence` of a rule (GEP-1619).

use std::time::Duration;

use super::duration::duration;
use super::{Unsupported, text};
use crate::gateway_api::httproutes as gw;

/// Session persistence of a rule: the means by which requests of one client reach the same
/// endpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionPersistence {
    /// By a cookie.
    Cookie {
        /// Its name; `None` if we choose it.
        name: Option<String>,
        /// Its path.
        path: String,
        /// Its lifetime; `None` for a session cookie, which the browser drops when it ends.
        lifetime: Option<Duration>,
    },
    /// By a header of this lower-case name.
    Header(String),
}

/// Reads the settings, or returns why they cannot be served.
pub(super) fn read(
    asked: gw::HttpRouteRulesSessionPersistence,
) -> Result<SessionPersistence, Unsupported> {
    let gw::HttpRouteRulesSessionPersistence {
        absolute_timeout,
        cookie,
        header,
        r#type,
    } = asked;
    let timeout = absolute_timeout.as_deref().map(duration).transpose();
    let timeout = timeout.map_err(|error| {
        Unsupported::Value(format!("sessionPersistence.absoluteTimeout: {error}"))
    })?;
    match r#type {
        Some(gw::HttpRouteRulesSessionPersistenceType::Header) => {
            if cookie.is_some() {
                return refuse("cookie: not allowed with type Header");
            }
            let Some(header) = header else {
                return refuse("header: type Header needs it");
            };
            text::session_header("sessionPersistence.header.name", &header.name)?;
            match timeout {
                // The header contains the address of the endpoint alone.
                Some(_) => refuse("absoluteTimeout: not allowed with type Header"),
                None => Ok(SessionPersistence::Header(header.name.to_ascii_lowercase())),
            }
        }
        Some(gw::HttpRouteRulesSessionPersistenceType::Cookie) | None => {
            if header.is_some() {
                return refuse("header: not allowed with type Cookie");
            }
            let none = gw::HttpRouteRulesSessionPersistenceCookie {
                lifetime_type: None,
                name: None,
                path: None,
            };
            let gw::HttpRouteRulesSessionPersistenceCookie {
                lifetime_type,
                name,
                path,
            } = cookie.unwrap_or(none);
            name.iter()
                .try_for_each(|name| text::cookie_name("sessionPersistence.cookie.name", name))?;
            let path = path.unwrap_or_else(|| "/".to_owned());
            text::cookie_path("sessionPersistence.cookie.path", &path)?;
            // RFC 6265bis, 4.1.3.2: browsers ignore such a cookie with another path.
            if path != "/" && name.as_ref().is_some_and(|name| has_host_prefix(name)) {
                return refuse(
                    "cookie.path: browsers take a cookie whose name begins with __Host- with path / alone",
                );
            }
            let permanent = lifetime_type
                == Some(gw::HttpRouteRulesSessionPersistenceCookieLifetimeType::Permanent);
            let lifetime = match (permanent, timeout) {
                (false, None) => None,
                // Envoy has a single lifetime, and sends it to the browser, which makes the cookie
                // a permanent one.
                (false, Some(_)) => {
                    return refuse(
                        "absoluteTimeout: served with cookie.lifetimeType Permanent alone",
                    );
                }
                (true, None) => {
                    return refuse("absoluteTimeout: cookie.lifetimeType Permanent needs it");
                }
                (true, Some(time)) if time < Duration::from_secs(1) => {
                    return refuse("absoluteTimeout: at least 1s is expected");
                }
                (true, Some(time)) => Some(Duration::from_secs(time.as_secs())),
            };
            Ok(SessionPersistence::Cookie {
                name,
                path,
                lifetime,
            })
        }
    }
}

fn refuse(text: &str) -> Result<SessionPersistence, Unsupported> {
    Err(Unsupported::Value(format!("sessionPersistence.{text}")))
}

fn has_host_prefix(name: &str) -> bool {
    const PREFIX: &str = "__Host-";
    name.get(..PREFIX.len())
        .is_some_and(|begin| begin.eq_ignore_ascii_case(PREFIX))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(asked: Value) -> Result<SessionPersistence, String> {
        read(serde_json::from_value(asked).expect("the shape is right")).map_err(|unsupported| {
            match unsupported {
                Unsupported::Value(text) | Unsupported::Incompatible(text) => text,
            }
        })
    }

    #[test]
    fn a_cookie_is_of_the_whole_host_until_the_browser_ends_unless_said_otherwise() {
        let plain = SessionPersistence::Cookie {
            name: None,
            path: "/".into(),
            lifetime: None,
        };
        assert_eq!(told(json!({})), Ok(plain));
        let asked = json!({"absoluteTimeout": "1m30s",
            "cookie": {"name": "sid", "path": "/shop", "lifetimeType": "Permanent"}});
        let lifetime = Some(Duration::from_secs(90));
        let full = SessionPersistence::Cookie {
            name: Some("sid".into()),
            path: "/shop".into(),
            lifetime,
        };
        assert_eq!(told(asked), Ok(full));
        let header = json!({"type": "Header", "header": {"name": "X-Session"}});
        assert_eq!(
            told(header),
            Ok(SessionPersistence::Header("x-session".into()))
        );
    }

    #[test]
    fn session_settings_that_envoy_lacks_are_refused() {
        fn header(name: &str) -> Value {
            json!({"type": "Header", "header": {"name": name}})
        }
        for (asked, expected) in [
            (
                json!({"absoluteTimeout": "1h"}),
                "lifetimeType Permanent alone",
            ),
            (
                json!({"cookie": {"lifetimeType": "Permanent"}}),
                "Permanent needs it",
            ),
            (
                json!({"absoluteTimeout": "10ms", "cookie": {"lifetimeType": "Permanent"}}),
                "at least 1s",
            ),
            (
                json!({"absoluteTimeout": "1d", "cookie": {"lifetimeType": "Permanent"}}),
                "a form such as",
            ),
            (json!({"cookie": {"name": "a b"}}), "is no name of a cookie"),
            (
                json!({"cookie": {"name": "a;Domain=org"}}),
                "is no name of a cookie",
            ),
            (json!({"cookie": {"path": "/;Domain=org"}}), "cookie.path"),
            (json!({"cookie": {"path": ""}}), "cookie.path"),
            (json!({"cookie": {"path": "a"}}), "cookie.path"),
            (
                json!({"cookie": {"name": "__Host-sid", "path": "/shop"}}),
                "with path / alone",
            ),
            (
                json!({"cookie": {"name": "__host-sid", "path": "/shop"}}),
                "with path / alone",
            ),
            (
                json!({"header": {"name": "x-a"}}),
                "not allowed with type Cookie",
            ),
            (json!({"type": "Header"}), "type Header needs it"),
            (
                json!({"type": "Header", "cookie": {}, "header": {"name": "x-a"}}),
                "not allowed with type Header",
            ),
            (
                json!({"type": "Header", "header": {"name": "x-a"}, "absoluteTimeout": "1h"}),
                "not allowed with type Header",
            ),
            (header("x-gw-sni"), "keeps hosts apart"),
            (header("X-Envoy-Retry-On"), "orders to Envoy"),
            (header("Transfer_Encoding"), "where a message ends"),
            (header("host"), "cannot be host"),
            (header("a b"), "is no header name"),
        ] {
            let text = told(asked.clone()).expect_err("it is refused");
            assert!(
                text.starts_with("sessionPersistence.") && text.contains(expected),
                "{asked}: {text}"
            );
        }
    }
}
