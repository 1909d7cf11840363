//! Scopes of the CA's refusals: some names, a registered domain, one order, or the account.
//!
//! The protocol has a problem type `rateLimited` and none for the limit that was exceeded (RFC
//! 8555, 6.7): subproblems and the detail tell it. An unknown text is taken to concern its order
//! alone, until orders for other names are refused as well.

use std::collections::BTreeMap;

use instant_acme::{Identifier, Problem};
use jiff::{SignedDuration, Timestamp};

use crate::budget::Scope;
use crate::failure::Class;
use crate::names::Names;

/// Number of refused orders without a name in common that indicates a limit of the account.
const MIN_REFUSED_ORDERS: usize = 3;
/// Age at which a refusal is disregarded.
const REFUSAL_TTL: SignedDuration = SignedDuration::from_hours(1);

/// The scope of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalScope {
    /// The names in its text, or all names of the order.
    Names,
    /// New certificates for a registered domain.
    Domain,
    /// Certificates for exactly these names.
    Set,
    /// Failed authorizations of a name in its text.
    Failures,
    /// New orders of the account.
    Account,
    /// This order; the text is not known.
    Order,
}

/// A known text of a CA's refusals.
struct Wording {
    /// Parts of the text, all of which must occur, in lower case.
    says: &'static [&'static str],
    class: Class,
    scope: RefusalScope,
}

const fn wording(says: &'static [&'static str], class: Class, scope: RefusalScope) -> Wording {
    Wording { says, class, scope }
}

/// Sources: Boulder's `wfe2/wfe.go` (paused names) and `ratelimits/transaction.go`, `limiter.go`
/// (limits; older texts from `ra/ra.go`), seen in 2026; Let's Encrypt's page "Rate limits"; Google
/// Trust Services in acme.sh's issue 4364; Buypass in acme.sh's issue 6321. ZeroSSL answers 429
/// with an HTML page without any text of its own (cert-manager's issue 5867), and Pebble and
/// step-ca have no such limits: their refusals are recognised by type (`rejectedIdentifier`) and by
/// the names in them.
const WORDINGS: &[Wording] = &[
    // Boulder: "Your account is temporarily prevented from requesting certificates for a.example
    // and possibly others. …"
    wording(
        &["temporarily prevented from requesting certificates"],
        Class::Paused,
        RefusalScope::Names,
    ),
    wording(&["paused"], Class::Paused, RefusalScope::Names),
    // "too many certificates (5) already issued for this exact set of identifiers in the last
    // 168h0m0s, retry after …"
    wording(&["exact set of"], Class::RateLimited, RefusalScope::Set),
    // "too many failed authorizations (5) for "a.example" in the last 1h0m0s, retry after …", and
    // before 2024 "too many failed authorizations recently"
    wording(
        &["too many failed authorizations"],
        Class::RateLimited,
        RefusalScope::Failures,
    ),
    // "too many certificates (50) already issued for "example.org" in the last 168h0m0s, retry
    // after …"
    wording(
        &["certificates", "already issued for"],
        Class::RateLimited,
        RefusalScope::Domain,
    ),
    // "too many new orders (300) from this account in the last 3h0m0s, retry after …", "too many
    // new orders recently"
    wording(
        &["too many new orders"],
        Class::RateLimited,
        RefusalScope::Account,
    ),
    wording(
        &["too many currently pending authorizations"],
        Class::RateLimited,
        RefusalScope::Account,
    ),
    // Google: "'…' is over quota (30 requests in 60 seconds) for the given ACME resource:
    // challenge. Try again in 12.4s."
    wording(
        &["is over quota", "acme resource"],
        Class::RateLimited,
        RefusalScope::Account,
    ),
    // Buypass: "Too many validation attempts during last hour"
    wording(
        &["too many validation attempts"],
        Class::RateLimited,
        RefusalScope::Names,
    ),
];

/// Returns class and scope of a `rateLimited` refusal.
pub(super) fn read(detail: &str) -> (Class, RefusalScope) {
    let text = detail.to_ascii_lowercase();
    let known = WORDINGS
        .iter()
        .find(|known| known.says.iter().all(|part| text.contains(part)));
    known.map_or((Class::RateLimited, RefusalScope::Order), |known| {
        (known.class, known.scope)
    })
}

/// Returns the limit of our budget that a refusal concerns; `None` if it concerns this order alone.
pub(super) fn scope(detail: &str, names: &Names) -> Option<Scope> {
    let in_text = words(detail);
    let domain = names
        .iter()
        .map(|n| n.registered_domain())
        .find(|d| in_text.iter().any(|word| word == d));
    match read(detail).1 {
        RefusalScope::Account => Some(Scope::Orders),
        RefusalScope::Set => Some(Scope::set(names)),
        RefusalScope::Domain => Some(Scope::Domain(
            domain
                .unwrap_or(names.first().registered_domain())
                .to_owned(),
        )),
        RefusalScope::Failures => {
            let named = names
                .iter()
                .find(|n| in_text.iter().any(|word| word == n.base()));
            // A text without a name concerns the only name of the order; with several names it
            // cannot be told.
            let named = named.or((names.count() == 1).then(|| names.first()))?;
            Some(Scope::Failures(named.base().to_owned()))
        }
        RefusalScope::Names | RefusalScope::Order => None,
    }
}

/// Returns the names of an order that a problem concerns: those of its subproblems, else those in
/// its detail. Empty if that is all of them: then it concerns the order.
pub(super) fn culprits(problem: &Problem, names: Option<&Names>) -> Vec<String> {
    let named = problem
        .subproblems
        .iter()
        .filter_map(|sub| match &sub.identifier {
            Some(Identifier::Dns(name)) => Some(name.clone()),
            _ => None,
        });
    let named: Vec<String> = named.collect();
    let Some(names) = names else { return named };
    let culprits = match found(&named, names) {
        none if none.is_empty() => {
            found(&words(problem.detail.as_deref().unwrap_or_default()), names)
        }
        some => some,
    };
    if culprits.len() < names.count() || names.count() == 1 {
        culprits
    } else {
        Vec::new()
    }
}

/// A CA may name the base of a wildcard, as authorizations do.
fn is(said: &str, name: &crate::names::DnsName) -> bool {
    said == name.as_str() || said == name.base()
}

fn found(said: &[String], names: &Names) -> Vec<String> {
    names
        .iter()
        .filter(|name| said.iter().any(|word| is(word, name)))
        .map(ToString::to_string)
        .collect()
}

/// Returns the words of a text that may be names.
fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '*' | '_')))
        .map(|word| word.trim_matches('.').to_ascii_lowercase())
        .filter(|word| word.contains('.'))
        .collect()
}

/// Parses a retry time in a text: `retry after 1970-01-01 00:18:15 UTC` (Boulder),
/// `Try again in 12.476542291s` (Google).
pub(super) fn retry_after(detail: &str, now: Timestamp) -> Option<Timestamp> {
    if let Some((_, rest)) = detail.split_once("retry after ")
        && let Some(text) = rest.get(..19)
        && let Ok(at) = format!("{}Z", text.replace(' ', "T")).parse()
    {
        return Some(at);
    }
    let text = detail.to_ascii_lowercase();
    let (_, rest) = text.split_once("try again in ")?;
    let seconds: f64 = rest.split('s').next()?.trim().parse().ok()?;
    let wait = SignedDuration::try_from_secs_f64(seconds.ceil()).ok()?;
    (!wait.is_negative()).then(|| now + wait)
}

/// Orders that were refused with unknown texts.
#[derive(Debug, Default)]
pub(super) struct Suspicion(BTreeMap<String, (Timestamp, Names)>);

impl Suspicion {
    /// Records an order that was refused with an unknown text. Returns true if enough orders
    /// without a name in common were refused: then the account is at its limit.
    pub(super) fn refused(&mut self, names: &Names, now: Timestamp) -> bool {
        self.0.retain(|_, (at, _)| now < *at + REFUSAL_TTL);
        if self.0.values().all(|(_, others)| !others.share_with(names))
            && self.0.len() < MIN_REFUSED_ORDERS
        {
            self.0
                .insert(names.first().to_string(), (now, names.clone()));
        }
        self.0.len() >= MIN_REFUSED_ORDERS
    }

    /// Records an accepted order, which clears the account.
    pub(super) fn accepted(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::parse(["a.example.com", "b.example.org", "x.a.example.com"]).expect("names")
    }

    #[test]
    fn each_known_wording_has_its_class_and_scope() {
        let order = "a.example.com,b.example.org,x.a.example.com";
        for (detail, class, scope) in [
            (
                "Your account is temporarily prevented from requesting certificates for b.example.org and possibly others. \
                 Please visit: https://portal.letsencrypt.org/sfe/v1/unpause?jwt=abc",
                Class::Paused,
                None,
            ),
            (
                "too many new orders (300) from this account in the last 3h0m0s",
                Class::RateLimited,
                Some(Scope::Orders),
            ),
            (
                "Error creating new order :: too many new orders recently: see x",
                Class::RateLimited,
                Some(Scope::Orders),
            ),
            (
                "too many certificates (50) already issued for \"example.org\" in the last 168h0m0s",
                Class::RateLimited,
                Some(Scope::Domain("example.org".to_owned())),
            ),
            (
                "Error creating new cert :: Too many certificates already issued for: example.org",
                Class::RateLimited,
                Some(Scope::Domain("example.org".to_owned())),
            ),
            (
                "too many certificates (5) already issued for this exact set of identifiers in the last 168h0m0s",
                Class::RateLimited,
                Some(Scope::Set(order.to_owned())),
            ),
            (
                "too many certificates (5) already issued for this exact set of domains in the last 168 hours: a,b",
                Class::RateLimited,
                Some(Scope::Set(order.to_owned())),
            ),
            (
                "too many failed authorizations (5) for \"b.example.org\" in the last 1h0m0s",
                Class::RateLimited,
                Some(Scope::Failures("b.example.org".to_owned())),
            ),
            (
                "Error creating new order :: too many failed authorizations recently",
                Class::RateLimited,
                None,
            ),
            (
                "Error creating new order :: too many currently pending authorizations: see x",
                Class::RateLimited,
                Some(Scope::Orders),
            ),
            (
                "'default@gcp.api.pki.goog' is over quota (30 requests in 60 seconds) for the given ACME resource: order. \
                 Try again in 12.476542291s.",
                Class::RateLimited,
                Some(Scope::Orders),
            ),
            (
                "Too many validation attempts during last hour",
                Class::RateLimited,
                None,
            ),
            ("status 429 Too Many Requests", Class::RateLimited, None),
            ("the moon is full", Class::RateLimited, None),
        ] {
            assert_eq!(read(detail).0, class, "{detail}");
            assert_eq!(super::scope(detail, &names()), scope, "{detail}");
        }
    }

    #[test]
    fn names_are_found_in_subproblems_and_texts_as_whole_words() {
        fn problem(detail: &str, subs: &[&str]) -> Problem {
            let subs: Vec<_> = subs
                .iter()
                .map(|name| {
                    serde_json::json!({ "type": "urn:ietf:params:acme:error:rejectedIdentifier", "detail": "no",
                                         "identifier": { "type": "dns", "value": name } })
                })
                .collect();
            let json = serde_json::json!({ "detail": detail, "status": 400, "subproblems": subs });
            serde_json::from_value(json).expect("a problem")
        }
        fn of(detail: &str, subs: &[&str]) -> String {
            culprits(&problem(detail, subs), Some(&names())).join(" ")
        }
        assert_eq!(of("no", &["b.example.org"]), "b.example.org");
        assert_eq!(
            of("Cannot issue for \"x.a.example.com\": policy", &[]),
            "x.a.example.com"
        );
        assert_eq!(
            of(
                "certificates for a.example.com, b.example.org. Please visit",
                &[]
            ),
            "a.example.com b.example.org"
        );
        assert_eq!(
            of("no", &["a.example.com", "b.example.org", "x.a.example.com"]),
            "",
            "all of them: the order"
        );
        assert_eq!(of("nothing known", &[]), "");
        let wildcard = Names::parse(["*.example.com", "b.example.org"]).expect("names");
        assert_eq!(
            culprits(&problem("no", &["example.com"]), Some(&wildcard)),
            ["*.example.com"]
        );
    }

    #[test]
    fn the_retry_time_is_parsed_in_both_forms() {
        let now: Timestamp = "2026-11-21T00:00:00Z".parse().expect("a time");
        assert_eq!(
            retry_after("x, retry after 2026-11-22 03:12:00 UTC: see", now),
            "2026-11-22T03:12:00Z".parse().ok()
        );
        assert_eq!(
            retry_after("Try again in 12.476542291s.", now),
            Some(now + SignedDuration::from_secs(13))
        );
        assert_eq!(retry_after("try again in a week", now), None);
    }

    #[test]
    fn refusals_of_orders_without_common_names_concern_the_account() {
        let now: Timestamp = "2026-11-21T00:00:00Z".parse().expect("a time");
        fn order(text: &str) -> Names {
            Names::parse(text.split(' ')).expect("names")
        }
        let mut suspicion = Suspicion::default();
        for _ in 0..9 {
            assert!(!suspicion.refused(&order("a.example b.example"), now));
        }
        assert!(
            !suspicion.refused(&order("b.example c.example"), now),
            "a name in common"
        );
        assert!(!suspicion.refused(&order("d.example"), now));
        assert!(
            !suspicion.refused(&order("e.example"), now + REFUSAL_TTL),
            "the others are long ago"
        );
        assert!(!suspicion.refused(&order("f.example"), now + REFUSAL_TTL));
        assert!(suspicion.refused(&order("g.example"), now + REFUSAL_TTL));
        suspicion.accepted();
        assert!(!suspicion.refused(&order("g.example"), now + REFUSAL_TTL));
    }
}
