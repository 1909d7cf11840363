//! `spec.clients` of GatewayParameters: whose word is taken for the address of a client, by port.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Deserialize;

use crate::address_forms::canonical_network;
use crate::model::{ClientAddress, ProxyProtocol, ProxyProtocolMode};

/// The most entries, and the most ports of an entry.
const ENTRIES: usize = 16;
/// The most networks of an entry.
const NETWORKS: usize = 64;
/// The most trusted proxies.
const HOPS: u8 = 8;

/// Whose word is taken for the address of a client, by port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<WrittenClients>")]
pub struct ClientAddresses(Arc<BTreeMap<u16, ClientAddress>>);

impl ClientAddresses {
    /// Whose word is taken at a port: nobody's where nothing is said.
    pub fn at(&self, port: u16) -> ClientAddress {
        self.0.get(&port).cloned().unwrap_or_default()
    }

    /// All ports for which something is said, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &ClientAddress)> {
        self.0.iter().map(|(port, said)| (*port, said))
    }
}

impl FromIterator<(u16, ClientAddress)> for ClientAddresses {
    fn from_iter<I: IntoIterator<Item = (u16, ClientAddress)>>(all: I) -> Self {
        Self(Arc::new(all.into_iter().collect()))
    }
}

/// An entry as written, before validation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenClients {
    ports: Vec<u16>,
    #[serde(default)]
    proxy_protocol: Option<WrittenProxyProtocol>,
    #[serde(default)]
    forwarded_for: Option<WrittenForwardedFor>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProxyProtocol {
    mode: ProxyProtocolMode,
    from: Vec<String>,
    #[serde(default)]
    anyone: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenForwardedFor {
    hops: u8,
}

impl TryFrom<Vec<WrittenClients>> for ClientAddresses {
    type Error = String;

    fn try_from(written: Vec<WrittenClients>) -> Result<Self, String> {
        if written.len() > ENTRIES {
            return Err(format!(
                "clients: expected at most {ENTRIES} entries, found {}",
                written.len()
            ));
        }
        let mut all = BTreeMap::new();
        for (index, entry) in written.into_iter().enumerate() {
            let path = format!("clients[{index}]");
            let (ports, said) = entry.read().map_err(|text| format!("{path}.{text}"))?;
            for port in ports {
                if all.insert(port, said.clone()).is_some() {
                    return Err(format!("{path}.ports: port {port} is listed twice"));
                }
            }
        }
        Ok(Self(Arc::new(all)))
    }
}

impl WrittenClients {
    fn read(self) -> Result<(Vec<u16>, ClientAddress), String> {
        let Self {
            ports,
            proxy_protocol,
            forwarded_for,
        } = self;
        if ports.is_empty() || ports.len() > ENTRIES {
            return Err(format!(
                "ports: expected 1 to {ENTRIES} ports, found {}",
                ports.len()
            ));
        }
        if ports.contains(&0) {
            return Err("ports: expected a port from 1 to 65535, found 0".to_owned());
        }
        let hops = match forwarded_for {
            None if proxy_protocol.is_none() => {
                return Err("ports: expected proxyProtocol or forwardedFor for them".to_owned());
            }
            None => 0,
            Some(WrittenForwardedFor { hops }) if (1..=HOPS).contains(&hops) => hops,
            Some(WrittenForwardedFor { hops }) => {
                return Err(format!(
                    "forwardedFor.hops: expected 1 to {HOPS}, found {hops}"
                ));
            }
        };
        let proxy_protocol = proxy_protocol
            .map(WrittenProxyProtocol::read)
            .transpose()
            .map_err(|text| format!("proxyProtocol.from: {text}"))?;
        let said = ClientAddress {
            proxy_protocol,
            hops,
        };
        Ok((ports, said))
    }
}

impl WrittenProxyProtocol {
    fn read(self) -> Result<ProxyProtocol, String> {
        let Self { mode, from, anyone } = self;
        if from.is_empty() || from.len() > NETWORKS {
            return Err(format!(
                "expected 1 to {NETWORKS} networks of load balancers, found {}",
                from.len()
            ));
        }
        let from: Vec<IpNet> = from
            .iter()
            .map(|text| network(text, anyone))
            .collect::<Result<_, _>>()?;
        Ok(ProxyProtocol {
            mode,
            from: from.into(),
        })
    }
}

/// A network in CIDR notation, without bits beyond its prefix; one of IPv4-mapped addresses is that
/// of IPv4. That of all addresses is one only where `anyone` may be a sender.
pub(crate) fn network(text: &str, anyone: bool) -> Result<IpNet, String> {
    let network: IpNet = text
        .parse()
        .map_err(|_| format!("{text:?}: expected a network, as 192.0.2.0/24 or 2001:db8::/32"))?;
    let network = canonical_network(network);
    if network != network.trunc() {
        return Err(format!(
            "{text}: expected {} or {}/{}",
            network.trunc(),
            network.addr(),
            network.max_prefix_len()
        ));
    }
    if network.prefix_len() == 0 && !anyone {
        return Err(format!(
            "{text}: everybody could claim any address: list the networks of the load balancers, or set anyone: true if \
             nobody else reaches the Envoys"
        ));
    }
    Ok(network)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> Result<ClientAddresses, String> {
        ClientAddresses::deserialize(value).map_err(|error| error.to_string())
    }

    #[test]
    fn nobody_is_believed_where_nothing_is_said() {
        let proxy = json!({"mode": "Required", "from": ["192.0.2.0/24", "2001:db8::1/128"]});
        let said = read(json!([
            {"ports": [443, 8443], "proxyProtocol": proxy},
            {"ports": [80], "forwardedFor": {"hops": 2}},
        ]))
        .expect("valid");
        let secure = said.at(443);
        assert_eq!(secure.hops, 0);
        assert_eq!(secure.proxy_protocol.expect("it has one").from.len(), 2);
        assert_eq!(said.at(443), said.at(8443));
        assert_eq!(said.at(80).hops, 2);
        assert_eq!(said.at(8080), ClientAddress::default());
    }

    #[test]
    fn everybody_is_a_sender_only_by_intent() {
        let proxy = json!({"mode": "Optional", "from": ["0.0.0.0/0", "::/0"], "anyone": true});
        read(json!([{"ports": [443], "proxyProtocol": proxy}])).expect("by intent");
    }

    #[test]
    fn a_network_of_mapped_addresses_is_that_of_ipv4() {
        for (text, v4) in [
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
            ("::FFFF:c000:0201/128", "192.0.2.1/32"),
        ] {
            let v4 = v4.parse().expect("a network");
            assert_eq!(network(text, false), Ok(v4), "{text}");
        }
        let everybody = network("::ffff:0:0/96", false).expect_err("it is 0.0.0.0/0");
        assert!(everybody.contains("everybody"), "{everybody}");
    }

    #[test]
    fn a_mistake_is_named_with_its_field() {
        let entry = json!({"ports": [1], "forwardedFor": {"hops": 1}});
        let many: Vec<Value> = (0..17).map(|_| entry.clone()).collect();
        let networks: Vec<String> = (0..65).map(|n| format!("10.0.{n}.0/24")).collect();
        fn proxy(from: Value) -> Value {
            json!([{"ports": [443], "proxyProtocol": {"mode": "Required", "from": from}}])
        }
        for (wrong, told) in [
            (json!(many), "clients: expected at most 16 entries"),
            (json!([{"ports": []}]), "clients[0].ports: expected 1 to 16"),
            (json!([{"ports": [0]}]), "clients[0].ports: expected a port"),
            (
                json!([{"ports": [443]}]),
                "clients[0].ports: expected proxyProtocol",
            ),
            (
                json!([entry, entry]),
                "clients[1].ports: port 1 is listed twice",
            ),
            (
                json!([{"ports": [1, 1], "forwardedFor": {"hops": 1}}]),
                "clients[0].ports: port 1 is listed twice",
            ),
            (
                json!([{"ports": [443], "forwardedFor": {"hops": 0}}]),
                "clients[0].forwardedFor.hops: expected 1 to 8, found 0",
            ),
            (
                json!([{"ports": [443], "forwardedFor": {"hops": 9}}]),
                "clients[0].forwardedFor.hops: expected 1 to 8, found 9",
            ),
            (proxy(json!([])), "clients[0].proxyProtocol.from: expected"),
            (
                proxy(json!(networks)),
                "clients[0].proxyProtocol.from: expected 1 to 64 networks",
            ),
            (
                proxy(json!(["192.0.2.1"])),
                "clients[0].proxyProtocol.from: \"192.0.2.1\": expected a network",
            ),
            (
                proxy(json!(["192.0.2.1/24"])),
                "clients[0].proxyProtocol.from: 192.0.2.1/24: expected 192.0.2.0/24 or 192.0.2.1/32",
            ),
            (
                proxy(json!(["::/0"])),
                "clients[0].proxyProtocol.from: ::/0: everybody",
            ),
            (
                json!([{"ports": [443], "proxyProtocol": {"mode": "Required"}}]),
                "missing field `from`",
            ),
            (json!([{"ports": [443], "hops": 1}]), "unknown field `hops`"),
        ] {
            let text = read(wrong.clone()).expect_err("a mistake");
            assert!(text.starts_with(told), "{wrong}: {text}");
        }
    }
}
