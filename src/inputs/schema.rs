//! What the schema of the Gateway API refuses and its generated types admit: patterns, sizes, and rules between fields.
//!
//! A manifest may come from a file that no API server has seen, and one value that Envoy refuses would hold back all
//! that is sent with it.

use super::ParseError;
use crate::model::Hostname;

/// Says what is wrong with `field`.
fn refuse<T>(field: &str, text: &str) -> Result<T, ParseError> {
    Err(ParseError::Schema(format!("{field}: {text}")))
}

/// A list no longer than the schema allows (`maxItems`).
pub(super) fn at_most<T>(field: &str, most: usize, list: Vec<T>) -> Result<Vec<T>, ParseError> {
    if list.len() > most {
        return refuse(field, &format!("{} items, at most {most} are allowed", list.len()));
    }
    Ok(list)
}

/// A path of an exact or prefix match (`HTTPPathMatch`): absolute, without what normalisation would change.
pub(super) fn path(field: &str, path: &str) -> Result<(), ParseError> {
    if !path.starts_with('/') {
        return refuse(field, &format!("{path:?} must start with \"/\""));
    }
    if path.len() > 1024 {
        return refuse(field, "longer than 1024 characters");
    }
    let inside = ["//", "/./", "/../", "%2f", "%2F"].into_iter().find(|part| path.contains(part));
    let end = ["/.", "/.."].into_iter().find(|part| path.ends_with(part));
    if let Some(part) = inside.or(end) {
        return refuse(field, &format!("{path:?} must not contain {part:?}"));
    }
    // RFC 3986, 3.3: `pchar` and slashes.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@".contains(&byte);
    let mut rest = path.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [a, b, tail @ ..]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => tail,
            (byte, tail) if is_plain(*byte) => tail,
            _ => return refuse(field, &format!("{path:?} has a character that no path has: percent-encode it")),
        };
    }
    Ok(())
}

/// The name of a header (RFC 9110, 5.1: a token).
pub(super) fn header_name(field: &str, name: &str) -> Result<(), ParseError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > 256 || !name.bytes().all(is_token) {
        return refuse(field, &format!("{name:?} is no header name"));
    }
    Ok(())
}

/// The value of a header (RFC 9110, 5.5: no control characters).
pub(super) fn header_value(field: &str, value: &str) -> Result<(), ParseError> {
    if value.len() > 4096 {
        return refuse(field, "longer than 4096 characters");
    }
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return refuse(field, &format!("{value:?} has control characters"));
    }
    Ok(())
}

/// A hostname without a wildcard (`PreciseHostname`). An IP address passes the schema as well.
pub(super) fn precise_hostname(field: &str, hostname: Option<String>) -> Result<Option<String>, ParseError> {
    let Some(text) = hostname else { return Ok(None) };
    let is_ip = text.parse::<std::net::Ipv4Addr>().is_ok();
    match Hostname::parse(&text) {
        _ if is_ip => Ok(Some(text)),
        Ok(hostname) if hostname.is_exact() => Ok(Some(text)),
        Ok(_) => refuse(field, &format!("{text:?} must name one host")),
        Err(error) => refuse(field, &error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_schema() {
        for good in ["/", "/a/b/", "/a%20b", "/.well-known/x", "/a:b@c;d=e,f", "/..a"] {
            assert!(path("path", good).is_ok(), "{good}");
        }
        for bad in ["", "a", "/a//b", "/a/../b", "/a/..", "/a/.", "/a%2Fb", "/a?b", "/a#b", "/a b", "/ä", "/%", "/%g0"]
        {
            assert!(path("path", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn headers_have_token_names_and_no_line_breaks() {
        assert!(header_name("name", "X-Forwarded_For").is_ok());
        for bad in ["", ":path", "x y", "x:", "ä"] {
            assert!(header_name("name", bad).is_err(), "{bad}");
        }
        assert!(header_value("value", "a\tb ä").is_ok() && header_value("value", "a\r\nb").is_err());
    }

    #[test]
    fn a_precise_hostname_names_one_host() {
        let check = |text: &str| precise_hostname("hostname", Some(text.to_owned()));
        assert!(check("a.example.org").is_ok() && check("192.0.2.1").is_ok());
        assert!(check("*.example.org").is_err() && check("A.example.org").is_err() && check("").is_err());
    }
}
