//! Authorization: proving control of the names of an order (RFC 8555, 7.5).

use std::pin::pin;
use std::task::Poll;

use futures::poll;
use instant_acme::{AuthorizationStatus, ChallengeStatus, ChallengeType, Error, Order, Problem};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::attempt::{OrderAttempt, renonce};
use super::persist;
use super::problem::{is_bad_nonce, is_kind, of_dns};
use super::side_by_side::{all, side_by_side};
use crate::challenge::dns::{Seen, TxtRecord};
use crate::challenge::http::is_token;
use crate::challenge::{ChallengeKind, DnsSolver, Solvers, alpn, dns_label};
use crate::failure::{Class, Failure};
use crate::names::DnsName;

/// Most characters of a foreign identifier that a message quotes.
const LONGEST_NAME: usize = 253;
const PROPAGATION_POLL: std::time::Duration = std::time::Duration::from_secs(2);

/// An open challenge.
struct Task {
    name: DnsName,
    kind: ChallengeKind,
    url: String,
    token: String,
    key_authorization: String,
    /// True if the CA is validating it already.
    underway: bool,
}

impl Task {
    /// Presents the challenge to its responder, for HTTP-01 and TLS-ALPN-01.
    async fn present(&self, solvers: &Solvers) -> Result<(), Failure> {
        match (self.kind, &solvers.http, &solvers.alpn) {
            (ChallengeKind::Http01, Some(solver), _) => {
                solver.present(self.name.as_str(), &self.token, &self.key_authorization).await
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

/// Presents every open challenge of an order and tells the CA to validate them. Records are persisted before they are
/// made. Returns false if no challenge was open.
pub(super) async fn authorize(run: &mut OrderAttempt<'_>, order: &mut Order) -> Result<bool, Failure> {
    // Reading authorizations changes nothing at the CA, so that the order's URL may be persisted at the same time.
    let (saved, tasks) = futures::join!(run.save(), tasks(run, order));
    saved?;
    run.written = true;
    let tasks = match tasks {
        Ok(tasks) => tasks,
        Err(Trouble::Stranger(found)) => return Err(give_up(run, &found).await),
        Err(Trouble::Failed(failure)) => return Err(failure),
    };
    if let Some(solver) = run.issuer.config.solvers.dns.clone() {
        prepare_dns(run, &solver, &tasks).await?;
    }
    for task in tasks.iter().filter(|t| !t.underway && t.kind == ChallengeKind::DnsPersist01) {
        persist::ensure(run, &task.name, &task.url).await?;
    }
    let answered = tasks.iter().filter(|t| matches!(t.kind, ChallengeKind::Http01 | ChallengeKind::TlsAlpn01));
    let answered: Vec<&Task> = answered.filter(|t| !t.underway).collect();
    run.answering.extend(answered.iter().map(|task| (task.name.to_string(), task.token.clone())));
    let solvers = &run.issuer.config.solvers;
    let mut presenting = pin!(side_by_side(answered.into_iter().map(|task| task.present(solvers))));
    let presented = match poll!(&mut presenting) {
        Poll::Ready(presented) => presented,
        // Our own responders may take seconds: other orders send requests to the CA meanwhile.
        Poll::Pending => {
            run.give_turn();
            let presented = presenting.await;
            run.take_turn().await;
            presented
        }
    };
    all(presented)?;
    // The record must be on the disk before the certificate is requested: the flush starts here, in parallel with the
    // requests to the CA.
    run.begin_to_settle();
    accept(run, order, &tasks).await?;
    Ok(!tasks.is_empty())
}

/// The reason why the open challenges cannot be listed.
enum Trouble {
    /// The CA requires authorization of a name that the order does not have.
    Stranger(String),
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Ends an order for which the CA requires authorization of a name that is not in it. Nothing is presented or written
/// to DNS for such a name: it may be somebody else's.
async fn give_up(run: &mut OrderAttempt<'_>, found: &str) -> Failure {
    let name = &run.issuer.config.name;
    let asked = run.record.names.to_strings().join(", ");
    let message = format!(
        "{name}: the CA asks for a proof of {found:?}, which the order does not name: it names {asked}; nothing is \
         answered, and the order is given up"
    );
    run.record.over = true;
    run.record.url = None;
    if let Err(error) = run.save().await {
        tracing::warn!(issuer = name, %error, "cannot store that an order has ended");
    }
    if let Err(error) = super::record::close(run.issuer, &run.record.id).await {
        tracing::warn!(issuer = name, %error, "cannot clean up an ended order now");
    }
    Failure::new(Class::Bug, message)
}

/// Returns the open challenges, one for each name of the order that is not proven yet (RFC 8555, 7.1.3).
async fn tasks(run: &OrderAttempt<'_>, order: &mut Order) -> Result<Vec<Task>, Trouble> {
    let thumbprint = run.account.thumbprint();
    let mut tries = 6;
    'again: loop {
        let mut tasks = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(next) = authorizations.next().await {
            let authorization = match next {
                Ok(authorization) => authorization,
                // Authorizations that were read are cached.
                Err(error) if tries > 0 && is_bad_nonce(&error) => {
                    tries -= 1;
                    continue 'again;
                }
                Err(error) => return Err(run.failed(&error).into()),
            };
            let found = authorization.identifier().to_string();
            let name = DnsName::parse(&found).ok().filter(|name| run.record.names.contains(name));
            let Some(name) = name else {
                return Err(Trouble::Stranger(found.chars().take(LONGEST_NAME).collect()));
            };
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                // The order has the same status when it is read again.
                _ => continue,
            }
            let offered: Vec<_> = authorization.challenges.iter().filter_map(|c| kind_of(&c.r#type)).collect();
            let Some(kind) = run.issuer.config.solvers.choose(&name, &offered) else {
                let list = offered.iter().map(|k| k.as_str()).collect::<Vec<_>>().join(", ");
                let ours = run.issuer.config.solvers.kinds().iter().map(|k| k.as_str()).collect::<Vec<_>>().join(", ");
                let message = format!("the CA proves {name} by {list}; configured are {ours}");
                return Err(Failure::new(Class::Config, message).by(vec![name.to_string()]).into());
            };
            let challenge = authorization
                .challenges
                .iter()
                .find(|c| kind_of(&c.r#type) == Some(kind))
                .expect("it was chosen among those offered");
            // Nobody answers to another one, and a self-check would ask a host for whatever path the CA likes.
            if kind != ChallengeKind::DnsPersist01 && !is_token(&challenge.token) {
                let message = format!("the CA's token for {name} is none: expected 16 to 128 characters of base64url");
                return Err(Failure::new(Class::Bug, message).into());
            }
            tasks.push(Task {
                name,
                kind,
                url: challenge.url.clone(),
                token: challenge.token.clone(),
                key_authorization: format!("{}.{thumbprint}", challenge.token),
                underway: challenge.status != ChallengeStatus::Pending,
            });
        }
        return Ok(tasks);
    }
}

async fn prepare_dns(run: &mut OrderAttempt<'_>, solver: &DnsSolver, tasks: &[Task]) -> Result<(), Failure> {
    use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
    let (mut records, mut hosts) = (Vec::new(), Vec::new());
    let by_dns = tasks.iter().filter(|t| matches!(t.kind, ChallengeKind::Dns01 | ChallengeKind::DnsAccount01));
    let url = run.account.url();
    let targets = by_dns.clone().map(|task| target(solver, task.kind, &task.name, url));
    for (task, (name, _)) in by_dns.zip(all(side_by_side(targets).await)?) {
        let value = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(task.key_authorization.as_bytes()));
        records.push(TxtRecord { name, value, ttl: solver.ttl });
        hosts.push(&task.name);
    }
    if records.is_empty() {
        return Ok(());
    }
    for record in &records {
        if !run.record.txt.contains(record) {
            run.record.txt.push(record.clone());
        }
    }
    run.save().await?;
    let presented = records.iter().zip(&hosts).map(|(record, host)| async move {
        solver.provider.present(record).await.map_err(|e| of_dns(&e, host, Timestamp::now()))
    });
    all(side_by_side(presented).await)?;
    // Propagation may take minutes: other orders send requests to the CA meanwhile.
    run.give_turn();
    let until = Instant::now() + solver.propagation_limit;
    let looks = records.iter().zip(&hosts).map(|(record, host)| async move {
        seen(solver, record, until).await.map_err(|failure| failure.by(vec![host.to_string()]))
    });
    all(side_by_side(looks).await)?;
    run.take_turn().await;
    Ok(())
}

/// Returns the name of a challenge's record, after CNAMEs, and the provider's zone that contains it.
pub(super) async fn target(
    solver: &DnsSolver,
    kind: ChallengeKind,
    name: &DnsName,
    account_url: &str,
) -> Result<(String, String), Failure> {
    let failed = |e| of_dns(&e, name, Timestamp::now());
    let target = solver.view.challenge_target(&dns_label(kind, name, account_url)).await.map_err(failed)?;
    let zone = solver.provider.zone_of(&target).await.map_err(failed)?;
    Ok((target, zone))
}

/// Waits until all authoritative servers have a record: a CA that looks it up too early fails the order for good.
pub(super) async fn seen(solver: &DnsSolver, record: &TxtRecord, until: Instant) -> Result<(), Failure> {
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
async fn accept(run: &OrderAttempt<'_>, order: &mut Order, tasks: &[Task]) -> Result<(), Failure> {
    let mut tries = 6;
    'again: loop {
        let mut authorizations = order.authorizations();
        while let Some(next) = authorizations.next().await {
            let mut authorization = match next {
                Ok(authorization) => authorization,
                Err(error) if tries > 0 && is_bad_nonce(&error) => {
                    tries -= 1;
                    continue 'again;
                }
                Err(error) => return Err(run.failed(&error)),
            };
            let name = authorization.identifier().to_string();
            let Some(task) = tasks.iter().find(|t| t.name.as_str() == name && !t.underway) else { continue };
            let kind = authorization
                .challenges
                .iter()
                .map(|c| c.r#type.clone())
                .find(|t| kind_of(t) == Some(task.kind))
                .expect("it was chosen among those offered");
            let Some(mut challenge) = authorization.challenge(kind) else { continue };
            match renonce!(challenge.set_ready().await) {
                Ok(()) => {}
                // The challenge is not pending any more: the CA received an earlier request after all.
                Err(error) if is_kind(&error, "malformed") || is_kind(&error, "unauthorized") => {}
                Err(error) => return Err(run.failed(&error)),
            }
        }
        return Ok(());
    }
}

/// Returns the names whose authorization failed, each with the CA's problem.
pub(super) async fn culprits(order: &mut Order) -> Result<Vec<(DnsName, Problem)>, Error> {
    let mut culprits = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(next) = authorizations.next().await {
        let mut authorization = next?;
        renonce!(authorization.refresh().await.map(|_| ()))?;
        if authorization.status != AuthorizationStatus::Invalid {
            continue;
        }
        let name = DnsName::parse(&authorization.identifier().to_string());
        let problem = authorization.challenges.iter().find_map(|c| c.error.clone());
        if let (Ok(name), Some(problem)) = (name, problem) {
            culprits.push((name, problem));
        }
    }
    Ok(culprits)
}

/// Deactivates authorizations that are still pending, since the CA limits their number. Failures are only logged.
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
            && matches!(authorization.status, AuthorizationStatus::Pending | AuthorizationStatus::Valid)
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
        ChallengeType::Unknown(name) if name == "dns-account-01" => Some(ChallengeKind::DnsAccount01),
        ChallengeType::Unknown(name) if name == "dns-persist-01" => Some(ChallengeKind::DnsPersist01),
        _ => None,
    }
}
