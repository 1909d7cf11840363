//! Envoys are replaced under traffic.

use super::*;
use e2e::apiserver::Definitions;

/// Continuous requests to the Envoys behind a Service, as nodes route them: to ready endpoints,
/// else to serving ones that terminate; with a delay of a second.
pub(super) struct Traffic {
    stop: watch::Sender<bool>,
    tasks: JoinSet<Told>,
}

/// The number of requests, and the failures.
type Told = (usize, Vec<String>);

const LATE: Duration = Duration::from_secs(1);

impl Traffic {
    pub(super) async fn start(server: &ApiServer) -> Result<Self> {
        let slices = server
            .api("discovery.k8s.io/v1", "EndpointSlice", NAMESPACE)
            .await?;
        let (stop, stopped) = watch::channel(false);
        let (tell, leads_to) = watch::channel(reached(&slices).await?);
        let mut tasks = JoinSet::new();
        let ended = stopped.clone();
        tasks.spawn(async move {
            let mut seen = VecDeque::new();
            while !*ended.borrow() {
                match reached(&slices).await {
                    Ok(now) => seen.push_back((Instant::now(), now)),
                    Err(error) => return (0, vec![format!("{error:#}")]),
                }
                while let Some((at, _)) = seen.front()
                    && at.elapsed() >= LATE
                {
                    tell.send_replace(seen.pop_front().expect("it is the first").1);
                }
                sleep(Duration::from_millis(50)).await;
            }
            (0, Vec::new())
        });
        tasks.spawn(one_by_one(leads_to.clone(), stopped.clone()));
        tasks.spawn(over_one_connection(leads_to, stopped));
        Ok(Self { stop, tasks })
    }

    /// Ends it.
    ///
    /// # Panics
    /// When a request failed, or there were hardly any.
    pub(super) async fn end_without_failure(self) {
        self.stop.send_replace(true);
        let all = self.tasks.join_all().await;
        let count: usize = all.iter().map(|(count, _)| count).sum();
        let failed: Vec<String> = all.into_iter().flat_map(|(_, failed)| failed).collect();
        assert!(count > 500, "{count} requests");
        assert!(
            failed.is_empty(),
            "{} of {count} failed:\n{}",
            failed.len(),
            failed.join("\n")
        );
    }
}

async fn reached(slices: &Api<DynamicObject>) -> Result<Vec<SocketAddr>> {
    let mut ready = Vec::new();
    let mut serving = Vec::new();
    let params = ListParams::default().labels("kubernetes.io/service-name=gatewright-envoy");
    for slice in slices.list(&params).await?.items {
        for endpoint in slice.data["endpoints"].as_array().into_iter().flatten() {
            let address = SocketAddr::new(
                endpoint["addresses"][0]
                    .as_str()
                    .context("an address")?
                    .parse()?,
                80,
            );
            if endpoint["conditions"]["ready"] == true {
                ready.push(address);
            } else if endpoint["conditions"]["serving"] == true {
                serving.push(address);
            }
        }
    }
    Ok(if ready.is_empty() { serving } else { ready })
}

fn probe(to: SocketAddr) -> Probe {
    Probe::http(to, HOST).limit(Duration::from_secs(30))
}

async fn one_by_one(
    leads_to: watch::Receiver<Vec<SocketAddr>>,
    stopped: watch::Receiver<bool>,
) -> Told {
    let mut count = 0;
    let mut failed = Vec::new();
    while !*stopped.borrow() {
        let all = leads_to.borrow().clone();
        count += 1;
        match all.get(count % all.len().max(1)) {
            None => failed.push(format!("request {count}: no Envoy")),
            Some(to) => match probe(*to).send().await {
                Ok(answer) if answer.status == 200 => {}
                other => failed.push(format!("request {count} to {to}: {other:?}")),
            },
        }
        sleep(Duration::from_millis(10)).await;
    }
    (count, failed)
}

/// Keeps a connection for as long as Envoy allows.
async fn over_one_connection(
    leads_to: watch::Receiver<Vec<SocketAddr>>,
    stopped: watch::Receiver<bool>,
) -> Told {
    let mut count = 0;
    let mut failed = Vec::new();
    let mut held = None;
    while !*stopped.borrow() {
        count += 1;
        let to = leads_to.borrow().last().copied();
        let Some(to) = to else {
            failed.push(format!("request {count}: no Envoy"));
            continue;
        };
        let mut connection = match held
            .take()
            .filter(|connection: &Connection| !connection.is_closed())
        {
            Some(connection) => connection,
            None => match probe(to).connect().await {
                Ok(connection) => connection,
                Err(error) => {
                    failed.push(format!("connection {count} to {to}: {error:?}"));
                    continue;
                }
            },
        };
        match connection.ask(&probe(to)).await {
            Ok(answer) if answer.status == 200 => {
                let goes = answer
                    .headers
                    .get("connection")
                    .is_some_and(|value| value == "close");
                held = (!goes).then_some(connection);
            }
            other => failed.push(format!("request {count} over a kept connection: {other:?}")),
        }
        sleep(Duration::from_millis(10)).await;
    }
    (count, failed)
}

/// Has the DaemonSet replace its pods.
async fn roll(server: &ApiServer, number: u32) -> Result<()> {
    let sets = server.api("apps/v1", "DaemonSet", NAMESPACE).await?;
    let changed =
        json!({"spec": {"template": {"metadata": {"annotations": {"roll": number.to_string()}}}}});
    sets.patch(
        "gatewright-envoy",
        &Default::default(),
        &Patch::Merge(&changed),
    )
    .await?;
    Ok(())
}

async fn scale(server: &ApiServer, replicas: u32) -> Result<()> {
    let deployments = server.api("apps/v1", "Deployment", NAMESPACE).await?;
    let changed = json!({"spec": {"replicas": replicas}});
    deployments
        .patch(
            "gatewright-controller",
            &Default::default(),
            &Patch::Merge(&changed),
        )
        .await?;
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Envoy, and root for the network of pods: e2e/tools install"]
async fn envoys_are_replaced_under_traffic_and_no_request_fails() -> Result<()> {
    let mut server = ApiServer::with(&[Definitions::GatewayApi]).await?;
    server.start_controllers_of_pods()?;
    let kubelet = Kubelet::start(&server, &programs()?).await?;
    apply_all(&server).await?;
    let (old, _) = until_ready(&server, "envoy", 1)
        .await?
        .pop()
        .context("one")?;
    let _echo = site(&server, &kubelet).await?;
    let pods = server.api("v1", "Pod", NAMESPACE).await?;
    let address = async |name: &str| -> Result<SocketAddr> {
        let pod = pods.get(name).await?;
        Ok(SocketAddr::new(
            pod.data["status"]["podIP"]
                .as_str()
                .context("an address")?
                .parse()?,
            80,
        ))
    };
    until_served(&probe(address(&old).await?), 200).await?;
    // No pod has a host port for probes, which another pod could occupy.
    let probes = SocketAddr::new(address(&old).await?.ip(), 19003);
    let refused = Probe::http(probes, "x").path("/ready").send().await;
    assert!(matches!(refused, Err(Failure::Refused)), "{refused:?}");
    let traffic = Traffic::start(&server).await?;

    // Without a controller, a new Envoy gets no certificate and no configuration: it is not ready,
    // and the old one stays.
    scale(&server, 0).await?;
    until_ready(&server, "controller", 0).await?;
    roll(&server, 1).await?;
    let listed = ListParams::default().labels("app.kubernetes.io/component=envoy");
    let deadline = Instant::now() + LIMIT;
    let new = loop {
        let all = pods.list(&listed).await?.items;
        if let Some(new) = all
            .iter()
            .find(|pod| pod.name_any() != old && pod.data["status"]["podIP"].is_string())
        {
            break new.name_any();
        }
        assert!(Instant::now() < deadline, "there is no second pod");
        sleep(Duration::from_millis(100)).await;
    };
    for _ in 0..10 {
        let all = ready_names(&server).await?;
        assert_eq!(
            all,
            std::slice::from_ref(&old),
            "an Envoy is not ready before it serves"
        );
        sleep(Duration::from_millis(200)).await;
    }

    // With a controller, it serves as soon as it is ready, and only then the old one is deleted.
    scale(&server, 2).await?;
    let deadline = Instant::now() + LIMIT;
    while !ready_names(&server).await?.contains(&new) {
        assert!(Instant::now() < deadline, "the new Envoy is not ready");
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(probe(address(&new).await?).send().await?.status, 200);
    let deadline = Instant::now() + 2 * LIMIT;
    while pods.get_opt(&old).await?.is_some() {
        assert!(Instant::now() < deadline, "the old Envoy does not end");
        sleep(Duration::from_millis(100)).await;
    }
    sleep(2 * LATE).await;
    traffic.end_without_failure().await;
    Ok(())
}

async fn ready_names(server: &ApiServer) -> Result<Vec<String>> {
    Ok(ready(server, "envoy")
        .await?
        .into_iter()
        .map(|(name, _)| name)
        .collect())
}
