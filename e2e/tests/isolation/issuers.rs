//! Entitlement to certificates: mallory requests certificates for names that are not hers.

use e2e::private_dir::private_dir;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::echo::Echo;
use e2e::gatewright::{CONFIGURATION, Gatewright};
use e2e::pebble::{Options, Pebble};
use e2e::port::free_port;
use e2e::probe::{Probe, roots_of};
use e2e::testca::TestCa;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::site::{LIMIT, service};

const CHALLENGE: &str = "/.well-known/acme-challenge/0123456789abcdefghij";

/// The rule by which every namespace may have any hostname of the issuer acme.
const EVERYBODY: &str = "issuers.acme.allow=[{namespaces: ['*'], hostnames: ['*']}]";

/// Pebble, a CA that can misbehave, and the program with manifests of two tenants with Gateways of
/// their own.
struct House {
    pebble: Pebble,
    other: TestCa,
    program: Option<Gatewright>,
    manifests: TempDir,
    state: TempDir,
    alice: Echo,
    mallory: Echo,
    https: u16,
    rules: Vec<&'static str>,
}

/// A Gateway with HTTPS listeners on a port: name, hostname, issuer.
fn gateway(namespace: &str, port: u16, listeners: &[(&str, &str, &str)]) -> String {
    let listeners: String = listeners
        .iter()
        .map(|(name, host, issuer)| listener(name, host, port, issuer))
        .collect();
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge, namespace: {namespace}}}\n\
         spec:\n  gatewayClassName: ours\n  allowedListeners: {{namespaces: {{from: All}}}}\n  listeners:\n{listeners}---\n\
         apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: web, namespace: {namespace}}}\n\
         spec:\n  parentRefs: [{{name: edge}}]\n  rules: [{{backendRefs: [{{name: web, port: 80}}]}}]\n---\n"
    )
}

fn listener(name: &str, host: &str, port: u16, issuer: &str) -> String {
    format!(
        "  - {{name: {name}, hostname: \"{host}\", protocol: HTTPS, port: {port}, \
         tls: {{options: {{gatewright.io/issuer: {issuer}}}}}}}\n"
    )
}

/// A ListenerSet of mallory's at a Gateway of alice's.
fn listener_set(port: u16, host: &str, issuer: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {{name: more, namespace: mallory}}\n\
         spec:\n  parentRef: {{name: edge, namespace: alice}}\n  listeners:\n{}---\n",
        listener("evil", host, port, issuer)
    )
}

impl House {
    /// Starts with alice's `alice.example.com` served with a certificate of Pebble's.
    async fn open(rules: &[&'static str]) -> Result<Self> {
        let manifests = tempfile::tempdir()?;
        let state = private_dir()?;
        let mut house = Self {
            pebble: Pebble::start(&Options::default()).await?,
            other: TestCa::start().await?,
            program: None,
            manifests,
            state,
            alice: Echo::start("alice").await?,
            mallory: Echo::start("mallory").await?,
            https: free_port()?,
            rules: rules.to_vec(),
        };
        let ca = house.pebble.ca_pem();
        fs::write(house.state.path().join("pebble.pem"), ca)?;
        fs::write(
            house.state.path().join("issuers.yaml"),
            format!(
                "{CONFIGURATION}issuers:\n  other: {{directory: \"{}\", agreeToTerms: true}}\n",
                house.other.directory()
            ),
        )?;
        house.save(
            "base.yaml",
            "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: ours}\n\
             spec: {controllerName: gatewright.io/gateway-controller}\n",
        )?;
        let services =
            service("alice", house.alice.address()) + &service("mallory", house.mallory.address());
        house.save("services.yaml", &services)?;
        house.save(
            "alice.yaml",
            &gateway(
                "alice",
                house.https,
                &[("web", "alice.example.com", "acme")],
            ),
        )?;
        house.start()?;
        house.alice_is_served().await?;
        Ok(house)
    }

    fn start(&mut self) -> Result<()> {
        self.program = None;
        let text = |path: PathBuf| path.display().to_string();
        let ca = text(self.state.path().join("pebble.pem"));
        let issuers = text(self.state.path().join("issuers.yaml"));
        let directory = format!("issuers.acme.directory={}", self.pebble.directory());
        let bundle = format!("issuers.acme.caBundle={ca}");
        let port = format!("issuers.acme.httpPort={}", self.pebble.http_port);
        let mut options = vec!["--config", issuers.as_str()];
        let settings = [
            directory.as_str(),
            &bundle,
            "issuers.acme.agreeToTerms=true",
            &port,
        ];
        let all = settings.iter().chain(&self.rules);
        options.extend(all.flat_map(|set| ["--set", set]));
        let program = Gatewright::standalone(self.manifests.path(), self.state.path(), &options);
        self.program = Some(program?);
        Ok(())
    }

    fn save(&self, name: &str, text: &str) -> Result<()> {
        let new = self.manifests.path().join(format!(".{name}.new"));
        fs::write(&new, text)?;
        fs::rename(new, self.manifests.path().join(name)).context("renaming into place")
    }

    fn output(&self) -> String {
        self.program
            .as_ref()
            .map(Gatewright::output)
            .unwrap_or_default()
    }

    fn ask(&self, args: &[&str]) -> Result<String> {
        let private = self.state.path().display().to_string();
        let output = Gatewright::run(&[args, &["--state-dir", &private]].concat())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Checks that alice's host answers over TLS with Pebble's certificate and from her backend.
    async fn alice_is_served(&self) -> Result<()> {
        let roots = roots_of(&self.pebble.issuing_root(0).await?)?;
        let probe = Probe::https(
            SocketAddr::from((Ipv4Addr::LOCALHOST, self.https)),
            "alice.example.com",
        )
        .roots(roots);
        let until = Instant::now() + LIMIT;
        loop {
            let answer = crate::site::named(&probe).await;
            match answer {
                Ok(name) if name == "alice" => return Ok(()),
                Ok(name) => bail!("{name} answers for alice"),
                Err(error) if Instant::now() > until => {
                    bail!("alice: {error:#}\n{}", self.output())
                }
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Waits until a condition of some object has a message with all these words, and returns the
    /// statuses.
    async fn told(&self, words: &[&str]) -> Result<String> {
        let until = Instant::now() + LIMIT;
        loop {
            let text = self.ask(&["status", "-o", "json"])?;
            let statuses: Value = serde_json::from_str(&text).unwrap_or_default();
            let mut messages = Vec::new();
            collect(&statuses, &mut messages);
            if messages
                .iter()
                .any(|message| words.iter().all(|word| message.contains(word)))
            {
                return Ok(text);
            }
            ensure!(
                Instant::now() < until,
                "nothing says {words:?}:\n{text}\n{}",
                self.output()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the rows of `certs`.
    fn rows(&self) -> Result<Vec<Value>> {
        let report: Value = serde_json::from_str(&self.ask(&["certs", "-o", "json"])?)?;
        Ok(report["certificates"]
            .as_array()
            .cloned()
            .unwrap_or_default())
    }

    /// Returns the account thumbprint in port 80's answer to a challenge for a host.
    async fn thumbprint(&self, host: &str) -> Result<Option<String>> {
        let plain = SocketAddr::from((Ipv4Addr::LOCALHOST, self.pebble.http_port));
        let answer = Probe::http(plain, host).path(CHALLENGE).send().await?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        Ok((answer.status == 200)
            .then(|| {
                text.split_once('.')
                    .map(|(_, thumbprint)| thumbprint.to_owned())
            })
            .flatten())
    }
}

/// Collects every reason and message of every condition.
fn collect(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let (Some(reason), Some(message)) = (fields.get("reason"), fields.get("message")) {
                into.push(format!(
                    "{} {}",
                    reason.as_str().unwrap_or_default(),
                    message.as_str().unwrap_or_default()
                ));
            }
            fields.values().for_each(|field| collect(field, into));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Pebble"]
async fn an_issuer_gives_nothing_to_whom_nobody_allowed_it() -> Result<()> {
    let rules = [
        "issuers.acme.allow=[{namespaces: ['alice'], hostnames: ['alice.example.com']}]",
        "internalCa.allow=[{namespaces: ['alice'], hostnames: ['*.example.com']}]",
    ];
    let mut house = House::open(&rules).await?;
    let orders = house.pebble.orders();
    ensure!(orders == 1, "{orders} orders for alice");
    let before = house
        .thumbprint("alice.example.com")
        .await?
        .context("alice's challenges are answered")?;
    for round in 0..2 {
        for host in [
            "*.corp.example",
            "alice.example.com",
            "kubernetes.default.svc",
        ] {
            for issuer in ["acme", "other", "internal-ca"] {
                // A Gateway of her own on another port, and a ListenerSet at alice's.
                let own = gateway("mallory", free_port()?, &[("evil", host, issuer)]);
                let through = listener_set(free_port()?, host, issuer);
                for text in [own, through] {
                    house.save("mallory.yaml", &text)?;
                    let refusal = format!("issuer {issuer} does not issue certificates for {host}");
                    house
                        .told(&[
                            "HostnameNotAllowed",
                            &refusal,
                            "namespace mallory",
                            ".allow: {namespaces: [mallory]",
                        ])
                        .await?;
                    let rows = house.rows()?;
                    let hers = rows.iter().find(|row| {
                        row["secret"]
                            .as_str()
                            .is_some_and(|s| s.starts_with("mallory/"))
                    });
                    ensure!(hers.is_none(), "{issuer} is asked for {host}: {hers:?}");
                }
            }
        }
        house.alice_is_served().await?;
        ensure!(
            house.thumbprint("alice.example.com").await? == Some(before.clone()),
            "another account answers"
        );
        ensure!(
            house.pebble.orders() == orders,
            "{} orders in round {round}",
            house.pebble.orders()
        );
        ensure!(
            house.other.counts().orders.is_empty(),
            "{:?}",
            house.other.counts()
        );
        if round == 0 {
            house.start()?;
            house.alice_is_served().await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Pebble"]
async fn another_namespace_does_not_have_a_host_proven_where_it_is_not_served() -> Result<()> {
    // These rules allow everybody every name.
    let house = House::open(&[
        EVERYBODY,
        "issuers.other.allow=[{namespaces: ['*'], hostnames: ['*']}]",
    ])
    .await?;
    let before = house
        .thumbprint("alice.example.com")
        .await?
        .context("alice's challenges are answered")?;
    // On another port, where the name is free; Gateways of the same age are ordered by name, and
    // alice's comes first.
    house.save(
        "mallory.yaml",
        &gateway(
            "mallory",
            free_port()?,
            &[("evil", "alice.example.com", "other")],
        ),
    )?;
    let until = Instant::now() + LIMIT;
    loop {
        let rows = house.rows()?;
        let hers = rows.iter().find(|row| {
            row["secret"]
                .as_str()
                .is_some_and(|s| s.starts_with("mallory/"))
        });
        // It was tried, and alice's Gateway answered for alice only meanwhile.
        if house
            .other
            .counts()
            .orders
            .contains_key("alice.example.com")
            || hers.is_some_and(|row| row["lastError"].is_string())
        {
            break;
        }
        ensure!(
            Instant::now() < until,
            "nothing is tried: {rows:?}\n{}",
            house.output()
        );
        ensure!(
            house.thumbprint("alice.example.com").await? == Some(before.clone()),
            "another account answers"
        );
        sleep(Duration::from_millis(50)).await;
    }
    ensure!(
        house.thumbprint("alice.example.com").await? == Some(before),
        "another account answers"
    );
    house.alice_is_served().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Pebble"]
async fn a_listener_that_lost_its_hostname_or_its_port_has_nothing_ordered() -> Result<()> {
    let house = House::open(&[EVERYBODY]).await?;
    let orders = house.pebble.orders();
    // The hostname at alice's Gateway, and the port by a Gateway of her own.
    house.save(
        "mallory.yaml",
        &listener_set(house.https, "alice.example.com", "acme"),
    )?;
    house.told(&["HostnameConflict"]).await?;
    house.save(
        "mallory.yaml",
        &gateway(
            "mallory",
            house.https,
            &[("evil", "mallory.example.com", "acme")],
        ),
    )?;
    house.told(&["PortUnavailable"]).await?;
    let hers = |rows: &[Value]| {
        rows.iter().any(|row| {
            row["secret"]
                .as_str()
                .is_some_and(|s| s.starts_with("mallory/"))
        })
    };
    ensure!(!hers(&house.rows()?), "{:?}", house.rows()?);
    ensure!(house.pebble.orders() == orders);
    // On a free port it is issued.
    house.save(
        "mallory.yaml",
        &gateway(
            "mallory",
            free_port()?,
            &[("evil", "mallory.example.com", "acme")],
        ),
    )?;
    let until = Instant::now() + LIMIT;
    while !hers(&house.rows()?) {
        ensure!(
            Instant::now() < until,
            "{:?}\n{}",
            house.rows()?,
            house.output()
        );
        sleep(Duration::from_millis(50)).await;
    }
    house.alice_is_served().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Pebble"]
async fn a_ca_that_asks_about_a_name_of_somebody_else_gets_no_answer() -> Result<()> {
    let house = House::open(&[
        "issuers.acme.allow=[{namespaces: ['alice'], hostnames: ['alice.example.com']}]",
        "issuers.other.allow=[{namespaces: ['mallory'], hostnames: ['mallory.example.com']}]",
    ])
    .await?;
    let before = house
        .thumbprint("alice.example.com")
        .await?
        .context("alice's challenges are answered")?;
    house
        .other
        .behave(|ca| ca.foreign = Some("alice.example.com".to_owned()));
    house.save(
        "mallory.yaml",
        &gateway(
            "mallory",
            free_port()?,
            &[("evil", "mallory.example.com", "other")],
        ),
    )?;
    let until = Instant::now() + LIMIT;
    loop {
        let rows = house.rows()?;
        let hers = rows
            .iter()
            .find(|row| row["hosts"][0] == "mallory.example.com");
        if let Some(error) = hers.and_then(|row| row["lastError"].as_str()) {
            ensure!(error.contains("which the order does not name"), "{error}");
            break;
        }
        ensure!(Instant::now() < until, "{rows:?}\n{}", house.output());
        sleep(Duration::from_millis(50)).await;
    }
    ensure!(
        house.other.counts().challenges == 0,
        "{:?}",
        house.other.counts()
    );
    ensure!(
        house.thumbprint("alice.example.com").await? == Some(before),
        "another account answers"
    );
    house.alice_is_served().await
}

/// A thousand hosts of mallory's, at a CA that never finishes their orders.
fn stuck_hosts() -> Vec<String> {
    (0..1024)
        .map(|number| format!("m{number}.example.net"))
        .collect()
}

/// Gateway and ListenerSets of mallory's for her hosts, 64 listeners each.
fn crowd(port: u16, hosts: &[String]) -> String {
    let listeners = |hosts: &[String]| -> String {
        hosts
            .iter()
            .enumerate()
            .map(|(index, host)| listener(&format!("l{index}"), host, port, "other"))
            .collect()
    };
    let mut chunks = hosts.chunks(64);
    let mut text = format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge, namespace: mallory}}\n\
         spec:\n  gatewayClassName: ours\n  allowedListeners: {{namespaces: {{from: Same}}}}\n  listeners:\n{}---\n",
        listeners(chunks.next().unwrap_or_default())
    );
    for (number, hosts) in chunks.enumerate() {
        text.push_str(&format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {{name: s{number}, namespace: mallory}}\n\
             spec:\n  parentRef: {{name: edge}}\n  listeners:\n{}---\n",
            listeners(hosts)
        ));
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy and Pebble"]
async fn a_thousand_hosts_that_fail_take_nobody_elses_turn() -> Result<()> {
    let mut house = House::open(&[
        "issuers.acme.allow=[{namespaces: ['alice'], hostnames: ['*.example.com']}]",
        "issuers.other.allow=[{namespaces: ['alice'], hostnames: ['*.example.com']}, \
         {namespaces: ['mallory'], hostnames: ['*.example.net']}]",
    ])
    .await?;
    let hosts = stuck_hosts();
    house
        .other
        .behave(|ca| ca.stuck = hosts.iter().cloned().collect());
    house.save("mallory.yaml", &crowd(free_port()?, &hosts))?;
    // Of 32 places one namespace has 24 at most: three for each free one.
    let until = Instant::now() + LIMIT;
    while house.other.counts().orders.len() < 24 {
        ensure!(
            Instant::now() < until,
            "{} orders\n{}",
            house.other.counts().orders.len(),
            house.output()
        );
        sleep(Duration::from_millis(50)).await;
    }
    let hers = |house: &House| {
        house
            .other
            .counts()
            .orders
            .keys()
            .filter(|name| name.ends_with("example.net"))
            .count()
    };
    for round in 0..2 {
        // At the same CA, and with the same account.
        let host = format!("next-{round}.example.com");
        let own = gateway(
            "alice",
            house.https,
            &[
                ("web", "alice.example.com", "acme"),
                ("next", &host, "other"),
            ],
        );
        house.save("alice.yaml", &own)?;
        let began = Instant::now();
        while !house.other.counts().certificates.contains_key(&host) {
            ensure!(
                began.elapsed() < Duration::from_secs(60),
                "{host} waits for a place\n{}",
                house.output()
            );
            sleep(Duration::from_millis(50)).await;
        }
        ensure!(
            hers(&house) == 24,
            "{} orders of mallory's at a time",
            hers(&house)
        );
        if round == 0 {
            // Pending orders are resumed, and take no more places than before.
            house.start()?;
            house.alice_is_served().await?;
        }
    }
    Ok(())
}
