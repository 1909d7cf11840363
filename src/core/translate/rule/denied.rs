//! Addresses that no endpoint may have, in any notation.

use std::net::IpAddr;
use std::sync::LazyLock;

use ipnet::IpNet;

use gatewright_objects::address_forms::forms;

/// The addresses that endpoints may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPolicy {
    /// True if endpoints may be on the loopback interface: for backends on the machine of an Envoy
    /// that is not in a pod.
    pub loopback: bool,
    /// Networks that the installation's settings forbid.
    pub denied: Vec<IpNet>,
}

/// Networks that never contain backends, and their purpose.
const SPECIAL: [(&str, &str); 14] = [
    ("0.0.0.0/8", "unspecified"),
    ("::/128", "unspecified"),
    (
        "169.254.0.0/16",
        "link-local, where clouds keep credentials",
    ),
    ("fe80::/10", "link-local"),
    // AWS, Google, Alibaba, Oracle and Azure, besides 169.254.169.254.
    ("fd00:ec2::/32", "a metadata service of a cloud"),
    ("fd20:ce::254/128", "a metadata service of a cloud"),
    ("100.100.100.200/32", "a metadata service of a cloud"),
    ("192.0.0.192/32", "a metadata service of a cloud"),
    ("168.63.129.16/32", "a metadata service of a cloud"),
    ("224.0.0.0/4", "multicast"),
    ("ff00::/8", "multicast"),
    ("255.255.255.255/32", "broadcast"),
    ("127.0.0.0/8", LOOPBACK),
    ("::1/128", LOOPBACK),
];

const LOOPBACK: &str = "loopback";

impl Default for EndpointPolicy {
    fn default() -> Self {
        Self {
            loopback: true,
            denied: Vec::new(),
        }
    }
}

impl EndpointPolicy {
    /// Returns why no endpoint may have an address; `None` if endpoints may have it.
    pub(crate) fn refuses(&self, address: IpAddr) -> Option<String> {
        static NETWORKS: LazyLock<Vec<(IpNet, &str)>> = LazyLock::new(|| {
            SPECIAL
                .map(|(network, what)| (network.parse().expect("the table has networks"), what))
                .to_vec()
        });
        forms(address)
            .find_map(|form| {
                let (_, what) = NETWORKS
                    .iter()
                    .find(|(network, _)| network.contains(&form))?;
                (*what != LOOPBACK || !self.loopback).then(|| (*what).to_owned())
            })
            .or_else(|| {
                forms(address).find_map(|form| {
                    let network = self.denied.iter().find(|network| network.contains(&form))?;
                    Some(format!("in {network}, which backends.deniedNetworks has"))
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse()
            .unwrap_or_else(|_| panic!("{text:?} is an address"))
    }

    #[test]
    fn special_addresses_are_refused_in_every_form() {
        let policy = EndpointPolicy::default();
        for (address, what) in [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("::", "unspecified"),
            ("169.254.169.254", "link-local"),
            ("fe80::1", "link-local"),
            ("fd00:ec2::254", "metadata"),
            ("fd20:ce::254", "metadata"),
            ("100.100.100.200", "metadata"),
            ("168.63.129.16", "metadata"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.250", "multicast"),
            ("ff02::1", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("::ffff:169.254.169.254", "link-local"),
            ("::169.254.169.254", "link-local"),
            ("::ffff:0:169.254.169.254", "link-local"),
            ("64:ff9b::169.254.169.254", "link-local"),
            ("64:ff9b:1::169.254.169.254", "link-local"),
            ("64:ff9b:1:a9fe:a9:fe00::", "link-local"),
            ("64:ff9b:1:0:a9:fea9:fe00:0", "link-local"),
            ("2002:a9fe:a9fe::1", "link-local"),
            ("2001:0:a9fe:a9fe::1", "link-local"),
            ("2001:0:5db8:d822:0:0:5601:5601", "link-local"),
            ("2001:db8::5efe:169.254.169.254", "link-local"),
            ("2001:db8::200:5efe:169.254.169.254", "link-local"),
        ] {
            let told = policy.refuses(ip(address));
            assert!(
                told.as_ref().is_some_and(|text| text.contains(what)),
                "{address}: {told:?}"
            );
        }
        for address in [
            "10.0.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "192.0.2.1",
            "2001:db8::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "64:ff9b::192.0.2.1",
            "64:ff9b:1::192.0.2.1",
            "64:ff9b:1:c000:2:100::",
            "2002:c000:201::1",
            "2001:db8::5efe:192.0.2.1",
        ] {
            assert_eq!(policy.refuses(ip(address)), None, "{address}");
        }
    }

    #[test]
    fn loopback_is_refused_where_envoys_are_pods() {
        let loopback = [
            "127.0.0.1",
            "127.1.2.3",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "2002:7f00:1::",
        ];
        let pods = EndpointPolicy {
            loopback: false,
            ..EndpointPolicy::default()
        };
        for address in loopback.map(ip) {
            assert_eq!(
                EndpointPolicy::default().refuses(address),
                None,
                "{address}"
            );
            assert_eq!(
                pods.refuses(address).as_deref(),
                Some(LOOPBACK),
                "{address}"
            );
        }
    }

    #[test]
    fn networks_of_the_installations_choice_are_refused_by_name() {
        let denied = ["10.0.0.0/8", "2001:db8::/32"]
            .map(|network| network.parse().expect("a network"))
            .to_vec();
        let policy = EndpointPolicy {
            denied,
            ..EndpointPolicy::default()
        };
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "2001:db8::7"] {
            let told = policy.refuses(ip(address)).expect("it is denied");
            assert!(told.contains("backends.deniedNetworks"), "{told}");
        }
        assert_eq!(policy.refuses(ip("11.0.0.1")), None);
    }
}
