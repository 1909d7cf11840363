//! The judgement of a chain for a server.

use std::collections::BTreeSet;
use std::time::SystemTime;

use x509_parser::extensions::{GeneralName, GeneralSubtree, ParsedExtension};
use x509_parser::prelude::{X509Certificate, X509Version};

use crate::der::{INTEGER, Reader, SEQUENCE};
use crate::finding::{Finding, Problem, Refuser};
use crate::names::{dotted, name_of};
use crate::public_key::{PublicKey, Unserved};
use crate::signature::{Signature, signed_by, weak};
use crate::x509;

/// Extensions that usual clients know, so that they may be critical.
const KNOWN: [&str; 11] = [
    "2.5.29.15",
    "2.5.29.17",
    "2.5.29.18",
    "2.5.29.19",
    "2.5.29.30",
    "2.5.29.31",
    "2.5.29.32",
    "2.5.29.33",
    "2.5.29.36",
    "2.5.29.37",
    "2.5.29.54",
];
/// Certificates of a chain that are judged. Clients refuse longer ones, and signatures take time.
const LONGEST: usize = 12;
const KEY_USAGE: &str = "2.5.29.15";
const TLS_FEATURE: &str = "1.3.6.1.5.5.7.1.24";
/// The TLS extension that must-staple is about (RFC 6066, 8).
const STATUS_REQUEST: &[u8] = &[5];

/// Judges a chain in DER, leaf first, for a TLS server at a time: what Envoy refuses to load, and
/// what usual TLS clients refuse to verify. Whether clients trust the root, and whether the names
/// are those of a host, is not judged.
///
/// Certificates that are not on the path from the leaf are not judged, nor is a root: clients have
/// their own. The order in the chain does not count.
pub fn judge(chain: &[impl AsRef<[u8]>], now: SystemTime) -> Vec<Finding> {
    judged(chain, now, signed_by)
}

/// Judges a chain whose signatures were verified before, like [`judge`].
pub fn judge_signed(chain: &[impl AsRef<[u8]>], now: SystemTime) -> Vec<Finding> {
    judged(chain, now, |child, parent| {
        if child.issuer() == parent.subject() {
            Signature::Unchecked
        } else {
            Signature::Wrong
        }
    })
}

/// Decides whether a certificate was signed by another.
type SignedBy = fn(&X509Certificate<'_>, &X509Certificate<'_>) -> Signature;

fn judged(chain: &[impl AsRef<[u8]>], now: SystemTime, signed_by: SignedBy) -> Vec<Finding> {
    let mut certificates = Vec::new();
    for (position, der) in chain.iter().enumerate().take(LONGEST) {
        match x509::read(der.as_ref()) {
            Ok(certificate) => certificates.push(certificate),
            Err(why) => {
                return vec![Finding {
                    position,
                    refuser: Refuser::Envoy,
                    problem: Problem::NotX509(why),
                }];
            }
        }
    }
    let Some((leaf, _)) = certificates.split_first() else {
        return Vec::new();
    };
    let mut findings = of_leaf(leaf, now);
    let mut path = vec![0];
    let mut below = leaf;
    while below.subject() != below.issuer() {
        let above = issuers(&certificates, below, signed_by)
            .into_iter()
            .filter(|position| !path.contains(position));
        let judged = above.map(|position| {
            let is_other = signed_by(below, &certificates[position]) == Signature::Wrong;
            let of_key = is_other.then_some(Problem::OtherKey);
            (
                position,
                of_key
                    .into_iter()
                    .chain(of_issuer(&certificates, &path, position, now))
                    .collect::<Vec<_>>(),
            )
        });
        // Of several with this name and key, clients take one that is good.
        let Some((position, found)) = judged.min_by_key(|(_, found)| found.len()) else {
            break;
        };
        findings.extend(found.into_iter().map(|problem| Finding {
            position,
            refuser: Refuser::Clients,
            problem,
        }));
        path.push(position);
        below = &certificates[position];
    }
    findings
}

/// Returns why Envoy does not load a leaf in DER, without a look at the rest of its chain: none of
/// it matters to Envoy.
pub fn unloadable(leaf: &X509Certificate<'_>) -> Option<Finding> {
    of_leaf(leaf, SystemTime::UNIX_EPOCH)
        .into_iter()
        .find(|finding| finding.refuser == Refuser::Envoy)
}

/// The positions of certificates with the name of this one's issuer; those that signed it, where
/// there are any.
fn issuers(
    certificates: &[X509Certificate<'_>],
    below: &X509Certificate<'_>,
    signed_by: SignedBy,
) -> Vec<usize> {
    let named: Vec<usize> = (0..certificates.len())
        .filter(|position| certificates[*position].subject() == below.issuer())
        .collect();
    let signers: Vec<usize> = named
        .iter()
        .copied()
        .filter(|position| signed_by(below, &certificates[*position]) != Signature::Wrong)
        .collect();
    if signers.is_empty() { named } else { signers }
}

fn of_leaf(leaf: &X509Certificate<'_>, now: SystemTime) -> Vec<Finding> {
    let key = PublicKey::of(leaf.public_key());
    let is_ec = key.as_ref().is_ok_and(PublicKey::is_ec);
    let mut found: Vec<(Refuser, Problem)> = Vec::new();
    if let Err(unserved) = key {
        found.push((Refuser::Envoy, Problem::Key(unserved)));
    }
    if leaf.version() != X509Version::V3 && !leaf.extensions().is_empty() {
        found.push((Refuser::Envoy, Problem::Version));
    }
    // BoringSSL looks at the usage when it loads an ECDSA certificate, and else in the handshake.
    let of_usage = if is_ec {
        Refuser::Envoy
    } else {
        Refuser::Clients
    };
    if usage(leaf).is_some_and(|usage| !usage.digital_signature()) {
        found.push((of_usage, Problem::KeyUsage));
    }
    if let Ok(Some(usages)) = leaf.extended_key_usage()
        && !usages.value.server_auth
    {
        found.push((Refuser::Clients, Problem::ExtendedKeyUsage));
    }
    if must_staple(leaf) {
        found.push((Refuser::Envoy, Problem::MustStaple));
    }
    let names = alternative_names(leaf);
    let is_named = names
        .iter()
        .any(|name| matches!(name, GeneralName::DNSName(_) | GeneralName::IPAddress(_)));
    if !is_named {
        let is_uri = |name: &GeneralName<'_>| matches!(name, GeneralName::URI(_));
        let is_titled = leaf
            .subject()
            .iter_common_name()
            .any(|name| !name.as_slice().is_empty());
        let loads = is_titled || names.iter().any(is_uri);
        found.push((
            if loads {
                Refuser::Clients
            } else {
                Refuser::Envoy
            },
            Problem::NoNames,
        ));
    }
    for problem in of_any(leaf, now) {
        let is_usage = problem == Problem::Malformed(name_of(KEY_USAGE).to_owned());
        found.push((if is_usage { of_usage } else { Refuser::Clients }, problem));
    }
    found
        .into_iter()
        .map(|(refuser, problem)| Finding {
            position: 0,
            refuser,
            problem,
        })
        .collect()
}

/// The problems of a certificate above those of `path`.
fn of_issuer(
    certificates: &[X509Certificate<'_>],
    path: &[usize],
    position: usize,
    now: SystemTime,
) -> Vec<Problem> {
    let issuer = &certificates[position];
    let mut found = Vec::new();
    // Clients have the root themselves.
    if issuer.subject() == issuer.issuer() {
        return found;
    }
    match PublicKey::of(issuer.public_key()) {
        Err(unserved @ (Unserved::Algorithm(_) | Unserved::Damaged(_))) => {
            found.push(Problem::Key(unserved))
        }
        Ok(_) | Err(Unserved::RsaSize(_) | Unserved::RsaExponent) => {}
    }
    let constraints = issuer
        .basic_constraints()
        .ok()
        .flatten()
        .map(|constraints| constraints.value);
    if !constraints.is_some_and(|constraints| constraints.ca) {
        found.push(Problem::NotCa);
    }
    // The leaf and certificates that issued themselves do not count.
    let between = path
        .iter()
        .skip(1)
        .map(|at| &certificates[*at])
        .filter(|ca| ca.subject() != ca.issuer())
        .count();
    if constraints
        .and_then(|of| of.path_len_constraint)
        .is_some_and(|longest| between > longest as usize)
    {
        found.push(Problem::PathLength);
    }
    if usage(issuer).is_some_and(|usage| !usage.key_cert_sign()) {
        found.push(Problem::NoCertSign);
    }
    if let Ok(Some(usages)) = issuer.extended_key_usage()
        && !(usages.value.server_auth || usages.value.any)
    {
        found.push(Problem::ExtendedKeyUsage);
    }
    found.extend(refused_name(issuer, &certificates[0]).map(Problem::NotPermitted));
    found.extend(of_any(issuer, now));
    found
}

/// The problems that a certificate can have at any place.
fn of_any(certificate: &X509Certificate<'_>, now: SystemTime) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for extension in certificate.extensions() {
        let oid = dotted(extension.oid.as_bytes());
        let name = name_of(&oid).to_owned();
        if extension.critical && !KNOWN.contains(&oid.as_str()) {
            found.push(Problem::Critical(name.clone()));
        }
        if matches!(
            extension.parsed_extension(),
            ParsedExtension::ParseError { .. }
        ) {
            found.push(Problem::Malformed(name.clone()));
        }
        if !seen.insert(extension.oid.as_bytes().to_vec()) {
            found.push(Problem::Twice(name));
        }
    }
    let validity = x509::validity(certificate);
    if now < validity.from {
        found.push(Problem::NotYet(validity.from));
    }
    if now > validity.until {
        found.push(Problem::Ended(validity.until));
    }
    if certificate.subject() != certificate.issuer() {
        found.extend(weak(certificate).map(Problem::WeakSignature));
    }
    found
}

fn usage<'a>(
    certificate: &'a X509Certificate<'_>,
) -> Option<&'a x509_parser::extensions::KeyUsage> {
    certificate
        .key_usage()
        .ok()
        .flatten()
        .map(|usage| usage.value)
}

fn must_staple(leaf: &X509Certificate<'_>) -> bool {
    leaf.extensions()
        .iter()
        .filter(|extension| dotted(extension.oid.as_bytes()) == TLS_FEATURE)
        .any(|extension| {
            let Some(mut features) = Reader::new(extension.value).inside(SEQUENCE) else {
                return false;
            };
            std::iter::from_fn(|| features.next(INTEGER)).any(|feature| feature == STATUS_REQUEST)
        })
}

fn alternative_names<'a>(leaf: &'a X509Certificate<'_>) -> &'a [GeneralName<'a>] {
    let names = leaf.subject_alternative_name().ok().flatten();
    names
        .map(|names| names.value.general_names.as_slice())
        .unwrap_or_default()
}

/// The first DNS name of a leaf that the name constraints of an issuer do not permit.
fn refused_name(issuer: &X509Certificate<'_>, leaf: &X509Certificate<'_>) -> Option<String> {
    let constraints = issuer.name_constraints().ok().flatten()?.value;
    let domains = |trees: &Option<Vec<GeneralSubtree<'_>>>| -> Vec<String> {
        let trees = trees.iter().flatten().filter_map(|tree| match tree.base {
            GeneralName::DNSName(domain) => {
                Some(domain.trim_start_matches('.').to_ascii_lowercase())
            }
            _ => None,
        });
        trees.collect()
    };
    let permitted = domains(&constraints.permitted_subtrees);
    let excluded = domains(&constraints.excluded_subtrees);
    let mut names = alternative_names(leaf)
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        });
    names.find(|name| {
        let is_permitted =
            permitted.is_empty() || permitted.iter().any(|domain| is_within(name, domain));
        !is_permitted || excluded.iter().any(|domain| is_within(name, domain))
    })
}

fn is_within(name: &str, domain: &str) -> bool {
    domain.is_empty()
        || name == domain
        || name
            .strip_suffix(domain)
            .is_some_and(|rest| rest.ends_with('.'))
}
