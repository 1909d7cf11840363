//! Tenants on a real Envoy, through the program: the owner of a hostname is served, and nobody else
//! at any time.

use e2e::private_dir::private_dir;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::probe::{Probe, roots_of};
use e2e_inside::world::free_port;
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;

/// A directory of manifests, a private directory, and the program that serves them.
struct Site {
    program: Gatewright,
    manifests: TempDir,
    state: TempDir,
    http: u16,
    https: u16,
    options: Vec<String>,
}

const CLASS: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: gatewright}\n\
                     spec: {controllerName: gatewright.io/gateway-controller}\n";

fn namespace(name: &str, gateway: &str, host: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels:\n    \
         namespace.cozystack.io/gateway: {gateway}\n    namespace.cozystack.io/host: {host}\n---\n"
    )
}

/// A TenantGateway of `tenant-a` with this spec and these annotations.
fn tenant(annotations: &str, spec: &str) -> String {
    format!(
        "apiVersion: gateway.cozystack.io/v1alpha1\nkind: TenantGateway\n\
         metadata: {{name: cozystack, namespace: tenant-a, annotations: {{{annotations}}}}}\n\
         spec: {{apex: a.example.org, gatewayClassName: gatewright, {spec}}}\n---\n"
    )
}

/// The annotation of a CA that cannot be reached.
const NOBODY: &str = "gatewright.io/acme-directory: https://127.0.0.1:9/directory";
const INTERNAL: &str = "gatewright.io/issuer: internal-ca";

fn service(namespace: &str, name: &str, backend: &Echo) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{ports: [{{port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}, namespace: {namespace}, \
         labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\nendpoints: [{{addresses: [127.0.0.1]}}]\n\
         ports: [{{port: {}}}]\n---\n",
        backend.address().port()
    )
}

fn route(kind: &str, namespace: &str, name: &str, host: &str, service: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n  parentRefs: [{{name: cozystack, namespace: tenant-a}}]\n  hostnames: [{host}]\n  rules:\n  \
         - backendRefs: [{{name: {service}, port: 80}}]\n---\n"
    )
}

/// `tenant-a` owns a Gateway; `tenant-a-b` inherits it with an apex of its own, `tenant-a-c` and
/// `tenant-a-d` with that of `tenant-a`.
fn family() -> String {
    [
        ("tenant-a", "a"),
        ("tenant-a-b", "b.a"),
        ("tenant-a-c", "a"),
        ("tenant-a-d", "a"),
    ]
    .map(|(name, host)| namespace(name, "tenant-a", &format!("{host}.example.org")))
    .concat()
}

impl Site {
    fn start(files: &[(&str, String)], options: &[&str]) -> Result<Self> {
        let http = free_port()?;
        let https = free_port()?;
        let manifests = tempfile::tempdir()?;
        let state = private_dir()?;
        fs::write(manifests.path().join("class.yaml"), CLASS)?;
        for (name, text) in files {
            fs::write(manifests.path().join(name), text)?;
        }
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let program = run(&manifests, &state, http, https, &options)?;
        Ok(Self {
            program,
            manifests,
            state,
            http,
            https,
            options,
        })
    }

    /// Ends the program and starts it again.
    fn restart(self) -> Result<Self> {
        let Self {
            program,
            manifests,
            state,
            http,
            https,
            options,
        } = self;
        drop(program);
        let program = run(&manifests, &state, http, https, &options)?;
        Ok(Self {
            program,
            manifests,
            state,
            http,
            https,
            options,
        })
    }

    /// Writes a file atomically.
    fn save(&self, name: &str, text: &str) -> Result<()> {
        let new = self.manifests.path().join(format!(".{name}.new"));
        fs::write(&new, text)?;
        fs::rename(new, self.manifests.path().join(name)).context("renaming into place")
    }

    fn remove(&self, name: &str) -> Result<()> {
        fs::remove_file(self.manifests.path().join(name)).context("removing")
    }

    fn probe(&self, host: &str) -> Probe {
        Probe::https(SocketAddr::from((Ipv4Addr::LOCALHOST, self.https)), host)
    }

    /// Returns the backend that answers for a host.
    async fn backend(&self, host: &str) -> Result<String> {
        named(&self.probe(host)).await
    }

    /// Waits until this backend answers for a host.
    async fn served_by(&self, host: &str, backend: &str) -> Result<()> {
        for _ in 0..2400 {
            if self.backend(host).await.is_ok_and(|found| found == backend) {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        bail!(
            "{host} is not served by {backend}: {:?}\n{}",
            self.backend(host).await,
            self.program.output()
        )
    }

    fn ask(&self, args: &[&str]) -> Result<(i32, String)> {
        let private = self.state.path().display().to_string();
        let output = Gatewright::run(&[args, &["--state-dir", &private]].concat())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.code().context("it was killed")?, text))
    }

    fn roots(&self) -> Result<RootCertStore> {
        roots_of(&std::fs::read_to_string(self.state.path().join("ca.crt"))?)
    }
}

fn run(
    manifests: &TempDir,
    state: &TempDir,
    http: u16,
    https: u16,
    options: &[String],
) -> Result<Gatewright> {
    let http = format!("tenancy.httpPort={http}");
    let https = format!("tenancy.httpsPort={https}");
    let mut args = vec!["--set", &http, "--set", &https];
    args.extend(options.iter().map(String::as_str));
    Gatewright::standalone(manifests.path(), state.path(), &args)
}

async fn named(probe: &Probe) -> Result<String> {
    let answer = probe.send().await?;
    ensure!(answer.status == 200, "answered {}", answer.status);
    let said: serde_json::Value = serde_json::from_slice(&answer.body)?;
    Ok(said["name"].as_str().context("a name")?.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn an_heir_is_served_and_a_loser_never() -> Result<()> {
    let owner = Echo::start("owner").await?;
    let child = Echo::start("child").await?;
    let second = Echo::start("second").await?;
    let third = Echo::start("third").await?;
    let services = service("tenant-a", "web", &owner)
        + &service("tenant-a-b", "web", &child)
        + &service("tenant-a-c", "web", &second)
        + &service("tenant-a-d", "web", &third);
    let files = [
        ("family.yaml", family()),
        ("services.yaml", services),
        ("tenant.yaml", tenant(INTERNAL, "")),
        (
            "child.yaml",
            route("HTTPRoute", "tenant-a-b", "own", "x.b.a.example.org", "web"),
        ),
        (
            "owner.yaml",
            route("HTTPRoute", "tenant-a", "shop", "shop.a.example.org", "web"),
        ),
    ];
    let mut site = Site::start(&files, &[])?;
    site.served_by("x.b.a.example.org", "child").await?;
    site.served_by("shop.a.example.org", "owner").await?;
    let answer = site
        .probe("shop.a.example.org")
        .roots(site.roots()?)
        .send()
        .await?;
    assert_eq!(
        answer.peer.context("TLS")?.dns_names,
        ["shop.a.example.org"],
        "a certificate of its own"
    );

    // Plain HTTP redirects all requests to HTTPS.
    let plain = Probe::http(
        SocketAddr::from((Ipv4Addr::LOCALHOST, site.http)),
        "shop.a.example.org",
    )
    .send()
    .await?;
    let location = plain
        .headers
        .get("location")
        .context("a location")?
        .to_str()?
        .to_owned();
    assert_eq!(plain.status, 301, "plain requests are redirected");
    assert_eq!(
        location,
        format!("https://shop.a.example.org:{}/", site.https),
        "to the port of HTTPS"
    );

    // Two others claim the owner's hostname, while clients request it without pause.
    let stop = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn({
        let (probe, stop) = (site.probe("shop.a.example.org"), stop.clone());
        async move {
            let mut seen = std::collections::BTreeMap::<String, usize>::new();
            while !stop.load(Ordering::SeqCst) {
                let who = named(&probe)
                    .await
                    .unwrap_or_else(|error| format!("nobody: {error}"));
                *seen.entry(who).or_default() += 1;
            }
            seen
        }
    });
    for (namespace, file) in [("tenant-a-d", "third.yaml"), ("tenant-a-c", "second.yaml")] {
        site.save(
            file,
            &route("HTTPRoute", namespace, "shop", "shop.a.example.org", "web"),
        )?;
        let line = site
            .program
            .line(&format!(
                "httproute {namespace}/shop: Accepted=False HostnameConflict"
            ))
            .await?;
        assert!(
            line.contains("shop.a.example.org already claimed") && !line.contains("tenant-a/shop"),
            "{line}"
        );
    }
    stop.store(true, Ordering::SeqCst);
    let seen = asking.await?;
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["owner"], "{seen:?}");
    assert_eq!(second.requests(), 0, "the loser has no request");
    assert_eq!(third.requests(), 0, "nor has the other one");

    let url = format!("https://shop.a.example.org:{}/", site.https);
    let (code, text) = site.ask(&["explain", &url])?;
    assert_eq!(code, 0, "{text}");
    for part in [
        "TenantGateway tenant-a/cozystack",
        "the smallest",
        "tenant-a-c/shop does not: HostnameConflict",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, text) = site.ask(&["status"])?;
    assert!(
        text.contains("tenantgateway tenant-a/cozystack") && text.contains("Reconciled"),
        "{text}"
    );
    assert!(text.contains("HostnameConflict"), "{text}");

    // The owner's claim is removed: the next claimant is served, and the one after it still is not.
    site.remove("owner.yaml")?;
    site.served_by("shop.a.example.org", "second").await?;
    for _ in 0..20 {
        assert_eq!(site.backend("shop.a.example.org").await?, "second");
    }
    assert_eq!(third.requests(), 0);

    // An invalid edit is reported, and the previous state stays live.
    site.save(
        "tenant.yaml",
        &tenant(INTERNAL, "").replace("a.example.org", "A.example.org"),
    )?;
    let line = site
        .program
        .line("tenantgateway tenant-a/cozystack: Ready=False InvalidSpec")
        .await?;
    assert!(
        line.contains("spec.apex") && line.contains("the previous state is still served"),
        "{line}"
    );
    assert_eq!(site.backend("x.b.a.example.org").await?, "child");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_passthrough_service_keeps_its_own_certificate_and_its_name() -> Result<()> {
    let made = rcgen::generate_simple_self_signed(["api.a.example.org".to_owned()])?;
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes())?;
    let api = Echo::start_tls("api", vec![made.cert.der().clone()], key).await?;
    let thief = Echo::start("thief").await?;
    let files = [
        ("family.yaml", family()),
        (
            "tenant.yaml",
            tenant(INTERNAL, "tlsPassthroughServices: [api, api]"),
        ),
        (
            "services.yaml",
            service("tenant-a", "api", &api) + &service("tenant-a-c", "web", &thief),
        ),
        (
            "routes.yaml",
            route("TLSRoute", "tenant-a", "api", "api.a.example.org", "api")
                + &route("TLSRoute", "tenant-a-c", "api", "api.a.example.org", "web")
                + &route("HTTPRoute", "tenant-a-c", "api", "api.a.example.org", "web"),
        ),
    ];
    let site = Site::start(&files, &[])?;
    site.served_by("api.a.example.org", "api").await?;
    let peer = site
        .probe("api.a.example.org")
        .send()
        .await?
        .peer
        .context("TLS")?;
    assert_eq!(
        peer.chain,
        [made.cert.der().clone()],
        "the backend's own certificate"
    );
    assert_eq!(thief.requests(), 0);
    let (_, text) = site.ask(&["status"])?;
    assert!(text.contains("belongs to a passthrough service"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn two_hundred_hosts_of_one_tenant_are_served() -> Result<()> {
    let echo = Echo::start("web").await?;
    let host = |n: usize| format!("h{n}.a.example.org");
    let routes: String = (0..200)
        .map(|n| route("HTTPRoute", "tenant-a", &format!("r{n}"), &host(n), "web"))
        .collect();
    let files = [
        ("family.yaml", family()),
        ("tenant.yaml", tenant(INTERNAL, "")),
        ("services.yaml", service("tenant-a", "web", &echo)),
        ("routes.yaml", routes),
    ];
    let site = Site::start(&files, &[])?;
    // Certificates are issued in any order.
    for n in 0..200 {
        site.served_by(&host(n), "web").await?;
    }
    let roots = site.roots()?;
    for n in 0..200 {
        let answer = site.probe(&host(n)).roots(roots.clone()).send().await?;
        assert_eq!(answer.status, 200, "host {n}");
        assert_eq!(
            answer.peer.context("TLS")?.dns_names,
            vec![host(n)],
            "host {n}"
        );
    }
    assert!(
        site.probe("nobody.a.example.org").send().await.is_err(),
        "a name that nobody claimed is refused"
    );
    let (_, text) = site.ask(&["status", "TenantGateway/tenant-a/cozystack"])?;
    let ready = text
        .lines()
        .find(|line| line.starts_with("tenantgateway tenant-a/cozystack"))
        .context("a status")?;
    assert!(
        ready.contains("True") && ready.contains("all 202 listeners are ready"),
        "{ready}"
    );
    let (_, text) = site.ask(&["status", "ListenerSet"])?;
    assert!(
        text.contains("listenerset tenant-a/cozystack-overflow-3"),
        "{text}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn another_issuer_takes_over_without_a_failed_request() -> Result<()> {
    let echo = Echo::start("web").await?;
    let host = "shop.a.example.org";
    // A certificate as an ACME CA would issue: the Secret of http01 mode.
    let made = rcgen::generate_simple_self_signed([host.to_owned()])?;
    let secret = gatewright_core::tenancy::names::host_certificate("cozystack", host);
    let secret = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": "tenant-a", "name": secret},
        "stringData": {"tls.crt": made.cert.pem(), "tls.key": made.signing_key.serialize_pem()}});
    let files = [
        ("family.yaml", family()),
        ("tenant.yaml", tenant(NOBODY, "certMode: http01")),
        ("services.yaml", service("tenant-a", "web", &echo)),
        ("secret.json", secret.to_string()),
        (
            "route.yaml",
            route("HTTPRoute", "tenant-a", "shop", host, "web"),
        ),
    ];
    let mut site = Site::start(&files, &[])?;
    site.served_by(host, "web").await?;
    let first = site.probe(host).send().await?.peer.context("TLS")?;
    assert_eq!(first.chain, [made.cert.der().clone()]);

    let stop = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn({
        let (probe, stop) = (site.probe(host), stop.clone());
        async move {
            let mut serials = Vec::<String>::new();
            while !stop.load(Ordering::SeqCst) {
                let answer = probe.send().await?;
                ensure!(answer.status == 200, "answered {}", answer.status);
                let serial = answer.peer.context("TLS")?.serial;
                if serials.last() != Some(&serial) {
                    serials.push(serial);
                }
            }
            Ok(serials)
        }
    });
    let probe = site.probe(host);
    let serial = || async { anyhow::Ok(probe.send().await?.peer.context("TLS")?.serial) };
    site.save("tenant.yaml", &tenant(INTERNAL, "certMode: http01"))?;
    let another = async {
        loop {
            let now = serial().await?;
            if now != first.serial {
                break anyhow::Ok(now);
            }
        }
    };
    let now = tokio::time::timeout(std::time::Duration::from_secs(120), another).await;
    let now =
        now.with_context(|| format!("the certificate stays\n{}", site.program.output()))??;
    let answer = site.probe(host).roots(site.roots()?).send().await?;
    assert_eq!(answer.status, 200, "the internal CA's");

    // Back again: no other certificate exists yet, so this one stays.
    site.save("tenant.yaml", &tenant(NOBODY, "certMode: http01"))?;
    site.save(
        "late.yaml",
        &route("HTTPRoute", "tenant-a", "late", "late.a.example.org", "web"),
    )?;
    site.program.line("listener https-late-").await?;
    for _ in 0..50 {
        assert_eq!(serial().await?, now);
    }
    stop.store(true, Ordering::SeqCst);
    assert_eq!(
        asking.await??,
        [first.serial, now],
        "one after the other, and no request failed"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn the_first_claimant_keeps_a_hostname_over_a_restart() -> Result<()> {
    let early = Echo::start("early").await?;
    let late = Echo::start("late").await?;
    let host = "shop.a.example.org";
    let files = [
        ("family.yaml", family()),
        ("tenant.yaml", tenant(INTERNAL, "")),
        (
            "services.yaml",
            service("tenant-a-c", "web", &early) + &service("tenant-a", "web", &late),
        ),
        (
            "early.yaml",
            route("HTTPRoute", "tenant-a-c", "shop", host, "web"),
        ),
    ];
    let mut site = Site::start(&files, &[])?;
    site.served_by(host, "early").await?;
    // A route whose name sorts first is added later.
    site.save(
        "late.yaml",
        &route("HTTPRoute", "tenant-a", "shop", host, "web"),
    )?;
    site.program
        .line("httproute tenant-a/shop: Accepted=False HostnameConflict")
        .await?;
    assert_eq!(site.backend(host).await?, "early");
    let mut site = site.restart()?;
    site.program
        .line("httproute tenant-a/shop: Accepted=False HostnameConflict")
        .await?;
    site.served_by(host, "early").await?;
    assert_eq!(late.requests(), 0);
    site.remove("early.yaml")?;
    site.served_by(host, "late").await?;
    Ok(())
}
