//! Origins that CORS allows.

/// An origin, or a pattern of origins, that a CORS policy allows. Origins are compared by scheme,
/// host and port, and not as texts (RFC 6454, 5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// `*`: any origin.
    Any,
    /// The origins of one scheme and port.
    Tuple {
        /// The scheme.
        scheme: OriginScheme,
        /// The host in lower case. `*` is any host, a wildcard as first label any number of labels.
        host: String,
        /// The port; the default of the scheme if none is written.
        port: u16,
    },
}

/// The scheme of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OriginScheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

impl OriginScheme {
    /// The scheme as text.
    pub fn as_str(self) -> &'static str {
        match self {
            OriginScheme::Http => "http",
            OriginScheme::Https => "https",
        }
    }

    /// The default port.
    pub fn default_port(self) -> u16 {
        match self {
            OriginScheme::Http => 80,
            OriginScheme::Https => 443,
        }
    }
}

impl Origin {
    /// Parses an origin as the Gateway API writes it (`CORSOrigin`): `*`, or scheme, host with at
    /// most one wildcard as its first label, and port.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        let (scheme, rest) = text.split_once("://")?;
        let scheme = [OriginScheme::Http, OriginScheme::Https]
            .into_iter()
            .find(|known| known.as_str() == scheme)?;
        let (host, port) = match rest.split_once(':') {
            Some((host, port)) => (host, written_port(port)?),
            None => (rest, scheme.default_port()),
        };
        is_host(host).then(|| Self::Tuple {
            scheme,
            host: host.to_ascii_lowercase(),
            port,
        })
    }

    /// True if it stands for several hosts.
    pub fn is_pattern(&self) -> bool {
        match self {
            Origin::Any => true,
            Origin::Tuple { host, .. } => host.starts_with('*'),
        }
    }
}

fn written_port(text: &str) -> Option<u16> {
    let is_written =
        (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_written && *port > 0)
}

fn is_host(text: &str) -> bool {
    text == "*"
        || text
            .strip_prefix("*.")
            .unwrap_or(text)
            .split('.')
            .all(|label| {
                !label.is_empty()
                    && label
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b == b'-')
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(scheme: OriginScheme, host: &str, port: u16) -> Option<Origin> {
        Some(Origin::Tuple {
            scheme,
            host: host.to_owned(),
            port,
        })
    }

    #[test]
    fn equal_origins_are_parsed_to_equal_values() {
        let https = OriginScheme::Https;
        for text in [
            "https://a.org",
            "https://A.org",
            "https://a.org:443",
            "https://a.org:00443",
        ] {
            assert_eq!(Origin::parse(text), tuple(https, "a.org", 443), "{text}");
        }
        assert_eq!(
            Origin::parse("http://a.org"),
            tuple(OriginScheme::Http, "a.org", 80)
        );
        assert_eq!(Origin::parse("https://a.org:80"), tuple(https, "a.org", 80));
        assert_eq!(
            Origin::parse("https://*.A.org:8443"),
            tuple(https, "*.a.org", 8443)
        );
        assert_eq!(Origin::parse("*"), Some(Origin::Any));
    }

    #[test]
    fn what_is_no_origin_is_not_parsed() {
        let bad = [
            "",
            "a.org",
            "ftp://a.org",
            "HTTPS://a.org",
            "https://a.*.org",
            "https://",
            "https://a.org/",
        ];
        let ports = [
            "https://a.org:",
            "https://a.org:0",
            "https://a.org:65536",
            "https://a.org:+1",
            "https://a\n",
        ];
        for text in bad.into_iter().chain(ports) {
            assert_eq!(Origin::parse(text), None, "{text:?}");
        }
    }
}
