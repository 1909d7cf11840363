//! One attempt at an order, from its persisted state to the certificate.

use std::time::Duration;

use instant_acme::{Error, Order, OrderStatus};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::attempt::{OrderAttempt, retry_bad_nonce};
use super::authorize::{self, Ended};
use super::of_storage;
use super::poll_interval::{PollInterval, Polls};
use super::problem::{is_kind, of_problem, said};
use super::record::remove_txt_records;
use crate::budget::Reserve;
use crate::certificate::{IssuedCertificate, leads_to};
use crate::failure::{Class, Failure};

/// Longest `Retry-After` that is waited for within one attempt; beyond it, the order is resumed
/// later.
const MAX_RETRY_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// Longest wait for the CA during which an order keeps its permit.
const MAX_WAIT_WITH_PERMIT: Duration = Duration::from_millis(50);

/// Time for which the CA may not know a resource of an order before the order is abandoned: a
/// replica of the CA may lag.
const MAX_LOST: SignedDuration = SignedDuration::from_mins(10);
/// The same for an order that was finalized: it may still give its certificate, and another one
/// would cost a second.
const MAX_LOST_FINALIZED: SignedDuration = SignedDuration::from_hours(1);

impl OrderAttempt<'_> {
    /// Runs the attempt. After a failure the order can be resumed.
    pub(super) async fn drive(mut self) -> Result<IssuedCertificate, Failure> {
        let result = self.obtain().await;
        let is_lost =
            result.is_err() && (self.is_lost || matches!(self.handle.last().status, 404 | 410));
        self.record_lost(is_lost).await;
        for (name, token) in std::mem::take(&mut self.answering) {
            if let Some(solver) = &self.issuer.config.solvers.http {
                solver.cleanup(&name, &token).await;
            }
            if let Some(solver) = &self.issuer.config.solvers.alpn {
                solver.cleanup(&name).await;
            }
        }
        result
    }

    /// Records since when the CA answers 404 or 410 for a resource of the order. Another replica of
    /// the CA may know it; an order that stays lost is abandoned, so that the next attempt places a
    /// new one.
    async fn record_lost(&mut self, is_lost: bool) {
        if self.record.url.is_none() || !is_lost && self.record.lost_since.is_none() {
            return;
        }
        // A plan may be made for a later time.
        let now = Timestamp::now().max(self.request.now);
        let limit = if self.record.finalized {
            MAX_LOST_FINALIZED
        } else {
            MAX_LOST
        };
        let since = self.record.lost_since.unwrap_or(now);
        self.record.lost_since = is_lost.then_some(since);
        self.record.over |= is_lost && now.duration_since(since) >= limit;
        if let Err(error) = self.save().await {
            tracing::warn!(issuer = self.issuer.config.name, %error, "cannot store that the CA has lost an order");
        }
    }

    async fn obtain(&mut self) -> Result<IssuedCertificate, Failure> {
        if let Some(chain) = self.record.downloaded.clone() {
            return self.verified(chain).await;
        }
        if self.record.url.is_none() {
            self.prepare().await?;
        }
        // Before and after, the order waits for the disk: the CA can serve another order meanwhile.
        self.acquire_ca_permit().await;
        let chain = self.process_order().await?;
        self.release_ca_permit();
        self.record.downloaded = Some(chain.clone());
        self.save().await?;
        self.verified(chain).await
    }

    /// Exchanges all requests with the CA up to the download, and persists the record in between.
    async fn process_order(&mut self) -> Result<String, Failure> {
        let mut order = self.order().await?;
        let mut phase = Phase::Authorizing(None);
        let last = loop {
            phase = match (order.state().status, phase) {
                (OrderStatus::Pending, Phase::Authorizing(idle)) => {
                    self.authorize(&mut order, idle).await?
                }
                (OrderStatus::Pending, Phase::Validating(mut wait)) => {
                    self.poll(&mut order, &mut wait.polls).await?;
                    Phase::Validating(wait)
                }
                // A replica of the CA may be behind.
                (
                    OrderStatus::Pending | OrderStatus::Ready | OrderStatus::Processing,
                    Phase::Issuing(mut wait),
                ) => {
                    self.poll(&mut order, &mut wait.polls).await?;
                    Phase::Issuing(wait)
                }
                (OrderStatus::Ready, phase) => {
                    if let Phase::Validating(wait) = phase {
                        wait.teach(&self.issuer.validation);
                    }
                    self.proven().await;
                    // The names are proven: challenge records may be removed before the certificate
                    // is issued.
                    self.tidy().await?;
                    if self.flush_and_finalize(&mut order).await? {
                        Phase::Issuing(Wait::begin(&self.issuer.issuance))
                    } else {
                        let mut wait = Wait::begin(&self.issuer.validation);
                        self.poll(&mut order, &mut wait.polls).await?;
                        Phase::Validating(wait)
                    }
                }
                // Finalized before a restart.
                (OrderStatus::Processing, _) => Phase::Issuing(Wait::begin(&self.issuer.issuance)),
                (OrderStatus::Valid, last) => break last,
                (OrderStatus::Invalid, _) => return Err(self.invalid(&mut order).await),
            };
        };
        if let Phase::Issuing(wait) = last {
            wait.teach(&self.issuer.issuance);
        }
        self.tidy().await?;
        self.download(&mut order).await
    }

    /// Answers the challenges of a pending order. `idle` has the polls since its authorizations
    /// asked for no answer.
    async fn authorize(
        &mut self,
        order: &mut Order,
        idle: Option<Polls>,
    ) -> Result<Phase, Failure> {
        let has_responded = authorize::authorize(self, order).await?;
        let mut wait = Wait::begin(&self.issuer.validation);
        if !has_responded {
            // If everything was proven already, the CA says so at once, and there is nothing to
            // wait for. Otherwise a replica of the CA may have been behind: the authorizations are
            // read again.
            return match idle {
                Some(mut polls) => {
                    self.poll(order, &mut polls).await?;
                    Ok(Phase::Authorizing(Some(polls)))
                }
                None => {
                    self.refresh(order).await?;
                    Ok(Phase::Authorizing(Some(wait.polls)))
                }
            };
        }
        let may_finalize = wait.polls.is_immediate() && !order.state().finalize.is_empty();
        if !may_finalize || self.handle.last().retry_after.is_some() {
            self.poll(order, &mut wait.polls).await?;
            return Ok(Phase::Validating(wait));
        }
        // A CA this fast is not polled: the order is finalized at once, and the CA answers
        // orderNotReady if it is not done.
        wait.polls.pause();
        if !self.flush_and_finalize(order).await? {
            self.refresh(order).await?;
            return Ok(Phase::Validating(wait));
        }
        wait.teach(&self.issuer.validation);
        self.proven().await;
        Ok(Phase::Issuing(Wait::begin(&self.issuer.issuance)))
    }

    /// Waits, and reads the order.
    async fn poll(&mut self, order: &mut Order, polls: &mut Polls) -> Result<(), Failure> {
        self.wait(polls).await?;
        self.refresh(order).await
    }

    async fn refresh(&mut self, order: &mut Order) -> Result<(), Failure> {
        match retry_bad_nonce!(order.refresh().await.map(|_| ())) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.unread_order(&error)),
        }
    }

    /// Makes the failure of a read of the order. One that the CA does not show to us counts as
    /// lost.
    fn unread_order(&mut self, error: &Error) -> Failure {
        self.is_lost |= is_kind(error, "unauthorized");
        self.unread("order", error)
    }

    /// Makes the failure of a read of a resource. That we may not read it says nothing about the
    /// names, which the CA did not try to validate.
    pub(super) fn unread(&self, resource: &str, error: &Error) -> Failure {
        if is_kind(error, "unauthorized") {
            let name = &self.issuer.config.name;
            let text = format!(
                "{name}: the CA does not let our account read its own {resource}: {}",
                said(error)
            );
            return Failure::new(Class::Transient, text);
        }
        self.failed(error)
    }

    /// Removes earlier failures of these names from the budget.
    async fn proven(&self) {
        let names = &self.record.names;
        if self.issuer.with_budget(|b| b.proven(names)) {
            self.write_budget().await;
        }
    }

    /// Returns the persisted order, or places a new one.
    async fn order(&mut self) -> Result<Order, Failure> {
        if let Some(url) = self.record.url.clone() {
            return match retry_bad_nonce!(self.protocol.order(url.clone()).await) {
                // Some CAs answer 400 for an order that they do not know.
                Err(error) if is_kind(&error, "malformed") => {
                    self.is_lost = true;
                    Err(Failure::new(
                        Class::Transient,
                        format!("{}: {}", self.issuer.config.name, said(&error)),
                    ))
                }
                answered => answered.map_err(|error| self.unread_order(&error)),
            };
        }
        let order = self.place().await?;
        self.record.url = Some(order.url().to_owned());
        // Persisted while the authorizations are read, and before any challenge is presented.
        self.written = false;
        Ok(order)
    }

    /// Prepares a new order: pre-flight check, trial write to DNS, budget. Then persists the record
    /// with the key.
    async fn prepare(&mut self) -> Result<(), Failure> {
        self.issuer.run_preflight(&self.record.names).await?;
        if let Some(solver) = self.issuer.config.solvers.dns.clone() {
            super::zones::trial_write(self, &solver).await?;
        }
        self.reserve_space().await?;
        self.charge().await?;
        if let Err(failure) = self.save().await {
            // The stored record does not say that it is counted, and no order is placed.
            self.refund_order();
            return Err(failure);
        }
        self.flush().await?;
        self.written = true;
        self.reserve_space().await
    }

    /// Proves that what the order writes once it is placed has space: an order whose URL cannot be
    /// stored is lost, and its certificate with it.
    async fn reserve_space(&self) -> Result<(), Failure> {
        self.issuer
            .storage
            .reserve_space()
            .await
            .map_err(|e| of_storage(&e))
    }

    fn refund_order(&mut self) {
        let names = &self.record.names;
        let exempt = self.request.exempt;
        self.issuer
            .with_budget(|budget| budget.refund(names, exempt));
        self.record.charged = false;
    }

    /// Counts the order before it is placed: one count too many after a crash is better than an
    /// overrun limit.
    async fn charge(&mut self) -> Result<(), Failure> {
        if self.record.charged {
            return Ok(());
        }
        let now = self.request.now;
        let names = &self.record.names;
        let exempt = self.request.exempt;
        let admitted = self.issuer.with_budget(|budget| {
            budget.admits(names, exempt, Reserve::Emergency, now)?;
            budget.spend(names, exempt, now);
            Ok(budget.limits.orders.is_some())
        });
        match admitted {
            Err(wait) => Err(budget_spent(&wait)),
            Ok(counted) => {
                self.record.charged = true;
                if counted && let Err(error) = self.issuer.write_budget(now).await {
                    self.refund_order();
                    return Err(of_storage(&error));
                }
                Ok(())
            }
        }
    }

    /// Finalizes the order once all that is needed to resume it is on the disk. Returns false if
    /// the CA is not ready.
    async fn flush_and_finalize(&mut self, order: &mut Order) -> Result<bool, Failure> {
        self.written &= self.record.finalized;
        self.record.finalized = true;
        self.save_if_changed().await?;
        // Without the order's URL the certificate would be lost.
        self.flushed().await?;
        self.finalize(order).await
    }

    /// Sends the CSR, always with the persisted key. Returns false if the CA answers orderNotReady.
    async fn finalize(&self, order: &mut Order) -> Result<bool, Failure> {
        let csr = self.record.key.csr(&self.record.names).map_err(|e| {
            Failure::new(
                Class::Bug,
                format!("issuer {}: {e}", self.issuer.config.name),
            )
        })?;
        match retry_bad_nonce!(order.finalize_csr(&csr).await) {
            Ok(()) => Ok(true),
            // RFC 8555, 7.4: the order is read again.
            Err(error) if is_kind(&error, "orderNotReady") => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Downloads the chain, or an alternate chain where one is preferred and offered (RFC 8555,
    /// 7.4.2).
    async fn download(&self, order: &mut Order) -> Result<String, Failure> {
        let name = &self.issuer.config.name;
        let chain = retry_bad_nonce!(order.certificate().await).map_err(|error| {
            match self.failed(&error) {
                // The names are proven: neither their DNS nor the account is at fault.
                refused if matches!(refused.class, Class::HostFault | Class::Account) => {
                    let message = format!(
                        "{name}: the CA has issued the certificate and refuses its download: {}",
                        said(&error)
                    );
                    Failure::new(Class::Transient, message)
                }
                failure => failure,
            }
        })?;
        // The order is kept: what stands there may be a page of a proxy.
        let chain = chain
            .filter(|chain| chain.contains("-----BEGIN"))
            .ok_or_else(|| {
                Failure::new(
                    Class::Transient,
                    format!("{name}: at the URL of the certificate there is none yet"),
                )
            })?;
        let Some(preferred) = &self.issuer.config.preferred_chain else {
            return Ok(chain);
        };
        if leads_to(&chain, preferred) {
            return Ok(chain);
        }
        let alternate = self.alternate(preferred, self.handle.last().alternates);
        if let Ok(Some(alternate)) =
            tokio::time::timeout(self.issuer.config.timeout, alternate).await
        {
            return Ok(alternate);
        }
        tracing::info!(
            issuer = name,
            preferred,
            "the CA offers no such chain that can be used; its own is taken"
        );
        Ok(chain)
    }

    /// Returns the first alternate chain that is the preferred one and may be served. One that
    /// cannot be fetched is skipped.
    async fn alternate(&self, preferred: &str, urls: Vec<String>) -> Option<String> {
        let record = &self.record;
        let issuer = &self.issuer.config.name;
        for url in urls {
            let fetched = match self.account.post_as_get(&url).await {
                Ok(answer) if answer.status.is_success() => {
                    String::from_utf8(answer.body.to_vec()).unwrap_or_default()
                }
                Ok(answer) => {
                    tracing::warn!(
                        issuer,
                        url,
                        status = answer.status.as_u16(),
                        "an alternate chain cannot be fetched"
                    );
                    continue;
                }
                Err(error) => {
                    tracing::warn!(issuer, url, %error, "an alternate chain cannot be fetched");
                    continue;
                }
            };
            let chain = fetched.clone();
            let key = record.key.clone();
            let now = Timestamp::now();
            if leads_to(&fetched, preferred)
                && IssuedCertificate::verified(chain, key, &record.names, issuer, now).is_ok()
            {
                return Some(fetched);
            }
        }
        None
    }

    /// Returns the certificate if it may be served; else closes the order, so that the next attempt
    /// places a new one.
    async fn verified(&mut self, chain: String) -> Result<IssuedCertificate, Failure> {
        let record = &self.record;
        // The current time, not the request's: a certificate is valid from its issuance.
        let now = Timestamp::now().max(self.request.now);
        let name = &self.issuer.config.name;
        match IssuedCertificate::verified(chain, record.key.clone(), &record.names, name, now) {
            Ok(certificate) => Ok(certificate),
            Err(unfit) => {
                self.record.over = true;
                self.save().await?;
                Err(Failure::new(
                    Class::Bug,
                    format!("{}: {unfit}", self.issuer.config.name),
                ))
            }
        }
    }

    /// Removes the order's records from DNS; those that cannot be removed now stay in the persisted
    /// record.
    async fn tidy(&mut self) -> Result<(), Failure> {
        if self.record.txt.is_empty() {
            return Ok(());
        }
        let txt = std::mem::take(&mut self.record.txt);
        self.record.txt = remove_txt_records(self.issuer, txt).await;
        self.save().await
    }

    /// Closes an invalid order and returns the failure, with the names at fault.
    async fn invalid(&mut self, order: &mut Order) -> Failure {
        let now = Timestamp::now();
        let exchange = self.handle.last();
        let name = &self.issuer.config.name;
        let failure = match authorize::ended(order, &self.record.names).await {
            Ok(Ended { culprits, .. }) if !culprits.is_empty() => {
                let mut failure = of_problem(name, &culprits[0].1, None, None, now);
                failure.message = culprits
                    .iter()
                    .take(5)
                    .map(|(host, problem)| {
                        let text = of_problem(name, problem, None, None, now).message;
                        format!(
                            "{host}: {}",
                            text.strip_prefix(&format!("{name}: ")).unwrap_or(&text)
                        )
                    })
                    .collect::<Vec<_>>()
                    .join("; ");
                self.issuer.with_budget(|b| {
                    for (host, _) in &culprits {
                        b.spend_failure(host, now);
                    }
                });
                self.write_budget().await;
                failure.by(culprits
                    .into_iter()
                    .map(|(host, _)| host.to_string())
                    .collect())
            }
            Ok(Ended { withdrawn, .. }) if withdrawn => Failure::new(
                Class::Transient,
                format!(
                    "{name}: the order had expired, or its authorizations were withdrawn; another one is placed"
                ),
            ),
            Ok(_) => match &order.state().error {
                Some(problem) => of_problem(
                    name,
                    problem,
                    Some(&exchange),
                    Some(&self.record.names),
                    now,
                ),
                None => Failure::new(
                    Class::HostFault,
                    format!("{name}: the order became invalid, without a reason"),
                ),
            },
            Err(error) => self.failed(&error),
        };
        self.record.over = true;
        self.record.url = None;
        if let Err(error) = self.save().await {
            tracing::warn!(issuer = name, %error, "cannot store that an order has ended");
        }
        authorize::deactivate_pending(order).await;
        self.give_back_certificates().await;
        if let Err(error) = super::record::close(self.issuer, &self.record.id).await {
            tracing::warn!(issuer = name, %error, "cannot clean up an ended order now");
        }
        failure
    }

    /// Takes back the count of the certificates of an order that ended without one: a CA counts
    /// certificates that it issued. The order itself stays counted.
    async fn give_back_certificates(&self) {
        let names = &self.record.names;
        let exempt = self.exempt();
        self.issuer
            .with_budget(|budget| budget.refund_certificates(names, exempt));
        self.write_budget().await;
    }

    /// Waits for the CA's `Retry-After`, or for the learned poll interval, which grows with each
    /// poll. Releases the permit unless the wait is short, so that orders that never end block no
    /// others.
    async fn wait(&mut self, polls: &mut Polls) -> Result<(), Failure> {
        let left = self
            .issuer
            .config
            .attempt_timeout
            .saturating_sub(self.started.elapsed());
        let asked = self.handle.last().retry_after.filter(|d| !d.is_zero());
        if let Some(asked) = asked.filter(|d| *d > MAX_RETRY_AFTER) {
            let message = format!(
                "{}: the CA needs longer for this order",
                self.issuer.config.name
            );
            return Err(
                Failure::new(Class::Transient, message).not_before(Timestamp::now() + asked)
            );
        }
        let ours = polls.pause();
        let wanted = asked
            .and_then(|d| Duration::try_from(d).ok())
            .unwrap_or(ours);
        if left.is_zero() || wanted > left {
            let idle =
                "none of its authorizations asks for a proof, so that nothing was answered; ";
            let idle = if self.has_answered || self.record.finalized {
                ""
            } else {
                idle
            };
            let message = format!(
                "{}: the CA has not decided yet; {idle}the order is taken up again",
                self.issuer.config.name
            );
            return Err(Failure::new(Class::Transient, message));
        }
        if wanted < MAX_WAIT_WITH_PERMIT {
            if !wanted.is_zero() {
                tokio::time::sleep(wanted).await;
            }
            return Ok(());
        }
        self.release_ca_permit();
        tokio::time::sleep(wanted).await;
        self.acquire_ca_permit().await;
        Ok(())
    }
}

/// What an order waits for.
enum Phase {
    /// Its challenges, to be answered; with the polls since none of its authorizations asked for an
    /// answer.
    Authorizing(Option<Polls>),
    /// The CA, which validates the names.
    Validating(Wait),
    /// The CA, which issues the certificate: the order was finalized.
    Issuing(Wait),
}

/// The polls of the CA, and the time when they began.
struct Wait {
    polls: Polls,
    since: Instant,
}

impl Wait {
    fn begin(interval: &PollInterval) -> Self {
        Self {
            polls: interval.polls(),
            since: Instant::now(),
        }
    }

    /// Ends the wait, from whose length the interval learns.
    fn teach(self, interval: &PollInterval) {
        interval.learn(&self.polls, self.since.elapsed());
    }
}

fn budget_spent(wait: &crate::budget::Wait) -> Failure {
    Failure::new(Class::RateLimited, wait.to_string()).not_before(wait.until)
}
