//! Requests that are as dear to an Envoy as clients can make them, and what they take.

use std::time::Duration;

use anyhow::Result;
use e2e::probe::Probe;
use e2e::usage;

use crate::site::Site;

/// A little less than the 60 KiB that headers of a request may have.
const LONG: usize = 55_000;
/// Lines of one header, of the 100 that a request may have.
const LINES: usize = 90;
/// What Envoy collects of a body at most.
const BODY: usize = 60_000;

/// A text of `a` and `b` that repeats after 65,535 characters (a linear feedback shift register of
/// 16 bits), so that all texts of up to 15 of them occur in it.
fn random(length: usize, seed: u16) -> String {
    let mut bits = seed | 1;
    (0..length)
        .map(|_| {
            let bit = (bits ^ (bits >> 2) ^ (bits >> 3) ^ (bits >> 5)) & 1;
            bits = (bits >> 1) | (bit << 15);
            if bit == 1 { 'a' } else { 'b' }
        })
        .collect()
}

/// The requests to a host that are compared with much, each in another way.
pub(crate) fn requests(host: &Probe, seed: u16) -> Vec<Probe> {
    let text = random(LONG, seed);
    let line = &text[..LONG / LINES];
    let lines = (0..LINES).fold(host.clone(), |probe, _| probe.header("x-0", line));
    vec![
        host.clone().path(&format!("/{text}")),
        host.clone().path(&format!("/?q={text}")),
        host.clone().path(&format!("/?{}", "&".repeat(LONG))),
        host.clone().header("x-a", &text),
        lines,
        host.clone()
            .header("origin", &format!("https://{text}.example.org")),
        host.clone()
            .header("authorization", &format!("Basic {text}")),
        host.clone()
            .header("authorization", &format!("Bearer {text}")),
        host.clone().header("cookie", &"a=b; ".repeat(LONG / 5)),
        host.clone()
            .header("accept-encoding", "gzip, br")
            .body(random(BODY, seed)),
    ]
}

impl Site {
    fn envoy_time(&self) -> Result<Duration> {
        usage::threads_time(self.envoy()?)
    }

    /// Sends dear requests to each of these hosts over plain HTTP. Returns the most processor time
    /// that one took of Envoy.
    pub(crate) async fn dearest_request(&self, hosts: &[String]) -> Result<Duration> {
        let mut dearest = Duration::ZERO;
        for host in hosts {
            for probe in [1, 30_001]
                .into_iter()
                .flat_map(|seed| requests(&self.plain(host), seed))
            {
                let before = self.envoy_time()?;
                // Envoy may refuse it, and close the connection before all of it is sent.
                probe.send().await.ok();
                dearest = dearest.max(self.envoy_time()?.saturating_sub(before));
            }
        }
        Ok(dearest)
    }
}
