//! Tests in a kind cluster (`make kind-e2e`): real kubelets, containerd and kube-proxy run the chart's installation. No
//! request fails while Envoys and controllers are replaced and a node is drained; the CLI works in the pods; an
//! uninstall leaves what it lists, and a new installation continues from that. The cluster is that of `kind/cluster
//! up`, with the demo's tenants.

mod tokens;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::probe::{Connection, Probe, roots_of};
use e2e::walkthrough::{Place, Step, follow, steps};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "gatewright-system";
const HOST: &str = "shop.alice.example.org";
const LATE: &str = "late.alice.example.org";
const LIMIT: Duration = Duration::from_secs(180);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a program with the cluster's KUBECONFIG, as a user would.
fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let out = Command::new(root().join("kind/cluster")).arg("exec").arg(program).args(arguments).output()?;
    let told = String::from_utf8_lossy(&out.stdout).into_owned();
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{program} {}: {told}{why}", arguments.join(" "));
    Ok(told)
}

fn kubectl(arguments: &[&str]) -> Result<String> {
    run("kubectl", arguments)
}

/// Runs `kubectl` with an object as its file.
fn kubectl_of(arguments: &[&str], object: &Value) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), object.to_string())?;
    kubectl(&[arguments, &["-f", &file.path().display().to_string()]].concat())
}

fn gatewright(arguments: &[&str]) -> Result<String> {
    kubectl(&[&["-n", NAMESPACE, "exec", "deployment/gatewright-controller", "--", "gatewright"], arguments].concat())
}

fn objects(arguments: &[&str]) -> Result<Vec<Value>> {
    let told: Value = serde_json::from_str(&kubectl(&[&["get", "-o", "json"], arguments].concat())?)?;
    Ok(told["items"].as_array().cloned().unwrap_or_else(|| vec![told]))
}

/// Returns a probe of alice's shop.
fn shop() -> Result<Probe> {
    at(HOST)
}

/// Returns a probe of a host at the address of the load balancer, with the roots of the internal CA.
fn at(host: &str) -> Result<Probe> {
    let service = objects(&["service", "gatewright-envoy", "-n", NAMESPACE])?.pop().context("a Service")?;
    let address: IpAddr = service["status"]["loadBalancer"]["ingress"][0]["ip"]
        .as_str()
        .context("no address: run `make kind`")?
        .parse()?;
    let roots = objects(&["configmap", "gatewright-internal-ca", "-n", NAMESPACE])?.pop().context("roots")?;
    let roots = roots_of(roots["data"]["ca.crt"].as_str().context("roots")?)?;
    Ok(Probe::https(SocketAddr::new(address, 443), host).roots(roots).limit(Duration::from_secs(30)))
}

async fn until_served(probe: &Probe) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let answer = probe.send().await;
        if answer.as_ref().is_ok_and(|answer| answer.status == 200) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{answer:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Continuous requests: each over a new connection, and over one that is kept for as long as Envoy allows.
struct Traffic {
    stop: watch::Sender<bool>,
    tasks: JoinSet<(usize, Vec<String>)>,
}

impl Traffic {
    fn start(probe: &Probe) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for _ in 0..2 {
            tasks.spawn(one_by_one(probe.clone(), stopped.clone()));
        }
        tasks.spawn(over_one_connection(probe.clone(), stopped));
        Self { stop, tasks }
    }

    /// Ends it; checks that there were at least so many requests, and that none failed.
    async fn none_failed(self, least: usize) -> Result<()> {
        self.stop.send_replace(true);
        let all = self.tasks.join_all().await;
        let count: usize = all.iter().map(|(count, _)| count).sum();
        let failed: Vec<String> = all.into_iter().flat_map(|(_, failed)| failed).collect();
        println!("{count} requests, {} failed", failed.len());
        ensure!(
            failed.is_empty(),
            "{} of {count} requests failed:\n{}",
            failed.len(),
            failed[..failed.len().min(20)].join("\n")
        );
        ensure!(count >= least, "only {count} requests were made");
        Ok(())
    }
}

async fn one_by_one(probe: Probe, stopped: watch::Receiver<bool>) -> (usize, Vec<String>) {
    let (mut count, mut failed) = (0, Vec::new());
    while !*stopped.borrow() {
        count += 1;
        match probe.send().await {
            Ok(answer) if answer.status == 200 => {}
            other => failed.push(format!("request {count}: {other:?}")),
        }
        sleep(Duration::from_millis(10)).await;
    }
    (count, failed)
}

async fn over_one_connection(probe: Probe, stopped: watch::Receiver<bool>) -> (usize, Vec<String>) {
    let (mut count, mut failed, mut held) = (0, Vec::new(), None::<Connection>);
    while !*stopped.borrow() {
        count += 1;
        if held.as_ref().is_none_or(Connection::is_closed) {
            match probe.connect().await {
                Ok(connection) => held = Some(connection),
                Err(error) => {
                    failed.push(format!("connection before request {count}: {error}"));
                    continue;
                }
            }
        }
        let connection = held.as_mut().expect("it was made");
        match connection.ask(&probe).await {
            Ok(answer) if answer.status == 200 => {}
            // A connection that Envoy closed between two requests is reopened, as every client does.
            Err(_) if connection.is_closed() => held = None,
            other => failed.push(format!("request {count} over one connection: {other:?}")),
        }
        sleep(Duration::from_millis(20)).await;
    }
    (count, failed)
}

/// A route of alice's that is not in the demo.
fn late() -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "late", "namespace": "tenant-alice"},
        "spec": {"parentRefs": [{"name": "gateway"}], "hostnames": [LATE],
            "rules": [{"backendRefs": [{"name": "shop", "port": 80}]}]}})
}

/// Returns the pods of the shared fleet.
fn envoys() -> Result<Vec<Value>> {
    objects(&["pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=envoy"])
}

/// Returns the kubelet's status of the Envoy container.
fn container(pod: &Value) -> Result<&Value> {
    let all = pod["status"]["containerStatuses"].as_array().context("no containers")?;
    all.iter().find(|container| container["name"] == "envoy").context("no Envoy")
}

/// Returns the pod that holds the Lease.
fn holder() -> Result<String> {
    let lease = objects(&["lease", "gatewright-controller", "-n", NAMESPACE])?.pop().context("a Lease")?;
    Ok(lease["spec"]["holderIdentity"].as_str().context("a holder")?.to_owned())
}

fn rolled_out(what: &str) -> Result<String> {
    kubectl(&["-n", NAMESPACE, "rollout", "status", what, "--timeout=5m"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn a_pods_are_restricted_and_the_cli_works_in_them() -> Result<()> {
    let namespace = objects(&["namespace", NAMESPACE])?.pop().context("a namespace")?;
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    let pods = objects(&["pods", "-n", NAMESPACE])?;
    assert!(pods.len() >= 3, "{} pods", pods.len());
    for pod in &pods {
        let restarts = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
        let restarts: u64 = restarts.filter_map(|container| container["restartCount"].as_u64()).sum();
        assert_eq!((pod["status"]["phase"].as_str(), restarts), (Some("Running"), 0), "{}", pod["metadata"]["name"]);
    }
    let refused =
        kubectl(&["-n", NAMESPACE, "run", "open", "--image=gatewright:0", "--privileged"]).expect_err("not here");
    assert!(format!("{refused:#}").contains("violates PodSecurity"), "{refused:#}");

    until_served(&shop()?).await?;
    let told = gatewright(&["status"])?;
    assert!(
        told.contains("tenantgateway tenant-alice/gateway") && told.contains("httproute tenant-bob/shop"),
        "{told}"
    );
    let foreign = root().join("kind/manifests/not-his.yaml").display().to_string();
    let refused = kubectl(&["apply", "-f", &foreign]).expect_err("it is alice's name");
    assert!(format!("{refused:#}").contains("must equal bob.example.org"), "{refused:#}");
    let told = gatewright(&["explain", &format!("https://{HOST}/")])?;
    assert!(!told.contains("FAILS"), "{told}");
    let told = gatewright(&["claims"])?;
    assert!(told.contains(HOST), "{told}");
    // The holder of the Lease has the certificates.
    let holder = format!("pod/{}", holder()?);
    let told = kubectl(&["-n", NAMESPACE, "exec", &holder, "--", "gatewright", "certs"])?;
    assert!(told.contains(HOST), "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn b_rollouts_lose_no_request() -> Result<()> {
    let probe = shop()?;
    until_served(&probe).await?;
    let traffic = Traffic::start(&probe);
    for what in ["deployment/gatewright-controller", "daemonset/gatewright-envoy"] {
        kubectl(&["-n", NAMESPACE, "rollout", "restart", what])?;
        rolled_out(what)?;
    }
    // Both replicas of the control plane at once: Envoys go on serving.
    kubectl(&[
        "-n",
        NAMESPACE,
        "delete",
        "pods",
        "-l",
        "app.kubernetes.io/component=controller",
        "--force",
        "--grace-period=0",
    ])?;
    rolled_out("deployment/gatewright-controller")?;
    traffic.none_failed(200).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn b_the_last_replica_is_not_evicted() -> Result<()> {
    rolled_out("deployment/gatewright-controller")?;
    let probe = shop()?;
    until_served(&probe).await?;
    let traffic = Traffic::start(&probe);
    let pods = objects(&["pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=controller"])?;
    ensure!(pods.len() == 2, "{} replicas", pods.len());
    let mut answers = Vec::new();
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().context("a name")?;
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": name, "namespace": NAMESPACE}});
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction");
        answers.push(kubectl_of(&["create", "--raw", &path], &eviction));
    }
    let [first, second] = answers.as_slice() else { unreachable!("two replicas") };
    ensure!(first.is_ok(), "{first:?}");
    let refused = format!("{:#}", second.as_ref().err().context("both replicas were evicted")?);
    ensure!(refused.contains("disruption budget"), "{refused}");
    rolled_out("deployment/gatewright-controller")?;
    traffic.none_failed(20).await
}

/// Runs on a node: leaves the container with this ID 32 MiB of memory more than it uses, allocates more than that
/// inside it, and has the kernel kill its own processes first.
const TAKE_MEMORY: &str = r#"
for group in $(find /sys/fs/cgroup -type d -name "*$1*"); do
    if [ -e "$group/memory.max" ]; then limit=memory.max used=memory.current
    elif [ -e "$group/memory.limit_in_bytes" ]; then limit=memory.limit_in_bytes used=memory.usage_in_bytes
    else continue
    fi
    for process in $(cat "$group/cgroup.procs"); do echo 1000 >"/proc/$process/oom_score_adj"; done
    echo $(($(cat "$group/$used") + (32 << 20))) >"$group/$limit"
    sh -c 'echo $$ >"$1/cgroup.procs"; exec timeout 60 tail /dev/zero' sh "$group" || true
    exit 0
done
echo "no cgroup of $1 limits memory" >&2
exit 1
"#;

/// The kernel kills an Envoy for its memory (OOM): the kubelet restarts it, and it serves its hosts, and new ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn b_an_envoy_that_the_kernel_ends_for_its_memory_serves_again() -> Result<()> {
    rolled_out("daemonset/gatewright-envoy")?;
    until_served(&shop()?).await?;
    let before = envoys()?;
    let (pod, others) = before.split_first().context("an Envoy")?;
    let (name, node) = (&pod["metadata"]["name"], pod["spec"]["nodeName"].as_str().context("its node")?);
    let id = container(pod)?["containerID"].as_str().and_then(|id| id.rsplit('/').next()).context("its ID")?;
    run("docker", &["exec", node, "sh", "-c", TAKE_MEMORY, "sh", id])?;
    let deadline = Instant::now() + LIMIT;
    loop {
        let all = envoys()?;
        let now = container(all.iter().find(|now| now["metadata"]["name"] == *name).context("its pod")?)?;
        let ended = &now["lastState"]["terminated"];
        if now["ready"] == true && ended["containerID"].as_str().is_some_and(|ended| ended.ends_with(id)) {
            ensure!(ended["reason"] == "OOMKilled", "{ended}");
            break;
        }
        ensure!(Instant::now() < deadline, "it does not serve again: {now}");
        sleep(Duration::from_millis(200)).await;
    }
    for other in others {
        let now = envoys()?.into_iter().find(|now| now["metadata"]["uid"] == other["metadata"]["uid"]);
        let restarts = |pod: &Value| container(pod).map(|container| container["restartCount"].clone());
        assert_eq!(restarts(&now.context("another Envoy is gone")?)?, restarts(other)?);
    }
    kubectl_of(&["apply"], &late())?;
    for probe in [shop()?, at(LATE)?] {
        until_served(&probe).await?;
    }
    kubectl_of(&["delete"], &late())?;
    Ok(())
}

/// Upgrades to a release with another version, which is the same program under another tag, and rolls back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn b_an_upgrade_and_its_rollback_lose_no_request() -> Result<()> {
    let (image, version) = ("docker.io/library/gatewright", env!("CARGO_PKG_VERSION"));
    let (now, next) = (format!("{image}:{version}"), format!("{image}:{version}-next"));
    for node in objects(&["nodes"])? {
        let node = node["metadata"]["name"].as_str().context("a name")?;
        run("docker", &["exec", node, "ctr", "-n", "k8s.io", "images", "tag", "--force", &now, &next])?;
    }
    let uses = |tag: &str| -> Result<bool> {
        let pods = objects(&["pods", "-n", NAMESPACE])?;
        let images = pods.iter().flat_map(|pod| pod["spec"]["containers"].as_array().into_iter().flatten());
        let ours: Vec<&str> =
            images.filter_map(|one| one["image"].as_str()).filter(|image| image.contains("gatewright")).collect();
        Ok(!ours.is_empty() && ours.iter().all(|image| image.ends_with(tag)))
    };
    until_served(&shop()?).await?;
    let traffic = Traffic::start(&shop()?);
    let chart = root().join("deploy/chart").display().to_string();
    let tag = format!("image.tag={version}-next");
    let upgrade = ["upgrade", "gatewright", &chart, "-n", NAMESPACE, "--reuse-values", "--set", &tag];
    let wait = ["--wait", "--timeout=5m"];
    run("helm", &[&upgrade[..], &wait].concat())?;
    for (step, ends) in [("the upgrade", "-next"), ("the rollback", version)] {
        if ends == version {
            run("helm", &[&["rollback", "gatewright", "-n", NAMESPACE][..], &wait].concat())?;
        }
        for what in ["deployment/gatewright-controller", "daemonset/gatewright-envoy"] {
            rolled_out(what)?;
        }
        let deadline = Instant::now() + LIMIT;
        while !uses(ends)? {
            ensure!(Instant::now() < deadline, "after {step} there are pods of another version");
            sleep(Duration::from_millis(500)).await;
        }
    }
    until_served(&shop()?).await?;
    traffic.none_failed(100).await
}

/// The node of the Lease's holder stops answering, with all its pods: another replica takes over, and writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn c_a_node_that_is_lost_takes_the_lease_along_for_a_moment() -> Result<()> {
    if objects(&["nodes", "-l", "!node-role.kubernetes.io/control-plane"])?.len() < 2 {
        println!("there is no second node: none is lost");
        return Ok(());
    }
    let before = holder()?;
    let pod = objects(&["pod", &before, "-n", NAMESPACE])?.pop().context("its pod")?;
    let node = pod["spec"]["nodeName"].as_str().context("its node")?;
    let route = late();
    run("docker", &["pause", node])?;
    let others = async {
        let deadline = Instant::now() + LIMIT;
        while holder()? == before {
            ensure!(Instant::now() < deadline, "nobody else holds the Lease");
            sleep(Duration::from_millis(500)).await;
        }
        kubectl_of(&["apply"], &route)?;
        loop {
            let route = objects(&["httproute", "late", "-n", "tenant-alice"])?.pop().context("the route")?;
            if route["status"]["parents"].to_string().contains("gatewright.io/gateway-controller") {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "nobody writes its status: {}", route["status"]);
            sleep(Duration::from_millis(500)).await;
        }
    };
    let others = others.await;
    run("docker", &["unpause", node])?;
    others?;
    kubectl(&["wait", "--for=condition=Ready", &format!("node/{node}"), "--timeout=3m"])?;
    rolled_out("deployment/gatewright-controller")?;
    rolled_out("daemonset/gatewright-envoy")?;
    until_served(&at(LATE)?).await?;
    kubectl_of(&["delete"], &route)?;
    until_served(&shop()?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn c_the_drain_of_the_lease_holders_node_loses_no_request() -> Result<()> {
    let workers = objects(&["nodes", "-l", "!node-role.kubernetes.io/control-plane"])?;
    if workers.len() < 2 {
        println!("there is no second node: nothing is drained");
        return Ok(());
    }
    let before = holder()?;
    let pod = objects(&["pod", &before, "-n", NAMESPACE])?.pop().context("its pod")?;
    let node = pod["spec"]["nodeName"].as_str().context("its node")?;
    let probe = shop()?;
    until_served(&probe).await?;
    let traffic = Traffic::start(&probe);
    let drained = kubectl(&["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=5m"]);
    let deadline = Instant::now() + LIMIT;
    while drained.is_ok() && holder()? == before {
        ensure!(Instant::now() < deadline, "nobody else holds the Lease");
        sleep(Duration::from_millis(500)).await;
    }
    kubectl(&["uncordon", node])?;
    drained?;
    rolled_out("deployment/gatewright-controller")?;
    traffic.none_failed(100).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn b_alerts_speak_of_metrics_that_there_are() -> Result<()> {
    until_served(&shop()?).await?;
    let mut told = String::new();
    for pod in objects(&["pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=controller"])? {
        let name = pod["metadata"]["name"].as_str().context("a name")?;
        told += &kubectl(&["get", "--raw", &format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}:8080/proxy/metrics")])?;
    }
    let chart = root().join("deploy/chart").display().to_string();
    let enabled = "monitoring.prometheusRule.enabled=true";
    let rules = run("helm", &["template", "g", &chart, "--set", enabled, "--show-only", "templates/monitoring.yaml"])?;
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics: BTreeSet<&str> = words.filter(|word| word.starts_with("gatewright_")).collect();
    assert!(metrics.len() >= 6, "{metrics:?}");
    for metric in metrics {
        let family = metric.strip_suffix("_total").unwrap_or(metric);
        assert!(told.contains(&format!("# TYPE {family} ")), "no metric is called {metric}:\n{told}");
    }
    Ok(())
}

#[test]
#[ignore = "needs a kind cluster: make kind-e2e"]
fn a_the_quick_start_is_as_its_page_says() -> Result<()> {
    let root = root().canonicalize()?;
    let page = root.join("docs/quickstart-kind.md");
    follow(&page, &Place { dir: root, path: Vec::new(), environment: Vec::new(), alone: false })
}

/// Returns the remaining objects of the chart and of the controller, by kind and name.
fn left() -> Result<Vec<String>> {
    let kinds = "serviceaccounts,services,configmaps,secrets,deployments,daemonsets,pods,leases,poddisruptionbudgets,\
networkpolicies,roles,rolebindings,endpointslices";
    let cluster = "clusterroles,clusterrolebindings,gatewayclasses,validatingadmissionpolicies,validatingadmissionpolicybindings,\
priorityclasses";
    let mut all = objects(&[kinds, "-n", NAMESPACE])?;
    all.extend(objects(&[cluster])?);
    all.extend(objects(&["configmaps", "-n", "kube-system"])?);
    let name = |object: &Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        name.contains("gatewright").then(|| format!("{kind} {name}"))
    };
    Ok(all.iter().filter_map(name).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn d_an_uninstall_leaves_what_is_the_users_and_no_more() -> Result<()> {
    let probe = shop()?;
    until_served(&probe).await?;
    let values = run("helm", &["get", "values", "gatewright", "-n", NAMESPACE, "-o", "json"])?;
    let file = std::env::temp_dir().join(format!("gatewright-kind-values-{}.json", std::process::id()));
    std::fs::write(&file, values)?;
    let before = objects(&["secrets", "-n", "tenant-alice", "--field-selector=type=kubernetes.io/tls"])?;
    assert!(!before.is_empty());

    run("helm", &["uninstall", "gatewright", "-n", NAMESPACE, "--wait", "--timeout=3m"])?;
    kubectl(&["-n", NAMESPACE, "wait", "pods", "--all", "--for=delete", "--timeout=3m"])?;
    let deadline = Instant::now() + LIMIT;
    loop {
        // Keys, records and the internal CA, for a new installation.
        let kept = ["Secret gatewright-", "ConfigMap gatewright-", "Lease gatewright-controller"];
        let more: Vec<String> =
            left()?.into_iter().filter(|name| !kept.iter().any(|kept| name.starts_with(kept))).collect();
        if more.is_empty() {
            break;
        }
        ensure!(Instant::now() < deadline, "it is still there: {more:?}");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(objects(&["tenantgateways", "-A"])?.len(), 2, "what users wrote stays");

    // A new installation: the same certificates are served, and none is issued.
    let chart = root().join("deploy/chart").display().to_string();
    run(
        "helm",
        &[
            "install",
            "gatewright",
            &chart,
            "-n",
            NAMESPACE,
            "-f",
            &file.display().to_string(),
            "--wait",
            "--timeout=5m",
        ],
    )?;
    std::fs::remove_file(&file)?;
    until_served(&shop()?).await?;
    let data = |all: &[Value]| all.iter().map(|secret| secret["data"].clone()).collect::<Vec<_>>();
    let after = objects(&["secrets", "-n", "tenant-alice", "--field-selector=type=kubernetes.io/tls"])?;
    assert_eq!(data(&before), data(&after));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kind cluster: make kind-e2e"]
async fn e_the_archive_installs_without_the_internet() -> Result<()> {
    let values = run("helm", &["get", "values", "gatewright", "-n", NAMESPACE, "-o", "json"])?;
    let dist = tempfile::Builder::new().prefix("airgap").tempdir()?;
    let (folder, kept) = (dist.path().display().to_string(), dist.path().join("kept.json"));
    std::fs::write(&kept, values)?;
    // Each step runs at its place: a checkout, every node, and a machine with kubectl.
    let page = root().join("docs/quickstart-airgap.md");
    let [made, imported, installed, published, asked]: [Step; 5] = steps(&std::fs::read_to_string(&page)?)?
        .try_into()
        .map_err(|steps: Vec<Step>| anyhow::anyhow!("{} has {} steps", page.display(), steps.len()))?;
    let at = root().display().to_string();
    let make = format!("cd '{at}' && export DIST='{folder}/dist' && {}", made.commands);
    made.compare(&run("bash", &["-ec", &make])?)?;
    run("helm", &["uninstall", "gatewright", "-n", NAMESPACE, "--wait", "--timeout=3m"])?;

    // Onto each node, and nothing else: all images are in the archive.
    let name = format!("gatewright-{}-airgap", env!("CARGO_PKG_VERSION"));
    let archive = format!("{folder}/dist/{name}.tar");
    let unpacked = format!("/root/{name}");
    let nodes = objects(&["nodes"])?;
    let nodes: Vec<&str> = nodes.iter().filter_map(|node| node["metadata"]["name"].as_str()).collect();
    let inside = |node: &str, commands: &str| {
        let commands = format!("cd /root && export KUBECONFIG=/etc/kubernetes/admin.conf && {commands}");
        run("docker", &["exec", node, "bash", "-ec", &commands])
    };
    for node in &nodes {
        run("docker", &["cp", &archive, &format!("{node}:/root/{name}.tar")])?;
        inside(node, "ctr -n k8s.io images ls -q | grep -e gatewright: -e envoyproxy | xargs ctr -n k8s.io images rm")?;
        imported.compare(&inside(node, &imported.commands)?)?;
    }
    let control = nodes.iter().find(|node| node.ends_with("control-plane")).context("a control plane")?;
    installed.compare(&inside(control, &installed.commands)?)?;
    for step in [published, asked] {
        step.compare(&inside(control, &step.commands)?)?;
    }
    until_served(&shop()?).await?;

    // Back to the original state.
    let delete = format!("KUBECONFIG=/etc/kubernetes/admin.conf kubectl delete --wait -f {unpacked}/install.yaml");
    run("docker", &["exec", control, "sh", "-c", &delete])?;
    for node in &nodes {
        inside(node, &format!("rm -r {unpacked}.tar {unpacked}"))?;
    }
    let chart = root().join("deploy/chart").display().to_string();
    let kept = kept.display().to_string();
    run("helm", &["install", "gatewright", &chart, "-n", NAMESPACE, "-f", &kept, "--wait", "--timeout=5m"])?;
    until_served(&shop()?).await
}
