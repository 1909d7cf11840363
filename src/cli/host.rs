//! A hostname as people have it at hand: by itself, with a port, or in a URL.

use gatewright_core::model::Hostname;
use gatewright_core::statuses::Selection;

/// Reads the hostname of `HOST`, `HOST:PORT` or a URL.
///
/// # Errors
/// When there is none in it.
pub(super) fn host(text: &str) -> Result<Hostname, String> {
    let name = authority(text);
    let name = match name.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => name,
    };
    Hostname::parse(&name.to_ascii_lowercase()).map_err(|fault| format!("{text:?}: {fault}"))
}

/// Reads the same as a text; what is no hostname stays as it is, as a port or an address.
///
/// # Errors
/// Never: whoever answers judges the rest.
pub(super) fn host_or_other(text: &str) -> Result<String, String> {
    let has_form = text.contains("://") || text.contains(':') && !is_address(text);
    match host(text) {
        Ok(host) if has_form => Ok(host.as_str().to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Reads a URL; a host without a scheme is asked by TLS, except at port 80.
///
/// # Errors
/// Never: whoever answers judges it.
pub(super) fn url(text: &str) -> Result<String, String> {
    if text.contains("://") {
        return Ok(text.to_owned());
    }
    let is_plain = authority(text).ends_with(":80");
    let scheme = if is_plain { "http" } else { "https" };
    Ok(format!("{scheme}://{text}"))
}

/// Reads what statuses are asked of: `KIND`, `KIND/NAME`, or a hostname in any form.
///
/// # Errors
/// When it is neither.
pub(super) fn selection(text: &str) -> Result<Selection, String> {
    if !text.contains("://") {
        match Selection::of_object(text) {
            Ok(selection) => return Ok(selection),
            Err(why) if !authority(text).contains(['.', ':', '*']) => {
                return Err(format!("{why}; or a hostname, which has a dot, or a URL"));
            }
            Err(_) => {}
        }
    }
    Ok(Selection {
        host: Some(host(text)?),
        ..Selection::default()
    })
}

/// The host of a URL with its port.
fn authority(text: &str) -> &str {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok() || text.parse::<std::net::SocketAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_three_forms() {
        for text in [
            "shop.example.org",
            "Shop.example.org:8443",
            "https://shop.example.org/cart?x=1",
            "http://shop.example.org:8080",
            "shop.example.org/cart",
        ] {
            let read = host(text).expect(text);
            assert_eq!(read.as_str(), "shop.example.org", "{text}");
        }
        assert!(host("https:///cart").is_err(), "it has none");
        let error = host("a b").expect_err("it is none");
        assert!(error.starts_with("\"a b\""), "{error}");
    }

    #[test]
    fn ports_and_addresses_are_left_as_they_are() {
        for (text, expected) in [
            ("https://shop.example.org/", "shop.example.org"),
            ("shop.example.org:443", "shop.example.org"),
            ("*", "*"),
            ("443", "443"),
            ("192.0.2.7:443", "192.0.2.7:443"),
            ("[::1]:443", "[::1]:443"),
            ("httproute/shop", "httproute/shop"),
        ] {
            assert_eq!(host_or_other(text).expect(text), expected, "{text}");
        }
    }

    #[test]
    fn a_url_may_be_without_its_scheme() {
        for (text, expected) in [
            ("shop.example.org", "https://shop.example.org"),
            ("shop.example.org:80/a", "http://shop.example.org:80/a"),
            ("shop.example.org:8443", "https://shop.example.org:8443"),
            ("http://shop.example.org", "http://shop.example.org"),
        ] {
            assert_eq!(url(text).expect(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_asked_is_an_object_or_a_host() {
        let object = selection("httproute/shop").expect("an object");
        assert_eq!(object.name.as_deref(), Some("shop"), "a name");
        assert_eq!(object.host, None, "and no host");
        for text in ["https://shop.example.org/", "shop.example.org:443/a"] {
            let host = selection(text).expect(text).host;
            let host = host.as_ref().map(Hostname::as_str);
            assert_eq!(host, Some("shop.example.org"), "{text}");
        }
        let error = selection("pod/x").expect_err("neither");
        assert!(error.contains("no kind with a status"), "{error}");
    }
}
