//! Ports and hostnames that are served stay with those who have them, whatever files are added
//! later.

use e2e::private_dir::private_dir;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use e2e::echo::Echo;
use e2e::gatewright::Gatewright;
use e2e::probe::Probe;
use e2e_inside::served::PATIENCE;
use e2e_inside::world::free_port;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const CLASS: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: gw}\n\
                     spec: {controllerName: gatewright.io/gateway-controller}\n---\n";

/// A directory of manifests without any Gateway, and the program that serves it.
struct Rivals {
    program: Option<Gatewright>,
    manifests: TempDir,
    state: TempDir,
    /// One of the ports that Envoys of a cluster keep for the dedicated fleet.
    port: u16,
    echo: Echo,
}

fn object(kind: &str, namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{namespace: {namespace}, name: {name}}}\n\
         spec: {{{spec}}}\n---\n"
    )
}

/// A Gateway of one listener.
fn gateway(namespace: &str, name: &str, port: u16, listener: &str) -> String {
    let listener = format!("{{name: main, port: {port}, {listener}}}");
    object(
        "Gateway",
        namespace,
        name,
        &format!("gatewayClassName: gw, listeners: [{listener}]"),
    )
}

/// A route of a Gateway to the Service of its namespace.
fn route(kind: &str, namespace: &str, name: &str, gateway: &str, rest: &str) -> String {
    let rules = "rules: [{backendRefs: [{name: web, port: 80}]}]";
    object(
        kind,
        namespace,
        name,
        &format!("parentRefs: [{{name: {gateway}}}], {rest}{rules}"),
    )
}

/// A Service with this backend.
fn service(namespace: &str, backend: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{namespace: {namespace}, name: web}}\nspec: {{ports: [{{port: 80}}]}}\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{namespace: {namespace}, name: web, labels: {{kubernetes.io/service-name: web}}}}\n\
         addressType: IPv4\nendpoints: [{{addresses: [127.0.0.1]}}]\nports: [{{port: {backend}}}]\n---\n"
    )
}

impl Rivals {
    async fn start(first: impl Fn(u16) -> String) -> Result<Self> {
        let echo = Echo::start("web").await?;
        let port = free_port()? + 10_000;
        let manifests = tempfile::tempdir()?;
        let state = private_dir()?;
        let backends = ["default", "blue"]
            .map(|namespace| service(namespace, echo.address().port()))
            .concat();
        fs::write(
            manifests.path().join("base.yaml"),
            format!("{CLASS}{backends}"),
        )?;
        fs::write(manifests.path().join("first.yaml"), first(port))?;
        let mut site = Self {
            program: None,
            manifests,
            state,
            port,
            echo,
        };
        site.restart()?;
        Ok(site)
    }

    fn restart(&mut self) -> Result<()> {
        self.program = None;
        let (manifests, state) = (self.manifests.path(), self.state.path());
        self.program = Some(Gatewright::standalone(manifests, state, &[])?);
        Ok(())
    }

    /// Adds a file that sorts before the first one, and waits until its content is in the status.
    async fn add(&mut self, text: &str, object: &str) -> Result<()> {
        let new = self.manifests.path().join(".added");
        fs::write(&new, text)?;
        fs::rename(new, self.manifests.path().join("added.yaml"))?;
        self.told(object).await?;
        Ok(())
    }

    fn ask(&self, args: &[&str]) -> Result<String> {
        let private = self.state.path().display().to_string();
        let output = Gatewright::run(&[args, &["--state-dir", &private]].concat())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr))
    }

    /// Waits until the status has an object, and Envoy has everything, and returns the lines about
    /// the object.
    async fn told(&self, object: &str) -> Result<String> {
        let found = async {
            loop {
                let status = self.ask(&["status"])?;
                let lines: Vec<&str> = status
                    .lines()
                    .filter(|line| line.contains(object))
                    .collect();
                let is_ready = || ask_ready(self.state.path());
                if !lines.is_empty() && is_ready().await {
                    return Ok(lines.join("\n"));
                }
                sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, found)
            .await
            .with_context(|| format!("no status of {object}"))?
    }

    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    async fn status(&self, host: &str) -> Result<u16> {
        Ok(Probe::http(self.address(), host).send().await?.status)
    }

    /// Waits until a host is served.
    async fn serves(&self, host: &str) -> Result<()> {
        let answered = async {
            while self.status(host).await.ok() != Some(200) {
                sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, answered)
            .await
            .with_context(|| format!("{host} is not served"))
    }

    /// Waits until connections get a name from their backend.
    async fn connects(&self, expected: &str) -> Result<()> {
        let answered = async {
            while connected(self.address()).await.ok().as_deref() != Some(expected) {
                sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, answered)
            .await
            .with_context(|| format!("{expected} does not answer"))
    }
}

async fn ask_ready(state: &std::path::Path) -> bool {
    let answer = gatewright_control::ask(&state.join("admin.sock"), "/readyz").await;
    answer.is_ok_and(|text| text.starts_with("ok"))
}

/// Returns what a TCP backend sends to a new connection.
async fn connected(address: SocketAddr) -> Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let mut name = String::new();
    timeout(PATIENCE, connection.read_to_string(&mut name)).await??;
    Ok(name)
}

/// A TCP backend that sends its name and closes.
async fn named(name: &'static str) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            // The client may be gone.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut connection, name.as_bytes()).await;
        }
    });
    Ok(port)
}

fn live(port: u16) -> String {
    gateway(
        "default",
        "live",
        port,
        "protocol: HTTP, hostname: live.example",
    ) + &route("HTTPRoute", "default", "live", "live", "")
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_later_gateway_takes_no_port_of_another_namespace() -> Result<()> {
    let mut site = Rivals::start(live).await?;
    site.serves("live.example").await?;
    let socket = format!("port {} of 127.0.0.1", site.port);
    let claims = site.ask(&["claims"])?;
    assert!(
        claims
            .lines()
            .any(|line| line.starts_with(&socket) && line.contains("default")),
        "{claims}"
    );
    let later = gateway(
        "blue",
        "web",
        site.port,
        "protocol: HTTP, hostname: other.example",
    ) + &route("HTTPRoute", "blue", "web", "web", "");
    site.add(&later, "gateway blue/web").await?;
    for _ in 0..2 {
        let told = site.told("gateway blue/web").await?;
        assert!(told.contains("PortUnavailable"), "{told}");
        site.serves("live.example").await?;
        assert_eq!(site.status("other.example").await?, 404, "{told}");
        site.restart()?;
    }
    // Its owner goes: the port is free.
    fs::remove_file(site.manifests.path().join("first.yaml"))?;
    site.serves("other.example").await
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_later_gateway_takes_no_port_in_its_own_namespace() -> Result<()> {
    let mut site = Rivals::start(live).await?;
    site.serves("live.example").await?;
    let later = gateway(
        "default",
        "admin",
        site.port,
        "protocol: HTTP, hostname: admin.example",
    ) + &route("HTTPRoute", "default", "admin", "admin", "");
    site.add(&later, "gateway default/admin").await?;
    for _ in 0..2 {
        let told = site.told("gateway default/admin").await?;
        assert!(
            told.contains("PortUnavailable") && told.contains("gateway default/live"),
            "{told}"
        );
        site.serves("live.example").await?;
        assert_eq!(site.status("admin.example").await?, 404, "{told}");
        site.restart()?;
    }
    fs::remove_file(site.manifests.path().join("first.yaml"))?;
    site.serves("admin.example").await
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn later_listeners_and_routes_take_no_hostname_in_their_own_namespace() -> Result<()> {
    let set = |name: &str, rest: &str| {
        let parent = "parentRef: {name: live}, listeners:";
        object(
            "ListenerSet",
            "default",
            name,
            &format!("{parent} [{{{rest}}}]"),
        )
    };
    let redirect = |name: &str, parent: &str, host: &str| {
        let rule = "rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: stolen.example}}]}]";
        object(
            "HTTPRoute",
            "default",
            name,
            &format!("parentRefs: [{parent}], hostnames: [{host}], {rule}"),
        )
    };
    let site = Rivals::start(|port| {
        let listener =
            format!("{{name: main, port: {port}, protocol: HTTP, hostname: live.example}}");
        let allowed = "allowedListeners: {namespaces: {from: Same}}";
        object(
            "Gateway",
            "default",
            "live",
            &format!("gatewayClassName: gw, {allowed}, listeners: [{listener}]"),
        ) + &set(
            "zoo",
            &format!("name: set, port: {port}, protocol: HTTP, hostname: set.example"),
        ) + &route(
            "HTTPRoute",
            "default",
            "zoo",
            "live",
            "hostnames: [live.example], ",
        ) + &object(
            "HTTPRoute",
            "default",
            "set",
            "parentRefs: [{kind: ListenerSet, name: zoo}], rules: [{backendRefs: [{name: web, port: 80}]}]",
        )
    });
    let mut site = site.await?;
    site.serves("live.example").await?;
    site.serves("set.example").await?;
    let later = set(
        "ape",
        &format!(
            "name: set, port: {}, protocol: HTTP, hostname: set.example",
            site.port
        ),
    ) + &redirect("ape", "{name: live}", "live.example")
        + &redirect("bee", "{kind: ListenerSet, name: ape}", "set.example");
    site.add(&later, "listenerset default/ape").await?;
    for _ in 0..2 {
        let told = site.told("listenerset default/ape").await?;
        assert!(told.contains("HostnameConflict"), "{told}");
        for host in ["live.example", "set.example"] {
            site.serves(host).await?;
        }
        site.restart()?;
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_later_gateway_takes_no_tcp_port() -> Result<()> {
    let one = named("one").await?;
    let two = named("two").await?;
    let tcp = |name: &str, port: u16| {
        gateway("default", name, port, "protocol: TCP")
            + &object(
                "TCPRoute",
                "default",
                name,
                &format!("parentRefs: [{{name: {name}}}], rules: [{{backendRefs: [{{name: {name}, port: 80}}]}}]"),
            )
            .replace("/v1\n", "/v1alpha2\n")
    };
    let backend = |name: &str, port: u16| {
        service("default", port).replace("name: web", &format!("name: {name}"))
    };
    let backend = |name: &str, port: u16| {
        backend(name, port).replace("service-name: web", &format!("service-name: {name}"))
    };
    let mut site = Rivals::start(|port| tcp("one", port) + &backend("one", one)).await?;
    site.connects("one").await?;
    let later =
        tcp("all", site.port).replace("backendRefs: [{name: all", "backendRefs: [{name: two");
    site.add(&(later + &backend("two", two)), "gateway default/all")
        .await?;
    for _ in 0..2 {
        let told = site.told("gateway default/all").await?;
        assert!(told.contains("PortUnavailable"), "{told}");
        site.connects("one").await?;
        assert_eq!(connected(site.address()).await?, "one");
        site.restart()?;
    }
    drop(site.echo);
    Ok(())
}

/// A port on all addresses is one of each address.
#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_later_gateway_takes_no_port_of_one_address_from_all_addresses() -> Result<()> {
    let on = |address: &str, text: String| {
        text.replacen(
            "gatewayClassName: gw,",
            &format!("gatewayClassName: gw, addresses: [{{value: {address}}}],"),
            1,
        )
    };
    let mut site = Rivals::start(|port| on("0.0.0.0", live(port))).await?;
    site.serves("live.example").await?;
    for (namespace, name) in [("blue", "web"), ("default", "admin")] {
        let later = gateway(
            namespace,
            name,
            site.port,
            "protocol: HTTP, hostname: other.example",
        ) + &route("HTTPRoute", namespace, name, name, "");
        site.add(
            &on("127.0.0.1", later),
            &format!("gateway {namespace}/{name}"),
        )
        .await?;
        for _ in 0..2 {
            let told = site.told(&format!("gateway {namespace}/{name}")).await?;
            assert!(told.contains("PortUnavailable"), "{told}");
            site.serves("live.example").await?;
            assert_eq!(site.status("other.example").await?, 404, "{told}");
            site.restart()?;
        }
    }
    Ok(())
}

/// A class whose Gateways share their ports.
const SHARED: &str = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: shared}\n\
                      spec:\n  controllerName: gatewright.io/gateway-controller\n  \
                      parametersRef: {group: gatewright.io, kind: GatewayParameters, namespace: default, name: shared}\n\
                      ---\napiVersion: gatewright.io/v1alpha1\nkind: GatewayParameters\n\
                      metadata: {name: shared}\nspec: {fleet: Shared}\n---\n";

/// A Gateway of that class with a host, whose answers have the name of the Gateway in a header.
fn sharing(namespace: &str, name: &str, port: u16, host: &str) -> String {
    let listener = format!("protocol: HTTP, hostname: {host}");
    let gateway = gateway(namespace, name, port, &listener);
    let header =
        format!("responseHeaderModifier: {{set: [{{name: x-by, value: {namespace}-{name}}}]}}");
    let filters = format!("filters: [{{type: ResponseHeaderModifier, {header}}}]");
    let rules = format!("rules: [{{{filters}, backendRefs: [{{name: web, port: 80}}]}}]");
    let route = format!("parentRefs: [{{name: {name}}}], hostnames: [{host}], {rules}");
    gateway.replace("gatewayClassName: gw", "gatewayClassName: shared")
        + &object("HTTPRoute", namespace, name, &route)
}

/// The Gateway that answers a host.
async fn answered_by(site: &Rivals, host: &str) -> Result<String> {
    let answered = async {
        loop {
            // The Envoy of a program before ends meanwhile.
            match Probe::http(site.address(), host).send().await {
                Ok(answer) if answer.status == 200 => {
                    return answer.header("x-by").unwrap_or_default().to_owned();
                }
                _ => sleep(std::time::Duration::from_millis(20)).await,
            }
        }
    };
    timeout(PATIENCE, answered)
        .await
        .with_context(|| format!("{host} is not served"))
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn gateways_of_several_namespaces_share_a_port_by_hostname() -> Result<()> {
    let mut site = Rivals::start(|port| {
        SHARED.to_owned()
            + &sharing("default", "live", port, "live.example")
            + &sharing("default", "second", port, "second.example")
            + &sharing("blue", "web", port, "web.example")
    })
    .await?;
    let served = [
        ("live.example", "default-live"),
        ("second.example", "default-second"),
        ("web.example", "blue-web"),
    ];
    for (host, gateway) in served {
        assert_eq!(answered_by(&site, host).await?, gateway);
    }
    // A file that is read first asks for two of their hosts, for a new one, and for the whole port.
    let alone = gateway("blue", "alone", site.port, "protocol: HTTP")
        .replace("listeners:", "addresses: [{value: 127.0.0.1}], listeners:")
        + &route("HTTPRoute", "blue", "alone", "alone", "");
    let later = sharing("blue", "first", site.port, "live.example")
        + &sharing("default", "again", site.port, "second.example")
        + &sharing("blue", "new", site.port, "new.example")
        + &alone;
    site.add(&later, "gateway blue/alone").await?;
    for _ in 0..2 {
        for gateway in ["gateway blue/first", "gateway default/again"] {
            let told = site.told(gateway).await?;
            assert!(told.contains("HostnameConflict"), "{told}");
        }
        assert_eq!(answered_by(&site, "new.example").await?, "blue-new");
        for (host, gateway) in served {
            assert_eq!(answered_by(&site, host).await?, gateway, "after the file");
        }
        let told = site.told("gateway blue/alone").await?;
        assert!(told.contains("PortUnavailable"), "{told}");
        site.restart()?;
    }
    // The hosts of a Gateway that goes are free.
    fs::remove_file(site.manifests.path().join("first.yaml"))?;
    let base = site.manifests.path().join("base.yaml");
    fs::write(&base, fs::read_to_string(&base)? + SHARED)?;
    let taken = async {
        while answered_by(&site, "second.example").await? != "default-again" {
            sleep(std::time::Duration::from_millis(20)).await;
        }
        Ok::<_, anyhow::Error>(())
    };
    timeout(PATIENCE, taken).await.context("it is never free")?
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn gateways_that_share_a_port_take_it_from_no_other() -> Result<()> {
    let mut site = Rivals::start(live).await?;
    site.serves("live.example").await?;
    let later = SHARED.to_owned() + &sharing("blue", "web", site.port, "web.example");
    site.add(&later, "gateway blue/web").await?;
    for _ in 0..2 {
        let told = site.told("gateway blue/web").await?;
        assert!(
            told.contains("PortUnavailable") && told.contains("spec.fleet: Shared"),
            "{told}"
        );
        site.serves("live.example").await?;
        assert_eq!(site.status("web.example").await?, 404, "{told}");
        site.restart()?;
    }
    // Its owner shares it from now on.
    let first = site.manifests.path().join("first.yaml");
    let text = fs::read_to_string(&first)?;
    fs::write(
        &first,
        text.replace("gatewayClassName: gw", "gatewayClassName: shared"),
    )?;
    site.serves("live.example").await?;
    site.serves("web.example").await
}
