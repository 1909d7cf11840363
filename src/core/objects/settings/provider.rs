//! The servers of an AccessPolicy's provider or issuer: a URL, and the Service that answers for it.

use std::sync::Arc;

use serde::Deserialize;

use super::parts::target;
use crate::inputs::text::{self, Refused};
use crate::inputs::{Kind, LocalRef};
use crate::model::Hostname;

/// The most bytes of a URL.
const URL: usize = 512;

/// `backendRef`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenBackend {
    name: String,
    namespace: Option<String>,
    port: u16,
}

/// The Service of a policy of `namespace`, with its port.
pub(super) fn backend(
    field: &str,
    namespace: &Arc<str>,
    written: WrittenBackend,
) -> Result<(LocalRef, u16), String> {
    let WrittenBackend {
        name,
        namespace: other,
        port,
    } = written;
    if port == 0 {
        return Err(format!("{field}.port: 1 to 65535 is expected, found 0"));
    }
    let server = target(namespace, Kind::Service, other, name)
        .map_err(|why| format!("{field}.name: {why}"))?;
    Ok((server, port))
}

/// A URL with HTTPS, a host, and neither a fragment nor a name of a user.
pub(super) fn url(field: &str, written: &str) -> Result<Arc<str>, String> {
    let refused = || {
        format!(
            "{field}: expected https://HOST/PATH of at most {URL} visible characters of ASCII, with a host in lower \
             case, and without a fragment"
        )
    };
    let rest = written.strip_prefix("https://").ok_or_else(refused)?;
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let is_url = written.len() <= URL
        && is_authority(authority)
        && rest.bytes().all(|b| {
            b.is_ascii_graphic() && !matches!(b, b'#' | b'"' | b'\\' | b'<' | b'>' | b'@')
        });
    if is_url {
        Ok(written.into())
    } else {
        Err(refused())
    }
}

/// Returns whether a text is a host without a wildcard, and a port if there is a colon. The length
/// of the name is not checked, which the pattern of the definition cannot do.
pub(super) fn is_authority(text: &str) -> bool {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_port = port.is_none_or(|port| {
        let is_number = port.bytes().all(|b| b.is_ascii_digit()) && !port.starts_with('0');
        is_number && port.parse::<u16>().is_ok()
    });
    is_port
        && host
            .split('.')
            .all(|label| Hostname::parse(label).is_ok_and(|label| label.is_exact()))
}

/// A hostname without a wildcard.
pub(super) fn hostname(field: &str, written: &str) -> Result<Arc<str>, String> {
    text::precise_hostname(field, written).map_err(|Refused(why)| why)?;
    Ok(written.into())
}
