//! Names outside of the cluster, of Services of type ExternalName and of XBackends: which names and
//! addresses may be used, and the addresses that a name has. Pure.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::address_forms::forms;
use crate::inputs::is_label;

/// Domains of names that lead into the cluster, or to the machine itself.
const INTERNAL: [&str; 3] = ["svc", "cluster.local", "localhost"];
/// The largest number of addresses of a name that are used.
pub const ADDRESSES: usize = 64;
/// The longest name (RFC 1035, 2.3.4), without the final dot.
const LONGEST: usize = 253;

/// An absolute name of DNS, in lower case and without the final dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExternalName(Arc<str>);

impl ExternalName {
    /// Reads a name.
    ///
    /// # Errors
    /// When it is no name, with the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if text.parse::<IpAddr>().is_ok() {
            return Err("it is an address: use an EndpointSlice (docs/endpoints.md)".to_owned());
        }
        let labels: Vec<&str> = name.split('.').collect();
        if name.len() > LONGEST || !labels.iter().all(|label| is_label(label)) {
            return Err("it is no DNS name of letters, digits and \"-\"".to_owned());
        }
        let is_number = |label: &&str| label.bytes().all(|byte| byte.is_ascii_digit());
        // A name such as 10.1 is read as an address by many resolvers.
        if labels.last().is_some_and(is_number) {
            return Err("it ends in a number, as addresses do".to_owned());
        }
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for a domain, and for every name below it.
    fn is_in(&self, domain: &str) -> bool {
        self.0
            .strip_suffix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }
}

impl fmt::Display for ExternalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether Services of type ExternalName, and XBackends, may be backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ExternalNames {
    /// They are refused.
    #[default]
    Off,
    /// Their names are resolved.
    On(NamePolicy),
}

/// The names that may be resolved, and the addresses that they may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamePolicy {
    /// Networks in which no name may have addresses.
    pub denied: Vec<IpNet>,
    /// Exceptions from them.
    pub allowed: Vec<IpNet>,
    /// Domains whose names are not resolved, beside those of the cluster.
    pub domains: Vec<String>,
    /// True if names of a single label are resolved, as those of containers on one machine.
    pub single_labels: bool,
}

impl NamePolicy {
    /// Returns why a name is not resolved; `None` if it is.
    pub fn refuses_name(&self, name: &ExternalName) -> Option<String> {
        if !self.single_labels && !name.as_str().contains('.') {
            return Some("it has a single label, which leads into the cluster".to_owned());
        }
        if let Some(domain) = INTERNAL.iter().find(|domain| name.is_in(domain)) {
            return Some(format!("it is in {domain}, which leads into the cluster"));
        }
        let domain = self.domains.iter().find(|domain| name.is_in(domain))?;
        Some(format!(
            "it is in {domain}, which backends.externalNames.deniedDomains has"
        ))
    }

    /// Returns why a name may not have an address; `None` if it may. An exception for an IPv6
    /// address includes the IPv4 address that it embeds.
    pub fn refuses_address(&self, address: IpAddr) -> Option<String> {
        let canonical = address.to_canonical();
        if contains(&self.allowed, &canonical).is_some() {
            return None;
        }
        forms(canonical)
            .filter(|form| contains(&self.allowed, form).is_none())
            .find_map(|form| contains(&self.denied, &form))
            .map(|network| format!("in {network}, which backends.externalNames.deniedNetworks has"))
    }
}

fn contains<'a>(networks: &'a [IpNet], address: &IpAddr) -> Option<&'a IpNet> {
    networks.iter().find(|network| network.contains(address))
}

/// The addresses of a name, as they were resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameResolution {
    /// The name.
    pub name: ExternalName,
    /// Its addresses, sorted. While it cannot be resolved these are the last ones, for some time.
    pub addresses: Arc<[IpAddr]>,
    /// Why the last attempt has no addresses.
    pub problem: Option<Arc<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ExternalName {
        ExternalName::parse(text).unwrap_or_else(|why| panic!("{text:?}: {why}"))
    }

    #[test]
    fn names_are_absolute_and_in_lower_case() {
        assert_eq!(name("API.Example.org.").as_str(), "api.example.org");
        assert_eq!(
            name("xn--bcher-kva.example").as_str(),
            "xn--bcher-kva.example"
        );
        for (wrong, why) in [
            ("", "no DNS name"),
            (".", "no DNS name"),
            ("10.0.0.1", "an address"),
            ("::1", "an address"),
            ("127.1", "ends in a number"),
            ("a..b", "no DNS name"),
            ("a.b..", "no DNS name"),
            ("*.example.org", "no DNS name"),
            ("a b.example.org", "no DNS name"),
            ("-a.example.org", "no DNS name"),
        ] {
            let told = ExternalName::parse(wrong).expect_err("it is refused");
            assert!(told.contains(why), "{wrong:?}: {told}");
        }
        assert!(ExternalName::parse(&format!("{}.org", "a.".repeat(130))).is_err());
    }

    #[test]
    fn names_of_the_cluster_are_refused() {
        let policy = NamePolicy {
            domains: vec!["corp.example".to_owned()],
            ..NamePolicy::default()
        };
        for inside in [
            "web.default.svc",
            "web.default.svc.cluster.local",
            "cluster.local",
            "a.localhost",
            "corp.example",
            "db.corp.example",
        ] {
            assert!(policy.refuses_name(&name(inside)).is_some(), "{inside}");
        }
        for outside in ["api.example.org", "notcorp.example", "svc.example.org"] {
            assert_eq!(policy.refuses_name(&name(outside)), None, "{outside}");
        }
        let told = policy.refuses_name(&name("web"));
        assert!(told.is_some_and(|told| told.contains("single label")));
        let on_one_machine = NamePolicy {
            single_labels: true,
            ..policy
        };
        assert_eq!(on_one_machine.refuses_name(&name("web.")), None);
        assert!(on_one_machine.refuses_name(&name("localhost")).is_some());
    }

    #[test]
    fn addresses_are_judged_in_every_form_and_exceptions_count() {
        fn networks(all: &[&str]) -> Vec<IpNet> {
            all.iter()
                .map(|text| text.parse().expect("a network"))
                .collect()
        }
        let policy = NamePolicy {
            denied: networks(&["10.0.0.0/8", "fc00::/7"]),
            allowed: networks(&["10.9.0.0/16", "64:ff9b::a00:9/128"]),
            ..NamePolicy::default()
        };
        for denied in [
            "10.1.2.3",
            "::ffff:10.1.2.3",
            "64:ff9b::10.1.2.3",
            "fd00::1",
        ] {
            let told = policy.refuses_address(denied.parse().expect("an address"));
            assert!(
                told.is_some_and(|text| text.contains("externalNames.deniedNetworks")),
                "{denied}"
            );
        }
        for allowed in [
            "10.9.1.1",
            "::ffff:10.9.1.1",
            "192.0.2.1",
            "64:ff9b::10.0.0.9",
        ] {
            let told = policy.refuses_address(allowed.parse().expect("an address"));
            assert_eq!(told, None, "{allowed}");
        }
    }
}
