//! Everything that one namespace may have at once, under the traffic that its owner likes best:
//! alice's requests are answered, and her changes take an Envoy's main thread no longer.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::issuer::{ISSUER, Issuer};
use e2e::probe::Probe;
use e2e::usage;
use hyper::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::dearest;
use crate::regex_load;
use crate::site::Site;
use crate::told::{http_route, manifest};

/// How long mallory's clients send requests, and how many do at once.
const ATTACK: Duration = Duration::from_secs(8);
const CLIENTS: usize = 6;
/// The time within which each of alice's requests is answered.
const PATIENCE: Duration = Duration::from_secs(5);
/// The main thread's time for a change of alice's. Of debug builds only the program is slower.
const CHANGE: Duration = Duration::from_millis(100);
/// Mallory's hosts with keys, the rules of each, and the policies of each rule: as many as there
/// may be, and as the time of a token lets one rule have.
const GUARDED: usize = 8;
const RULES: usize = 15;
const POLICIES: usize = 2;
const KEYS: usize = 16;

fn policy(kind: &str, name: &str, target: Value, settings: &Value) -> Value {
    let mut spec = settings.clone();
    spec["targetRefs"] = json!([target]);
    json!({"apiVersion": "gatewright.io/v1alpha1", "kind": kind,
        "metadata": {"namespace": "mallory", "name": name}, "spec": spec})
}

fn on_route(name: &str) -> Value {
    json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name})
}

fn host(name: &str) -> String {
    format!("{name}.example.org")
}

/// A route of mallory's with one rule.
fn plain(name: &str, matches: &[Value]) -> Value {
    let rules = json!([{"matches": matches, "backendRefs": [{"name": "web", "port": 80}]}]);
    http_route("mallory", name, &[host(name)], &rules)
}

/// A route whose rules have the most keys.
fn guarded(at: usize, issuer: &Issuer) -> Vec<Value> {
    let name = format!("guarded-{at}");
    let mut key = issuer.jwk();
    key.as_object_mut().into_iter().for_each(|fields| {
        fields.remove("kid");
    });
    let jwks = json!({"keys": vec![key; KEYS]}).to_string();
    let jwt = json!({"jwt": {"issuer": ISSUER, "jwks": {"inline": jwks}}});
    let rules: Vec<Value> = (0..RULES)
        .map(|rule| {
            json!({"name": format!("rule-{rule}"), "matches": [{"path": {"value": format!("/{rule}")}}],
                "backendRefs": [{"name": "web", "port": 80}]})
        })
        .collect();
    let route = http_route("mallory", &name, &[host(&name)], &json!(rules));
    let policies = (0..RULES * POLICIES).map(|number| {
        let mut target = on_route(&name);
        target["sectionName"] = json!(format!("rule-{}", number / POLICIES));
        policy("AccessPolicy", &format!("{name}-{number}"), target, &jwt)
    });
    [route].into_iter().chain(policies).collect()
}

/// The hosts with one feature each.
fn featured() -> Vec<Value> {
    let users = json!({"apiVersion": "v1", "kind": "Secret", "type": "gatewright.io/htpasswd",
        "metadata": {"namespace": "mallory", "name": "users"},
        "stringData": {".htpasswd": "alice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n"}});
    let to_backend = json!({"group": "", "kind": "Service", "name": "web"});
    let limit =
        json!({"limit": {"requests": 1_000_000, "per": "Second"}, "by": {"type": "ClientAddress"}});
    let page = json!([{"match": {"statusCodes": [{"value": 503}]}, "response": {"body": {"inline": "sorry"}}}]);
    vec![
        plain("expressions", &regex_load::large(regex_load::path)),
        plain("users", &[]),
        users,
        policy(
            "AccessPolicy",
            "users",
            on_route("users"),
            &json!({"basicAuth": {"users": {"name": "users"}}}),
        ),
        plain("compressed", &[]),
        policy(
            "TrafficPolicy",
            "compressed",
            on_route("compressed"),
            &json!({"compression": {"minBytes": 64}}),
        ),
        plain("rewritten", &[]),
        policy(
            "TrafficPolicy",
            "rewritten",
            on_route("rewritten"),
            &json!({"rewrite": {"path": {"pattern": "/(.*)(.*)", "substitution": r"/\1\2"}}}),
        ),
        plain("limited", &[]),
        policy(
            "TrafficPolicy",
            "limited",
            on_route("limited"),
            &json!({"rateLimit": [limit], "requestBody": {"maxBytes": 1_000_000}, "responseOverride": page}),
        ),
        // Her backend does not expect it.
        policy(
            "TrafficPolicy",
            "proxy",
            to_backend,
            &json!({"proxyProtocol": {"version": "V2"}}),
        ),
    ]
}

/// The dearest requests to mallory's hosts, over plain HTTP and TLS, and those of clients of gRPC.
fn requests(site: &Site, forged: &str) -> Vec<Probe> {
    let names = ["expressions", "users", "compressed", "rewritten", "limited"];
    let names = names.map(str::to_owned).into_iter();
    let guarded = (0..GUARDED).map(|at| format!("guarded-{at}"));
    let hosts = names.chain(guarded).map(|name| host(&name));
    hosts
        .flat_map(|host| [site.plain(&host), site.tls(&host)])
        .flat_map(|probe| {
            let call = probe
                .clone()
                .method(Method::POST)
                .path("/1")
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(vec![0_u8; 5]);
            let token = probe
                .clone()
                .path("/1")
                .header("authorization", &format!("Bearer {forged}"));
            [call, token]
                .into_iter()
                .chain(dearest::requests(&probe, 1))
        })
        .map(|probe| probe.limit(PATIENCE))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
#[allow(clippy::print_stdout, reason = "what was measured is worth reading")]
async fn a_full_namespace_under_attack_harms_no_neighbour() -> Result<()> {
    let site = Site::start_alone(&[]).await?;
    let (issuer, stranger) = (Issuer::new()?, Issuer::new()?);
    let guarded: Vec<Value> = (0..GUARDED).flat_map(|at| guarded(at, &issuer)).collect();
    site.save("mallory.yaml", &manifest(&guarded))?;
    site.save("mallory-more.yaml", &manifest(&featured()))?;
    for at in 0..GUARDED {
        let last = format!("/{}", RULES - 1);
        let probe = site.tls(&host(&format!("guarded-{at}"))).path(&last);
        site.answered_with(&probe, 401).await?;
    }
    site.answered_with(&site.tls(&host("users")), 401).await?;

    let envoy = site.envoy()?;
    let mut dearest_change = Duration::ZERO;
    for step in 0..3 {
        let before = usage::main_thread_time(envoy)?;
        site.alice_is_unharmed(step).await?;
        let took = usage::main_thread_time(envoy)?.saturating_sub(before);
        dearest_change = dearest_change.max(took);
    }

    let until = Instant::now() + ATTACK;
    let mut attack = JoinSet::new();
    let all = requests(&site, &stranger.token(json!({}))?);
    for client in 0..CLIENTS {
        let mut mine = all.clone();
        mine.rotate_left(client * all.len() / CLIENTS);
        attack.spawn(async move {
            let mut sent = 0_usize;
            while Instant::now() < until {
                for probe in &mine {
                    if Instant::now() >= until {
                        break;
                    }
                    // Envoy may refuse it, and close the connection before all of it is sent.
                    probe.send().await.ok();
                    sent += 1;
                }
            }
            sent
        });
    }
    let (mut asked, mut failed, mut longest) = (0, 0, Duration::ZERO);
    let before = usage::threads_time(envoy)?;
    while Instant::now() < until {
        for probe in [
            site.plain("alice.example.org"),
            site.tls("alice.example.org"),
        ] {
            let began = Instant::now();
            let answer = probe.limit(PATIENCE).send().await;
            longest = longest.max(began.elapsed());
            asked += 1;
            failed += usize::from(!answer.is_ok_and(|answer| answer.status == 200));
        }
        sleep(Duration::from_millis(20)).await;
    }
    let sent: usize = attack.join_all().await.into_iter().sum();
    let took = usage::threads_time(envoy)?.saturating_sub(before);
    println!(
        "a change of alice's took {dearest_change:?} of the main thread; {sent} requests of mallory's took Envoy \
         {took:?}, and {failed} of {asked} of alice's failed, the longest took {longest:?}"
    );
    ensure!(sent > CLIENTS, "mallory's clients sent {sent} requests");
    ensure!(
        failed == 0,
        "{failed} of {asked} of alice's requests failed"
    );
    ensure!(
        dearest_change < CHANGE,
        "a change of alice's took {dearest_change:?} of the main thread"
    );
    Ok(())
}
