//! Envoys over mutual TLS: each with a view of its own, and rotated certificates under traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use super::client::*;
use e2e_inside::resources::*;

use e2e_inside::served::IDENTITY;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use xds::{Authority, Closed, Fingerprint, Kind, Limits, Resource, RevokedClients, Update, View};

const HOUR: Duration = Duration::from_secs(3600);

fn answering(port: u16, status: u32) -> Resource {
    let routes = hcm::http_connection_manager::RouteSpecifier::RouteConfig(routes(
        "inline",
        vec![respond(prefix(), status)],
    ));
    http_listener("front", port, routes)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn two_envoys_of_different_views_get_each_its_own_under_the_same_names() {
    let mut served = Served::over_tls(Limits::default());
    let theirs = View::new("theirs");
    let ports = [free_port(), free_port()];
    served
        .tls()
        .views
        .allow("spiffe://test/theirs", theirs.clone());
    let ours = served.publish(
        vec![
            answering(ports[0], 201),
            eds_cluster("shared"),
            endpoints("shared", 1),
            eds_cluster("ours"),
        ],
        vec![],
    );
    let upserts = vec![
        answering(ports[1], 202),
        eds_cluster("shared"),
        endpoints("shared", 2),
    ];
    let other = served.cache.publish(
        &theirs,
        Update {
            upserts,
            removals: vec![],
        },
    );

    // Both report the same node name, which is not trusted.
    let roots = served.tls().authority.certificate().to_owned();
    let dirs = [served.dir().join("a"), served.dir().join("b")];
    for (dir, identity) in dirs.iter().zip([IDENTITY, "spiffe://test/theirs"]) {
        std::fs::create_dir(dir).expect("the directory is ours");
        show(dir, "same", &served.tls().client(identity), &roots);
    }
    let port = served.tls().port;
    let envoys = dirs
        .each_ref()
        .map(|dir| Envoy::over_tls(dir, "same", port));
    served.live(ours, 1).await;
    let mut changes = served.cache.watch(&theirs);
    while served.cache.progress(&theirs).acknowledged(other) != (1, 1) {
        changes.changed().await.expect("the cache lives");
    }
    assert_eq!(ports.map(|port| status(port, "")), [201, 202]);
    let clusters = envoys.each_ref().map(|envoy| envoy.admin("/clusters"));
    assert!(
        clusters[0].contains("ours::") && clusters[0].contains("shared::127.0.0.1:1::"),
        "{}",
        clusters[0]
    );
    assert!(
        !clusters[1].contains("ours::") && clusters[1].contains("shared::127.0.0.1:2::"),
        "{}",
        clusters[1]
    );

    // A change of one view sends nothing to the other.
    let before = served.cache.counts();
    let other = served.cache.publish(
        &theirs,
        Update {
            upserts: vec![answering(ports[1], 203)],
            removals: vec![],
        },
    );
    while served.cache.progress(&theirs).acknowledged(other) != (1, 1) {
        changes.changed().await.expect("the cache lives");
    }
    let responses = |counts: &xds::Counts| counts.kinds.iter().map(|k| k.responses).sum::<u64>();
    assert_eq!(responses(&served.cache.counts()), responses(&before) + 1);
    assert_eq!(served.cache.progress(&served.view).published, ours);

    // A revoked Envoy loses its stream and goes on serving; the other keeps its stream.
    served.tls().views.revoke("spiffe://test/theirs");
    served.cache.publish(
        &theirs,
        Update {
            upserts: vec![],
            removals: vec![(Kind::Listener, "front".into())],
        },
    );
    while !served.cache.progress(&theirs).nodes.is_empty() {
        changes.changed().await.expect("the cache lives");
    }
    assert_eq!(ports.map(|port| status(port, "") / 100), [2, 2]);
    let ours = served.publish(vec![answering(ports[0], 204)], vec![]);
    served.live(ours, 1).await;
    served.stop().await;
}

/// Of two Envoys of one identity, each with a certificate of its own, one is revoked: its stream
/// ends, it goes on serving and its retries fail; the other one does not notice.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_envoy_whose_certificate_is_revoked_is_cut_off_and_another_of_its_identity_is_not() {
    let mut served = Served::over_tls(Limits::default());
    let ports = [free_port(), free_port()];
    let roots = served.tls().authority.certificate().to_owned();
    let pairs = [(); 2].map(|()| served.tls().client(IDENTITY));
    let dirs = [served.dir().join("a"), served.dir().join("b")];
    for (dir, (node, pair)) in dirs.iter().zip(["a", "b"].into_iter().zip(&pairs)) {
        std::fs::create_dir(dir).expect("the directory is ours");
        show(dir, node, pair, &roots);
    }
    let first = served.publish(vec![eds_cluster("one"), endpoints("one", ports[0])], vec![]);
    let port = served.tls().port;
    let envoys =
        [(&dirs[0], "a"), (&dirs[1], "b")].map(|(dir, node)| Envoy::over_tls(dir, node, port));
    served.live(first, 2).await;
    let streams = |served: &Served| served.cache.debug().remove(0).streams;
    let before = streams(&served);
    let [a, b] = pairs
        .each_ref()
        .map(|pair| Fingerprint::of_pem(&pair.certificate).expect("a certificate"));
    assert_eq!(
        before
            .iter()
            .find(|s| &*s.node == "a")
            .and_then(|s| s.credential.clone()),
        Some(a.clone())
    );
    let kept = before
        .into_iter()
        .find(|s| s.credential == Some(b.clone()))
        .expect("b is connected");
    assert!(
        kept.version.is_some() && kept.last_ack.is_some() && kept.address.is_some(),
        "{kept:?}"
    );
    let handshakes = |served: &Served| {
        served.cache.counts().closed[Closed::ALL
            .iter()
            .position(|one| *one == Closed::Handshake)
            .expect("one of all")]
    };
    assert_eq!(handshakes(&served), 0);

    served.tls().config.revoke(RevokedClients {
        certificates: [a].into(),
        ..RevokedClients::default()
    });
    served
        .until("one Envoy is left", |p| p.nodes.len() == 1)
        .await;
    let wait = async {
        while handshakes(&served) < 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(e2e_inside::served::PATIENCE, wait)
        .await
        .expect("it tries again, and its handshake fails");
    let second = served.publish(vec![eds_cluster("two"), endpoints("two", ports[1])], vec![]);
    served.live(second, 1).await;
    let after = streams(&served);
    assert_eq!(
        after
            .iter()
            .map(|s| (&*s.node, s.connected))
            .collect::<Vec<_>>(),
        [("b", kept.connected)]
    );
    let clusters = envoys.each_ref().map(|envoy| envoy.admin("/clusters"));
    assert!(
        clusters[0].contains("one::") && !clusters[0].contains("two::"),
        "{}",
        clusters[0]
    );
    assert!(clusters[1].contains("two::"), "{}", clusters[1]);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn certificates_of_both_sides_change_under_traffic() {
    let mut served = Served::over_tls(Limits::default());
    let port = free_port();
    let first = served.tls().authority.certificate().to_owned();
    show(served.dir(), "one", &served.tls().client(IDENTITY), &first);
    let envoy = Envoy::over_tls(served.dir(), "one", served.tls().port);
    let generation = served.publish(vec![answering(port, 200)], vec![]);
    served.live(generation, 1).await;
    assert_eq!(status(port, ""), 200);

    // Requests and configuration changes continue meanwhile.
    let ended = Arc::new(AtomicBool::new(false));
    let requests = Arc::new(AtomicUsize::new(0));
    let traffic = {
        let (ended, requests) = (ended.clone(), requests.clone());
        std::thread::spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                assert_eq!(status(port, ""), 200);
                requests.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let mut round = 0;
    let mut change = |served: &Served| {
        round += 1;
        served.publish(vec![eds_cluster("c"), endpoints("c", round)], vec![])
    };
    served.live(change(&served), 1).await;

    // 1: both sides trust both authorities. 2: both use certificates of the new one. 3: the old one
    // is removed.
    let next = Authority::new("next", HOUR, SystemTime::now()).expect("an authority");
    let both = format!("{first}{}", next.certificate());
    let shown = |authority: &Authority| {
        authority
            .issue_server(&["localhost".into()], HOUR, SystemTime::now())
            .expect("issued")
    };
    let renewed = next
        .issue_client(IDENTITY, HOUR, SystemTime::now())
        .expect("issued");
    let old_server = shown(&served.tls().authority);
    served
        .tls()
        .config
        .rotate(&old_server, &both)
        .expect("rotated");
    show(served.dir(), "one", &served.tls().client(IDENTITY), &both);
    served.live(change(&served), 1).await;
    let updates = |envoy: &Envoy| {
        envoy.stat("cluster.xds.client_ssl_socket_factory.ssl_context_update_by_sds")
    };
    let before = updates(&envoy);
    served
        .tls()
        .config
        .rotate(&shown(&next), next.certificate())
        .expect("rotated");
    show(served.dir(), "one", &renewed, next.certificate());
    // The old connection ends; Envoy reconnects with its new certificate.
    served.live(change(&served), 1).await;
    for _ in 0..600 {
        if updates(&envoy) >= before + 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(updates(&envoy) >= before + 2, "Envoy read both files again");

    // A new connection needs the new certificates of both sides.
    served.stop().await;
    served.serve();
    served.live(change(&served), 1).await;
    let counts = served.cache.counts();
    assert_eq!(counts.of(Kind::Listener).sent, 1, "nothing was sent twice");
    let seen = requests.load(Ordering::SeqCst);
    while requests.load(Ordering::SeqCst) < seen + 10 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    ended.store(true, Ordering::SeqCst);
    traffic.join().expect("every request was answered");
    served.stop().await;
}
