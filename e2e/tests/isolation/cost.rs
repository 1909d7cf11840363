//! The cost model against the real Envoy: a namespace is filled in one dimension after another, and
//! in all together. The growth of Envoy and of the program is compared with what the model says.
//! Then a neighbour adds hosts while parts of the full namespace are removed and added again.
//!
//! The short form fills some dimensions to a quarter of their quotas. With `COST_SWEEP=1` all are
//! filled until objects are refused, which makes the table of benches/README.md; with another text
//! only those whose name contains it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::dimensions::{DIMENSIONS, Dimension, Place, QuotaUse, edited_shares, edits};
use e2e::issuer::{ISSUER, Issuer};
use e2e::key_server::KeyServer;
use e2e::probe::Probe;
use e2e::usage;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::site::{FORWARD, LIMIT, SOON, Site, route, service};
use crate::told::manifest;

const MIB: u64 = 1 << 20;
/// What a process of this size grows and shrinks by itself.
const NOISE: u64 = 8 * MIB;
/// The memory that the program has left from its start, and takes before it grows.
const FREE: u64 = 40 * MIB;
/// What a namespace may cost at most, by the default quotas.
const MOST: Amount = Amount {
    envoy: 256 * MIB,
    program: 128 * MIB,
};
const GATEWAY: &str = "gateway.networking.k8s.io/v1";
/// The hosts that alice adds while mallory's namespace is full and changes.
const CHANGES: usize = 4;
/// The keys of a set that may have no more, and policies that each have so many.
const KEYS: usize = 16;
const KEY_SETS: usize = 40;
/// The connections for each policy, so that both workers serve some of them.
const CONNECTIONS: usize = 12;
/// Her hosts that get dear requests, and the most processor time that one may take: on a machine
/// several times as slow as `limits.namespace.matchingMicros` thinks.
const ASKED: usize = 24;
const DEAREST: Duration = Duration::from_millis(60);
/// The most hosts that she adds while mallory's Gateway goes, or comes back.
const MOST_HOSTS: usize = 40;

/// What processes have, or the model says, in bytes.
#[derive(Clone, Copy, Debug)]
struct Amount {
    envoy: u64,
    program: u64,
}

/// A full namespace of mallory's.
struct Filled {
    /// What the model says that it costs.
    model: Amount,
    /// What the processes grew.
    grown: Amount,
    /// What Envoy grew by dear requests to its hosts, and the most processor time that one took.
    kept: u64,
    dearest: Duration,
    /// The longest time until a new host of alice's was served, over plain HTTP and over TLS.
    neighbour: Duration,
    /// The same, while the Gateway that everything is at went and came back. It depends on how fast
    /// the program is, which here is a debug build.
    meanwhile: Duration,
}

impl Site {
    fn sizes(&self) -> Result<Amount> {
        Ok(Amount {
            envoy: self.envoy_resident()?,
            program: usage::memory(self.program.pid(), "VmRSS")?,
        })
    }

    async fn mallory_uses(&self) -> Result<(QuotaUse, bool)> {
        let text = self.admin("/metrics").await?;
        let is_quiet = text
            .lines()
            .any(|line| line == "gatewright_xds_proxies_behind 0");
        Ok((QuotaUse::read(&text, "mallory"), is_quiet))
    }

    /// Waits until mallory uses something else than before, and Envoy has all of it and grows no
    /// more.
    async fn settled(&self, before: u64) -> Result<QuotaUse> {
        let until = Instant::now() + LIMIT;
        let (mut last, mut same) = (0, 0);
        loop {
            let (uses, is_quiet) = self.mallory_uses().await?;
            let now = self.envoy_resident()?;
            same = if is_quiet && uses.envoy != before && now.abs_diff(last) < MIB / 4 {
                same + 1
            } else {
                0
            };
            last = now;
            if same == 4 {
                return Ok(uses);
            }
            ensure!(
                Instant::now() < until,
                "Envoy does not settle\n{}",
                self.program.output()
            );
            sleep(Duration::from_millis(250)).await;
        }
    }

    /// Mallory fills her namespace with batches.
    async fn filled(&self, of: &Dimension, is_long: bool) -> Result<Filled> {
        let place = Place::new("mallory", "ours", ("infra", "edge"))?;
        let base = [vec![place.own_gateway()], of.base(&place)].concat();
        self.save("mallory-own.yaml", &manifest(&base))?;
        let empty = self.settled(0).await?;
        let before = self.sizes()?;
        self.save("mallory-0.yaml", &manifest(&of.objects(&place, 0)))?;
        let one = self.settled(empty.envoy).await?;
        let each = one.fullness.saturating_sub(empty.fullness).max(1);
        let part = if is_long { 1_100_000 } else { 250_000 };
        let mut number = (usize::try_from(part / each)? + 2).min(of.most);
        let mut all = one;
        loop {
            let rest = (1..number).flat_map(|number| of.objects(&place, number));
            self.save("mallory-1.yaml", &manifest(&rest.collect::<Vec<_>>()))?;
            all = self.settled(all.envoy).await?;
            let told = self.ask(&["status"])?.1;
            let is_refused = told.contains("LimitReached") || told.contains("limits.namespace.");
            if is_refused == is_long || number == of.most {
                break;
            }
            // The first batch may have what all of them share.
            ensure!(is_long, "refused with {} millionths", all.fullness);
            number = (number + number / 4 + 1).min(of.most);
        }
        let hosts: Vec<String> = (0..number)
            .flat_map(|number| of.requests(&place, number))
            .collect();
        if !hosts.is_empty() {
            let served = self.requested(hosts, place.https).await?;
            ensure!(served > 0, "clients got no certificate");
            all = self.settled(0).await?;
        }
        let after = self.sizes()?;
        let hosts: Vec<String> = (0..number)
            .flat_map(|number| of.objects(&place, number))
            .flat_map(|object| plain_hosts(&object))
            .take(ASKED)
            .collect();
        let dearest = self.dearest_request(&hosts).await?;
        let kept = self.envoy_resident()?.saturating_sub(after.envoy);
        let mut neighbour = Duration::ZERO;
        for step in 0..CHANGES {
            // Mallory changes a part of hers at the same time.
            if step % 2 == 0 {
                self.remove("mallory-0.yaml")?;
            } else {
                self.save("mallory-0.yaml", &manifest(&of.objects(&place, 0)))?;
            }
            neighbour = neighbour.max(self.alice_is_served(step).await?);
        }
        // The Gateway that everything is at goes and comes back.
        self.remove("mallory-own.yaml")?;
        let gone = self
            .neighbour_until(CHANGES, |envoy| envoy < all.envoy / 2)
            .await?;
        self.save("mallory-own.yaml", &manifest(&base))?;
        let back = self
            .neighbour_until(CHANGES + MOST_HOSTS, |envoy| envoy > all.envoy / 2)
            .await?;
        Ok(Filled {
            model: Amount {
                envoy: all.envoy - empty.envoy,
                program: all.program - empty.program,
            },
            grown: Amount {
                envoy: after.envoy.saturating_sub(before.envoy),
                program: after.program.saturating_sub(before.program),
            },
            kept,
            dearest,
            neighbour,
            meanwhile: gone.max(back),
        })
    }

    /// Alice adds hosts one after the other, from this number on, until what mallory uses of an
    /// Envoy's memory is as expected, and the Envoy has it; or the most hosts, where nothing of
    /// hers hangs on the Gateway. Returns the longest time until one was served.
    async fn neighbour_until(
        &self,
        first: usize,
        is_there: impl Fn(u64) -> bool,
    ) -> Result<Duration> {
        let mut longest = Duration::ZERO;
        for number in first..first + MOST_HOSTS {
            longest = longest.max(self.alice_is_served(number).await?);
            let (uses, is_quiet) = self.mallory_uses().await?;
            if is_quiet && is_there(uses.envoy) {
                break;
            }
        }
        Ok(longest)
    }

    /// Clients connect for each of these hosts once. Returns how many got a certificate.
    async fn requested(&self, hosts: Vec<String>, port: u16) -> Result<usize> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut all = stream::iter(hosts)
            .map(async |host| Probe::https(at, &host).send().await.is_ok())
            .buffer_unordered(8);
        let mut served = 0;
        while let Some(is_served) = all.next().await {
            served += usize::from(is_served);
        }
        Ok(served)
    }
}

/// The hostnames of a route that requests reach over plain HTTP.
fn plain_hosts(object: &Value) -> Vec<String> {
    let is_http = object["kind"] == "HTTPRoute";
    let names = object["spec"]["hostnames"].as_array().filter(|_| is_http);
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

impl Filled {
    fn row(&self, name: &str) -> String {
        let Self {
            model,
            grown,
            kept,
            dearest,
            neighbour,
            meanwhile,
        } = self;
        format!(
            "| {name} | {} | {} | {} | {:.1} | {} | {} | {:.1} | {:.1} |",
            model.envoy / MIB,
            grown.envoy / MIB,
            kept / MIB,
            dearest.as_secs_f64() * 1000.0,
            model.program / MIB,
            grown.program / MIB,
            neighbour.as_secs_f64(),
            meanwhile.as_secs_f64()
        )
    }

    /// What is wrong with it.
    fn findings(&self) -> Vec<String> {
        let Self {
            model,
            grown,
            kept,
            dearest,
            neighbour,
            meanwhile: _,
        } = *self;
        let envoy = ("Envoy", model.envoy, grown.envoy, NOISE, MOST.envoy);
        let program = (
            "the program",
            model.program,
            grown.program,
            FREE,
            MOST.program,
        );
        let mut wrong = Vec::new();
        for (what, model, grown, free, most) in [envoy, program] {
            if 2 * model + NOISE < grown || model > 3 * grown + free {
                let (grown, model) = (grown / MIB, model / MIB);
                wrong.push(format!(
                    "{what} grew by {grown} MiB, the model says {model}"
                ));
            }
            if grown > most {
                wrong.push(format!("{what} grew by {} MiB", grown / MIB));
            }
        }
        if grown.envoy + kept > MOST.envoy {
            wrong.push(format!(
                "requests made it {} MiB",
                (grown.envoy + kept) / MIB
            ));
        }
        if dearest > DEAREST {
            wrong.push(format!("a request took Envoy {dearest:?}"));
        }
        if neighbour > SOON {
            wrong.push(format!("a new host of alice's took {neighbour:?}"));
        }
        wrong
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
#[allow(clippy::print_stdout, reason = "what was measured is worth reading")]
async fn the_cost_model_says_what_processes_grow() -> Result<()> {
    let sweep = std::env::var("COST_SWEEP").ok();
    println!(
        "| Filled with | Model, Envoy | Envoy | Kept of requests | Dearest request, ms | Model, program | Program \
         | Neighbour, s | Gateway, s |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    let mut wrong = Vec::new();
    for of in DIMENSIONS.iter().chain([&Dimension::EVERYTHING]) {
        let is_in = match sweep.as_deref() {
            None => !of.is_similar,
            Some(text) => text == "1" || of.name.contains(text),
        };
        if !is_in {
            continue;
        }
        let site = Site::start_alone(&["--set", "gatewayApi.channel=Experimental"]).await?;
        let found = match site.filled(of, sweep.is_some()).await {
            Ok(filled) => {
                println!("{}", filled.row(of.name));
                filled.findings()
            }
            Err(error) => vec![format!("{error:#}")],
        };
        found
            .iter()
            .for_each(|text| println!("{}: {text}", of.name));
        wrong.extend(found);
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// Mallory's policies have Envoys fetch as many keys as they take, and tokens come for all of them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn keys_that_envoys_fetch_take_what_was_counted() -> Result<()> {
    let issuer = Issuer::new()?;
    let keys = vec![issuer.jwk(); KEYS];
    let server = KeyServer::start(&keys).await?;
    let site = Site::start_alone(&[]).await?;
    site.save(
        "mallory-service.yaml",
        &service("mallory", server.address()),
    )?;
    let names: Vec<String> = (0..KEY_SETS).map(|at| format!("keys-{at}")).collect();
    let remote =
        json!({"uri": "https://id.example.org/keys", "backendRef": {"name": "web", "port": 80}});
    let objects = names.iter().map(|name| {
        let host = format!("{name}.example.org");
        let policy = json!({"apiVersion": "gatewright.io/v1alpha1", "kind": "AccessPolicy",
            "metadata": {"namespace": "mallory", "name": name},
            "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name}],
                "jwt": {"issuer": ISSUER, "jwks": {"remote": remote}}}});
        route("mallory", name, &host, FORWARD) + &manifest(&[policy])
    });
    site.save("mallory.yaml", &objects.collect::<String>())?;
    let counted = site.settled(0).await?.envoy;
    let before = site.sizes()?.envoy;
    let token = format!("Bearer {}", issuer.token(json!({}))?);
    for name in &names {
        // Each worker fetches keys of its own, and each listener of the host has the policy.
        let host = format!("{name}.example.org");
        for probe in [site.plain(&host), site.tls(&host)] {
            let probe = probe.header("authorization", &token);
            site.answered_with(&probe, 200).await?;
            for _ in 0..CONNECTIONS {
                ensure!(
                    probe.send().await?.status == 200,
                    "{host}: the token passes"
                );
            }
        }
    }
    let asked = server.asked();
    let fetched = asked.iter().filter(|url| url.ends_with("/keys")).count();
    ensure!(
        fetched > 3 * KEY_SETS,
        "of {KEY_SETS} sets at two listeners, two workers fetched {fetched}"
    );
    let grown = site.sizes()?.envoy.saturating_sub(before);
    ensure!(
        grown < counted && counted < 3 * grown + NOISE,
        "{fetched} sets took {} MiB, {} were counted",
        grown / MIB,
        counted / MIB
    );
    Ok(())
}

/// A route of mallory's with 64 matches of these rules' filters at a listener of another's, or of
/// her own.
fn bomb(name: &str, parent: &Value, hosts: &[String], number: usize, mut rule: Value) -> Value {
    rule["matches"] = (0..number)
        .map(|number| json!({"path": {"value": format!("/{number}")}}))
        .collect();
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"namespace": "mallory", "name": name},
        "spec": {"parentRefs": [parent], "hostnames": hosts, "rules": [rule, rule]}})
}

/// Within limits of texts and numbers alone, thirteen such routes made an Envoy grow by 2.6 GB.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn routes_that_multiply_shares_and_edits_harm_nobody() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    let before = site.envoy_resident()?;
    let edge = json!({"name": "edge", "namespace": "infra"});
    for index in 0..13 {
        let hosts: Vec<String> = (0..16)
            .map(|host| format!("h{host}.r{index}.example.com"))
            .collect();
        let made = bomb(&format!("r{index}"), &edge, &hosts, 32, edited_shares());
        site.save(&format!("mallory-{index}.yaml"), &manifest(&[made]))?;
    }
    let text = site
        .told("mallory", "r12", "Accepted=False LimitReached")
        .await?;
    ensure!(text.contains("of an Envoy's memory"), "{text}");
    site.alice_is_unharmed(1).await?;
    // One listener without a hostname is as good as many: each has the matches of a route again.
    let wide: Vec<Value> = (0..64)
        .map(|index| json!({"name": format!("l{index}"), "protocol": "HTTP", "port": site.http, "hostname": format!("l{index}.example.com")}))
        .collect();
    let own = json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"namespace": "mallory", "name": "own"},
        "spec": {"gatewayClassName": "ours", "listeners": wide}});
    let everywhere = bomb("r99", &json!({"name": "own"}), &[], 64, edits());
    site.save("mallory-everywhere.yaml", &manifest(&[own, everywhere]))?;
    site.told("mallory", "r99", "Accepted=False LimitReached")
        .await?;
    site.alice_is_unharmed(2).await?;
    let grown = site.envoy_resident()?.saturating_sub(before);
    ensure!(grown < 256 * MIB, "Envoy has {} MiB more", grown / MIB);
    Ok(())
}
