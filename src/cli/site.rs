//! One argument of `serve`: a hostname, a prefix of its paths, and the backend.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use gatewright_core::external_name::ExternalName;
use gatewright_core::model::Hostname;

/// A hostname and a prefix of its paths, and the backend that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// An exact hostname.
    pub host: Hostname,
    /// The prefix of the paths, beginning with a slash.
    pub path: String,
    /// The server that answers.
    pub backend: Backend,
}

/// A server of an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its address or name.
    pub place: Place,
    /// Its port.
    pub port: u16,
    /// True if it is spoken to by TLS.
    pub tls: bool,
}

/// The address or the name of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At an address.
    Address(IpAddr),
    /// At the addresses of a name, which is looked up again and again.
    Name(ExternalName),
}

impl FromStr for Site {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (place, backend) = text
            .split_once('=')
            .ok_or("HOST=BACKEND is expected, as in shop.example.org=127.0.0.1:3000")?;
        let (host, path) = match place.find('/') {
            Some(slash) => place.split_at(slash),
            None => (place, "/"),
        };
        let host = Hostname::parse(host).map_err(|fault| format!("{host:?}: {fault}"))?;
        if host.is_wildcard() {
            return Err(format!(
                "{host}: one hostname is expected; wildcards need manifests (gatewright standalone)"
            ));
        }
        if !path.bytes().all(is_of_a_path) || path.contains("//") {
            return Err(format!(
                "{path:?}: a path of letters, digits and -._~!$&'()*+,;:@% is expected"
            ));
        }
        Ok(Self {
            host,
            path: path.to_owned(),
            backend: backend.parse()?,
        })
    }
}

/// True for the characters of a path (RFC 3986, 3.3).
fn is_of_a_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;:@%".contains(&byte)
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (tls, authority) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some((scheme, _)) => {
                return Err(format!("{scheme}: http:// or https:// is expected"));
            }
            None => (false, text),
        };
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if authority.contains('/') {
            return Err(format!(
                "{text:?}: a backend has no path: requests reach it with the path that they have"
            ));
        }
        if let Ok(port) = authority.strip_prefix(':').unwrap_or(authority).parse() {
            return Self::at(Place::Address(Ipv4Addr::LOCALHOST.into()), port, tls);
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') && !host.ends_with(':') => {
                let fault = || format!("{port:?}: a port from 1 to 65535 is expected");
                (host, port.parse().map_err(|_| fault())?)
            }
            _ if text.contains("://") => (authority, if tls { 443 } else { 80 }),
            _ => return Err(format!("{text:?}: a port is expected, as in {text}:3000")),
        };
        Self::at(place(host)?, port, tls)
    }
}

impl Backend {
    fn at(place: Place, port: u16, tls: bool) -> Result<Self, String> {
        match &place {
            _ if port == 0 => Err("a port from 1 to 65535 is expected, found 0".to_owned()),
            Place::Address(address) if tls => Err(format!(
                "https://{address}: a name is expected, which the certificate of the backend has; for one of a CA of \
                 your own use manifests (docs/recipes.md)"
            )),
            _ => Ok(Self { place, port, tls }),
        }
    }
}

fn place(host: &str) -> Result<Place, String> {
    // Its addresses are not asked for: another program may answer for the name.
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(Place::Address(Ipv4Addr::LOCALHOST.into()));
    }
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Ok(address) = bare.unwrap_or(host).parse::<IpAddr>() {
        return Ok(Place::Address(address));
    }
    let name = ExternalName::parse(host).map_err(|fault| format!("{host:?}: {fault}"))?;
    Ok(Place::Name(name))
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        match &self.place {
            Place::Address(IpAddr::V6(address)) => {
                write!(f, "{scheme}://[{address}]:{}", self.port)
            }
            Place::Address(address) => write!(f, "{scheme}://{address}:{}", self.port),
            Place::Name(name) => write!(f, "{scheme}://{name}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(text: &str) -> String {
        let read = text.parse::<Backend>();
        read.map_or_else(|fault| fault, |backend| backend.to_string())
    }

    #[test]
    fn backends_are_ports_addresses_names_and_urls() {
        for (written, read) in [
            ("3000", "http://127.0.0.1:3000"),
            (":3000", "http://127.0.0.1:3000"),
            ("localhost:3000", "http://127.0.0.1:3000"),
            ("127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("[::1]:3000", "http://[::1]:3000"),
            ("app:3000", "http://app:3000"),
            ("http://app:3000", "http://app:3000"),
            ("http://app/", "http://app:80"),
            ("https://api.example.org", "https://api.example.org:443"),
        ] {
            assert_eq!(backend(written), read, "{written}");
        }
        for (wrong, why) in [
            ("", "a port is expected"),
            ("app", "a port is expected"),
            ("::1", "a port is expected"),
            ("0", "found 0"),
            ("app:70000", "1 to 65535"),
            ("https://127.0.0.1", "a name is expected"),
            ("ftp://app", "http:// or https://"),
            ("http://app/v1", "no path"),
            ("a_b:3000", "no DNS name"),
        ] {
            let told = backend(wrong);
            assert!(told.contains(why), "{wrong:?}: {told}");
        }
    }

    #[test]
    fn sites_have_a_host_and_perhaps_a_path() {
        let site: Site = "shop.example.org/api=3000".parse().expect("a site");
        assert_eq!(
            (site.host.to_string(), &*site.path),
            ("shop.example.org".to_owned(), "/api")
        );
        let whole: Site = "localhost=app:3000".parse().expect("a site");
        assert_eq!(whole.path, "/");
        for (wrong, why) in [
            ("shop.example.org", "HOST=BACKEND is expected"),
            ("=3000", "\"\""),
            ("*.example.org=3000", "wildcards need manifests"),
            ("Shop.example.org=3000", "Shop.example.org"),
            ("shop.example.org/a b=3000", "a path of"),
            ("shop.example.org//a=3000", "a path of"),
        ] {
            let told = wrong.parse::<Site>().expect_err("it is refused");
            assert!(told.contains(why), "{wrong:?}: {told}");
        }
    }
}
