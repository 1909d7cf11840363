//! A line of the record, as written to a file or a ConfigMap.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ownable::{ListenersOf, Ownable};
use super::record::OwnerRecord;
use crate::model::{Family, Hostname, Transport, TransportPort};

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    /// True for a hostname among the tenants of TenantGateways.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    tenants: bool,
    /// The hostname of the secret whose name is owned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// The listeners that the owner is admitted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listeners: Option<At>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// The transport of the port; omitted for TCP.
    #[serde(default, skip_serializing_if = "Transport::is_tcp")]
    transport: Transport,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protocol: Option<Family>,
    /// `None` if nobody owns it any more.
    namespace: Option<Arc<str>>,
    #[serde(default)]
    since: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    released: Option<u64>,
}

/// [`ListenersOf`] as written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct At {
    namespace: Arc<str>,
    place: Arc<str>,
}

impl Ownable {
    /// Formats a line of the record.
    pub fn line(&self, owner: Option<&OwnerRecord>) -> String {
        let mut line = Line {
            protocol: owner.and_then(|owner| owner.protocol),
            namespace: owner.map(|owner| owner.namespace.clone()),
            since: owner.map_or(0, |owner| owner.since),
            released: owner.and_then(|owner| owner.released),
            ..Line::default()
        };
        match self {
            Ownable::Hostname(name) => line.hostname = Some(name.to_string()),
            Ownable::Tenant(name) => {
                line.hostname = Some(name.to_string());
                line.tenants = true;
            }
            Ownable::Admitted(at, name) => {
                line.hostname = Some(name.to_string());
                line.listeners = Some(At {
                    namespace: at.namespace.clone(),
                    place: at.place.clone(),
                });
            }
            Ownable::Secret(name) => line.secret = Some(name.to_string()),
            Ownable::Port(port) => line.set_port(*port),
            Ownable::Socket(ip, port) => {
                line.address = Some(*ip);
                line.set_port(*port);
            }
        }
        serde_json::to_string(&line).expect("strings and numbers")
    }

    /// Parses a line of the record.
    ///
    /// # Errors
    /// When it is malformed; the text says why.
    pub fn parse(line: &str) -> Result<(Self, Option<OwnerRecord>), String> {
        let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let what = line.what()?;
        let owner = line.namespace.map(|namespace| OwnerRecord {
            namespace,
            since: line.since,
            protocol: line.protocol,
            released: line.released,
        });
        Ok((what, owner))
    }
}

impl Line {
    fn set_port(&mut self, port: TransportPort) {
        self.port = Some(port.number);
        self.transport = port.transport;
    }

    /// The item that it is about.
    fn what(&self) -> Result<Ownable, String> {
        let name = self.hostname.as_deref().map(hostname).transpose()?;
        let secret = self.secret.as_deref().map(hostname).transpose()?;
        let port = self.port.map(|number| TransportPort {
            number,
            transport: self.transport,
        });
        match (name, secret, &self.listeners, self.address, port) {
            (Some(name), None, None, None, None) if self.tenants => Ok(Ownable::Tenant(name)),
            (Some(name), None, None, None, None) => Ok(Ownable::Hostname(name)),
            (Some(name), None, Some(At { namespace, place }), None, None) => {
                let at = ListenersOf {
                    namespace: namespace.clone(),
                    place: place.clone(),
                };
                Ok(Ownable::Admitted(Arc::new(at), name))
            }
            (None, Some(name), None, None, None) => Ok(Ownable::Secret(name)),
            (None, None, None, None, Some(port)) => Ok(Ownable::Port(port)),
            (None, None, None, Some(ip), Some(port)) => Ok(Ownable::Socket(ip, port)),
            _ => Err("expected a hostname, a secret, a port, or an address and a port".to_owned()),
        }
    }
}

/// Parses a hostname, or `*` for the catch-all.
fn hostname(text: &str) -> Result<Hostname, String> {
    match text {
        "*" => Ok(Hostname::any()),
        name => Hostname::parse(name).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Hostname {
        Hostname::parse(text).expect("a hostname")
    }

    #[test]
    fn lines_of_the_record_are_read_as_they_were_written() {
        let owner = OwnerRecord {
            namespace: "a".into(),
            since: 7,
            protocol: Some(Family::Tls),
            released: Some(9),
        };
        for what in [
            Ownable::Hostname(name("x.org")),
            Ownable::Hostname(Hostname::any()),
            Ownable::Port(TransportPort::tcp(80)),
            Ownable::Port(TransportPort {
                number: 53,
                transport: Transport::Udp,
            }),
            Ownable::Socket([127, 0, 0, 1].into(), TransportPort::tcp(80)),
            Ownable::Socket(
                [127, 0, 0, 1].into(),
                TransportPort {
                    number: 53,
                    transport: Transport::Udp,
                },
            ),
            Ownable::Secret(name("x.org")),
            Ownable::Tenant(name("x.org")),
            Ownable::Tenant(name("*.x.org")),
            Ownable::Admitted(
                Arc::new(ListenersOf {
                    namespace: "a".into(),
                    place: "b/edge".into(),
                }),
                name("x.org"),
            ),
            Ownable::Admitted(
                Arc::new(ListenersOf {
                    namespace: "a".into(),
                    place: "own".into(),
                }),
                Hostname::any(),
            ),
        ] {
            assert_eq!(
                Ownable::parse(&what.line(Some(&owner))),
                Ok((what.clone(), Some(owner.clone())))
            );
            assert_eq!(Ownable::parse(&what.line(None)), Ok((what, None)));
        }
        for line in [
            "",
            "{}",
            r#"{"namespace": "a"}"#,
            r#"{"hostname": "X", "namespace": "a"}"#,
            r#"{"port": 1, "x": 2}"#,
        ] {
            assert!(Ownable::parse(line).is_err(), "{line}");
        }
    }
}
