use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full, StreamBody};
use hyper::body::Frame;
use tokio::time::timeout;

use super::last_heard::LastHeard;
use super::scope::KindWatches;
use super::*;
use gatewright_core::namespaces::Namespaces;
use tokio::sync::mpsc;

fn route(name: &str, version: &str) -> DynamicObject {
    serde_json::from_value(route_value(name, version)).expect("an object")
}

fn route_value(name: &str, version: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a", "uid": "u", "resourceVersion": version, "generation": 2,
            "managedFields": [{"manager": "x"}]},
        "spec": {"parentRefs": [{"name": "g"}], "rules": [{}], "fieldOfTomorrow": 1},
        "status": {"parents": []},
    })
}

fn resource() -> ApiResource {
    ApiResource {
        group: "gateway.networking.k8s.io".into(),
        version: "v1".into(),
        api_version: "gateway.networking.k8s.io/v1".into(),
        kind: "HTTPRoute".into(),
        plural: "httproutes".into(),
    }
}

fn slim(event: Event<DynamicObject>, names: &Names) -> Slim {
    Slim::of(
        event,
        Kind::HTTPRoute,
        &Arc::from(resource().api_version),
        &names.interner,
    )
}

/// The only watch of a cluster scope.
fn scoped(out: mpsc::Sender<WatchEvent>) -> ScopedWatch {
    KindWatches::new(Kind::HTTPRoute, &Namespaces::All, LastHeard::default(), out)
        .each()
        .next()
        .expect("one")
}

/// The parameters of a watch whose events are given.
fn running(resource: &ApiResource, names: Names) -> RunningWatch<'_> {
    let client = Client::new(
        service_fn(|_| {
            std::future::pending::<Result<hyper::Response<Body>, std::convert::Infallible>>()
        }),
        "default",
    );
    RunningWatch {
        client,
        resource,
        lists: Lists::Paged,
        names,
        resumed: watch::channel(false).0,
    }
}

async fn reported(names: Names, events: Vec<watcher::Result<Event<DynamicObject>>>) -> Vec<String> {
    let (sender, mut receiver) = mpsc::channel(64);
    // One event at a time: a chunk consists of the events that are ready at once.
    let read = names.clone();
    let stream = futures::stream::iter(events).then(async |event| {
        tokio::task::yield_now().await;
        event.map(|event| slim(event, &read))
    });
    pass_on(stream, running(&resource(), names), &scoped(sender)).await;
    let mut reported = Vec::new();
    while let Some(news) = receiver.recv().await {
        match news {
            WatchEvent::Changed(updates) => {
                reported.extend(updates.into_iter().map(|update| match update {
                    ObjectUpdate::Put(object, seen, _) => {
                        format!("+{} {}", object.key(), seen.expect("a status").version)
                    }
                    ObjectUpdate::Delete(key) => format!("-{key}"),
                    other => format!("{other:?}"),
                }))
            }
            WatchEvent::Complete(_) => reported.push("complete".into()),
            WatchEvent::Trouble(_, trouble) => reported.push(trouble.to_string()),
            WatchEvent::Missing(_) | WatchEvent::Listing(_) | WatchEvent::Definitions(_) => {
                reported.push("not listed".into())
            }
        }
    }
    reported
}

#[tokio::test]
async fn objects_missing_in_a_new_list_are_deleted_and_none_earlier() {
    let names = Names::default();
    let reported = reported(
        names,
        vec![
            Ok(Event::Init),
            Ok(Event::InitApply(route("x", "1"))),
            Ok(Event::InitApply(route("y", "2"))),
            Ok(Event::InitDone),
            Ok(Event::Apply(route("z", "3"))),
            Ok(Event::Init),
            Ok(Event::InitApply(route("x", "1"))),
            Ok(Event::Init),
            Ok(Event::InitApply(route("z", "4"))),
            Ok(Event::InitDone),
            Ok(Event::Delete(route("z", "5"))),
        ],
    )
    .await;
    let expected = [
        "+httproute a/x 1",
        "+httproute a/y 2",
        "complete",
        "+httproute a/z 3",
        "+httproute a/x 1",
        "+httproute a/z 4",
        "-httproute a/x",
        "-httproute a/y",
        "complete",
        "-httproute a/z",
    ];
    assert_eq!(reported, expected);
}

/// A kind disappears from discovery and is served again, by another watch.
#[tokio::test]
async fn objects_of_a_former_watch_are_deleted_when_the_next_one_lacks_them() {
    let names = Names::default();
    let first = vec![
        Ok(Event::Init),
        Ok(Event::InitApply(route("x", "1"))),
        Ok(Event::InitDone),
    ];
    reported(names.clone(), first).await;
    let next = vec![
        Ok(Event::Init),
        Ok(Event::InitApply(route("y", "7"))),
        Ok(Event::InitDone),
    ];
    assert_eq!(
        reported(names, next).await,
        ["+httproute a/y 7", "-httproute a/x", "complete"]
    );
}

/// A watch is aborted while the channel has no room for its events.
#[tokio::test]
async fn undelivered_events_are_delivered_by_the_next_watch() {
    let names = Names::default();
    let first = vec![
        Ok(Event::Init),
        Ok(Event::InitApply(route("x", "1"))),
        Ok(Event::InitDone),
    ];
    reported(names.clone(), first).await;
    let (sender, receiver) = mpsc::channel(1);
    sender
        .try_send(WatchEvent::Complete(Kind::HTTPRoute))
        .expect("there is room for one");
    let ended = futures::stream::iter([Ok(slim(Event::Delete(route("x", "2")), &names))]);
    let ended = ended.chain(futures::stream::pending());
    let of = names.clone();
    let resource = resource();
    let stuck = tokio::spawn(async move {
        pass_on(ended, running(&resource, of), &scoped(sender)).await;
    });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    stuck.abort();
    assert!(stuck.await.is_err_and(|error| error.is_cancelled()));
    drop(receiver);
    assert_eq!(
        reported(names, vec![Ok(Event::Init), Ok(Event::InitDone)]).await,
        ["-httproute a/x", "complete"]
    );
}

#[tokio::test]
async fn a_server_without_streaming_lists_is_asked_for_pages() {
    let answer = |request: hyper::Request<kube::client::Body>| async move {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let (code, value) = if query.contains("sendInitialEvents") {
            (
                422,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422,
                "message": "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"}),
            )
        } else if query.contains("watch=true") {
            (200, Value::Null)
        } else {
            let items = [serde_json::to_value(route("x", "1")).expect("an object")];
            (
                200,
                json!({"kind": "HTTPRouteList", "apiVersion": "gateway.networking.k8s.io/v1",
                "metadata": {"resourceVersion": "7"}, "items": items}),
            )
        };
        let mut response =
            hyper::Response::new(kube::client::Body::from(value.to_string().into_bytes()));
        *response.status_mut() = hyper::StatusCode::from_u16(code).expect("a status");
        Ok::<_, std::convert::Infallible>(response)
    };
    let client = Client::new(tower::service_fn(answer), "default");
    let (sender, mut receiver) = mpsc::channel(4);
    let watching = watch(
        client,
        resource(),
        Lists::Streamed,
        Names::default(),
        scoped(sender),
    );
    let watching = tokio::spawn(watching);
    assert!(matches!(receiver.recv().await, Some(WatchEvent::Changed(all)) if all.len() == 1));
    assert!(matches!(
        receiver.recv().await,
        Some(WatchEvent::Complete(Kind::HTTPRoute))
    ));
    watching.abort();
}

/// Returns the events of a watch that is answered 503 at first, and that then sends `first` before
/// it is silent.
async fn interrupted(first: Option<Value>, count: usize) -> Vec<String> {
    let watches = Arc::new(AtomicUsize::new(0));
    let answer = move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let earlier = if is_resumption(&query) {
            watches.fetch_add(1, Ordering::SeqCst)
        } else {
            1
        };
        let first = first.clone().filter(|_| earlier == 1);
        async move {
            let (code, body) = if !is_resumption(&query) {
                let list = json!({"kind": "HTTPRouteList", "apiVersion": "gateway.networking.k8s.io/v1",
                    "metadata": {"resourceVersion": "7"}, "items": [route_value("x", "1")]});
                (200, Either::Left(Full::from(list.to_string())))
            } else if earlier == 0 {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503,
                    "reason": "ServiceUnavailable", "message": "it comes up"});
                (503, Either::Left(Full::from(status.to_string())))
            } else {
                let said = futures::stream::iter(first).then(async |event| {
                    sleep(Duration::from_millis(50)).await;
                    Ok(Frame::data(Bytes::from(format!("{event}\n"))))
                });
                let silence =
                    futures::stream::pending::<Result<Frame<Bytes>, std::convert::Infallible>>();
                (200, Either::Right(StreamBody::new(said.chain(silence))))
            };
            let mut response = hyper::Response::new(body);
            *response.status_mut() = hyper::StatusCode::from_u16(code).expect("a status");
            Ok::<_, std::convert::Infallible>(response)
        }
    };
    let client = Client::new(service_fn(answer), "default");
    let (sender, mut receiver) = mpsc::channel(4);
    let watching = watch(
        client,
        resource(),
        Lists::Paged,
        Names::default(),
        scoped(sender),
    );
    let watching = tokio::spawn(watching);
    let mut reported = Vec::new();
    while reported.len() < count {
        let next = timeout(Duration::from_secs(20), receiver.recv())
            .await
            .expect("it is told that it goes on");
        reported.push(match next.expect("it is watched") {
            WatchEvent::Changed(_) => "changed".to_owned(),
            WatchEvent::Complete(_) => "complete".to_owned(),
            WatchEvent::Trouble(_, trouble) => trouble.to_string(),
            other => format!("{other:?}"),
        });
    }
    watching.abort();
    reported
}

/// Nothing changes, so the only signal of the watch is that it was resumed.
#[tokio::test]
async fn a_watch_that_goes_on_after_trouble_is_complete_without_an_event() {
    let reported = interrupted(None, 4).await;
    assert_eq!(
        reported,
        [
            "changed",
            "complete",
            "the API server answered 503: it comes up",
            "complete"
        ]
    );
}

/// The watch is accepted, and then gets the error that its resource version is too old.
#[tokio::test]
async fn a_watch_that_cannot_go_on_after_trouble_is_complete_once_it_has_listed_again() {
    let expired = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": 410, "reason": "Expired", "message": "too old resource version: 7 (9)"}});
    let reported = interrupted(Some(expired), 5).await;
    assert_eq!(
        reported,
        [
            "changed",
            "complete",
            "the API server answered 503: it comes up",
            "changed",
            "complete"
        ]
    );
}

#[tokio::test]
async fn a_list_that_begins_anew_after_trouble_is_not_complete() {
    fn refused() -> Result<Event<DynamicObject>, watcher::Error> {
        let status = kube::core::Status {
            code: 503,
            message: "no".into(),
            ..Default::default()
        };
        Err(watcher::Error::InitialListFailed(Error::Api(Box::new(
            status,
        ))))
    }
    let events = vec![
        Ok(Event::Init),
        Ok(Event::InitDone),
        refused(),
        Ok(Event::Init),
        refused(),
        Ok(Event::Init),
        Ok(Event::InitApply(route("x", "1"))),
        Ok(Event::InitDone),
    ];
    let no = "the API server answered 503: no";
    assert_eq!(
        reported(Names::default(), events).await,
        ["complete", no, no, "+httproute a/x 1", "complete"]
    );
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let denied = kube::core::Status {
        code: 403,
        ..Default::default()
    };
    let error = watcher::Error::InitialListFailed(Error::Api(Box::new(denied)));
    let reported = reported(Names::default(), vec![Err(error)]).await;
    assert!(
        reported[0].contains("list and watch on httproutes"),
        "{reported:?}"
    );
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no"})
}

/// Roles were deleted with their namespace; in the other namespace they exist.
#[tokio::test]
async fn namespaces_are_asked_for_one_by_one_and_one_that_is_absent_has_nothing() {
    let asked_for: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let asked = asked_for.clone();
    let absent_asked = Arc::new(AtomicUsize::new(0));
    let answer = move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        asked
            .lock()
            .expect("nothing panics while it is held")
            .insert(path.clone());
        let is_watch = query.contains("watch=true");
        let (code, value) = match path.as_str() {
            // The namespace is created after a while.
            "/api/v1/namespaces/gone" if absent_asked.fetch_add(1, Ordering::SeqCst) < 2 => {
                (404, status(404))
            }
            "/api/v1/namespaces/gone" => (200, json!({"metadata": {"name": "gone"}})),
            path if path.contains("/gone/") && absent_asked.load(Ordering::SeqCst) < 3 => {
                (403, status(403))
            }
            _ if is_watch => (200, Value::Null),
            path => {
                let mut item = route_value("x", "1");
                item["metadata"]["namespace"] = json!(path.split('/').nth(5).unwrap_or("?"));
                let list = json!({"kind": "HTTPRouteList", "apiVersion": "gateway.networking.k8s.io/v1",
                    "metadata": {"resourceVersion": "7"}, "items": [item]});
                (200, list)
            }
        };
        let body = if is_watch && code == 200 {
            Either::Right(StreamBody::new(futures::stream::pending::<
                Result<Frame<Bytes>, std::convert::Infallible>,
            >()))
        } else {
            Either::Left(Full::from(value.to_string()))
        };
        let mut response = hyper::Response::new(body);
        *response.status_mut() = hyper::StatusCode::from_u16(code).expect("a status");
        async move { Ok::<_, std::convert::Infallible>(response) }
    };
    let client = Client::new(service_fn(answer), "default");
    let (sender, mut receiver) = mpsc::channel(16);
    let listed = Namespaces::listed(&["gone".to_owned()], "own");
    let of_kind = KindWatches::new(Kind::HTTPRoute, &listed, LastHeard::default(), sender);
    let names = Names::default();
    let watches: Vec<_> = of_kind
        .each()
        .map(|scoped| {
            tokio::spawn(watch(
                client.clone(),
                resource(),
                Lists::Paged,
                names.of_another(),
                scoped,
            ))
        })
        .collect();
    let mut objects = Vec::new();
    let mut complete = 0;
    while objects.len() < 2 || complete < 2 {
        let next = timeout(Duration::from_secs(20), receiver.recv())
            .await
            .expect("it is told");
        match next.expect("it is watched") {
            WatchEvent::Changed(updates) => {
                objects.extend(updates.into_iter().map(|update| match update {
                    ObjectUpdate::Put(object, ..) => object.key().to_string(),
                    other => format!("{other:?}"),
                }))
            }
            WatchEvent::Complete(_) => complete += 1,
            other => panic!("{other:?}"),
        }
        assert!(
            complete == 0 || objects.contains(&"httproute own/x".to_owned()),
            "all of it was told before"
        );
    }
    watches.iter().for_each(tokio::task::JoinHandle::abort);
    assert_eq!(objects, ["httproute own/x", "httproute gone/x"]);
    let asked_for = asked_for.lock().expect("nothing panicked").clone();
    fn routes(namespace: &str) -> String {
        format!("/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/httproutes")
    }
    assert_eq!(
        asked_for,
        [
            routes("gone"),
            routes("own"),
            "/api/v1/namespaces/gone".to_owned()
        ]
        .into()
    );
}

/// The first watch of routes is taken up and says nothing for ever: no bookmark, no end. It is
/// begun anew, and what it missed is told.
#[tokio::test]
async fn a_watch_of_which_nothing_is_heard_is_begun_anew() {
    let lists = Arc::new(AtomicUsize::new(0));
    let listed = lists.clone();
    let answer = move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let group = "gateway.networking.k8s.io";
        let is_watch = request
            .uri()
            .query()
            .unwrap_or_default()
            .contains("watch=true");
        let (code, value) = match path.as_str() {
            "/version" => (
                200,
                json!({"major": "1", "minor": "30", "gitVersion": "v1.30.0", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
            ),
            "/apis" => (
                200,
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": group,
                "versions": [{"groupVersion": format!("{group}/v1"), "version": "v1"}]}]}),
            ),
            "/apis/gateway.networking.k8s.io/v1" => (
                200,
                json!({"kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": format!("{group}/v1"), "resources": [{"name": "httproutes", "singularName": "httproute",
                    "namespaced": true, "kind": "HTTPRoute", "verbs": ["list", "watch"]}]}),
            ),
            "/readyz" => (200, json!("ok")),
            _ if is_watch => (200, Value::Null),
            _ => {
                let name = ["missed", "later"][listed.fetch_add(1, Ordering::SeqCst).min(1)];
                (
                    200,
                    json!({"kind": "HTTPRouteList", "apiVersion": format!("{group}/v1"),
                    "metadata": {"resourceVersion": "7"}, "items": [route_value(name, "1")]}),
                )
            }
        };
        let body = if is_watch {
            Either::Right(StreamBody::new(futures::stream::pending::<
                Result<Frame<Bytes>, std::convert::Infallible>,
            >()))
        } else {
            Either::Left(Full::from(value.to_string()))
        };
        let mut response = hyper::Response::new(body);
        *response.status_mut() = hyper::StatusCode::from_u16(code).expect("a status");
        async move { Ok::<_, std::convert::Infallible>(response) }
    };
    let client = Client::new(service_fn(answer), "default");
    let (sender, mut receiver) = mpsc::channel(16);
    let heard = LastHeard::within(Duration::from_millis(300));
    let running = tokio::spawn(kinds::run(
        client,
        vec![Kind::HTTPRoute],
        Namespaces::All,
        heard.clone(),
        sender,
    ));
    let mut told = Vec::new();
    while told.len() < 3 {
        let next = timeout(Duration::from_secs(20), receiver.recv())
            .await
            .expect("it is told");
        if let WatchEvent::Changed(updates) = next.expect("it is watched") {
            told.extend(updates.into_iter().map(|update| match update {
                ObjectUpdate::Put(object, ..) => format!("+{}", object.key()),
                ObjectUpdate::Delete(key) => format!("-{key}"),
                other => format!("{other:?}"),
            }));
        }
    }
    running.abort();
    assert_eq!(
        told,
        [
            "+httproute a/missed",
            "+httproute a/later",
            "-httproute a/missed"
        ]
    );
    assert!(
        heard
            .ages(std::time::Instant::now())
            .contains_key(&Kind::HTTPRoute)
    );
}
