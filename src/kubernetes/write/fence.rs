//! Tower layer on every request to the API server: each has a timeout, and a write starts only
//! while we hold the Lease and is cancelled before another replica may hold it (fencing).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::{Method, Request, Response};
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tower::{BoxError, Layer, Service};

use crate::lease::Term;

/// The time until the response headers: the server's own timeout is longer, and an unreachable
/// server never answers.
const ANSWER: Duration = Duration::from_secs(30);

/// The term in which writes may start, and the time that they may last beyond its end.
#[derive(Clone, Debug)]
pub struct Fence {
    term: watch::Receiver<Term>,
    grace: Duration,
}

/// The reason for which a request was not made, or was cancelled.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Stopped {
    #[error("the lease ran out before this was written")]
    Over,
    #[error("no answer within {0:?}")]
    Late(Duration),
}

impl Fence {
    /// Creates the fence of a Lease of this duration. A term ends after two thirds of it, see
    /// [`crate::lease`]; most of the last third remains for writes in progress.
    pub fn new(term: watch::Receiver<Term>, lease: Duration) -> Self {
        Self {
            term,
            grace: lease / 3 - lease / 15,
        }
    }

    /// Returns the time until which a write may last that runs in the present term; `None` without
    /// one. A renewal of the Lease prolongs it.
    fn end_of_write(&self) -> Option<Instant> {
        self.term.borrow().map(|until| until + self.grace)
    }

    /// Returns whether a request is a write that only the holder of the Lease may make.
    fn is_fenced(method: &Method, path: &str) -> bool {
        // Every replica writes Leases: the one of the election, and its own record. Reviews change
        // nothing.
        let for_all = [
            "/apis/coordination.k8s.io/",
            "/apis/authentication.k8s.io/",
            "/apis/authorization.k8s.io/",
        ];
        let is_for_all = for_all.iter().any(|group| path.starts_with(group));
        !matches!(*method, Method::GET | Method::HEAD) && !is_for_all
    }

    /// Returns until when a write may last by the present term that begins now.
    fn begin(&self, now: Instant) -> Result<Instant, Stopped> {
        let term = *self.term.borrow();
        let until = term.filter(|until| now < *until).ok_or(Stopped::Over)?;
        Ok(until + self.grace)
    }

    /// Waits until a write has to end that may last until `end`, if the Lease is not renewed.
    async fn ended(mut self, mut end: Instant) {
        loop {
            tokio::select! {
                // A renewal that comes too late prolongs nothing.
                biased;
                () = sleep_until(end) => return,
                changed = self.term.changed() => {
                    if changed.is_err() {
                        return sleep_until(end).await;
                    }
                    // Without a term, the last one counts: nobody else holds the Lease before.
                    end = self.end_of_write().map_or(end, |later| later.max(end));
                }
            }
        }
    }
}

impl<S> Layer<S> for Fence {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced {
            inner,
            fence: self.clone(),
        }
    }
}

/// A client behind the fence.
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    inner: S,
    fence: Fence,
}

impl<S, B> Service<Request<Body>> for Fenced<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let begun = Instant::now();
        let end = if Fence::is_fenced(request.method(), request.uri().path()) {
            match self.fence.begin(begun) {
                Ok(end) => Some(end),
                Err(over) => return Box::pin(std::future::ready(Err(over.into()))),
            }
        } else {
            None
        };
        let fence = self.fence.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let stopped = async {
                match end {
                    Some(end) => fence.ended(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                answer = timeout(ANSWER, answer) => match answer {
                    Ok(answer) => answer.map_err(Into::into),
                    Err(_) => Err(Stopped::Late(ANSWER).into()),
                },
                () = stopped => Err(Stopped::Late(begun.elapsed()).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_write_is_begun_in_the_term_and_given_up_before_the_lease_is_anothers() {
        let now = Instant::now();
        let (sender, term) = watch::channel(None);
        let fence = Fence::new(term, 15 * SECOND);
        let object = "/apis/x/v1/namespaces/a/gateways/g";
        let review = "/apis/authentication.k8s.io/v1/tokenreviews";
        let renewal = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";
        for (method, path, is_fenced) in [
            (Method::PATCH, object, true),
            (Method::GET, object, false),
            (Method::POST, review, false),
            (Method::PUT, renewal, false),
        ] {
            assert_eq!(
                Fence::is_fenced(&method, path),
                is_fenced,
                "{method} {path}"
            );
        }
        assert_eq!(fence.begin(now), Err(Stopped::Over));
        sender.send_replace(Some(now + 10 * SECOND));
        for (at, left) in [
            (0, Ok(14)),
            (9, Ok(5)),
            (10, Err(Stopped::Over)),
            (11, Err(Stopped::Over)),
        ] {
            let at = now + at * SECOND;
            assert_eq!(
                fence.begin(at).map(|end| end - at),
                left.map(Duration::from_secs),
                "after {:?}",
                at - now
            );
        }
    }

    #[tokio::test]
    async fn a_write_lasts_as_long_as_the_lease_is_renewed() {
        let tenth = SECOND / 10;
        for (renewals, outcome) in [(0, "no answer within 1."), (9, "answered")] {
            let begun = Instant::now();
            let (sender, term) = watch::channel(Some(begun + 10 * tenth));
            let slow = tower::service_fn(|_: Request<Body>| async {
                tokio::time::sleep(SECOND * 5 / 2).await;
                Ok::<_, BoxError>(Response::new(Body::empty()))
            });
            let mut fenced = Fence::new(term, 15 * tenth).layer(slow);
            let request = Request::patch("/api/v1/namespaces/a")
                .body(Body::empty())
                .expect("a request");
            let answer = tokio::spawn(fenced.call(request));
            for number in 1..=renewals {
                tokio::time::sleep(3 * tenth).await;
                sender.send_replace(Some(begun + (10 + 3 * number) * tenth));
            }
            let answer = answer.await.expect("it does not panic");
            let told = answer.map_or_else(|stopped| stopped.to_string(), |_| "answered".to_owned());
            assert!(told.starts_with(outcome), "{renewals} renewals: {told}");
        }
    }

    #[tokio::test]
    async fn a_write_that_is_not_answered_is_given_up() {
        let lease = Duration::from_millis(30);
        let (_sender, term) = watch::channel(Some(Instant::now() + SECOND));
        let silent = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, BoxError>>()
        });
        let mut fenced = Fence::new(term, lease).layer(silent);
        for told in [
            "no answer within",
            "the lease ran out before this was written",
        ] {
            let request = Request::patch("/api/v1/namespaces/a")
                .body(Body::empty())
                .expect("a request");
            let refused = fenced.call(request).await.expect_err("it never comes");
            assert!(refused.to_string().starts_with(told), "{refused}");
        }
    }
}
