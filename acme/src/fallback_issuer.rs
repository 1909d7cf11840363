//! A list of issuers in order: the next one is tried where the one before fails permanently.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::budget::Budget;
use crate::certificate::IssuedCertificate;
use crate::failure::{Class, Failure};
use crate::issuer::{CertificateId, IssueRequest, Issuer, Known, Underway};
use crate::renewal::Window;

/// An ordered list of issuers, with an optional one for trials.
pub struct FallbackIssuer {
    name: String,
    issuers: Vec<Arc<dyn Issuer>>,
    trial: Option<Arc<dyn Issuer>>,
}

impl FallbackIssuer {
    /// Makes a list; the first issuer is the preferred one.
    pub fn new(name: &str, first: Arc<dyn Issuer>, others: Vec<Arc<dyn Issuer>>) -> Self {
        let issuers = std::iter::once(first).chain(others).collect();
        Self {
            name: name.to_owned(),
            issuers,
            trial: None,
        }
    }

    /// Sets an issuer for trials, such as a CA's staging: after a failed attempt it is tried first,
    /// so that a host that is still at fault does not spend the limits of the real CA.
    pub fn with_trial(mut self, trial: Arc<dyn Issuer>) -> Self {
        self.trial = Some(trial);
        self
    }

    fn first(&self) -> &Arc<dyn Issuer> {
        self.issuers
            .first()
            .expect("the constructor takes a first one")
    }
}

#[async_trait]
impl Issuer for FallbackIssuer {
    fn name(&self) -> &str {
        &self.name
    }

    async fn issue(&self, request: &IssueRequest) -> Result<IssuedCertificate, Failure> {
        if let (Some(trial), 1..) = (&self.trial, request.failures) {
            let rehearsal = IssueRequest {
                replaces: None,
                ..request.clone()
            };
            match trial.issue(&rehearsal).await {
                Ok(_) => trial.installed(&request.id).await?,
                Err(failure) if matches!(failure.class, Class::HostFault | Class::Policy) => {
                    return Err(Failure {
                        message: format!("trial: {}", failure.message),
                        ..failure
                    });
                }
                // A trial that fails for other reasons is no evidence against the host.
                Err(failure) => tracing::info!(issuer = self.name, %failure, "no trial"),
            }
        }
        let mut failures: Vec<Failure> = Vec::new();
        for issuer in &self.issuers {
            match issuer.issue(request).await {
                Ok(certificate) => {
                    let issued_by = Some(certificate.issuer.clone()).filter(|by| *by != self.name);
                    return Ok(IssuedCertificate {
                        issuer: self.name.clone(),
                        issued_by,
                        ..certificate
                    });
                }
                Err(failure) => {
                    let next = failure.class.next_issuer_may_help();
                    failures.push(failure);
                    if !next {
                        break;
                    }
                }
            }
        }
        Err(combine(failures))
    }

    async fn installed(&self, id: &CertificateId) -> Result<(), Failure> {
        for issuer in &self.issuers {
            issuer.installed(id).await?;
        }
        Ok(())
    }

    async fn abandon(&self, id: &CertificateId) -> Result<(), Failure> {
        for issuer in self.issuers.iter().chain(&self.trial) {
            issuer.abandon(id).await?;
        }
        Ok(())
    }

    async fn tidy(&self, known: &Known, now: Timestamp) -> Result<(), Failure> {
        for issuer in self.issuers.iter().chain(&self.trial) {
            issuer.tidy(known, now).await?;
        }
        Ok(())
    }

    fn storage_problems(&self) -> Vec<String> {
        self.first().storage_problems()
    }

    fn underway(&self) -> Vec<Underway> {
        self.issuers
            .iter()
            .flat_map(|issuer| issuer.underway())
            .collect()
    }

    fn budget(&self) -> Option<Budget> {
        // With several issuers, the limits of the first do not hold orders up.
        if self.issuers.len() > 1 {
            None
        } else {
            self.first().budget()
        }
    }

    fn limits(&self) -> Option<Budget> {
        self.first().limits()
    }

    async fn renewal_window(
        &self,
        held: &IssuedCertificate,
        previous: Option<&Window>,
        now: Timestamp,
    ) -> Result<Option<Window>, Failure> {
        // Only the CA that issued the certificate has a window for it; the others answer with an
        // error.
        let mut last = Ok(None);
        for issuer in &self.issuers {
            match issuer.renewal_window(held, previous, now).await {
                Ok(Some(window)) => return Ok(Some(window)),
                other => last = other,
            }
        }
        last
    }
}

/// Combines the failures of all issuers: the class is the first one's, the message has all.
fn combine(failures: Vec<Failure>) -> Failure {
    let mut all = failures.into_iter();
    let mut first = all.next().expect("the list has an issuer, and it failed");
    for other in all {
        first.message = format!("{}; then {}", first.message, other.message);
        // The earliest retry time counts.
        first.retry_at = first.retry_at.min(other.retry_at).or(first.retry_at);
    }
    first
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::names::{DnsName, Names};

    /// An issuer that always gives the same answer and counts its calls.
    struct Fixed(&'static str, Option<Class>, AtomicUsize);

    fn fixed(name: &'static str, class: Option<Class>) -> Arc<Fixed> {
        Arc::new(Fixed(name, class, AtomicUsize::new(0)))
    }

    #[async_trait]
    impl Issuer for Fixed {
        fn name(&self) -> &str {
            self.0
        }
        async fn issue(&self, request: &IssueRequest) -> Result<IssuedCertificate, Failure> {
            self.2.fetch_add(1, Ordering::Relaxed);
            match self.1 {
                Some(class) => Err(Failure::new(class, format!("{} fails", self.0))),
                None => Ok(
                    crate::self_signed::self_signed(request.names.first(), request.now)
                        .expect("made"),
                ),
            }
        }
    }

    fn request(failures: u32) -> IssueRequest {
        let names = Names::one(DnsName::parse("a.example.com").expect("a name"));
        let now = Timestamp::from_second(1_790_000_000).expect("in range");
        IssueRequest {
            failures,
            ..IssueRequest::new(CertificateId::of("t", &names), names, now)
        }
    }

    #[tokio::test]
    async fn the_next_issuer_is_tried_only_after_failures_that_it_may_avoid() {
        for (class, second_asked) in [
            (Class::RateLimited, 1),
            (Class::Policy, 1),
            (Class::HostFault, 0),
            (Class::Transient, 0),
        ] {
            let first = fixed("first", Some(class));
            let second = fixed("second", None);
            let issued = FallbackIssuer::new("both", first, vec![second.clone()])
                .issue(&request(0))
                .await;
            assert_eq!(second.2.load(Ordering::Relaxed), second_asked, "{class:?}");
            assert_eq!(issued.is_ok(), second_asked == 1);
            if let Ok(certificate) = issued {
                assert_eq!(certificate.issuer, "both");
            }
        }
    }

    #[tokio::test]
    async fn after_a_failure_the_trial_issuer_is_tried_first() {
        let trial = fixed("staging", Some(Class::HostFault));
        let real = fixed("real", None);
        let list = FallbackIssuer::new("le", real.clone(), vec![]).with_trial(trial.clone());
        list.issue(&request(0))
            .await
            .expect("the first attempt goes straight to the real one");
        assert_eq!(trial.2.load(Ordering::Relaxed), 0);
        let failure = list.issue(&request(1)).await.expect_err("the trial failed");
        assert!(failure.message.starts_with("trial: staging"), "{failure}");
        assert_eq!(real.2.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn when_all_fail_the_message_has_all_failures() {
        let list = FallbackIssuer::new(
            "both",
            fixed("first", Some(Class::Policy)),
            vec![fixed("second", Some(Class::HostFault)) as Arc<dyn Issuer>],
        );
        let failure = list.issue(&request(0)).await.expect_err("all fail");
        assert_eq!(failure.class, Class::Policy, "the worst class counts");
        assert_eq!(
            failure.message.as_str(),
            "first fails; then second fails",
            "both messages are there"
        );
    }
}
