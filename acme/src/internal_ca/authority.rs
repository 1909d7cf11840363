//! CA certificates of the internal CA: making roots and intermediates, signing leaves, name
//! constraints.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
    SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::CaError;
use crate::certificate::{chain_of, validity_of};
use crate::key::PrivateKeyPem;
use crate::names::{DnsName, Names};

/// Backdating of `notBefore`, because clocks differ.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// A domain and all its subdomains (RFC 5280, 4.2.1.10).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subtree(DnsName);

impl Subtree {
    /// Parses a domain; a leading dot or `*.` is removed.
    pub fn parse(text: &str) -> Result<Self, CaError> {
        let bare = text.trim_start_matches("*.").trim_start_matches('.');
        DnsName::parse(bare).map(Self).map_err(|e| CaError::Config {
            field: "permitted names",
            problem: e.to_string(),
        })
    }

    /// Returns true if the subtree contains this name.
    pub fn holds(&self, name: &DnsName) -> bool {
        let tree = self.0.as_str();
        let base = name.base();
        base == tree
            || base
                .strip_suffix(tree)
                .is_some_and(|rest| rest.ends_with('.'))
    }
}

impl fmt::Display for Subtree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The names that a CA may issue for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraints {
    /// These domains, and no IP address.
    Permit(Vec<Subtree>),
    /// Any name. The holder of the CA's key can then impersonate any server to clients that trust
    /// the CA: a deliberate choice.
    Unconstrained,
}

impl Constraints {
    /// Permits these domains.
    pub fn permit<S: AsRef<str>>(domains: impl IntoIterator<Item = S>) -> Result<Self, CaError> {
        let mut trees = domains
            .into_iter()
            .map(|d| Subtree::parse(d.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        trees.sort();
        trees.dedup();
        let constraints = Self::Permit(trees);
        constraints.check()?;
        Ok(constraints)
    }

    pub(super) fn check(&self) -> Result<(), CaError> {
        match self {
            Self::Permit(trees) if trees.is_empty() => Err(CaError::Config {
                field: "permitted names",
                problem: "expected at least one domain; say `unconstrained` if the CA shall issue for any name"
                    .to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Checks that all names are permitted.
    pub(super) fn permit_names(&self, names: &Names) -> Result<(), CaError> {
        let Self::Permit(trees) = self else {
            return Ok(());
        };
        match names.iter().find(|n| !trees.iter().any(|t| t.holds(n))) {
            None => Ok(()),
            Some(name) => Err(CaError::NotPermitted {
                name: name.to_string(),
                permitted: self.to_string(),
            }),
        }
    }

    fn extension(&self) -> Option<NameConstraints> {
        let Self::Permit(trees) = self else {
            return None;
        };
        Some(NameConstraints {
            permitted_subtrees: trees
                .iter()
                .map(|t| GeneralSubtree::DnsName(t.to_string()))
                .collect(),
            // A constraint on DNS names alone would permit any IP address.
            excluded_subtrees: vec![
                GeneralSubtree::IpAddress(CidrSubnet::V4([0; 4], [0; 4])),
                GeneralSubtree::IpAddress(CidrSubnet::V6([0; 16], [0; 16])),
            ],
        })
    }
}

impl fmt::Display for Constraints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unconstrained => f.write_str("all names"),
            Self::Permit(trees) => f.write_str(
                &trees
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        }
    }
}

/// A CA certificate with its key, in PEM. `chain` is the certificate and those above it, without
/// the root.
pub(super) struct Signer<'a> {
    pub(super) chain: &'a str,
    pub(super) key: &'a PrivateKeyPem,
}

/// A loaded CA certificate with its key.
pub(super) struct Authority {
    issuer: rcgen::Issuer<'static, KeyPair>,
    chain_pem: String,
    not_after: Timestamp,
    permitted: Option<Vec<String>>,
}

impl Authority {
    pub(super) fn load(signer: Signer<'_>) -> Result<Self, CaError> {
        let chain = chain_of(signer.chain).map_err(|e| CaError::Unfit(e.to_string()))?;
        let (_, ca) = X509Certificate::from_der(&chain[0])
            .map_err(|_| CaError::Unfit("expected a certificate in PEM".to_owned()))?;
        if !ca.is_ca() {
            return Err(CaError::Unfit(
                "it is no CA certificate (basicConstraints CA:TRUE is missing)".to_owned(),
            ));
        }
        if ca
            .key_usage()
            .ok()
            .flatten()
            .is_some_and(|u| !u.value.key_cert_sign())
        {
            return Err(CaError::Unfit(
                "its key usage does not allow signing certificates".to_owned(),
            ));
        }
        if !signer.key.belongs_to(&chain[0])? {
            return Err(CaError::Unfit("the key does not belong to it".to_owned()));
        }
        let (_, not_after) = validity_of(&ca);
        let permitted = ca.name_constraints().ok().flatten().and_then(|c| {
            let trees = c.value.permitted_subtrees.as_ref()?;
            let mut names: Vec<String> = trees
                .iter()
                .filter_map(|t| match &t.base {
                    GeneralName::DNSName(n) => Some((*n).to_owned()),
                    _ => None,
                })
                .collect();
            names.sort();
            Some(names)
        });
        let issuer = rcgen::Issuer::from_ca_cert_der(&chain[0], signer.key.key_pair()?)?;
        Ok(Self {
            issuer,
            chain_pem: signer.chain.to_owned(),
            not_after,
            permitted,
        })
    }

    /// Checks that the configuration permits nothing that the CA certificate does not; it may
    /// permit less.
    pub(super) fn check_constraints(&self, wanted: &Constraints) -> Result<(), CaError> {
        let Some(found) = &self.permitted else {
            return Ok(());
        };
        let trees = found
            .iter()
            .map(|n| Subtree::parse(n))
            .collect::<Result<Vec<_>, _>>()?;
        let inside = match wanted {
            Constraints::Unconstrained => false,
            Constraints::Permit(wanted) => {
                wanted.iter().all(|w| trees.iter().any(|t| t.holds(&w.0)))
            }
        };
        if inside {
            return Ok(());
        }
        Err(CaError::OtherConstraints {
            found: found.join(", "),
            wanted: wanted.to_string(),
        })
    }

    /// Signs a leaf and returns its chain.
    pub(super) fn sign(
        &self,
        names: &Names,
        key: &PrivateKeyPem,
        validity: SignedDuration,
        now: Timestamp,
    ) -> Result<String, CaError> {
        if self.not_after <= now {
            return Err(CaError::Ended(self.not_after));
        }
        let mut params = CertificateParams::new(names.to_strings())?;
        params.distinguished_name = DistinguishedName::new();
        params.serial_number = Some(random_serial());
        params.not_before = calendar(now - BACKDATE);
        // Clients would reject a leaf that outlives its CA.
        params.not_after = calendar((now + validity).min(self.not_after));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let leaf = params.signed_by(&key.key_pair()?, &self.issuer)?;
        Ok(format!("{}{}", leaf.pem(), self.chain_pem))
    }
}

/// Makes a root: certificate and key in PEM.
pub(super) fn make_root(
    organization: &str,
    constraints: &Constraints,
    life: SignedDuration,
    now: Timestamp,
) -> Result<(String, PrivateKeyPem), CaError> {
    let key = PrivateKeyPem::generate_p384()?;
    let mut params = ca_params(organization, "Root", constraints, life, now);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    let root = params.self_signed(&key.key_pair()?)?;
    Ok((root.pem(), key))
}

/// Makes an intermediate below a root.
pub(super) fn make_intermediate(
    organization: &str,
    constraints: &Constraints,
    (root_pem, root_key): (&str, &PrivateKeyPem),
    life: SignedDuration,
    now: Timestamp,
) -> Result<(String, PrivateKeyPem), CaError> {
    let root = Authority::load(Signer {
        chain: root_pem,
        key: root_key,
    })?;
    let key = PrivateKeyPem::generate_p384()?;
    let mut params = ca_params(organization, "Intermediate", constraints, life, now);
    params.not_after = calendar((now + life).min(root.not_after));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.use_authority_key_identifier_extension = true;
    let intermediate = params.signed_by(&key.key_pair()?, &root.issuer)?;
    Ok((intermediate.pem(), key))
}

fn ca_params(
    organization: &str,
    role: &str,
    constraints: &Constraints,
    life: SignedDuration,
    now: Timestamp,
) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, organization);
    // The names of two generations must differ, or a client could try the wrong one of two equal
    // names.
    let serial = random_serial();
    let tag: String = serial
        .to_bytes()
        .iter()
        .skip(1)
        .take(4)
        .map(|b| format!("{b:02x}"))
        .collect();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{organization} {role} {tag}"));
    params.serial_number = Some(serial);
    params.not_before = calendar(now - BACKDATE);
    params.not_after = calendar(now + life);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params.name_constraints = constraints.extension();
    params
}

/// A random serial number of 127 bits: positive, and far above the 64 bits that the CA/Browser
/// Forum requires.
pub(crate) fn random_serial() -> SerialNumber {
    let mut bytes = [0u8; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the operating system gives random bytes");
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    SerialNumber::from_slice(&bytes)
}

/// Converts to rcgen's type of time; X.509 has whole seconds only.
pub(crate) fn calendar(at: Timestamp) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(at.as_second())
        .expect("times of certificates lie within years 0 to 9999")
}
