//! Placing an order (RFC 8555, 7.4), and handling of the CA's refusal.

use instant_acme::{CertificateIdentifier, Identifier, NewOrder, Order};
use jiff::{SignedDuration, Timestamp};

use super::attempt::{OrderAttempt, retry_bad_nonce};
use super::problem::{is_kind, remedy};
use super::refusal;
use crate::budget::Scope;
use crate::failure::{Class, Dependency, Failure};

impl OrderAttempt<'_> {
    /// Places the persisted order.
    pub(super) async fn place(&mut self) -> Result<Order, Failure> {
        let identifiers: Vec<_> = self
            .record
            .names
            .to_strings()
            .into_iter()
            .map(Identifier::Dns)
            .collect();
        let ari = self.issuer.directory().await?.renewal_info.is_some();
        loop {
            let mut new = NewOrder::new(&identifiers);
            if let Some(profile) = &self.record.profile {
                new = new.profile(profile);
            }
            let replaces = self.record.replaces.clone().filter(|_| ari);
            if let Some((authority, serial)) = replaces.as_ref().and_then(|r| r.split_once('.')) {
                new = new.replaces(CertificateIdentifier {
                    authority_key_identifier: authority.into(),
                    serial: serial.into(),
                });
            }
            let error = match retry_bad_nonce!(self.protocol.new_order(&new).await) {
                Ok(order) => return self.placed(order),
                Err(error) => error,
            };
            let exchange = self.handle.last();
            // The order was created, but its body cannot be used, or does not echo `replaces` (RFC
            // 9773, 5). It is kept by its URL: another one would not be read any better.
            if let (200..300, Some(url)) = (exchange.status, exchange.location) {
                self.record.url = Some(url.clone());
                self.save().await?;
                let order = retry_bad_nonce!(self.protocol.order(url.clone()).await);
                return self.placed(order.map_err(|error| self.failed(&error))?);
            }
            if matches!(exchange.status, 200..300) {
                let message = format!(
                    "{}: the CA's answer to newOrder has no Location",
                    self.issuer.config.name
                );
                return Err(Failure::new(Class::Bug, message));
            }
            // RFC 9773, 5: already replaced, of another account, unknown. The order is placed again
            // without `replaces`. Pebble answers 500 for a certificate that it does not know.
            let unknown =
                exchange.status == 500 && error.to_string().contains("for the given certificate");
            let refused = matches!(exchange.status, 400 | 403 | 404 | 409)
                && !is_kind(&error, "rateLimited")
                || unknown;
            if replaces.is_some() && refused {
                self.record.replaces = None;
                self.save().await?;
                continue;
            }
            if matches!(error, instant_acme::Error::Api(_)) && matches!(exchange.status, 400..500) {
                self.refund().await;
            }
            return Err(self.refused(&error).await);
        }
    }

    /// Takes back the count of a refused order: names that are not at fault may need it.
    async fn refund(&mut self) {
        let names = self.record.names.clone();
        let exempt = self.exempt();
        self.issuer.with_budget(|b| b.refund(&names, exempt));
        self.record.charged = false;
        if let Err(error) = self.save().await {
            tracing::warn!(issuer = self.issuer.config.name, %error, "cannot store that the CA refused an order");
        }
        self.write_budget().await;
    }

    /// Checks the order's profile where it is required: a CA without profiles ignores the request
    /// for one.
    fn placed(&self, mut order: Order) -> Result<Order, Failure> {
        self.issuer
            .suspicion
            .lock()
            .expect("nobody panics while holding it")
            .accepted();
        let want = self.issuer.config.profile.as_ref().filter(|p| p.required);
        match (want, &order.state().profile) {
            (Some(want), Some(found)) if *found != want.name => Err(Failure::new(
                Class::Policy,
                format!(
                    "{}: asked for profile {}, got {found}",
                    self.issuer.config.name, want.name
                ),
            )),
            _ => Ok(order),
        }
    }

    async fn refused(&self, error: &instant_acme::Error) -> Failure {
        let mut failure = self.failed(error);
        let names = &self.record.names;
        let now = Timestamp::now();
        if failure.class == Class::HostFault && failure.culprits.is_empty() {
            // No host has been validated yet: the refusal concerns the account (RFC 8555, 7.3.6).
            failure = account_refused(failure);
        }
        if let (Class::RateLimited, instant_acme::Error::Api(problem)) = (failure.class, error) {
            let detail = problem.detail.as_deref().unwrap_or_default();
            let scope = refusal::scope(detail, names);
            // A 429 without a problem type limits requests, which are allowed again within a
            // minute.
            let usual = match (&scope, &problem.r#type) {
                (Some(_), _) => SignedDuration::from_hours(1),
                (None, Some(_)) => SignedDuration::from_mins(10),
                (None, None) => SignedDuration::from_mins(1),
            };
            let until = failure.retry_at.unwrap_or(now + usual);
            let suspect = || {
                self.issuer
                    .suspicion
                    .lock()
                    .expect("nobody panics while holding it")
                    .refused(names, now)
            };
            let scope = scope.or_else(|| suspect().then_some(Scope::Orders));
            if let Some(scope) = scope {
                self.issuer.with_budget(|b| b.refuse_until(scope, until));
            }
            self.write_budget().await;
            return failure.not_before(until);
        }
        if self.handle.last().status == 503 {
            // The answer may have set the limit of our address.
            self.write_budget().await;
        }
        failure
    }
}

fn account_refused(failure: Failure) -> Failure {
    let message = format!(
        "{}{}",
        failure.message,
        remedy("unauthorized", Class::Account, &failure.message)
    );
    Failure {
        class: Class::Account,
        message,
        ..failure
    }
    .with_dependency(Dependency::Account)
}
