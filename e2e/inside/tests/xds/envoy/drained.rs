//! Listeners that are removed and added again: Envoy forgets their scopes once it has drained the
//! last of them, acknowledges and drops later scopes, and does not request them when a listener
//! uses scopes again.

use std::time::Duration;

use e2e_inside::resources::*;
use tokio::time::{Instant, sleep};
use xds::{Generation, Kind, Resource};

use super::client::{Envoy, PATIENCE, Served};

/// Far below the 15 seconds after which Envoy gives up waiting for scopes.
const SOON: Duration = Duration::from_secs(5);
const SCOPES: [&str; 3] = ["a", "b", "c"];

/// A server, an Envoy, and a port with a listener that takes its routes from scopes.
struct Site {
    fleet: Served,
    envoy: Envoy,
    port: u16,
}

impl Site {
    fn start(api_type: &str) -> Site {
        let fleet = Served::default();
        let envoy = Envoy::start(fleet.dir(), "one", &fleet.socket(), api_type);
        Site {
            fleet,
            envoy,
            port: free_port(),
        }
    }

    fn listener(&self) -> Resource {
        http_listener("front", self.port, scoped())
    }

    fn all(&self) -> Vec<Resource> {
        let scopes = SCOPES.map(|name| scope(name, prefix()));
        [scopes.to_vec(), vec![self.listener()]].concat()
    }

    fn sent(&self) -> u64 {
        self.fleet.cache.counts().of(Kind::Scope).sent
    }

    async fn take(&mut self, kinds: &[Kind]) {
        let listener = (Kind::Listener, "front".to_owned());
        let scopes = SCOPES.iter().map(|name| (Kind::Scope, (*name).to_owned()));
        let gone = scopes
            .chain([listener])
            .filter(|(kind, _)| kinds.contains(kind))
            .collect();
        let generation = self.fleet.publish(vec![], gone);
        self.fleet.live(generation, 1).await;
    }

    async fn until_drained(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.envoy.stat("listener_manager.total_listeners_draining") > 0 {
            assert!(
                Instant::now() < deadline,
                "a listener of one second drains for ever"
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until every scope is served, within [`SOON`].
    async fn served(&self, generation: Generation, what: &str) {
        let began = Instant::now();
        self.fleet.live(generation, 1).await;
        for name in SCOPES {
            assert_eq!(
                status(self.port, &format!("x-key: {name}\r\n")),
                200,
                "{name} after {what}"
            );
        }
        assert!(began.elapsed() < SOON, "{what}: {:?}", began.elapsed());
    }
}

async fn scopes_are_there_with_their_listener(api_type: &str) {
    let mut site = Site::start(api_type);
    let generation = site.fleet.publish(site.all(), vec![]);
    site.served(generation, "the start").await;
    let once = site.sent();

    for (number, drained) in [(1, true), (2, false), (3, true)] {
        site.take(&[Kind::Listener, Kind::Scope]).await;
        if drained {
            site.until_drained().await;
        }
        let generation = site.fleet.publish(site.all(), vec![]);
        site.served(generation, "all of it came again").await;
        if api_type == "DELTA_GRPC" {
            assert_eq!(site.sent(), once * (number + 1), "each scope is sent once");
        }
    }

    site.take(&[Kind::Listener]).await;
    site.until_drained().await;
    let generation = site.fleet.publish(vec![site.listener()], vec![]);
    site.served(generation, "the listener came again").await;

    // A restarted server knows of the client only what it reports.
    site.take(&[Kind::Listener, Kind::Scope]).await;
    site.until_drained().await;
    site.fleet.stop().await;
    let generation = site.fleet.publish(site.all(), vec![]);
    site.fleet.serve();
    site.served(generation, "they came again while the server was away")
        .await;
    site.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn scopes_are_there_with_their_listener_over_delta() {
    scopes_are_there_with_their_listener("DELTA_GRPC").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn scopes_are_there_with_their_listener_over_state_of_the_world() {
    scopes_are_there_with_their_listener("GRPC").await;
}
