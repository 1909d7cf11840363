//! Authorization: proving control of the names of an order (RFC 8555, 7.5).

use std::pin::pin;
use std::task::Poll;

use futures::poll;
use instant_acme::{
    AuthorizationState, AuthorizationStatus, ChallengeType, Error, Identifier, Order, Problem,
};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::attempt::{OrderAttempt, retry_bad_nonce};
use super::concurrency::{all, run_concurrently};
use super::persist;
use super::problem::{is_bad_nonce, is_kind, of_dns};
use crate::challenge::dns::{Seen, TxtRecord};
use crate::challenge::http::is_token;
use crate::challenge::{ChallengeKind, DnsSolver, Solvers, alpn, dns_label};
use crate::failure::{Class, Dependency, Failure};
use crate::names::{DnsName, Names};

/// Most characters of a foreign identifier that a message quotes.
const MAX_QUOTED_NAME: usize = 253;
const PROPAGATION_POLL: std::time::Duration = std::time::Duration::from_secs(2);

/// An open challenge.
struct OpenChallenge {
    /// The URL of its authorization.
    authorization: String,
    name: DnsName,
    kind: ChallengeKind,
    url: String,
    token: String,
    key_authorization: String,
}

impl OpenChallenge {
    /// Presents the challenge to its responder, for HTTP-01 and TLS-ALPN-01.
    async fn present(&self, solvers: &Solvers) -> Result<(), Failure> {
        match (self.kind, &solvers.http, &solvers.alpn) {
            (ChallengeKind::Http01, Some(solver), _) => {
                solver
                    .present(self.name.as_str(), &self.token, &self.key_authorization)
                    .await
            }
            (ChallengeKind::TlsAlpn01, _, Some(solver)) => {
                let certificate = alpn::certificate(self.name.as_str(), &self.key_authorization)
                    .map_err(|e| Failure::new(Class::Bug, e.to_string()))?;
                solver.present(self.name.as_str(), &certificate).await
            }
            _ => Ok(()),
        }
    }
}

/// Presents every open challenge of an order and tells the CA to validate them. Records are
/// persisted before they are made. Returns false if no challenge is open.
pub(super) async fn authorize(
    attempt: &mut OrderAttempt<'_>,
    order: &mut Order,
) -> Result<bool, Failure> {
    // Reading authorizations changes nothing at the CA, so that the order's URL may be persisted at
    // the same time.
    let (saved, open_challenges) = futures::join!(attempt.save(), open_challenges(attempt, order));
    saved?;
    attempt.written = true;
    let open_challenges = match open_challenges {
        Ok(open_challenges) => open_challenges,
        Err(ListError::ForeignName(found)) => return Err(close_order(attempt, &found).await),
        Err(ListError::Failed(failure)) => return Err(failure),
    };
    if let Some(solver) = attempt.issuer.config.solvers.dns.clone() {
        prepare_dns(attempt, &solver, &open_challenges).await?;
    }
    for open in open_challenges
        .iter()
        .filter(|t| t.kind == ChallengeKind::DnsPersist01)
    {
        persist::ensure(attempt, &open.name, &open.url).await?;
    }
    let answered: Vec<&OpenChallenge> = open_challenges
        .iter()
        .filter(|open| matches!(open.kind, ChallengeKind::Http01 | ChallengeKind::TlsAlpn01))
        .collect();
    attempt.answering.extend(
        answered
            .iter()
            .map(|open| (open.name.to_string(), open.token.clone())),
    );
    let solvers = &attempt.issuer.config.solvers;
    let mut presenting = pin!(run_concurrently(
        answered.into_iter().map(|open| open.present(solvers))
    ));
    let presented = match poll!(&mut presenting) {
        Poll::Ready(presented) => presented,
        // Our own responders may take seconds: other orders send requests to the CA meanwhile.
        Poll::Pending => {
            attempt.release_ca_permit();
            let presented = presenting.await;
            attempt.acquire_ca_permit().await;
            presented
        }
    };
    all(presented)?;
    // The record must be on the disk before the certificate is requested: the flush starts here, in
    // parallel with the requests to the CA.
    attempt.start_flush();
    set_ready(attempt, order, &open_challenges).await?;
    attempt.has_answered |= !open_challenges.is_empty();
    Ok(!open_challenges.is_empty())
}

/// The reason why the open challenges cannot be listed.
enum ListError {
    /// The CA requires authorization of a name that the order does not have.
    ForeignName(String),
    Failed(Failure),
}

impl From<Failure> for ListError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Ends an order for which the CA requires authorization of a name that is not in it. Nothing is
/// presented or written to DNS for such a name: it may be somebody else's.
async fn close_order(attempt: &mut OrderAttempt<'_>, found: &str) -> Failure {
    let name = &attempt.issuer.config.name;
    let asked = attempt.record.names.to_strings().join(", ");
    let message = format!(
        "{name}: the CA asks for a proof of {found:?}, which the order does not name: it names {asked}; nothing is \
         answered, and the order is given up"
    );
    attempt.record.over = true;
    attempt.record.url = None;
    if let Err(error) = attempt.save().await {
        tracing::warn!(issuer = name, %error, "cannot store that an order has ended");
    }
    if let Err(error) = super::record::close(attempt.issuer, &attempt.record.id).await {
        tracing::warn!(issuer = name, %error, "cannot clean up an ended order now");
    }
    Failure::new(Class::Bug, message)
}

/// Makes the failure of a name that the CA offers no challenge for that is configured.
fn no_solver(attempt: &OrderAttempt<'_>, name: &DnsName, offered: &[ChallengeKind]) -> Failure {
    let ours = listed(&attempt.issuer.config.solvers.kinds());
    let message = if offered.is_empty() {
        format!("the CA offers no challenge of a known type for {name}; configured are {ours}")
    } else {
        format!(
            "the CA proves {name} by {}; configured are {ours}",
            listed(offered)
        )
    };
    Failure::new(Class::Config, message).by(vec![name.to_string()])
}

fn listed(kinds: &[ChallengeKind]) -> String {
    kinds
        .iter()
        .map(|kind| kind.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the open challenges, one for each name of the order that is not proven yet (RFC 8555,
/// 7.1.3).
async fn open_challenges(
    attempt: &OrderAttempt<'_>,
    order: &mut Order,
) -> Result<Vec<OpenChallenge>, ListError> {
    let thumbprint = attempt.account.thumbprint();
    let mut tries = 6;
    'again: loop {
        let mut open_challenges = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(next) = authorizations.next().await {
            let authorization = match next {
                Ok(authorization) => authorization,
                // Authorizations that were read are cached.
                Err(error) if tries > 0 && is_bad_nonce(&error) => {
                    tries -= 1;
                    continue 'again;
                }
                Err(error) => return Err(attempt.unread("authorization", &error).into()),
            };
            // One that is valid needs nothing; with any other status, the order has it too when it
            // is read again.
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let taken: Vec<&DnsName> = open_challenges
                .iter()
                .map(|open: &OpenChallenge| &open.name)
                .collect();
            let name = match named(&authorization, &attempt.record.names, &taken) {
                Ok(name) => name,
                Err(found) => {
                    return Err(ListError::ForeignName(
                        found.chars().take(MAX_QUOTED_NAME).collect(),
                    ));
                }
            };
            let offered: Vec<_> = authorization
                .challenges
                .iter()
                .filter_map(|c| kind_of(&c.r#type))
                .collect();
            let Some(kind) = attempt.issuer.config.solvers.choose(&name, &offered) else {
                return Err(no_solver(attempt, &name, &offered).into());
            };
            let challenge = authorization
                .challenges
                .iter()
                .find(|c| kind_of(&c.r#type) == Some(kind))
                .expect("it was chosen among those offered");
            // Nobody answers to another one, and a self-check would ask a host for whatever path
            // the CA likes.
            if kind != ChallengeKind::DnsPersist01 && !is_token(&challenge.token) {
                let message = format!(
                    "the CA's token for {name} is none: expected 16 to 128 characters of base64url"
                );
                return Err(Failure::new(Class::Bug, message).into());
            }
            if challenge.url.is_empty() {
                let message = format!(
                    "the CA's {} challenge for {name} has no usable url",
                    kind.as_str()
                );
                return Err(Failure::new(Class::Transient, message)
                    .with_dependency(Dependency::Ca)
                    .into());
            }
            // One that is `processing` is answered as well: it may not have been ours, and to
            // answer twice is to ask the CA to try again (RFC 8555, 8.2).
            open_challenges.push(OpenChallenge {
                authorization: authorization.url().to_owned(),
                name,
                kind,
                url: challenge.url.clone(),
                token: challenge.token.clone(),
                key_authorization: format!("{}.{thumbprint}", challenge.token),
            });
        }
        return Ok(open_challenges);
    }
}

/// Returns the name of an order that an authorization is about, or the name that the CA gives it. A
/// wildcard's authorization has the name without the star and the member `wildcard` (RFC 8555,
/// 7.1.4); some CAs keep the star, and some leave the member out, which changes nothing in what
/// proves it.
fn named(
    authorization: &AuthorizationState,
    names: &Names,
    taken: &[&DnsName],
) -> Result<DnsName, String> {
    let identifier = authorization.identifier();
    let Identifier::Dns(text) = identifier.identifier else {
        return Err(identifier.to_string());
    };
    let base = text.strip_prefix("*.").unwrap_or(text);
    let wildcard = format!("*.{base}");
    let exact = if identifier.wildcard || base != text {
        vec![]
    } else {
        vec![base]
    };
    let meant = exact
        .iter()
        .copied()
        .chain([wildcard.as_str()])
        .filter_map(|name| DnsName::parse(name).ok());
    let meant: Vec<DnsName> = meant.filter(|name| names.contains(name)).collect();
    let free = meant
        .iter()
        .find(|name| !taken.contains(name))
        .or(meant.first());
    let told = exact.first().copied().unwrap_or(&wildcard);
    free.cloned().ok_or_else(|| told.to_owned())
}

async fn prepare_dns(
    attempt: &mut OrderAttempt<'_>,
    solver: &DnsSolver,
    open_challenges: &[OpenChallenge],
) -> Result<(), Failure> {
    use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
    let mut records = Vec::new();
    let mut hosts = Vec::new();
    let by_dns = open_challenges
        .iter()
        .filter(|t| matches!(t.kind, ChallengeKind::Dns01 | ChallengeKind::DnsAccount01));
    let url = attempt.account.url();
    let targets = by_dns
        .clone()
        .map(|open| target(solver, open.kind, &open.name, url));
    for (open, (name, _)) in by_dns.zip(all(run_concurrently(targets).await)?) {
        let value =
            BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(open.key_authorization.as_bytes()));
        records.push(TxtRecord {
            name,
            value,
            ttl: solver.ttl,
        });
        hosts.push(&open.name);
    }
    if records.is_empty() {
        return Ok(());
    }
    for record in &records {
        if !attempt.record.txt.contains(record) {
            attempt.record.txt.push(record.clone());
        }
    }
    attempt.save().await?;
    let presented = records.iter().zip(&hosts).map(|(record, host)| async move {
        solver
            .provider
            .present(record)
            .await
            .map_err(|e| of_dns(&e, host, Timestamp::now()))
    });
    all(run_concurrently(presented).await)?;
    // Propagation may take minutes: other orders send requests to the CA meanwhile.
    attempt.release_ca_permit();
    let until = Instant::now() + solver.propagation_limit;
    let polls = records.iter().zip(&hosts).map(|(record, host)| async move {
        wait_until_visible(solver, record, until)
            .await
            .map_err(|failure| failure.by(vec![host.to_string()]))
    });
    all(run_concurrently(polls).await)?;
    attempt.acquire_ca_permit().await;
    Ok(())
}

/// Returns the name of a challenge's record, after CNAMEs, and the provider's zone that contains
/// it.
pub(super) async fn target(
    solver: &DnsSolver,
    kind: ChallengeKind,
    name: &DnsName,
    account_url: &str,
) -> Result<(String, String), Failure> {
    let failed = |e| of_dns(&e, name, Timestamp::now());
    let target = solver
        .view
        .challenge_target(&dns_label(kind, name, account_url))
        .await
        .map_err(failed)?;
    let zone = solver.provider.zone_of(&target).await.map_err(failed)?;
    Ok((target, zone))
}

/// Waits until all authoritative servers have a record: a CA that looks it up too early fails the
/// order for good.
pub(super) async fn wait_until_visible(
    solver: &DnsSolver,
    record: &TxtRecord,
    until: Instant,
) -> Result<(), Failure> {
    loop {
        let trouble = match solver.view.seen(record).await {
            Ok(Seen::Everywhere { silent }) => {
                if !silent.is_empty() {
                    tracing::warn!(record = record.name, ?silent, "name servers did not answer");
                }
                return Ok(());
            }
            Ok(Seen::NotYet { missing }) => format!("not yet on {}", missing.join(", ")),
            Err(error) => error.to_string(),
        };
        if Instant::now() + PROPAGATION_POLL > until {
            let message = format!("the TXT record {} cannot be seen: {trouble}", record.name);
            return Err(Failure::new(Class::Transient, message));
        }
        tokio::time::sleep(PROPAGATION_POLL).await;
    }
}

/// Tells the CA to validate the challenges (RFC 8555, 7.5.1).
async fn set_ready(
    attempt: &OrderAttempt<'_>,
    order: &mut Order,
    open_challenges: &[OpenChallenge],
) -> Result<(), Failure> {
    let mut answered = 0;
    // They were read when the challenges were chosen, and are cached.
    let mut authorizations = order.authorizations();
    while let Some(next) = authorizations.next().await {
        let mut authorization = next.map_err(|error| attempt.failed(&error))?;
        let Some(open) = open_challenges
            .iter()
            .find(|open| open.authorization == authorization.url())
        else {
            continue;
        };
        let kind = authorization
            .challenges
            .iter()
            .map(|c| c.r#type.clone())
            .find(|t| kind_of(t) == Some(open.kind));
        let Some(mut challenge) = kind.and_then(|kind| authorization.challenge(kind)) else {
            continue;
        };
        match retry_bad_nonce!(challenge.set_ready().await) {
            Ok(()) => {}
            // The challenge is not pending any more: the CA received an earlier request after all.
            Err(error) if is_kind(&error, "malformed") || is_kind(&error, "unauthorized") => {}
            Err(error) => return Err(attempt.failed(&error)),
        }
        answered += 1;
    }
    match open_challenges.len() - answered {
        0 => Ok(()),
        left => {
            let of = open_challenges.len();
            let issuer = &attempt.issuer.config.name;
            Err(Failure::new(
                Class::Bug,
                format!("{issuer}: {left} of {of} challenges were presented and not answered"),
            ))
        }
    }
}

/// Why an order is invalid, by its authorizations.
pub(super) struct Ended {
    /// The names whose authorization failed, each with the CA's problem.
    pub(super) culprits: Vec<(DnsName, Problem)>,
    /// True if an authorization was deactivated, by us before a kill, or expired: that says nothing
    /// about its name.
    pub(super) withdrawn: bool,
}

/// Reads the authorizations of an invalid order.
pub(super) async fn ended(order: &mut Order, names: &Names) -> Result<Ended, Error> {
    let mut culprits: Vec<(DnsName, Problem)> = Vec::new();
    let mut withdrawn = false;
    let mut authorizations = order.authorizations();
    while let Some(next) = authorizations.next().await {
        let mut authorization = next?;
        retry_bad_nonce!(authorization.refresh().await.map(|_| ()))?;
        withdrawn |= matches!(
            authorization.status,
            AuthorizationStatus::Deactivated
                | AuthorizationStatus::Expired
                | AuthorizationStatus::Revoked
        );
        if authorization.status != AuthorizationStatus::Invalid {
            continue;
        }
        let taken: Vec<&DnsName> = culprits.iter().map(|(name, _)| name).collect();
        let name = named(&authorization, names, &taken);
        let problem = authorization
            .challenges
            .iter()
            .find_map(|c| c.error.clone());
        if let (Ok(name), Some(problem)) = (name, problem) {
            culprits.push((name, problem));
        }
    }
    Ok(Ended {
        culprits,
        withdrawn,
    })
}

/// Deactivates authorizations that are still pending, since the CA limits their number. Failures
/// are only logged.
pub(super) async fn deactivate_pending(order: &mut Order) {
    let mut authorizations = order.authorizations();
    while let Some(next) = authorizations.next().await {
        if let Ok(mut authorization) = next
            && authorization.status == AuthorizationStatus::Pending
            && let Err(error) = authorization.deactivate().await
        {
            tracing::debug!(%error, "an authorization could not be deactivated");
        }
    }
}

/// Deactivates authorizations that are pending or valid: the certificate is no longer wanted.
pub(super) async fn deactivate_all(order: &mut Order) {
    let mut authorizations = order.authorizations();
    while let Some(next) = authorizations.next().await {
        if let Ok(mut authorization) = next
            && matches!(
                authorization.status,
                AuthorizationStatus::Pending | AuthorizationStatus::Valid
            )
            && let Err(error) = authorization.deactivate().await
        {
            tracing::debug!(%error, "an authorization could not be deactivated");
        }
    }
}

fn kind_of(kind: &ChallengeType) -> Option<ChallengeKind> {
    match kind {
        ChallengeType::Http01 => Some(ChallengeKind::Http01),
        ChallengeType::Dns01 => Some(ChallengeKind::Dns01),
        ChallengeType::TlsAlpn01 => Some(ChallengeKind::TlsAlpn01),
        ChallengeType::Unknown(name) if name == "dns-account-01" => {
            Some(ChallengeKind::DnsAccount01)
        }
        ChallengeType::Unknown(name) if name == "dns-persist-01" => {
            Some(ChallengeKind::DnsPersist01)
        }
        _ => None,
    }
}
