//! dns-persist-01 (draft-ietf-acme-dns-persist): a record that stays binds a name to our account, so that nothing is
//! written into DNS for an order.

use jiff::Timestamp;
use serde::Deserialize;

use super::problem::{of_account, of_dns};
use super::run::Run;
use crate::challenge::dns::{DnsView, Seen, TxtRecord};
use crate::failure::{Class, Failure};
use crate::names::DnsName;

/// Nobody changes it: caches may keep it.
const TTL: u32 = 3600;

/// What the challenge says beside what every challenge says.
#[derive(Deserialize)]
struct Challenge {
    #[serde(rename = "issuer-domain-names", default)]
    issuers: Vec<String>,
}

/// Makes sure that the record of a name is there: found, or written where a provider may. It is never removed.
pub(super) async fn ensure(run: &Run<'_>, name: &DnsName, url: &str) -> Result<(), Failure> {
    let solvers = &run.issuer.config.solvers;
    let Some(view) = &solvers.persist else { return Ok(()) };
    let issuer = &run.issuer.config.name;
    let answer = run.account.post_as_get(url).await.map_err(|e| of_account(issuer, &e, Timestamp::now()))?;
    let challenge: Option<Challenge> = serde_json::from_slice(&answer.body).ok();
    let domain = challenge.and_then(|c| c.issuers.into_iter().next()).filter(|d| DnsName::parse(d).is_ok());
    let Some(domain) = domain else {
        return Err(Failure::new(Class::Bug, format!("{issuer}: the dns-persist-01 challenge names no issuer domain")));
    };
    let failed = |e| of_dns(&e, Timestamp::now()).by(vec![name.to_string()]);
    let at = view.challenge_target(&format!("_validation-persist.{}", name.base())).await.map_err(failed)?;
    let record = |value: String| TxtRecord { name: at.clone(), value, ttl: TTL };
    let values = values(&domain, run.account.url(), name.is_wildcard());
    for value in &values {
        if is_seen(&**view, &record(value.clone())).await.map_err(failed)? {
            return Ok(());
        }
    }
    let wanted = record(values.into_iter().next().expect("there is one"));
    let Some(dns) = &solvers.dns else {
        let message = format!("{name} is not bound to our account: create {at} TXT \"{}\"", wanted.value);
        return Err(Failure::new(Class::HostFault, message).by(vec![name.to_string()]));
    };
    dns.provider.zone_of(&at).await.map_err(failed)?;
    dns.provider.present(&wanted).await.map_err(failed)?;
    super::authorize::seen(dns, &wanted, tokio::time::Instant::now() + dns.propagation_limit).await
}

async fn is_seen(view: &dyn DnsView, record: &TxtRecord) -> Result<bool, crate::challenge::dns::DnsError> {
    Ok(matches!(view.seen(record).await?, Seen::Everywhere { .. }))
}

/// The values that bind a name, the one to create first. One for wildcards binds the bare name as well.
fn values(domain: &str, account_url: &str, wildcard: bool) -> Vec<String> {
    let plain = format!("{domain}; accounturi={account_url}");
    let wide = format!("{plain}; policy=wildcard");
    if wildcard { vec![wide] } else { vec![plain, wide] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_for_wildcards_serves_the_bare_name_and_not_the_other_way_round() {
        let of = |wildcard| values("ca.example", "https://ca.example/acct/1", wildcard);
        assert_eq!(of(true), ["ca.example; accounturi=https://ca.example/acct/1; policy=wildcard"]);
        assert_eq!(of(false)[0], "ca.example; accounturi=https://ca.example/acct/1");
        assert_eq!(of(false)[1], of(true)[0]);
    }
}
