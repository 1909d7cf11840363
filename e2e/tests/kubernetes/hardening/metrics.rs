//! Who reads metrics, and how many at once.

use super::*;

/// Sends a request from a loopback address, on a connection of its own.
async fn ask(from: Ipv4Addr, to: SocketAddr, path: &str, token: Option<&str>) -> Result<String> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut stream = socket.connect(to).await?;
    let token = token.map_or(String::new(), |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{token}\r\n").as_bytes())
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn probes_of(controller: &mut Gatewright) -> Result<SocketAddr> {
    const AT: &str = "probes and metrics at http://";
    let line = controller.line(AT).await?;
    Ok(line
        .split(AT)
        .nth(1)
        .context("an address")?
        .trim()
        .parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn five_hundred_readers_of_metrics_and_as_many_idle_connections_delay_no_probe() -> Result<()>
{
    const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
    let cluster = Cluster::start().await?;
    let mut controller = cluster.controller("one")?;
    controller.line("the view is complete").await?;
    let address = probes_of(&mut controller).await?;
    let mut idle = Vec::new();
    for _ in 0..500 {
        let socket = TcpSocket::new_v4()?;
        socket.bind((STRANGER, 0).into())?;
        idle.push(socket.connect(address).await?);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..500)
        .map(|_| {
            let stop = stop.clone();
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    // A connection beyond the limit is closed.
                    let _ = ask(STRANGER, address, "/metrics", None).await;
                    sleep(Duration::from_millis(20)).await;
                }
            })
        })
        .collect();
    let mut took = Vec::new();
    for number in 0..100 {
        let begun = Instant::now();
        let path = ["/livez", "/readyz"][number % 2];
        let answer = ask(Ipv4Addr::LOCALHOST, address, path, None).await?;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        took.push(begun.elapsed());
        sleep(Duration::from_millis(20)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await?;
    }
    // A kubelet gives up after a second, and restarts after six failures in a row. The readers use
    // the processors of this machine too.
    assert!(
        !took
            .windows(6)
            .any(|six| six.iter().all(|took| *took >= Duration::from_secs(1))),
        "{took:?}"
    );
    took.sort();
    assert!(
        took[50] < Duration::from_millis(100),
        "half of all probes take longer than {:?}",
        took[50]
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install"]
async fn metrics_are_for_whom_the_api_server_allows_them() -> Result<()> {
    let cluster = Cluster::start().await?;
    let server = &cluster.server;
    // As the chart does with metrics.authorization.
    let role = |name: &str, rules: Value| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let bound = |name: &str, namespace: &str, account: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}]})
    };
    for object in [
        role(
            "reviews",
            json!([
            {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
            {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}]),
        ),
        bound("reviews", NAMESPACE, "gatewright-controller"),
        role(
            "reader",
            json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]),
        ),
        bound("reader", "default", "prometheus"),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus", "namespace": "default"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other", "namespace": "default"}}),
    ] {
        server.put(object).await?;
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(server.client(), "default");
    let token = async |account: &str| -> Result<String> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec::default()),
            ..TokenRequest::default()
        };
        let made = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await?;
        made.status
            .and_then(|status| status.token)
            .context("a token")
    };
    let reader = token("prometheus").await?;
    let other = token("other").await?;
    // A replica that is not the lease holder checks tokens as well.
    let mut one = cluster.controller("one")?;
    one.line("holding the lease").await?;
    let (mut two, _) =
        cluster.replica_with_xds_and("two", &["--set", "metrics.access=Authorized"])?;
    let address = probes_of(&mut two).await?;
    let read =
        async |token: Option<&str>| ask(Ipv4Addr::LOCALHOST, address, "/metrics", token).await;
    // A role takes effect some time after it was written, and a verdict is cached for a minute.
    server
        .until_may(
            ACCOUNT,
            ("create", "authentication.k8s.io", "tokenreviews", ""),
            true,
        )
        .await?;
    for (token, code, text) in [
        (None, "401", "a valid bearer token is required"),
        (Some("forged"), "401", "a valid bearer token is required"),
        (Some(&*other), "403", "non-resource URL /metrics"),
        (Some(&*reader), "200", "gatewright_build_info"),
    ] {
        let answer = read(token).await?;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code}")) && answer.contains(text),
            "{code}: {answer}"
        );
    }
    let ready = ask(Ipv4Addr::LOCALHOST, address, "/livez", None).await?;
    assert!(
        ready.starts_with("HTTP/1.1 200"),
        "probes are for everybody: {ready}"
    );

    // The same over TLS, and nothing in plain text.
    let made = rcgen::generate_simple_self_signed(vec!["gatewright.example.org".to_owned()])?;
    let keys = tempfile::Builder::new().prefix("probes").tempdir()?;
    std::fs::write(keys.path().join("tls.crt"), made.cert.pem())?;
    std::fs::write(
        keys.path().join("tls.key"),
        made.signing_key.serialize_pem(),
    )?;
    let dir = keys.path().display().to_string();
    let options = [
        "--set",
        "metrics.access=Authorized",
        "--probes-tls-dir",
        &*dir,
    ];
    let (mut three, _) = cluster.replica_with_xds_and("three", &options)?;
    let line = three.line("probes and metrics at ").await?;
    let address: SocketAddr = line
        .split("https://")
        .nth(1)
        .context("https")?
        .trim()
        .parse()?;
    let probe = Probe::https(address, "gatewright.example.org")
        .roots(roots_of(&made.cert.pem())?)
        .path("/metrics");
    let plain = Probe::http(address, "gatewright.example.org")
        .path("/metrics")
        .send()
        .await;
    assert!(plain.is_err(), "{plain:?}");
    for (token, code) in [
        (None, 401),
        (Some("forged"), 401),
        (Some(&*other), 403),
        (Some(&*reader), 200),
    ] {
        let probe = probe.clone();
        let probe = match token {
            Some(token) => probe.header("authorization", &format!("Bearer {token}")),
            None => probe,
        };
        assert_eq!(probe.send().await?.status, code, "{token:?}");
    }
    assert_eq!(probe.path("/livez").send().await?.status, 200);
    Ok(())
}
