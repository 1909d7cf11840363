//! Issued certificates, and the checks that they pass before they are served.

use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use pki::{Finding, Problem, Refuser, Signature};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};

use crate::key::PrivateKeyPem;
use crate::names::{DnsName, Names};
use crate::renewal;

/// Clock skew that is tolerated before a new certificate counts as not yet valid.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// A certificate with its key, as an [`crate::Issuer`] returns it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IssuedCertificate {
    /// The chain in PEM: the leaf, then each certificate that signed the one before it; without the
    /// root.
    pub chain_pem: String,
    /// The key of the leaf.
    pub key_pem: PrivateKeyPem,
    /// DNS names of the leaf.
    pub names: Names,
    /// Start of the leaf's validity.
    pub not_before: Timestamp,
    /// End of the leaf's validity.
    pub not_after: Timestamp,
    /// Name of the [`crate::Issuer`] that returned it.
    pub issuer: String,
    /// Name of the issuer of a list that issued it, where that is not the first of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_by: Option<String>,
    /// Serial number of the leaf in hexadecimal.
    pub serial: String,
    /// Identifier in ARI (RFC 9773, 4.1); None where the leaf has no authority key identifier.
    pub ari_id: Option<String>,
}

impl IssuedCertificate {
    /// Reads a chain and its key, and rejects a certificate that must not be served.
    ///
    /// Checks that the key belongs to the leaf, that the names are `names` (some CAs add `www.` to
    /// a name), that it has not expired, that each certificate is signed by the next one, and that
    /// Envoy loads it. A certificate that is not valid yet is accepted: while our clock is behind,
    /// rejecting it would have the CA issue one after the other, and each of them is better than
    /// none ([`IssuedCertificate::may_replace`]).
    pub fn verified(
        chain_pem: String,
        key_pem: PrivateKeyPem,
        names: &Names,
        issuer: &str,
        now: Timestamp,
    ) -> Result<Self, Unfit> {
        let certificate = Self::read(chain_pem, key_pem, issuer)?;
        if !is_for(&certificate.names, names) {
            return Err(Unfit::Names {
                wanted: names.to_string(),
                found: certificate.names.to_string(),
            });
        }
        if certificate.not_after <= now {
            return Err(Unfit::Expired {
                since: certificate.not_after,
            });
        }
        if let Some(finding) = certificate
            .findings(now)
            .into_iter()
            .find(|found| found.refuser == Refuser::Envoy)
        {
            return Err(Unfit::Refused(finding));
        }
        Ok(certificate)
    }

    /// Reads a chain and its key; the key must belong to the leaf and each certificate must be
    /// signed by the next one. Names and validity are not checked: for certificates that are held
    /// already or that a user provides.
    pub fn read(chain_pem: String, key_pem: PrivateKeyPem, issuer: &str) -> Result<Self, Unfit> {
        let chain = chain_of(&chain_pem)?;
        let leaf = read(&chain[0])?;
        if !key_pem
            .belongs_to(&chain[0])
            .map_err(|e| Unfit::Key(e.to_string()))?
        {
            return Err(Unfit::OtherKey);
        }
        for (i, pair) in chain.windows(2).enumerate() {
            // Clients may know an algorithm that is not known here.
            if pki::signed_by(&read(&pair[0])?, &read(&pair[1])?) == Signature::Wrong {
                return Err(Unfit::Chain { position: i });
            }
        }
        let names = names_of(&leaf)?;
        let (not_before, not_after) = validity_of(&leaf);
        let serial = leaf.tbs_certificate.raw_serial_as_string().replace(':', "");
        let ari_id = ari_id(&leaf);
        // Written anew: whoever reads it from a Secret gets PEM as RFC 7468 has it, whatever the CA
        // sent.
        let chain_pem = chain
            .iter()
            .map(|der| pki::encode("CERTIFICATE", der))
            .collect();
        Ok(Self {
            names,
            not_before,
            not_after,
            issuer: issuer.to_owned(),
            issued_by: None,
            serial,
            ari_id,
            chain_pem,
            key_pem,
        })
    }

    /// Returns the length of its validity.
    pub fn lifetime(&self) -> SignedDuration {
        self.not_after.duration_since(self.not_before)
    }

    /// Why Envoy or usual TLS clients refuse it, apart from a start that is due to clock skew.
    pub fn findings(&self, now: Timestamp) -> Vec<Finding> {
        let mut findings =
            pki::judge_signed(&chain_of(&self.chain_pem).unwrap_or_default(), now.into());
        let tolerated = SystemTime::from(now + SKEW);
        findings.retain(
            |finding| !matches!(finding.problem, Problem::NotYet(from) if from <= tolerated),
        );
        findings
    }

    /// Why Envoy or usual TLS clients refuse it, for people.
    pub fn refusal(&self, now: Timestamp) -> Option<String> {
        self.findings(now).first().map(refusal)
    }

    /// Returns Ok if this certificate may replace `held`. A working certificate is never replaced
    /// by a worse one: one that is not valid yet, that expires sooner or soon, that clients cannot
    /// verify because intermediates are missing, that covers fewer of the names that are still
    /// wanted, or that Envoy or clients refuse for a reason for which they do not refuse `held`.
    pub fn may_replace(&self, held: &Self, wanted: &Names, now: Timestamp) -> Result<(), Unfit> {
        let of_held = held.findings(now);
        let is_loaded = !of_held
            .iter()
            .any(|finding| finding.refuser == Refuser::Envoy);
        let held_works =
            held.not_before <= now && now < held.not_after && held.names.cover(wanted) && is_loaded;
        if !held_works {
            return Ok(());
        }
        if !self.names.cover(wanted) {
            return Err(Unfit::Names {
                wanted: wanted.to_string(),
                found: self.names.to_string(),
            });
        }
        if self.serial == held.serial && self.issuer == held.issuer {
            return Err(Unfit::Same);
        }
        if self.not_before > now + SKEW {
            return Err(Unfit::NotYet {
                from: self.not_before,
            });
        }
        let is_new = |finding: &Finding| {
            of_held
                .iter()
                .all(|held| !is_alike(&held.problem, &finding.problem))
        };
        if let Some(finding) = self.findings(now).into_iter().find(is_new) {
            return Err(Unfit::Refused(finding));
        }
        // A certificate of a shorter profile (6 days instead of 90) rightly expires sooner than an
        // old one; what counts is that it was issued later and is not about to expire.
        if self.not_after < held.not_after && self.not_before < held.not_before {
            return Err(Unfit::Worse {
                held: held.not_after,
                offered: self.not_after,
            });
        }
        let is_from_the_same = self.issuer == held.issuer;
        // Another issuer, or a shorter profile, is an operator's decision; a certificate that
        // expires within the time that counts as urgent for the held one is not.
        let ends_soon = is_from_the_same
            && self.not_after < held.not_after
            && self.not_after.duration_since(now) < renewal::floor_of(held.lifetime());
        if ends_soon || (is_urgent(self, &now) && !is_urgent(held, &now)) {
            return Err(Unfit::Worse {
                held: held.not_after,
                offered: self.not_after,
            });
        }
        if is_from_the_same && intermediates(self) == 0 && intermediates(held) > 0 {
            return Err(Unfit::Incomplete);
        }
        Ok(())
    }
}

fn is_urgent(c: &IssuedCertificate, now: &Timestamp) -> bool {
    renewal::is_urgent((c.not_before, c.not_after), *now)
}

fn intermediates(c: &IssuedCertificate) -> usize {
    chain_of(&c.chain_pem).map_or(0, |chain| chain.len() - 1)
}

/// Returns the certificates of a PEM text, leaf first.
pub fn chain_of(chain_pem: &str) -> Result<Vec<CertificateDer<'static>>, Unfit> {
    Ok(pki::chain(chain_pem.as_bytes())?)
}

/// Two problems of one kind: an end is an end, whenever it was.
fn is_alike(one: &Problem, other: &Problem) -> bool {
    match (one, other) {
        (Problem::Ended(_), Problem::Ended(_)) | (Problem::NotYet(_), Problem::NotYet(_)) => true,
        (one, other) => one == other,
    }
}

fn read(der: &[u8]) -> Result<X509Certificate<'_>, Unfit> {
    pki::read(der).map_err(|_| Unfit::NotACertificate)
}

/// Returns true if any certificate of the chain was issued by a CA with this common name.
pub(crate) fn leads_to(chain_pem: &str, common_name: &str) -> bool {
    let Ok(chain) = chain_of(chain_pem) else {
        return false;
    };
    chain.iter().any(|der| {
        x509_parser::parse_x509_certificate(der).is_ok_and(|(_, c)| {
            c.issuer()
                .iter_common_name()
                .any(|n| n.as_str().is_ok_and(|n| n == common_name))
        })
    })
}

/// Returns [`IssuedCertificate::ari_id`] of a leaf in DER.
pub fn ari_id_of(leaf: &[u8]) -> Option<String> {
    X509Certificate::from_der(leaf)
        .ok()
        .and_then(|(_, leaf)| ari_id(&leaf))
}

/// Returns the identifier of a certificate in ARI: base64url of its authority key identifier, a
/// dot, and base64url of its serial number (RFC 9773, 4.1).
fn ari_id(leaf: &X509Certificate<'_>) -> Option<String> {
    use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
    let authority = leaf
        .iter_extensions()
        .find_map(|e| match e.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(aki) => aki.key_identifier.as_ref(),
            _ => None,
        })?;
    Some(format!(
        "{}.{}",
        BASE64_URL_SAFE_NO_PAD.encode(authority.0),
        BASE64_URL_SAFE_NO_PAD.encode(leaf.tbs_certificate.raw_serial())
    ))
}

fn names_of(leaf: &X509Certificate<'_>) -> Result<Names, Unfit> {
    let san = leaf
        .subject_alternative_name()
        .map_err(|_| Unfit::NotACertificate)?
        .ok_or(Unfit::NoNames)?;
    let names = san.value.general_names.iter().filter_map(|n| match n {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    Names::parse(names).map_err(|_| Unfit::NoNames)
}

/// Start and end of validity. Years reach to 9999 (RFC 5280, 4.1.2.5), jiff's timestamps to the day
/// before its last.
pub(crate) fn validity_of(certificate: &X509Certificate<'_>) -> (Timestamp, Timestamp) {
    let validity = pki::validity(certificate);
    (timestamp(validity.from), timestamp(validity.until))
}

/// A time of a certificate, which may be later than jiff's last one.
pub fn timestamp(time: SystemTime) -> Timestamp {
    let latest = Timestamp::from_second(Timestamp::MAX.as_second()).expect("a second of its range");
    Timestamp::try_from(time).map_or(latest, |time| time.min(latest))
}

/// The reason why a certificate must not be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Not a PEM chain of X.509 certificates.
    #[error("expected a chain of X.509 certificates in PEM")]
    NotACertificate,
    /// The PEM text cannot be read, or has more than is served.
    #[error("expected a chain of X.509 certificates in PEM: {0}")]
    Pem(#[from] pki::ChainError),
    /// Envoy or usual TLS clients refuse it.
    #[error("{}", refusal(.0))]
    Refused(Finding),
    /// The key cannot be used.
    #[error("the private key cannot be used: {0}")]
    Key(String),
    /// The key belongs to another certificate.
    #[error("the private key does not belong to the certificate")]
    OtherKey,
    /// A certificate in the chain was not signed by the next one.
    #[error("certificate {position} of the chain was not signed by the next one")]
    Chain {
        /// The position of that certificate; the leaf is 0.
        position: usize,
    },
    /// The certificate has no DNS names.
    #[error("the certificate has no usable subject alternative DNS name")]
    NoNames,
    /// The certificate has other names than were requested.
    #[error("the certificate is for {found}, not for {wanted}")]
    Names {
        /// The requested names.
        wanted: String,
        /// The names of the certificate.
        found: String,
    },
    /// The certificate is not valid yet.
    #[error("the certificate is valid only from {from}; is the clock right?")]
    NotYet {
        /// Start of its validity.
        from: Timestamp,
    },
    /// The certificate has expired.
    #[error("the certificate ended at {since}")]
    Expired {
        /// End of its validity.
        since: Timestamp,
    },
    /// The certificate expires sooner than the held one.
    #[error("the certificate ends at {offered}, the one held at {held}")]
    Worse {
        /// End of the held certificate's validity.
        held: Timestamp,
        /// End of the new certificate's validity.
        offered: Timestamp,
    },
    /// The chain has no intermediate certificates, and the held one has.
    #[error("the CA left the intermediate certificates out, which it sent with the one held")]
    Incomplete,
    /// The certificate is the held one.
    #[error("the certificate is the one already held")]
    Same,
}

/// Returns true if a certificate for `found` is what was ordered for `names`. Some CAs add the host
/// `www` of a name, or the name that a wildcard or a host `www` stands under; ordered again, the
/// certificate would be no other. Any further name may be somebody else's.
fn is_for(found: &Names, names: &Names) -> bool {
    let mut others = found.iter().filter(|other| !names.contains(other));
    names.iter().all(|name| found.contains(name))
        && others.all(|other| names.iter().any(|name| is_added(other, name)))
}

fn is_added(other: &DnsName, to: &DnsName) -> bool {
    let (base, other) = (to.base(), other.as_str());
    other == base.strip_prefix("www.").unwrap_or(base) || other.strip_prefix("www.") == Some(base)
}

fn refusal(finding: &Finding) -> String {
    match finding.refuser {
        Refuser::Envoy => format!("{finding}: Envoy does not load it"),
        Refuser::Clients => format!("{finding}: TLS clients refuse it"),
    }
}

/// Returns true if a certificate with `names` is valid for `name`.
pub fn serves(names: &Names, name: &DnsName) -> bool {
    names.iter().any(|n| n.covers(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_signed::self_signed;

    #[test]
    fn a_name_that_cas_add_is_accepted_and_no_other() {
        for (found, names, is_it) in [
            (
                &["a.example", "www.a.example"][..],
                &["a.example"][..],
                true,
            ),
            (&["a.example", "www.a.example"], &["www.a.example"], true),
            (&["*.a.example", "a.example"], &["*.a.example"], true),
            (
                &["a.example", "b.example", "www.b.example"],
                &["a.example", "b.example"],
                true,
            ),
            (&["www.a.example"], &["a.example"], false),
            (&["*.a.example"], &["www.a.example"], false),
            (&["a.example", "mail.a.example"], &["a.example"], false),
            (&["a.example", "*.a.example"], &["a.example"], false),
            (&["b.a.example", "a.example"], &["b.a.example"], false),
        ] {
            fn parsed(names: &[&str]) -> Names {
                Names::parse(names).expect("names")
            }
            assert_eq!(
                is_for(&parsed(found), &parsed(names)),
                is_it,
                "{found:?} for {names:?}"
            );
        }
    }

    #[test]
    fn a_certificate_that_is_not_valid_yet_replaces_none_that_is() {
        let name = DnsName::parse("a.example.org").expect("a name");
        let now = Timestamp::now();
        let day = SignedDuration::from_hours(24);
        fn made(at: Timestamp, name: &DnsName) -> IssuedCertificate {
            self_signed(name, at).expect("made")
        }
        let held = made(now, &name);
        let new = made(now + day, &name);
        let taken = IssuedCertificate::verified(new.chain_pem, new.key_pem, &new.names, "ca", now)
            .expect("it is taken");
        assert!(matches!(
            taken.may_replace(&held, &held.names, now),
            Err(Unfit::NotYet { .. })
        ));
        assert!(taken.may_replace(&held, &held.names, now + day).is_ok());
    }
    /// A certificate with its intermediate, which is changed before it is signed.
    fn with_intermediate(change: fn(&mut rcgen::CertificateParams)) -> IssuedCertificate {
        fn generated() -> rcgen::KeyPair {
            rcgen::KeyPair::generate().expect("a key")
        }
        fn authority(name: &str) -> rcgen::CertificateParams {
            let mut params = rcgen::CertificateParams::default();
            params
                .distinguished_name
                .push(rcgen::DnType::CommonName, name);
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            params
        }
        let root = rcgen::Issuer::new(authority("root"), generated());
        let key = generated();
        let mut intermediate = authority("intermediate");
        change(&mut intermediate);
        let signer = generated();
        let above = intermediate.signed_by(&signer, &root).expect("signs").pem();
        let mut leaf =
            rcgen::CertificateParams::new(vec!["a.example.org".to_owned()]).expect("a name");
        leaf.not_before = rcgen::date_time_ymd(2026, 1, 1);
        leaf.not_after = rcgen::date_time_ymd(2099, 1, 1);
        let leaf = leaf
            .signed_by(&key, &rcgen::Issuer::new(intermediate, signer))
            .expect("signs")
            .pem();
        let key = PrivateKeyPem::new(key.serialize_pem());
        IssuedCertificate::read(format!("{leaf}{above}"), key, "ca").expect("reads")
    }

    #[test]
    fn an_intermediate_that_clients_refuse_replaces_none_that_they_accept() {
        let now = Timestamp::now();
        let held = with_intermediate(|_| ());
        let worse: [fn(&mut rcgen::CertificateParams); 4] = [
            |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1),
            |params| params.is_ca = rcgen::IsCa::NoCa,
            |params| params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature],
            |params| params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth],
        ];
        for change in worse {
            let new = with_intermediate(change);
            let verdict = new.may_replace(&held, &held.names, now);
            assert!(matches!(verdict, Err(Unfit::Refused(_))), "{verdict:?}");
            let again = with_intermediate(change);
            assert_eq!(
                again.may_replace(&new, &held.names, now),
                Ok(()),
                "the held one is no better"
            );
        }
        assert_eq!(
            with_intermediate(|_| ()).may_replace(&held, &held.names, now),
            Ok(()),
            "a good one"
        );
    }
}
