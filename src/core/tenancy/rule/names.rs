//! Names of derived objects and listeners, exactly as on the Cozystack gateway page, so that the
//! migration of an installation renames nothing.

use std::borrow::Cow;
use std::sync::Arc;

use sha2::{Digest, Sha256};

pub use gatewright_objects::inputs::{ATTACHED_BY, GATEWAY_LABEL};
use gatewright_objects::model::ObjectName;

/// The first label, and the first four bytes of the SHA-256 of the whole lower-case hostname in
/// hexadecimal.
///
/// Collisions of 32 bits can be made on purpose: users of the name must check whether another
/// hostname has it.
fn short(hostname: &str) -> String {
    let hostname = lower_case(hostname);
    let label = hostname.split('.').next().unwrap_or_default();
    let hash = Sha256::digest(hostname.as_bytes());
    format!(
        "{label}-{:08x}",
        u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
    )
}

/// The names that derive from one hostname of a TenantGateway, computed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfHost {
    /// The name of its listener.
    pub listener: Arc<str>,
    /// The name of its Certificate and Secret.
    pub certificate: Arc<str>,
}

impl OfHost {
    /// Computes the names for `hostname`. For a wildcard they are built from its parent: an
    /// object's name has no `*`.
    pub fn new(tenant: &str, hostname: &str) -> Self {
        let apex = hostname.strip_prefix("*.");
        let (short, child) = (
            short(apex.unwrap_or(hostname)),
            if apex.is_some() { "child-" } else { "" },
        );
        Self {
            listener: Arc::from(["https-", child, &short].concat()),
            certificate: Arc::from([tenant, "-", child, &short, "-tls"].concat()),
        }
    }
}

/// The name of the listener of one host.
pub fn host_listener(hostname: &str) -> String {
    format!("https-{}", short(hostname))
}

/// The name of the listener of `*.apex` of an inheriting child.
pub fn child_listener(apex: &str) -> String {
    format!("https-child-{}", short(apex))
}

/// The name of the listener of a passthrough service.
pub fn passthrough_listener(service: &str) -> String {
    format!("tls-{service}")
}

/// The name of the Certificate of one host, and of its Secret.
pub fn host_certificate(tenant: &str, hostname: &str) -> String {
    OfHost::new(tenant, hostname).certificate.to_string()
}

/// The name of the wildcard Certificate, and of its Secret.
pub fn wildcard_certificate(tenant: &str) -> String {
    format!("{tenant}-gateway-tls")
}

/// The name of the Issuer.
pub fn issuer(tenant: &str) -> String {
    format!("{tenant}-gateway")
}

/// The name of the Secret with the ACME account's key.
pub fn acme_account(tenant: &str) -> String {
    format!("{tenant}-acme-account")
}

/// The name of the route that redirects port 80 to HTTPS.
pub fn redirect(tenant: &str) -> String {
    format!("{tenant}{REDIRECT}")
}

/// The label of derived objects, as on Cozystack's page, and its value.
pub const MANAGED_BY: &str = "cozystack.io/managed-by";
/// The value of [`MANAGED_BY`].
pub const MANAGER: &str = "cozystack-controller";

/// The suffix of the names of redirects.
pub const REDIRECT: &str = "-http-redirect";

/// The name of the route that forwards challenges of a TenantGateway's Gateway to us; with
/// `beside`, of the one beside that route. It is in our namespace, and the name of a namespace has
/// no dot.
pub fn challenges(tenant: &ObjectName, beside: Option<&str>) -> String {
    let beside = beside.map(|route| {
        let hash = Sha256::digest(route.as_bytes());
        let hash: [u8; 8] = hash[..8].try_into().expect("it has 32 bytes");
        format!(".{:016x}", u64::from_be_bytes(hash))
    });
    format!(
        "{}.{}{}{CHALLENGES}",
        tenant.namespace,
        tenant.name,
        beside.unwrap_or_default()
    )
}

/// The suffix of the names of challenge routes.
const CHALLENGES: &str = ".acme-challenges";

/// Splits the name of a challenge route into the namespace and the rest before the suffix.
pub fn challenges_of(name: &str) -> Option<(&str, &str)> {
    name.strip_suffix(CHALLENGES)?.split_once('.')
}

/// The name of an overflow ListenerSet of a Gateway; numbered from 1.
pub fn overflow(tenant: &str, number: usize) -> String {
    format!("{tenant}-overflow-{number}")
}

/// The TenantGateway and the number of an overflow ListenerSet with this name.
pub fn overflow_of(set: &str) -> Option<(&str, usize)> {
    let (tenant, number) = set.rsplit_once("-overflow-")?;
    let number = number.parse().ok().filter(|number| *number > 0)?;
    (overflow(tenant, number) == set).then_some((tenant, number))
}

pub(crate) fn lower_case(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

/// The names of plain-HTTP listeners; if the class is not ours only the first exists.
pub(crate) const PLAIN: [&str; 2] = ["http", "http-apex"];

/// The label with the name of a namespace, which every namespace has.
pub(crate) const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The selector operator that requires a label to be absent.
pub(crate) const NO_LABEL: &str = "DoesNotExist";

pub(crate) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_page() {
        for (hostname, listener) in [
            ("harbor.foo.example.com", "https-harbor-760d5a8a"),
            ("harbor.alice.example.org", "https-harbor-45348fe9"),
            ("dashboard.example.org", "https-dashboard-dfe8b0e4"),
            ("API.foo.example.com", "https-api-0d0905b9"),
        ] {
            assert_eq!(host_listener(hostname), listener);
        }
        assert_eq!(
            child_listener("alice.foo.example.com"),
            "https-child-alice-f2dcb550"
        );
        assert_eq!(
            child_listener("bob.example.org"),
            "https-child-bob-116343d5"
        );
        assert_eq!(
            host_certificate("cozystack", "dashboard.example.org"),
            "cozystack-dashboard-dfe8b0e4-tls"
        );
    }

    #[test]
    fn an_overflow_is_known_by_its_name() {
        assert_eq!(
            overflow_of("cozystack-overflow-12"),
            Some(("cozystack", 12))
        );
        for other in [
            "cozystack",
            "cozystack-overflow-",
            "cozystack-overflow-0",
            "cozystack-overflow-01",
        ] {
            assert_eq!(overflow_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_route_for_challenges_tells_whose_it_is() {
        let tenant = ObjectName::new("tenant-a", "co.zy");
        assert_eq!(challenges(&tenant, None), "tenant-a.co.zy.acme-challenges");
        assert_eq!(
            challenges_of("tenant-a.co.zy.acme-challenges"),
            Some(("tenant-a", "co.zy"))
        );
        let beside = challenges(&tenant, Some("web"));
        assert!(
            challenges_of(&beside)
                .is_some_and(|(_, rest)| rest.starts_with("co.zy.") && rest.len() == 22),
            "{beside}"
        );
        for other in [
            "web",
            "acme-challenges",
            "x.acme-challenges",
            "cozystack-http-redirect",
        ] {
            assert_eq!(challenges_of(other), None, "{other}");
        }
    }

    #[test]
    fn thirty_two_bits_collide() {
        for hostname in [
            "app.134599.alice.example.org",
            "app.154363.alice.example.org",
        ] {
            assert_eq!(host_listener(hostname), "https-app-40b9adbd");
        }
    }
}
