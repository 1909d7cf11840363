//! Evaluates CAA records: whether they permit a CA to issue (RFC 8659), with this account and
//! challenge (RFC 8657). Pure.

use crate::challenge::ChallengeKind;

/// One CAA record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaaRecord {
    /// The issuer critical flag.
    pub critical: bool,
    /// Property tag.
    pub tag: String,
    /// Property value.
    pub value: Vec<u8>,
}

/// The issuance that CAA records are evaluated for.
#[derive(Clone, Debug)]
pub struct CaaRequest<'a> {
    /// The CA's names in CAA records (`caaIdentities` of its directory).
    pub identities: &'a [String],
    /// URL of the account; None before it is registered.
    pub account_uri: Option<&'a str>,
    /// The kind of challenge.
    pub method: ChallengeKind,
    /// True for a wildcard.
    pub wildcard: bool,
}

/// The result of the evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaaVerdict {
    /// The CA may issue.
    Allowed,
    /// A critical property that CAs do not know forbids issuance.
    Critical(String),
    /// Only these CAs may issue; none at all if empty.
    OtherIssuer(Vec<String>),
    /// The CA may issue with another account.
    OtherAccount(String),
    /// The CA may issue with other kinds of challenge.
    OtherMethod(String),
}

/// Properties that may have the critical flag: RFC 8659, 4.2 to 4.4, RFC 9495, and the contact
/// properties of the CA/Browser Forum's Baseline Requirements, appendix A.
const KNOWN: [&str; 6] = [
    "issue",
    "issuewild",
    "iodef",
    "issuemail",
    "contactemail",
    "contactphone",
];

/// Evaluates the records of one name; without any, issuance is allowed.
pub fn caa(records: &[CaaRecord], request: &CaaRequest<'_>) -> CaaVerdict {
    if let Some(unknown) = records
        .iter()
        .find(|r| r.critical && !KNOWN.iter().any(|known| is(r, known)))
    {
        return CaaVerdict::Critical(printable(unknown.tag.as_bytes()));
    }
    // RFC 8659, 4.3: issuewild is for wildcards alone and then takes precedence.
    let wild = request.wildcard && records.iter().any(|record| is(record, "issuewild"));
    let tag = if wild { "issuewild" } else { "issue" };
    let relevant: Vec<&CaaRecord> = records.iter().filter(|record| is(record, tag)).collect();
    if relevant.is_empty() {
        return CaaVerdict::Allowed;
    }
    let parsed: Vec<Option<Issue>> = relevant
        .iter()
        .map(|record| Issue::parse(&record.value))
        .collect();
    let mut verdict = None;
    for issue in parsed.iter().flatten() {
        if !request
            .identities
            .iter()
            .any(|identity| identity.eq_ignore_ascii_case(&issue.issuer))
        {
            continue;
        }
        match issue.obstacle(request) {
            None => return CaaVerdict::Allowed,
            obstacle => verdict = verdict.or(obstacle),
        }
    }
    verdict.unwrap_or_else(|| {
        let mut others: Vec<String> = parsed
            .into_iter()
            .flatten()
            .map(|issue| issue.issuer)
            .filter(|issuer| !issuer.is_empty())
            .collect();
        others.sort();
        others.dedup();
        CaaVerdict::OtherIssuer(others)
    })
}

fn is(record: &CaaRecord, tag: &str) -> bool {
    record.tag.eq_ignore_ascii_case(tag)
}

/// A parsed `issue` value.
struct Issue {
    issuer: String,
    parameters: Vec<(String, String)>,
}

impl Issue {
    /// Parses the value by RFC 8659, 4.2; `None` is a malformed value, which counts as one that
    /// names no issuer.
    fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value)
            .ok()
            .filter(|text| text.is_ascii())?;
        let mut parts = text.split(';').map(|part| part.trim_matches(blank));
        let issuer = parts
            .next()
            .unwrap_or_default()
            .trim_end_matches('.')
            .to_ascii_lowercase();
        if !issuer
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.')
        {
            return None;
        }
        let mut parameters = Vec::new();
        for part in parts.filter(|part| !part.is_empty()) {
            let (tag, value) = part.split_once('=')?;
            let (tag, value) = (tag.trim_end_matches(blank), value.trim_start_matches(blank));
            if tag.is_empty()
                || !tag.chars().all(|c| c.is_ascii_alphanumeric())
                || value.contains(blank)
            {
                return None;
            }
            parameters.push((tag.to_ascii_lowercase(), value.to_owned()));
        }
        Some(Self { issuer, parameters })
    }

    fn values(&self, tag: &str) -> Vec<&str> {
        self.parameters
            .iter()
            .filter(|(name, _)| name == tag)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// Returns the reason why the CA may not issue by this value. RFC 8657, 3 and 4: a parameter
    /// that occurs twice cannot be satisfied.
    fn obstacle(&self, request: &CaaRequest<'_>) -> Option<CaaVerdict> {
        let accounts = self.values("accounturi");
        let account_fits = match accounts[..] {
            [] => true,
            [uri] => request.account_uri == Some(uri),
            _ => false,
        };
        if !account_fits {
            return Some(CaaVerdict::OtherAccount(printable(
                accounts.join(" and ").as_bytes(),
            )));
        }
        let methods = self.values("validationmethods");
        let method_fits = match methods[..] {
            [] => true,
            [list] => list
                .split(',')
                .any(|method| method == request.method.as_str()),
            _ => false,
        };
        (!method_fits).then(|| CaaVerdict::OtherMethod(printable(methods.join(" and ").as_bytes())))
    }
}

fn blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

fn printable(bytes: &[u8]) -> String {
    super::super::api::quote(&String::from_utf8_lossy(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ACCOUNT: &str = "https://ca.example/acct/1";

    fn verdict(records: &[(&str, &str)], wildcard: bool) -> CaaVerdict {
        let records: Vec<CaaRecord> = records
            .iter()
            .map(|(tag, value)| CaaRecord {
                critical: tag.starts_with('!'),
                tag: tag.trim_start_matches('!').to_owned(),
                value: value.as_bytes().to_vec(),
            })
            .collect();
        let identities = ["ca.example".to_owned(), "other-name.example".to_owned()];
        let request = CaaRequest {
            identities: &identities,
            account_uri: Some(ACCOUNT),
            method: ChallengeKind::Http01,
            wildcard,
        };
        caa(&records, &request)
    }

    #[test]
    fn the_tables_of_rfc_8659_and_8657() {
        use CaaVerdict::*;
        fn other(names: &[&str]) -> CaaVerdict {
            OtherIssuer(names.iter().map(|name| (*name).to_owned()).collect())
        }
        let account = format!("ca.example; accounturi={ACCOUNT}");
        let both = format!("ca.example;accounturi={ACCOUNT};validationmethods=dns-01,http-01");
        for (records, wildcard, wanted) in [
            (vec![], false, Allowed),
            (vec![("issue", "ca.example")], false, Allowed),
            (vec![("ISSUE", " CA.Example. ")], false, Allowed),
            (vec![("issue", "other-name.example")], true, Allowed),
            (
                vec![("issue", "foreign.example")],
                false,
                other(&["foreign.example"]),
            ),
            (vec![("issue", ";")], false, other(&[])),
            (vec![("issue", "")], false, other(&[])),
            (vec![("issue", "ca.example bad")], false, other(&[])),
            (vec![("issue", "ca.example; %%%")], false, other(&[])),
            (
                vec![("issue", "foreign.example"), ("issue", "ca.example")],
                false,
                Allowed,
            ),
            // issuewild applies to wildcards only.
            (
                vec![("issue", "ca.example"), ("issuewild", ";")],
                true,
                other(&[]),
            ),
            (
                vec![("issue", "ca.example"), ("issuewild", ";")],
                false,
                Allowed,
            ),
            (vec![("issuewild", "foreign.example")], false, Allowed),
            (
                vec![("issue", ";"), ("issuewild", "ca.example")],
                true,
                Allowed,
            ),
            (vec![("iodef", "mailto:a@b.example")], false, Allowed),
            // The critical flag.
            (vec![("!issue", "ca.example")], false, Allowed),
            (
                vec![("issue", "ca.example"), ("!tbs", "x")],
                false,
                Critical("tbs".to_owned()),
            ),
            (vec![("issue", "ca.example"), ("tbs", "x")], false, Allowed),
            // RFC 8657.
            (vec![("issue", account.as_str())], false, Allowed),
            (vec![("issue", both.as_str())], false, Allowed),
            (
                vec![("issue", "ca.example; accounturi=x")],
                false,
                OtherAccount("x".to_owned()),
            ),
            (
                vec![("issue", "ca.example; accounturi=x; accounturi=x")],
                false,
                OtherAccount("x and x".to_owned()),
            ),
            (
                vec![
                    ("issue", "ca.example; accounturi=x"),
                    ("issue", account.as_str()),
                ],
                false,
                Allowed,
            ),
            (
                vec![("issue", "ca.example; validationmethods=dns-01")],
                false,
                OtherMethod("dns-01".to_owned()),
            ),
            (
                vec![("issue", "ca.example; validationmethods=")],
                false,
                OtherMethod(String::new()),
            ),
            (vec![("issue", "ca.example; unknown=1")], false, Allowed),
        ] {
            assert_eq!(
                verdict(&records, wildcard),
                wanted,
                "{records:?} wildcard={wildcard}"
            );
        }
    }

    proptest! {
        /// The owner of a zone may write anything into its records: they allow only a CA that they
        /// name.
        #[test]
        fn no_records_allow_another_ca(
            records in proptest::collection::vec((
                proptest::sample::select(vec!["issue", "issuewild", "ISSUE", "iodef", "tbs"]), any::<bool>(),
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..60),
                    "(ca\\.example|other\\.example|;|=| |accounturi|validationmethods|dns-01|,){0,9}"
                        .prop_map(String::into_bytes),
                ],
            ), 0..6),
            wildcard in any::<bool>(),
        ) {
            let issues = |tag: &str| tag.eq_ignore_ascii_case("issue");
            let records: Vec<CaaRecord> = records.into_iter()
                .map(|(tag, critical, value)| CaaRecord { critical, tag: tag.to_owned(), value }).collect();
            let request = CaaRequest { identities: &["ca.example".to_owned()], account_uri: Some(ACCOUNT),
                method: ChallengeKind::Dns01, wildcard };
            let named = records.iter().any(|record| {
                String::from_utf8_lossy(&record.value).to_ascii_lowercase().contains("ca.example")
            });
            match caa(&records, &request) {
                CaaVerdict::Allowed => {
                    let speaks = |record: &CaaRecord| issues(&record.tag) || wildcard && record.tag == "issuewild";
                    prop_assert!(named || !records.iter().any(speaks));
                }
                CaaVerdict::OtherIssuer(told) => {
                    prop_assert!(!told.iter().any(|issuer| issuer.chars().any(char::is_control)));
                }
                CaaVerdict::Critical(told) | CaaVerdict::OtherAccount(told) | CaaVerdict::OtherMethod(told) => {
                    prop_assert!(!told.chars().any(char::is_control), "{told:?}");
                }
            }
        }
    }
}
