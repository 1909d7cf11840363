//! An attempt followed to its end: from whatever was written down to a certificate.

use std::time::Duration;

use instant_acme::{Order, OrderStatus};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::attempt::{OrderAttempt, renonce};
use super::poll_interval::{Looks, PollInterval};
use super::problem::{is_kind, of_account, of_problem};
use super::record::remove_traces;
use super::{authorize, of_storage};
use crate::budget::Reserve;
use crate::certificate::{IssuedCertificate, leads_to};
use crate::failure::{Class, Failure};

/// The CA's request to wait is followed up to here; beyond, the order is taken up later.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// So long an order keeps its turn while it waits for the CA.
const MOMENT: Duration = Duration::from_millis(50);

/// So often in a row the CA may not know an order's parts before the order is given up.
const LOST_AT: u32 = 3;

impl OrderAttempt<'_> {
    /// Follows the order to its end. What is left behind after a failure can be taken up again.
    pub(super) async fn drive(mut self) -> Result<IssuedCertificate, Failure> {
        let result = self.follow().await;
        match &result {
            Err(failure) if failure.class == Class::Transient && failure.dependency.is_none() => self.miss().await,
            _ => {}
        }
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

    /// Takes note where the CA does not know what belongs to the order. A replica of it may come to know it; what is lost
    /// altogether is given up, so that the next order is a new one.
    async fn miss(&mut self) {
        if self.record.url.is_none() || !matches!(self.handle.last().status, 404 | 410) {
            return;
        }
        self.record.lost += 1;
        self.record.over |= self.record.lost >= LOST_AT;
        if let Err(error) = self.save().await {
            tracing::warn!(issuer = self.issuer.config.name, %error, "a lost order could not be written");
        }
    }

    async fn follow(&mut self) -> Result<IssuedCertificate, Failure> {
        if let Some(chain) = self.record.downloaded.clone() {
            return self.verified(chain).await;
        }
        if self.record.url.is_none() {
            self.prepare().await?;
        }
        // Before and after, the disk is waited for: the CA can serve another order meanwhile.
        self.take_turn().await;
        let chain = self.converse().await?;
        self.give_turn();
        self.record.downloaded = Some(chain.clone());
        self.save().await?;
        self.verified(chain).await
    }

    /// All that is said to the CA, and what must be written down in between.
    async fn converse(&mut self) -> Result<String, Failure> {
        let mut order = self.order().await?;
        let (validation, issuance) = (&self.issuer.validation, &self.issuer.issuance);
        let (mut accepted, mut finalized): (Option<Wait>, Option<Wait>) = (None, None);
        loop {
            match (order.state().status, &mut accepted, &mut finalized) {
                (OrderStatus::Pending, None, _) => {
                    // Nothing to wait for if everything was proven already; the CA says so at once.
                    let told = authorize::authorize(self, &mut order).await?;
                    let (mut looks, asked) = (validation.looks(), Instant::now());
                    if told && looks.is_at_once() && self.handle.last().retry_after.is_none() {
                        // A CA that is this fast is not asked whether it is done: it says so when it is not.
                        looks.pause();
                        if self.ask(&mut order).await? {
                            learn(validation, Some((looks, asked)));
                            self.proven().await;
                            finalized = Some((issuance.looks(), Instant::now()));
                            continue;
                        }
                    } else if told {
                        self.wait(&mut looks).await?;
                    }
                    accepted = Some((looks, asked));
                }
                (OrderStatus::Pending, Some((looks, _)), _) | (OrderStatus::Processing, _, Some((looks, _))) => {
                    self.wait(looks).await?;
                }
                (OrderStatus::Ready, ..) => {
                    learn(validation, accepted.take());
                    self.proven().await;
                    // The proofs are in: their traces may go before the certificate comes.
                    self.tidy().await?;
                    let finalized_now = self.ask(&mut order).await?;
                    let mut looks = issuance.looks();
                    let asked = Instant::now();
                    if finalized_now && order.state().status != OrderStatus::Processing {
                        finalized = Some((looks, asked));
                        continue;
                    }
                    self.wait(&mut looks).await?;
                    finalized = Some((looks, asked));
                }
                // Finalized before a restart.
                (OrderStatus::Processing, _, None) => {
                    let mut looks = issuance.looks();
                    self.wait(&mut looks).await?;
                    finalized = Some((looks, Instant::now()));
                }
                (OrderStatus::Valid, ..) => break,
                (OrderStatus::Invalid, ..) => return Err(self.invalid(&mut order).await),
            }
            if let Err(error) = renonce!(order.refresh().await.map(|_| ())) {
                return Err(self.failed(&error));
            }
        }
        learn(issuance, finalized);
        self.tidy().await?;
        self.download(&mut order).await
    }

    /// What failed before counts no more against these names.
    async fn proven(&self) {
        let names = &self.record.names;
        if self.issuer.with_budget(|b| b.proven(names)) {
            self.write_budget().await;
        }
    }

    /// The order that is written down, or a new one.
    async fn order(&mut self) -> Result<Order, Failure> {
        if let Some(url) = self.record.url.clone() {
            match renonce!(self.protocol.order(url.clone()).await) {
                Ok(order) => return Ok(order),
                // Gone: expired, or the CA lost it. The key stays; nothing was issued to it.
                Err(error) if self.handle.last().status == 404 || is_kind(&error, "malformed") => {
                    tracing::info!(issuer = self.issuer.config.name, url, "the CA no longer knows the order");
                    self.record.url = None;
                    self.record.charged = false;
                    self.prepare().await?;
                }
                Err(error) => return Err(self.failed(&error)),
            }
        }
        let order = self.place().await?;
        self.record.url = Some(order.url().to_owned());
        // Written while the authorizations are read, and before anything is done about them.
        self.written = false;
        Ok(order)
    }

    /// Steps before an order is placed: a look at what could be in its way, its place in the budget, its key;
    /// and all of it written down.
    async fn prepare(&mut self) -> Result<(), Failure> {
        self.issuer.look_first(&self.record.names).await?;
        if let Some(solver) = self.issuer.config.solvers.dns.clone() {
            super::zones::try_out(self, &solver).await?;
        }
        self.charge().await?;
        self.save().await?;
        self.settle().await?;
        self.written = true;
        Ok(())
    }

    /// Counts the order before it is placed: a limit overrun by a crash would be worse than one count too many.
    async fn charge(&mut self) -> Result<(), Failure> {
        if self.record.charged {
            return Ok(());
        }
        let now = self.request.now;
        let (names, exempt) = (&self.record.names, self.request.exempt);
        let admitted = self.issuer.with_budget(|budget| {
            budget.admits(names, exempt, Reserve::Emergency, now)?;
            budget.spend(names, exempt, now);
            Ok(budget.limits.orders.is_some())
        });
        match admitted {
            Err(wait) => Err(budget_spent(&wait)),
            Ok(counted) => {
                if counted {
                    self.issuer.write_budget(now).await.map_err(|e| of_storage(&e))?;
                }
                self.record.charged = true;
                Ok(())
            }
        }
    }

    /// Asks for the certificate, once all that is needed to find it again is written down. `false`: not yet.
    async fn ask(&mut self, order: &mut Order) -> Result<bool, Failure> {
        self.save_if_changed().await?;
        // Without the order's URL this certificate would be lost to us.
        self.settled().await?;
        self.finalize(order).await
    }

    /// Sends the request for the certificate, always with the key that is written down. `false` when the CA is
    /// not ready after all.
    async fn finalize(&self, order: &mut Order) -> Result<bool, Failure> {
        let csr = self
            .record
            .key
            .csr(&self.record.names)
            .map_err(|e| Failure::new(Class::Bug, format!("issuer {}: {e}", self.issuer.config.name)))?;
        match renonce!(order.finalize_csr(&csr).await) {
            Ok(()) => Ok(true),
            // RFC 8555, 7.4: look at the order again.
            Err(error) if is_kind(&error, "orderNotReady") => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// The chain; another one than the first, where one is preferred and offered (RFC 8555, 7.4.2).
    async fn download(&self, order: &mut Order) -> Result<String, Failure> {
        let chain = renonce!(order.certificate().await).map_err(|e| self.failed(&e))?;
        let chain = chain.ok_or_else(|| {
            Failure::new(Class::Transient, format!("{}: the certificate is not there yet", self.issuer.config.name))
        })?;
        let Some(preferred) = &self.issuer.config.preferred_chain else { return Ok(chain) };
        if leads_to(&chain, preferred) {
            return Ok(chain);
        }
        for url in self.handle.last().alternates {
            let answer = self
                .account
                .post_as_get(&url)
                .await
                .map_err(|e| of_account(&self.issuer.config.name, &e, Timestamp::now()))?;
            if let Ok(other) = String::from_utf8(answer.body.to_vec())
                && answer.status.is_success()
                && leads_to(&other, preferred)
            {
                return Ok(other);
            }
        }
        tracing::info!(issuer = self.issuer.config.name, preferred, "the CA offers no such chain; its own is taken");
        Ok(chain)
    }

    /// The certificate, if it may be served; else the order is forgotten, so that the next one is a new one.
    async fn verified(&mut self, chain: String) -> Result<IssuedCertificate, Failure> {
        let record = &self.record;
        // Not the request's time: certificates are from now.
        let now = Timestamp::now().max(self.request.now);
        let name = &self.issuer.config.name;
        match IssuedCertificate::verified(chain, record.key.clone(), &record.names, name, now) {
            Ok(certificate) => Ok(certificate),
            Err(unfit) => {
                self.record.over = true;
                self.save().await?;
                Err(Failure::new(Class::Bug, format!("{}: {unfit}", self.issuer.config.name)))
            }
        }
    }

    /// Removes the order's records from DNS; what cannot be removed now stays written down.
    async fn tidy(&mut self) -> Result<(), Failure> {
        if self.record.txt.is_empty() {
            return Ok(());
        }
        let txt = std::mem::take(&mut self.record.txt);
        self.record.txt = remove_traces(self.issuer, txt).await;
        self.save().await
    }

    /// Why the order failed, which names are at fault; and everything tidied up.
    async fn invalid(&mut self, order: &mut Order) -> Failure {
        let now = Timestamp::now();
        let exchange = self.handle.last();
        let name = &self.issuer.config.name;
        let failure = match authorize::culprits(order).await {
            Ok(culprits) if !culprits.is_empty() => {
                let mut failure = of_problem(name, &culprits[0].1, None, None, now);
                failure.message = culprits
                    .iter()
                    .take(5)
                    .map(|(host, problem)| {
                        let text = of_problem(name, problem, None, None, now).message;
                        format!("{host}: {}", text.strip_prefix(&format!("{name}: ")).unwrap_or(&text))
                    })
                    .collect::<Vec<_>>()
                    .join("; ");
                self.issuer.with_budget(|b| {
                    for (host, _) in &culprits {
                        b.spend_failure(host, now);
                    }
                });
                self.write_budget().await;
                failure.by(culprits.into_iter().map(|(host, _)| host.to_string()).collect())
            }
            Ok(_) => match &order.state().error {
                Some(problem) => of_problem(name, problem, Some(&exchange), Some(&self.record.names), now),
                None => Failure::new(Class::HostFault, format!("{name}: the order became invalid, without a reason")),
            },
            Err(error) => self.failed(&error),
        };
        authorize::deactivate_pending(order).await;
        self.record.over = true;
        self.record.url = None;
        if let Err(error) = self.save().await {
            tracing::warn!(issuer = name, %error, "the end of an order could not be written");
        }
        if let Err(error) = super::record::close(self.issuer, &self.record.id).await {
            tracing::warn!(issuer = name, %error, "traces of an order stay for now");
        }
        failure
    }

    /// Waits as long as the CA asks for, or as long as it took lately, then a little longer each time. Unless
    /// that is a moment only, another order has the turn meanwhile: orders that come to no end hold up no others.
    async fn wait(&mut self, looks: &mut Looks) -> Result<(), Failure> {
        let left = self.issuer.config.patience.saturating_sub(self.started.elapsed());
        let asked = self.handle.last().retry_after.filter(|d| !d.is_zero());
        if let Some(asked) = asked.filter(|d| *d > LONGEST_PAUSE) {
            let message = format!("{}: the CA needs longer for this order", self.issuer.config.name);
            return Err(Failure::new(Class::Transient, message).not_before(Timestamp::now() + asked));
        }
        let ours = looks.pause();
        let wanted = asked.and_then(|d| Duration::try_from(d).ok()).unwrap_or(ours);
        if left.is_zero() || wanted > left {
            let message =
                format!("{}: the CA has not decided yet; the order is taken up again", self.issuer.config.name);
            return Err(Failure::new(Class::Transient, message));
        }
        if wanted < MOMENT {
            if !wanted.is_zero() {
                tokio::time::sleep(wanted).await;
            }
            return Ok(());
        }
        self.give_turn();
        tokio::time::sleep(wanted).await;
        self.take_turn().await;
        Ok(())
    }
}

/// Looks at the CA since it was asked.
type Wait = (Looks, Instant);

fn learn(pace: &PollInterval, waited: Option<Wait>) {
    if let Some((looks, since)) = waited {
        pace.learn(&looks, since.elapsed());
    }
}

fn budget_spent(wait: &crate::budget::Wait) -> Failure {
    Failure::new(Class::RateLimited, wait.to_string()).not_before(wait.until)
}
