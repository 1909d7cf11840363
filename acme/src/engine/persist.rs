//! dns-persist-01 (draft-ietf-acme-dns-persist): a permanent record binds a name to our account, so
//! that no record is written for each order.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::attempt::OrderAttempt;
use super::problem::{of_account, of_dns};
use crate::challenge::dns::TxtRecord;
use crate::failure::{Class, Failure};
use crate::names::DnsName;

/// Time to live of a record in seconds; records do not change, so that caches may keep them.
const TTL: u32 = 3600;
/// Remaining validity below which a record counts as expired: the CA looks it up later, and by
/// another clock.
const MARGIN: SignedDuration = SignedDuration::from_hours(1);

/// The members of the challenge that are specific to its type.
#[derive(Deserialize)]
struct Challenge {
    #[serde(rename = "issuer-domain-names", default)]
    issuers: Vec<String>,
}

/// A parsed record: the issuer's domain, the account, wildcard policy and expiry. The syntax is
/// that of a CAA property (RFC 8659, 4.2).
#[derive(Debug, PartialEq, Eq)]
struct Binding {
    issuer: String,
    account: String,
    wildcard: bool,
    until: Option<i64>,
}

impl Binding {
    /// Parses a record; `None` if it binds no account.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let issuer = parts.next()?.trim_end_matches('.').to_ascii_lowercase();
        let mut account = None;
        let mut wildcard = false;
        let mut until = None;
        for (tag, value) in parts
            .filter(|part| !part.is_empty())
            .map(|part| part.split_once('=').unwrap_or((part, "")))
        {
            match tag.trim().to_ascii_lowercase().as_str() {
                "accounturi" => account = Some(value.trim().to_owned()),
                "policy" => wildcard = value.trim().eq_ignore_ascii_case("wildcard"),
                // A record with an unreadable time binds no account: it may have expired.
                "persistuntil" => until = Some(value.trim().parse().ok()?),
                // The draft: unknown parameters are ignored.
                _ => {}
            }
        }
        Some(Self {
            issuer,
            account: account?,
            wildcard,
            until,
        })
    }

    /// Returns true if this record suffices for `wanted`; one for wildcards includes the base name.
    fn covers(&self, wanted: &Self, now: Timestamp) -> bool {
        self.issuer == wanted.issuer
            && self.account == wanted.account
            && (self.wildcard || !wanted.wildcard)
            && !self.has_ended(now + MARGIN)
    }

    fn has_ended(&self, at: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= at.as_second())
    }
}

impl std::fmt::Display for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; accounturi={}", self.issuer, self.account)?;
        if self.wildcard {
            f.write_str("; policy=wildcard")?;
        }
        match self.until {
            Some(until) => write!(f, "; persistUntil={until}"),
            None => Ok(()),
        }
    }
}

/// Makes sure that a name has its record: finds it, or writes it where a provider is configured. A
/// valid record is never removed; an expired one of ours is, once its successor is visible.
pub(super) async fn ensure(
    attempt: &OrderAttempt<'_>,
    name: &DnsName,
    url: &str,
) -> Result<(), Failure> {
    let solvers = &attempt.issuer.config.solvers;
    let Some(persist) = &solvers.persist else {
        return Ok(());
    };
    let issuer = &attempt.issuer.config.name;
    let now = Timestamp::now();
    let answer = attempt
        .account
        .post_as_get(url)
        .await
        .map_err(|e| of_account(issuer, &e, now))?;
    let challenge: Option<Challenge> = serde_json::from_slice(&answer.body).ok();
    let domain = challenge
        .and_then(|c| c.issuers.into_iter().next())
        .filter(|d| DnsName::parse(d).is_ok());
    let Some(domain) = domain else {
        return Err(Failure::new(
            Class::Bug,
            format!("{issuer}: the dns-persist-01 challenge names no issuer domain"),
        ));
    };
    let failed = |e| of_dns(&e, name, Timestamp::now());
    let at = persist
        .view
        .challenge_target(&format!("_validation-persist.{}", name.base()))
        .await
        .map_err(failed)?;
    let until = persist
        .days
        .map(|days| (now + SignedDuration::from_hours(24 * i64::from(days))).as_second());
    let issuer = domain.trim_end_matches('.').to_ascii_lowercase();
    let wanted = Binding {
        issuer,
        account: attempt.account.url().to_owned(),
        wildcard: name.is_wildcard(),
        until,
    };
    let there = persist.view.values(&at).await.map_err(failed)?;
    let binds =
        |text: &String| Binding::parse(text).is_some_and(|found| found.covers(&wanted, now));
    if there.iter().any(binds) {
        return Ok(());
    }
    let record = |value: String| TxtRecord {
        name: at.clone(),
        value,
        ttl: TTL,
    };
    let Some(dns) = &solvers.dns else {
        let message = format!("{name} is not bound to our account: create {at} TXT \"{wanted}\"");
        return Err(Failure::new(Class::HostFault, message).by(vec![name.to_string()]));
    };
    dns.provider.zone_of(&at).await.map_err(failed)?;
    let made = record(wanted.to_string());
    dns.provider.present(&made).await.map_err(failed)?;
    super::authorize::wait_until_visible(
        dns,
        &made,
        tokio::time::Instant::now() + dns.propagation_limit,
    )
    .await?;
    for ended in there.into_iter().filter(|text| {
        Binding::parse(text)
            .is_some_and(|found| found.account == wanted.account && found.has_ended(now))
    }) {
        if let Err(error) = dns.provider.cleanup(&record(ended)).await {
            tracing::warn!(record = at, %error, "cannot remove an expired TXT record now");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(wildcard: bool) -> Binding {
        let account = "https://ca.example/acct/1".to_owned();
        Binding {
            issuer: "ca.example".to_owned(),
            account,
            wildcard,
            until: None,
        }
    }

    #[test]
    fn a_record_binds_its_account_within_its_policy_until_it_expires() {
        let now = Timestamp::from_second(1_800_000_000).expect("in range");
        let later = now.as_second() + 86_400;
        let soon = now.as_second() + 60;
        for (text, bare, wildcard) in [
            (
                "ca.example; accounturi=https://ca.example/acct/1".to_owned(),
                true,
                false,
            ),
            (
                "CA.example. ;AccountURI=https://ca.example/acct/1;policy=Wildcard;x=y".to_owned(),
                true,
                true,
            ),
            (
                format!("ca.example; accounturi=https://ca.example/acct/1; persistUntil={later}"),
                true,
                false,
            ),
            (
                format!("ca.example; accounturi=https://ca.example/acct/1; persistUntil={soon}"),
                false,
                false,
            ),
            (
                "ca.example; accounturi=https://ca.example/acct/1; persistUntil=soon".to_owned(),
                false,
                false,
            ),
            (
                "ca.example; accounturi=https://ca.example/acct/2; policy=wildcard".to_owned(),
                false,
                false,
            ),
            (
                "other.example; accounturi=https://ca.example/acct/1".to_owned(),
                false,
                false,
            ),
            ("ca.example".to_owned(), false, false),
        ] {
            fn covers(wildcard: bool, text: &str, now: &Timestamp) -> bool {
                Binding::parse(text).is_some_and(|found| found.covers(&wanted(wildcard), *now))
            }
            assert_eq!(covers(false, &text, &now), bare, "{text}");
            assert_eq!(covers(true, &text, &now), wildcard, "{text}");
        }
    }

    #[test]
    fn a_written_record_is_parsed_again() {
        for until in [None, Some(1_900_000_000)] {
            let made = Binding {
                until,
                ..wanted(true)
            };
            assert_eq!(Binding::parse(&made.to_string()), Some(made));
        }
    }
}
