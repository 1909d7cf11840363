//! One stream: passes requests to its session, responses to the client, and effects to the tracker.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, watch};
use tokio::time::{Sleep, sleep_until};
use tonic::{Status, Streaming};
use tracing::Instrument;

use crate::ack_tracker::{Member, StreamId};
use crate::bucket::Bucket;
use crate::cache::Cache;
use crate::dialect::Dialect;
use crate::identity::{Authenticate, Grant};
use crate::rejection::{Rejection, one_line};
use crate::session::{Effect, Outgoing, Refusal, Session};
use crate::stream_progress::StreamProgress;
use crate::view::Generation;
use crate::view_store::ViewStore;
use crate::wire::Node;
use crate::{Kind, Limits};

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        match refusal {
            Refusal::UnknownType(_) | Refusal::WrongType { .. } => {
                Status::invalid_argument(refusal.to_string())
            }
            Refusal::TooManyNames { .. }
            | Refusal::NameTooLong { .. }
            | Refusal::TooManyUnknownNames { .. } => {
                Status::resource_exhausted(refusal.to_string())
            }
        }
    }
}

/// Most requests that are read before the next response is made.
const MAX_REQUESTS_AT_ONCE: usize = 256;

/// The parameters of a new stream.
pub(crate) struct Opening {
    pub(crate) cache: Cache,
    pub(crate) grant: Grant,
    pub(crate) authenticator: Arc<dyn Authenticate>,
    pub(crate) limits: Arc<Limits>,
    /// The kind of a per-type service; None on an aggregated stream.
    pub(crate) only: Option<Kind>,
    pub(crate) shutdown: watch::Receiver<bool>,
    /// Counts the stream for its identity until it ends.
    pub(crate) permit: crate::service::StreamPermit,
}

/// Serves one stream. The stream lives in its response body: when the client disconnects, it is
/// dropped.
pub(crate) fn serve<D: Dialect>(
    opening: Opening,
    requests: Streaming<D::Request>,
) -> impl Stream<Item = Result<D::Response, Status>> + Send + 'static {
    let span = tracing::info_span!(
        "stream",
        view = %opening.grant.view,
        identity = %opening.grant.identity,
        protocol = ?D::PROTOCOL,
        node = tracing::field::Empty
    );
    // Boxed, since it is moved with every response.
    let conversation = Box::new(Conversation::<D>::new(opening, requests));
    futures::stream::unfold(Some(conversation), move |conversation| {
        let span = span.clone();
        let next = async move {
            let mut conversation = conversation?;
            match conversation.next().await {
                Ok(Some(response)) => Some((Ok(response), Some(conversation))),
                Ok(None) => {
                    tracing::debug!("closed by the client");
                    conversation.cache.counters().ended(tonic::Code::Ok);
                    None
                }
                Err(status) => {
                    tracing::info!(code = ?status.code(), reason = status.message(), "ended");
                    conversation.cache.counters().ended(status.code());
                    Some((Err(status), None))
                }
            }
        };
        next.instrument(span)
    })
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

struct Conversation<D: Dialect> {
    dialect: D,
    session: Session,
    requests: Streaming<D::Request>,
    view_store: Arc<ViewStore>,
    published: PublicationWatch,
    shutdown: BoxFuture<'static, ()>,
    cache: Cache,
    grant: Grant,
    authenticator: Arc<dyn Authenticate>,
    limits: Arc<Limits>,
    only: Option<Kind>,
    /// Rate limit of requests; those beyond it are read later, not refused.
    request_rate: Bucket,
    /// Rate limit of updates; a view that changes faster is read less often.
    push_rate: Bucket,
    expires: Option<Instant>,
    timer: DeadlineTimer,
    membership: Option<Membership>,
    progress: Arc<StreamProgress>,
    /// The session's revision that `progress` and the tracker have.
    applied_revision: u64,
    permit: crate::service::StreamPermit,
}

/// Removes the stream from the tracker when it ends, for whatever reason.
struct Membership {
    view_store: Arc<ViewStore>,
    id: StreamId,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.view_store.tracker.disconnect(self.id);
    }
}

impl<D: Dialect> Conversation<D> {
    fn new(opening: Opening, requests: Streaming<D::Request>) -> Self {
        let Opening {
            cache,
            grant,
            authenticator,
            limits,
            only,
            mut shutdown,
            permit,
        } = opening;
        let view_store = cache.view_store(&grant.view);
        // Subscribes before reading, so that no publication is missed between the two.
        let published = PublicationWatch::of(&view_store);
        let generation = view_store.read().generation;
        let expires = grant.expires.map(|at| {
            let left = at
                .duration_since(SystemTime::now())
                .unwrap_or(Duration::ZERO);
            Instant::now() + left
        });
        Conversation {
            dialect: D::new(),
            session: Session::new(D::PROTOCOL, limits.clone(), generation)
                .of_client(permit.names().clone()),
            requests,
            view_store,
            published,
            shutdown: Box::pin(async move { wait_for_shutdown(&mut shutdown).await }),
            cache,
            grant,
            authenticator,
            only,
            request_rate: Bucket::new(limits.request_burst, limits.requests_per_second),
            push_rate: Bucket::new(limits.push_burst, limits.pushes_per_second),
            limits,
            expires,
            timer: DeadlineTimer::default(),
            membership: None,
            progress: Arc::new(StreamProgress::new(generation)),
            applied_revision: 0,
            permit,
        }
    }

    /// Returns the next response; `None` when the client closed its side.
    async fn next(&mut self) -> Result<Option<D::Response>, Status> {
        loop {
            if !self.authenticator.still_granted(&self.grant) {
                return Err(Status::permission_denied(format!(
                    "{} may not read this view any more",
                    self.grant.identity
                )));
            }
            let now = Instant::now();
            if let Some(out) = self.produce(now)? {
                if let Some(response) = self.write(&out) {
                    return Ok(Some(response));
                }
                // The protocol cannot express this response: the client will not answer it, so it
                // counts as answered.
                let tables = self.view_store.read();
                self.session
                    .answer(out.kind, &out.nonce.to_string(), None, &tables, now);
                continue;
            }
            let resume = self.request_rate.empty_until(now);
            let next = self.push_rate.empty_until(now);
            self.timer.set(
                [
                    self.expires,
                    self.overdue(),
                    self.session.retry_due(),
                    resume,
                    next,
                ]
                .into_iter()
                .flatten()
                .min(),
            );
            // In this order, since the likelier event is found sooner; token buckets bound the
            // first two.
            tokio::select! {
                biased;
                () = self.published.changed(), if next.is_none() => {}
                request = self.requests.message(), if resume.is_none() => match request? {
                    Some(request) => {
                        self.read(request)?;
                        self.read_ready()?;
                        // A client that always sends more must not starve others.
                        tokio::task::coop::consume_budget().await;
                    }
                    None => return Ok(None),
                },
                () = &mut self.shutdown => return Err(Status::unavailable("the server is shutting down")),
                () = self.timer.fires() => self.check_deadlines(Instant::now())?,
            }
        }
    }

    /// Returns the time at which the oldest response will be unanswered for too long.
    fn overdue(&self) -> Option<Instant> {
        Some(self.session.waiting_since()? + self.limits.answer_within)
    }

    fn check_deadlines(&self, now: Instant) -> Result<(), Status> {
        if self.expires.is_some_and(|at| at <= now) {
            self.permit.connection().expire();
            return Err(Status::unauthenticated(
                "the credential of this stream has expired; connect with a new one",
            ));
        }
        match self.overdue() {
            Some(at) if at <= now => {
                let limit = self.limits.answer_within;
                Err(Status::deadline_exceeded(format!(
                    "no answer to a response within {limit:?}"
                )))
            }
            _ => Ok(()),
        }
    }

    fn produce(&mut self, now: Instant) -> Result<Option<Outgoing>, Status> {
        let out = {
            self.published.mark_seen();
            let tables = self.view_store.read();
            if tables.pruned > self.session.considered() {
                return Err(Status::aborted(
                    "too far behind the changes of the view; reconnect with the versions held",
                ));
            }
            self.session.next(&tables, now, || {
                let may = self.push_rate.empty_until(now).is_none();
                if may {
                    self.push_rate.take();
                }
                may
            })
        };
        self.apply_effects();
        Ok(out)
    }

    fn write(&mut self, out: &Outgoing) -> Option<D::Response> {
        let response = self.dialect.write(out, self.session.considered())?;
        let mut sent = 0;
        let mut bytes = 0;
        for resource in out.items.iter().filter_map(|i| i.resource()) {
            sent += 1;
            bytes += resource.encoded_len();
        }
        self.cache
            .counters()
            .responded(out.kind, sent, out.items.len() - sent, bytes);
        tracing::debug!(kind = %out.kind, nonce = out.nonce, resources = sent, removed = out.items.len() - sent, bytes, "sent");
        Some(response)
    }

    /// Reads requests that have arrived already, within a bound, so that one response answers all
    /// of them.
    fn read_ready(&mut self) -> Result<(), Status> {
        for _ in 0..MAX_REQUESTS_AT_ONCE {
            if self.request_rate.empty_until(Instant::now()).is_some() {
                return Ok(());
            }
            match self.requests.message().now_or_never() {
                Some(request) => match request? {
                    Some(request) => self.read(request)?,
                    // The next read finds the end again.
                    None => return Ok(()),
                },
                None => return Ok(()),
            }
        }
        Ok(())
    }

    fn read(&mut self, mut request: D::Request) -> Result<(), Status> {
        let node = D::node(&mut request);
        if self.membership.is_none() {
            let version = node.as_ref().and_then(Node::version).map(Arc::from);
            let name = match &self.grant.instance {
                // The name that the client reports is ignored.
                Some(instance) => instance.node.to_string(),
                None => node
                    .map(|n| n.id)
                    .filter(|id| !id.is_empty())
                    .unwrap_or_else(|| self.grant.identity.to_string()),
            };
            let name = one_line(&name, 256);
            tracing::Span::current().record("node", &*name);
            tracing::info!("connected");
            let connection = self.permit.connection();
            let id = self.view_store.tracker.connect(Member {
                node: name.into(),
                identity: self.grant.identity.clone(),
                instance: self
                    .grant
                    .instance
                    .as_ref()
                    .map(|instance| instance.name.clone()),
                address: connection.address,
                credential: connection.credential.clone(),
                version,
                connected: seconds(SystemTime::now()),
                progress: self.progress.clone(),
            });
            self.membership = Some(Membership {
                view_store: self.view_store.clone(),
                id,
            });
        }
        let kind = self.kind(D::type_url(&request))?;
        if kind != Kind::Secret {
            self.request_rate.take();
        }
        let tables = self.view_store.read();
        self.dialect
            .read(&mut self.session, kind, request, &tables, Instant::now())?;
        Ok(())
    }

    fn kind(&self, type_url: &str) -> Result<Kind, Refusal> {
        match (Kind::of_type_url(type_url), self.only) {
            (Some(kind), None) => Ok(kind),
            (Some(kind), Some(only)) if kind == only => Ok(kind),
            // A per-type service implies its type.
            (None, Some(only)) if type_url.is_empty() => Ok(only),
            (_, Some(only)) => Err(Refusal::WrongType {
                expected: only.type_url(),
                found: type_url.to_owned(),
            }),
            (None, None) => Err(Refusal::UnknownType(type_url.to_owned())),
        }
    }

    /// Applies the effects of the session to the counters, the view and the tracker.
    fn apply_effects(&mut self) {
        let Some(id) = self.membership.as_ref().map(|m| m.id) else {
            return;
        };
        let revision = self.session.revision();
        if std::mem::replace(&mut self.applied_revision, revision) == revision {
            return;
        }
        let tracker = &self.view_store.tracker;
        for effect in self.session.take_effects() {
            match effect {
                Effect::Answered {
                    kind,
                    after,
                    refused,
                } => {
                    self.cache.counters().answered(kind, after, refused);
                    if !refused {
                        self.progress.note_ack(seconds(SystemTime::now()));
                    }
                }
                Effect::Acknowledged(resources) => self.view_store.acknowledge(resources.iter()),
                Effect::Rejected {
                    kind,
                    name,
                    version,
                    text,
                } => {
                    // The publisher reads it in `Progress::rejections`, and reports it to people
                    // once.
                    tracing::debug!(%kind, %name, %version, %text, "refused by a client; held back until it changes");
                    tracker.reject(id, kind, name, version, text);
                }
                Effect::Divided {
                    kind,
                    name,
                    version,
                    parts,
                } => {
                    for new in tracker.divide(id, kind, name, version, parts) {
                        let Rejection {
                            name,
                            version,
                            part,
                            text,
                            ..
                        } = new;
                        let part =
                            part.map(|part| format!("{}, {}", part.virtual_host, part.route));
                        tracing::debug!(%kind, %name, %version, part, %text, "refused by a client; replaced until it changes");
                    }
                }
                Effect::Suspected { kind, name, held } => {
                    self.view_store
                        .suspect(|suspects| suspects.set(kind, &name, &held));
                }
                Effect::Recovered { kind, name } => tracker.recover(id, kind, name),
                Effect::Evicted { kind, names } => self.cache.counters().evicted(kind, names),
                Effect::Unknown { names } => self.view_store.count_unknown(names),
            }
        }
        let forgettable = self.progress.forgettable();
        if self
            .progress
            .update(&self.session, self.acknowledged_generation())
        {
            tracker.notify_progress();
        }
        if self.progress.forgettable() > forgettable {
            self.view_store.prune();
        }
    }

    /// Returns the acknowledged generation. An aggregated client that has not subscribed to
    /// listeners yet, although there are some, does not serve yet: 0.
    fn acknowledged_generation(&self) -> Generation {
        let asked = self.only.is_some() || self.session.subscription(Kind::Listener).is_some();
        if asked || self.view_store.read().table(Kind::Listener).len() == 0 {
            self.session.acknowledged()
        } else {
            0
        }
    }
}

/// A notification of publications in the view. It stays registered from one publication to the
/// next, however often it is polled.
struct PublicationWatch {
    published: Arc<Notify>,
    next: Pin<Box<OwnedNotified>>,
    arrived: bool,
}

impl PublicationWatch {
    /// Subscribes to all publications from now on.
    fn of(view_store: &ViewStore) -> PublicationWatch {
        let published = view_store.published.clone();
        let mut next = Box::pin(published.clone().notified_owned());
        next.as_mut().enable();
        PublicationWatch {
            published,
            next,
            arrived: false,
        }
    }

    /// Clears the notification, before the view is read.
    fn mark_seen(&mut self) {
        if std::mem::take(&mut self.arrived) {
            self.next.set(self.published.clone().notified_owned());
            self.next.as_mut().enable();
        }
    }

    async fn changed(&mut self) {
        if !self.arrived {
            self.next.as_mut().await;
            self.arrived = true;
        }
    }
}

/// Ends when the server shuts down.
pub(crate) async fn wait_for_shutdown(shutdown: &mut watch::Receiver<bool>) {
    // A closed channel means that the server is gone.
    let _ = shutdown.wait_for(|down| *down).await;
}

/// One timer for all deadlines. It is only ever moved earlier: most deadlines have been cancelled
/// when it fires, and then it fires once without effect, which costs less than setting it again
/// with every exchange.
#[derive(Default)]
struct DeadlineTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    set: bool,
}

impl DeadlineTimer {
    fn set(&mut self, due: Option<Instant>) {
        let Some(due) = due.map(tokio::time::Instant::from_std) else {
            return;
        };
        match &mut self.sleep {
            None => self.sleep = Some(Box::pin(sleep_until(due))),
            Some(sleep) if !self.set || due < sleep.deadline() => sleep.as_mut().reset(due),
            Some(_) => {}
        }
        self.set = true;
    }

    async fn fires(&mut self) {
        match &mut self.sleep {
            Some(sleep) if self.set => sleep.await,
            _ => std::future::pending().await,
        }
        self.set = false;
    }
}
