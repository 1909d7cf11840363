//! Tower layer on every request to the API server: each has a timeout, and a write starts only
//! while we hold the Lease and is cancelled before another replica may hold it (fencing).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::{Method, Request, Response};
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
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

    /// Returns the timeout of a request.
    fn limit(&self, method: &Method, path: &str, now: Instant) -> Result<Duration, Stopped> {
        // Every replica writes Leases: the one of the election, and its own record. Reviews change
        // nothing.
        let for_all = [
            "/apis/coordination.k8s.io/",
            "/apis/authentication.k8s.io/",
            "/apis/authorization.k8s.io/",
        ];
        let is_for_all = for_all.iter().any(|group| path.starts_with(group));
        if matches!(*method, Method::GET | Method::HEAD) || is_for_all {
            return Ok(ANSWER);
        }
        let term = *self.term.borrow();
        let until = term.filter(|until| now < *until).ok_or(Stopped::Over)?;
        Ok(ANSWER.min(until - now + self.grace))
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
        let limit = match self
            .fence
            .limit(request.method(), request.uri().path(), Instant::now())
        {
            Ok(limit) => limit,
            Err(over) => return Box::pin(std::future::ready(Err(over.into()))),
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            match timeout(limit, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(Stopped::Late(limit).into()),
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
        fn limit(method: Method, at: Instant, fence: &Fence) -> Result<Duration, Stopped> {
            fence.limit(&method, "/apis/x/v1/namespaces/a/gateways/g", at)
        }
        assert_eq!(limit(Method::PATCH, now, &fence), Err(Stopped::Over));
        assert_eq!(limit(Method::GET, now, &fence), Ok(ANSWER));
        let review = "/apis/authentication.k8s.io/v1/tokenreviews";
        assert_eq!(fence.limit(&Method::POST, review, now), Ok(ANSWER));
        sender.send_replace(Some(now + 10 * SECOND));
        for (at, left) in [
            (0, Ok(14)),
            (9, Ok(5)),
            (10, Err(Stopped::Over)),
            (11, Err(Stopped::Over)),
        ] {
            assert_eq!(
                limit(Method::PATCH, now + at * SECOND, &fence),
                left.map(Duration::from_secs),
                "after {at} s"
            );
        }
        let renewal = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l";
        assert_eq!(
            fence.limit(&Method::PUT, renewal, now + 11 * SECOND),
            Ok(ANSWER)
        );
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
