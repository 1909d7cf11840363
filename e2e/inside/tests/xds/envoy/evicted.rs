//! The memory of on-demand secrets in Envoy: its estimate, and what eviction gives back.

use std::time::{Duration, SystemTime};

use super::client::*;
use super::on_demand::{handshake, inline};
use e2e_inside::resources::*;
use rcgen::{CertificateParams, KeyPair};
use xds::{Kind, Limits};

const HOSTS: usize = 400;
/// The memory of a secret with a usual chain, and of one with the largest chain that is served, by
/// the server's estimate.
const USUAL: u64 = 45_000;
const LARGEST: u64 = 220_000;

/// Certificates of together at least so many bytes in PEM.
fn issuers(bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        let names: Vec<String> = (0..20)
            .map(|number| format!("{number:040}.{}.test", text.len()))
            .collect();
        let key = KeyPair::generate().expect("a key");
        text += &CertificateParams::new(names)
            .expect("names")
            .self_signed(&key)
            .expect("a certificate")
            .pem();
    }
    text
}

/// Returns the number that follows this text.
fn number_after(text: &str, before: &str) -> u64 {
    let (_, rest) = text
        .split_once(before)
        .unwrap_or_else(|| panic!("no {before:?} in {text}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

struct Edge {
    fleet: Served,
    envoy: Envoy,
    authority: xds::Authority,
    port: u16,
    /// Its heap before any handshake, in bytes.
    begun: u64,
}

fn host(number: usize) -> String {
    format!("h{number}.evicted.test")
}

impl Edge {
    /// Starts an Envoy with hosts whose chains have so many bytes besides the leaf.
    async fn start(limits: Limits, bytes: usize) -> Edge {
        let now = SystemTime::now();
        let hour = Duration::from_secs(3600);
        let authority = xds::Authority::new("test", hour, now).expect("an authority");
        let pair = authority
            .issue_server(&["*.evicted.test".to_owned()], hour, now)
            .expect("issued");
        let chain = format!("{}{}", pair.certificate, issuers(bytes));
        let fleet = Served::start(limits);
        let port = free_port();
        let envoy = Envoy::of(&fleet, "one");
        let hosts = (0..HOSTS).map(|number| secret(&host(number), &chain, &pair.key));
        let generation = fleet.publish(
            hosts
                .chain([on_demand_listener("front", port, inline())])
                .collect(),
            vec![],
        );
        fleet.live(generation, 1).await;
        let mut edge = Edge {
            fleet,
            envoy,
            authority,
            port,
            begun: 0,
        };
        // What Envoy allocates once, at its first handshake.
        edge.asks(0).await;
        edge.begun = edge.heap();
        edge
    }

    async fn asks(&self, number: usize) {
        handshake(self.port, self.authority.certificate(), &host(number))
            .await
            .expect("served");
    }

    fn heap(&self) -> u64 {
        number_after(&self.envoy.admin("/memory"), "\"allocated\": \"")
    }

    /// Has every host asked for, and returns by how many bytes the heap has grown.
    async fn filled(&self) -> u64 {
        for number in 0..HOSTS {
            self.asks(number).await;
        }
        self.heap().saturating_sub(self.begun)
    }

    /// Returns the number of on-demand certificates that Envoy has.
    fn active(&self) -> u64 {
        number_after(
            &self
                .envoy
                .admin("/stats?filter=on_demand_secret.cert_active"),
            "cert_active: ",
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_memory_of_a_secret_in_envoy_is_estimated() {
    for (bytes, estimate) in [(2_400, USUAL), (31_000, LARGEST)] {
        let mut edge = Edge::start(Limits::default(), bytes).await;
        let each = edge.filled().await / HOSTS as u64;
        assert!(
            estimate >= each / 2,
            "a chain of {bytes} bytes takes {each} bytes, and {estimate} are estimated"
        );
        assert!(
            estimate <= 3 * each,
            "a chain of {bytes} bytes takes {each} bytes, and {estimate} are estimated"
        );
        assert_eq!(edge.active(), HOSTS as u64, "none is withdrawn");
        edge.fleet.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn what_is_withdrawn_by_its_size_is_given_back_by_envoy() {
    const MEMORY: u64 = 12_000_000;
    let limits = Limits {
        on_demand_secret_memory: MEMORY as usize,
        ..Default::default()
    };
    let mut edge = Edge::start(limits, 31_000).await;
    let grown = edge.filled().await;
    let evicted = edge.fleet.cache.counts().of(Kind::Secret).evicted;
    assert!(evicted > HOSTS as u64 / 2, "{evicted} are withdrawn");
    assert!(
        edge.active() <= MEMORY / LARGEST + 16,
        "Envoy has {} certificates",
        edge.active()
    );
    assert!(
        grown < 2 * MEMORY,
        "Envoy's heap has grown by {grown} bytes"
    );
    // The host that was withdrawn first gets its certificate again.
    edge.asks(0).await;
    // Under connections to all hosts in turn nothing accumulates.
    let again = edge.filled().await;
    assert!(
        again < 2 * MEMORY,
        "Envoy's heap has grown by {again} bytes after another turn"
    );
    edge.fleet.stop().await;
}
