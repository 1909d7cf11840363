//! What usual TLS clients refuse in the chain of a certificate. Judged when somebody asks, and
//! once.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use crate::model::Certificate;
use pki::{Finding, Problem};

/// The judgement of a chain. It costs checks of signatures; while each certificate of the chain is
/// valid, its result is the same at all times.
#[derive(Clone, Debug)]
pub struct ChainJudgement {
    findings: Vec<Finding>,
    /// The time in which each certificate of the chain is valid.
    valid: Range<SystemTime>,
    /// The end of the first certificate above the leaf, if clients refuse the chain from then on.
    pub issuers_end: Option<SystemTime>,
}

impl ChainJudgement {
    fn of(certificate: &Certificate) -> Self {
        let issuers = pki::certificates(certificate.issuers.as_bytes()).unwrap_or_default();
        let read = issuers.iter().filter_map(|der| pki::read(der).ok());
        let valid = read
            .map(|read| pki::validity(&read))
            .fold(certificate.not_before..certificate.not_after, |all, of| {
                all.start.max(of.from)..all.end.min(of.until)
            });
        let mut findings = certificate.findings(valid.start);
        findings.retain(is_lasting);
        let issuers_end =
            (!issuers.is_empty() && is_ended(certificate, valid.end)).then_some(valid.end);
        Self {
            findings,
            valid,
            issuers_end,
        }
    }

    /// The findings about the certificate at a time, without those about the dates of the leaf.
    pub fn findings(&self, certificate: &Certificate, now: SystemTime) -> Vec<Finding> {
        if self.valid.contains(&now) {
            return self.findings.clone();
        }
        let mut findings = certificate.findings(now);
        findings.retain(|finding| finding.position > 0 || is_lasting(finding));
        findings
    }

    /// The times at which the findings change.
    pub fn times(&self) -> impl Iterator<Item = SystemTime> {
        let ended = self.issuers_end.map(|end| end + Duration::from_secs(1));
        std::iter::once(self.valid.start).chain(ended)
    }
}

/// True if clients refuse the chain after this time because a certificate above the leaf has ended.
fn is_ended(certificate: &Certificate, end: SystemTime) -> bool {
    let after = certificate.findings(end + Duration::from_secs(1));
    after
        .iter()
        .any(|finding| finding.position > 0 && matches!(finding.problem, Problem::Ended(_)))
}

/// True if a finding does not depend on the time. A Secret has no certificate that cannot be
/// decoded.
fn is_lasting(finding: &Finding) -> bool {
    !matches!(
        finding.problem,
        Problem::NotYet(_) | Problem::Ended(_) | Problem::NotX509(_)
    )
}

/// The judgement of the certificate beside it, once it was asked for. It does not count in
/// comparisons.
#[derive(Clone, Debug, Default)]
pub(super) struct Judged(OnceLock<Arc<ChainJudgement>>);

impl Judged {
    pub(super) fn of(&self, certificate: &Certificate) -> &ChainJudgement {
        self.0
            .get_or_init(|| Arc::new(ChainJudgement::of(certificate)))
    }
}

impl PartialEq for Judged {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Judged {}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };

    use super::super::secret::parse_certificate;
    use super::*;

    const YEAR: u64 = 365 * 24 * 60 * 60;

    fn at(year: i32) -> SystemTime {
        UNIX_EPOCH
            + Duration::from_secs(
                u64::try_from(year - 1970).expect("after 1970") * YEAR + 30 * 24 * 60 * 60,
            )
    }

    /// A chain of a leaf until 2060 and an intermediate until 2050.
    fn judged(
        leaf: impl Fn(&mut CertificateParams),
        intermediate: impl Fn(&mut CertificateParams),
    ) -> (Certificate, ChainJudgement) {
        let root_key = KeyPair::generate().expect("a key");
        let ca_key = KeyPair::generate().expect("a key");
        let key = KeyPair::generate().expect("a key");
        fn named(name: &str) -> CertificateParams {
            let mut params = CertificateParams::default();
            params
                .distinguished_name
                .push(rcgen::DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        }
        let root = Issuer::new(named("root"), root_key);
        let mut params = named("intermediate");
        params.not_before = rcgen::date_time_ymd(2010, 1, 1);
        params.not_after = rcgen::date_time_ymd(2050, 1, 1);
        intermediate(&mut params);
        let ca = params.signed_by(&ca_key, &root).expect("a certificate");
        let ca_pem = ca.pem();
        let ca = Issuer::new(params, ca_key);
        let mut params = CertificateParams::new(vec!["a.example.org".to_owned()]).expect("a name");
        params.not_before = rcgen::date_time_ymd(2010, 1, 1);
        params.not_after = rcgen::date_time_ymd(2060, 1, 1);
        leaf(&mut params);
        let pem = params.signed_by(&key, &ca).expect("a certificate").pem() + &ca_pem;
        let certificate =
            parse_certificate(pem.as_bytes(), key.serialize_pem().as_bytes()).expect("a chain");
        let judgement = ChainJudgement::of(&certificate);
        (certificate, judgement)
    }

    fn told((certificate, judgement): &(Certificate, ChainJudgement), year: i32) -> Vec<String> {
        judgement
            .findings(certificate, at(year))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_chain_is_good_until_its_first_intermediate_ends() {
        let good = judged(|_| (), |_| ());
        assert_eq!(told(&good, 2026), [""; 0]);
        assert!(
            good.1
                .issuers_end
                .is_some_and(|end| end > at(2049) && end < at(2050)),
            "{:?}",
            good.1.issuers_end
        );
        assert!(
            told(&good, 2055)[0].contains("certificate 2 of the chain ended at"),
            "{:?}",
            told(&good, 2055)
        );
        let long = judged(|_| (), |ca| ca.not_after = rcgen::date_time_ymd(2070, 1, 1));
        assert_eq!(long.1.issuers_end, None, "the leaf ends before it");
        assert_eq!(
            told(&long, 2065),
            [""; 0],
            "the dates of the leaf are judged elsewhere"
        );
    }

    #[test]
    fn what_clients_refuse_at_all_times_is_found_within_and_beyond_the_dates() {
        let no_server = judged(
            |leaf| leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            |_| (),
        );
        for year in [2026, 2055] {
            assert!(
                told(&no_server, year)[0].contains("extKeyUsage without serverAuth"),
                "{:?}",
                told(&no_server, year)
            );
        }
    }
}
