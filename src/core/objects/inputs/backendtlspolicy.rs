//! BackendTLSPolicy: encryption and verification of connections to Services.

use super::text::{exact_hostname, quoted};
use super::{LocalRef, Meta, ParseError, Policy, PolicyRules};
use crate::gateway_api::backendtlspolicies::{
    BackendTlsPolicySpec, BackendTlsPolicyValidation,
    BackendTlsPolicyValidationSubjectAltNamesType as SanType,
};
use crate::model::{Hostname, SubjectAltName};

/// The longest URI of a certificate that a policy may name, in characters (`AbsoluteURI`).
const URI: usize = 253;

/// The verification of backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validation {
    /// The SNI sent to them.
    pub hostname: Hostname,
    /// Subject Alternative Names, one of which their certificate must have; never empty.
    pub names: Vec<SubjectAltName>,
    /// The CA certificates that must have signed it.
    pub roots: Roots,
}

/// The source of the trusted CA certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// The system's CA certificates (`wellKnownCACertificates: System`).
    System,
    /// In objects of the policy's namespace; never empty.
    References(Vec<LocalRef>),
}

impl Validation {
    pub(super) fn policy(meta: Meta, spec: BackendTlsPolicySpec) -> Result<Policy, ParseError> {
        let rules = PolicyRules::Tls(Self::read(&meta, spec.validation));
        Policy::new(meta, spec.target_refs, rules)
    }

    pub(super) fn read(meta: &Meta, spec: BackendTlsPolicyValidation) -> Result<Self, String> {
        let hostname =
            exact_hostname(&spec.hostname).map_err(|why| format!("validation.hostname: {why}"))?;
        let mut names = Vec::new();
        for (index, name) in spec
            .subject_alt_names
            .unwrap_or_default()
            .into_iter()
            .enumerate()
        {
            let name = match name.r#type {
                SanType::Hostname => dns_name(name.hostname.as_deref()),
                SanType::Uri => uri(name.uri.unwrap_or_default()),
            };
            names.push(name.map_err(|why| format!("validation.subjectAltNames[{index}]: {why}"))?);
        }
        if names.is_empty() {
            names.push(SubjectAltName::Dns(hostname.clone()));
        }
        names.sort();
        names.dedup();
        let references: Vec<LocalRef> = spec
            .ca_certificate_refs
            .unwrap_or_default()
            .into_iter()
            .map(|to| LocalRef::to_roots(to.group, to.kind, meta.name.namespace.clone(), to.name))
            .collect();
        let well_known = spec
            .well_known_ca_certificates
            .filter(|name| !name.is_empty());
        let roots = match (well_known.as_deref(), references.is_empty()) {
            (Some("System"), true) => Roots::System,
            (Some(other), true) => {
                return Err(format!(
                    "validation.wellKnownCACertificates: {} is not known, use System",
                    quoted(other)
                ));
            }
            (None, false) => Roots::References(references),
            (Some(_), false) | (None, true) => {
                return Err(
                    "validation: one of caCertificateRefs and wellKnownCACertificates is needed"
                        .to_owned(),
                );
            }
        };
        Ok(Self {
            hostname,
            names,
            roots,
        })
    }
}

fn dns_name(text: Option<&str>) -> Result<SubjectAltName, String> {
    let text = text.ok_or("a name of type Hostname needs hostname")?;
    Hostname::parse(text)
        .map(SubjectAltName::Dns)
        .map_err(|error| error.to_string())
}

/// Parses a URI with a scheme and a non-empty rest (RFC 3986, 3).
fn uri(text: String) -> Result<SubjectAltName, String> {
    let (scheme, rest) = text.split_once(':').unwrap_or_default();
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let is_graphic = text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_scheme || rest.is_empty() || !is_graphic || text.len() > URI {
        return Err(format!("{} is no URI of a certificate", quoted(&text)));
    }
    Ok(SubjectAltName::Uri(text.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inputs::{Kind, Object, ObjectKey, PolicyTarget};
    use crate::model::ObjectName;

    fn policy(validation: Value) -> Policy {
        let value = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
            "metadata": {"name": "p", "namespace": "a"}, "spec": {"validation": validation, "targetRefs": [
                {"group": "", "kind": "Service", "name": "web", "sectionName": "https"},
                {"group": "x", "kind": "Y", "name": "z"}]}});
        match Object::parse_admitted(value).expect("a policy") {
            Object::Policy(policy) => policy,
            other => panic!("{other:?}"),
        }
    }

    fn validation(policy: Policy) -> Result<Validation, String> {
        match policy.rules {
            PolicyRules::Tls(validation) => validation,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_hostname_is_what_a_certificate_is_for_unless_names_are_given() {
        fn dns(name: &str) -> SubjectAltName {
            SubjectAltName::Dns(Hostname::parse(name).expect("a hostname"))
        }
        let read =
            policy(json!({"hostname": "web.example.org", "wellKnownCACertificates": "System"}));
        let web = PolicyTarget {
            object: ObjectKey::new(Kind::Service, ObjectName::new("a", "web")),
            section: Some("https".into()),
        };
        assert_eq!(read.targets, vec![web], "the Service is a target");
        assert_eq!(
            read.others,
            vec!["Y z of group \"x\"".to_owned()],
            "anything else is named"
        );
        let read = validation(read).expect("it can be carried out");
        assert_eq!(
            read.names,
            vec![dns("web.example.org")],
            "the hostname is the name"
        );
        assert_eq!(read.roots, Roots::System, "the roots are the system's");
        let references = json!([{"group": "", "kind": "ConfigMap", "name": "ca"}]);
        let names = json!([{"type": "URI", "uri": "spiffe://x/y"}, {"type": "Hostname", "hostname": "*.b.org"}]);
        let read = policy(
            json!({"hostname": "web.org", "caCertificateRefs": references, "subjectAltNames": names}),
        );
        assert_eq!(&*read.roots()[0].name.to_string(), "a/ca");
        let read = validation(read).expect("it can be carried out");
        assert_eq!(
            read.names,
            [dns("*.b.org"), SubjectAltName::Uri("spiffe://x/y".into())]
        );
    }

    /// The targets are kept all the same: they must not be served without the policy.
    #[test]
    fn an_impossible_policy_keeps_its_targets() {
        fn system(hostname: &str) -> Value {
            json!({"hostname": hostname, "wellKnownCACertificates": "System"})
        }
        fn named(name: Value) -> Value {
            json!({"hostname": "a.org", "wellKnownCACertificates": "System", "subjectAltNames": [name]})
        }
        for (asked, why) in [
            (system("*.a.org"), "must name one host"),
            (system("10.0.0.1"), "IP address"),
            (
                json!({"hostname": "a.org"}),
                "one of caCertificateRefs and wellKnownCACertificates",
            ),
            (
                json!({"hostname": "a.org", "wellKnownCACertificates": "x.org/Own"}),
                "\"x.org/Own\" is not known",
            ),
            (named(json!({"type": "URI", "uri": "spiffe"})), "is no URI"),
            (
                named(json!({"type": "URI", "uri": "spiffe://a\nb"})),
                "is no URI",
            ),
            (named(json!({"type": "Hostname"})), "needs hostname"),
            (
                named(json!({"type": "Email", "hostname": "x"})),
                "unknown value `Email`",
            ),
            (json!({"hostname": 7}), "cannot be read"),
        ] {
            let read = policy(asked.clone());
            assert_eq!(read.targets.len(), 1, "{asked}");
            let told = validation(read).expect_err("it cannot be carried out");
            assert!(told.contains(why), "{told}");
        }
    }
}
