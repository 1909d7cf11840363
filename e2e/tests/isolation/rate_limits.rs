//! Rate limits of mallory: they limit nothing of alice's, and clients without number take no more
//! of an Envoy than counts towards the quota of whoever limits them.

use anyhow::{Context, Result, ensure};
use e2e::dimensions::QuotaUse;

use crate::access::{target, targets};
use crate::site::{FORWARD, Site, ask_envoy, route};

/// The clients that a limit counts by themselves.
const CLIENTS: u32 = 4_000;
/// The bytes of a header that no client of an honest kind would send.
const LONG: usize = 4_000;

fn policy(namespace: &str, targets: &str, limits: &str) -> String {
    format!(
        "apiVersion: gatewright.io/v1alpha1\nkind: TrafficPolicy\n\
         metadata: {{name: limits, namespace: {namespace}}}\n\
         spec: {{targetRefs: [{targets}], rateLimit: [{limits}]}}\n---\n"
    )
}

impl Site {
    /// What an Envoy has allocated, in bytes.
    async fn allocated(&self) -> Result<u64> {
        let answer = ask_envoy(self.state.path(), "/memory").await?;
        let (_, rest) = answer
            .split_once("\"allocated\": \"")
            .with_context(|| format!("no number in {answer}"))?;
        let number = rest.split('"').next().unwrap_or_default();
        Ok(number.parse()?)
    }

    async fn counted(&self) -> Result<u64> {
        let metrics = self.admin("/metrics").await?;
        Ok(QuotaUse::read(&metrics, "mallory").envoy)
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn limits_of_a_stranger_limit_nobody_else() -> Result<()> {
    let site = Site::start(&[]).await?;
    let host = "mallory.example.org";
    site.save("mallory-host.yaml", &route("mallory", "own", host, FORWARD))?;
    site.served_by(host, "mallory").await?;
    let limit = "{limit: {requests: 1, per: Hour}, by: {type: Everyone}}";
    site.save("mallory.yaml", &policy("mallory", &targets(), limit))?;
    site.answered_with(&site.plain(host), 429).await?;
    for _ in 0..3 {
        site.served_by("alice.example.org", "alice").await?;
    }
    site.alice_is_unharmed(1).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn clients_without_number_take_what_was_counted() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    let host = "mallory.example.org";
    site.save("mallory-host.yaml", &route("mallory", "own", host, FORWARD))?;
    site.served_by(host, "mallory").await?;
    let without = site.counted().await?;
    let limit = format!(
        "{{limit: {{requests: 1, per: Hour}}, \
         by: {{type: Header, header: {{name: x-key}}, maxClients: {CLIENTS}}}}}"
    );
    site.save(
        "mallory.yaml",
        &policy("mallory", &target("HTTPRoute", "own"), &limit),
    )?;
    site.answered_with(&site.plain(host), 429).await?;
    let counted = site.counted().await? - without;
    // Of the two listeners of the host, requests reach one.
    let counted = counted / 2;
    let mut connection = site.plain(host).connect().await?;
    let before = site.allocated().await?;
    let mut grown = Vec::new();
    for round in 0..3 {
        for number in 0..CLIENTS {
            let number = round * CLIENTS + number;
            let value = format!("{number:0128}{}", "x".repeat(LONG));
            let probe = site.plain(host).header("x-key", &value);
            let answer = connection.ask(&probe).await?;
            ensure!(answer.status == 200, "a new client: {}", answer.status);
        }
        grown.push(site.allocated().await?.saturating_sub(before));
    }
    let [one, .., last] = grown[..] else {
        unreachable!("three rounds")
    };
    ensure!(
        last < counted,
        "an Envoy grew by {grown:?} bytes, {counted} were counted"
    );
    ensure!(
        counted < 3 * last,
        "an Envoy grew by {grown:?} bytes, {counted} were counted"
    );
    ensure!(
        last < one + one / 4,
        "later clients take the place of earlier ones: {grown:?}"
    );
    site.alice_is_unharmed(1).await
}
