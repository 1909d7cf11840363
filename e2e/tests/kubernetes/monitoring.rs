//! Scraping by Prometheus: monitors of the chart match how `metrics.*` serves metrics.

use anyhow::{Context, Result};
use e2e::helm::{Helm, NAMESPACE, chart};
use serde_json::{Value, json};

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

/// Returns the endpoint of the PodMonitor, which equals that of the ServiceMonitor, and all
/// rendered objects.
fn endpoint(helm: &Helm, more: &[&str]) -> Result<(Value, Vec<Value>)> {
    let both = [
        "--set",
        "monitoring.podMonitor.enabled=true,monitoring.serviceMonitor.enabled=true",
    ];
    let all = helm.template(&[&both, more].concat())?;
    let pods = find(&all, "PodMonitor", "gatewright-controller").context("a PodMonitor")?;
    let services =
        find(&all, "ServiceMonitor", "gatewright-controller").context("a ServiceMonitor")?;
    let of = pods["spec"]["podMetricsEndpoints"]
        .as_array()
        .context("endpoints")?;
    assert_eq!(services["spec"]["endpoints"].as_array(), Some(of));
    assert_eq!(of.len(), 1);
    Ok((of[0].clone(), all))
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn monitors_read_metrics_as_they_are_served() -> Result<()> {
    let helm = Helm::new(None)?;
    let (plain, all) = endpoint(&helm, &[])?;
    assert_eq!(
        plain,
        json!({"interval": "30s", "port": "probes", "path": "/metrics"})
    );
    assert!(find(&all, "Secret", "gatewright-metrics-token").is_none());

    let (tls, _) = endpoint(&helm, &["--set", "metrics.tlsSecretName=probes"])?;
    assert_eq!(tls["scheme"], "https");
    let config = json!({"ca": {"secret": {"name": "probes", "key": "ca.crt"}},
        "serverName": format!("gatewright-metrics.{NAMESPACE}.svc")});
    assert_eq!(tls["tlsConfig"], config);
    assert!(tls["authorization"].is_null());
    let own = [
        "--set",
        "metrics.tlsSecretName=probes,monitoring.tlsConfig.insecureSkipVerify=true",
    ];
    assert_eq!(
        endpoint(&helm, &own)?.0["tlsConfig"],
        json!({"insecureSkipVerify": true})
    );

    // A token is made, of an account that may read metrics and nothing else.
    let (token, all) = endpoint(&helm, &["--set", "metrics.authorization=true"])?;
    assert!(
        token["scheme"].is_null() && token["tlsConfig"].is_null(),
        "{token}"
    );
    assert_eq!(token["authorization"]["type"], "Bearer");
    let credentials = &token["authorization"]["credentials"];
    assert_eq!(credentials["key"], "token");
    let secret = find(
        &all,
        "Secret",
        credentials["name"].as_str().context("a name")?,
    )
    .context("its Secret")?;
    assert_eq!(
        secret["type"],
        json!("kubernetes.io/service-account-token"),
        "it is the token of a ServiceAccount"
    );
    assert_eq!(
        secret["metadata"]["namespace"],
        json!(NAMESPACE),
        "in the namespace of the installation"
    );
    let account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
        .as_str()
        .context("whose")?;
    assert!(find(&all, "ServiceAccount", account).is_some());
    let bindings: Vec<&Value> = all
        .iter()
        .filter(|object| {
            object["kind"]
                .as_str()
                .is_some_and(|kind| kind.ends_with("Binding"))
        })
        .collect();
    let bindings: Vec<&Value> = bindings
        .into_iter()
        .filter(|binding| {
            binding["subjects"]
                .as_array()
                .is_some_and(|all| all.iter().any(|subject| subject["name"] == account))
        })
        .collect();
    assert_eq!(bindings.len(), 1, "{bindings:?}");
    let role = find(
        &all,
        "ClusterRole",
        bindings[0]["roleRef"]["name"].as_str().context("a role")?,
    )
    .context("its role")?;
    assert_eq!(
        role["rules"],
        json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
    );

    // A token of the user's own.
    let own = [
        "--set",
        "metrics.authorization=true,monitoring.tokenSecret.name=mine,monitoring.tokenSecret.key=t",
    ];
    let (own, all) = endpoint(&helm, &own)?;
    assert_eq!(
        own["authorization"]["credentials"],
        json!({"name": "mine", "key": "t"})
    );
    assert!(find(&all, "Secret", "gatewright-metrics-token").is_none());
    assert!(find(&all, "ServiceAccount", "gatewright-metrics").is_none());
    // Without a monitor none is made.
    let none = helm.template(&["--set", "metrics.authorization=true"])?;
    assert!(find(&none, "Secret", "gatewright-metrics-token").is_none());
    Ok(())
}

/// The fleets of Envoys, each with the object that has its pods.
const FLEETS: [(&str, &str); 3] = [
    ("DaemonSet", "gatewright-envoy"),
    ("Deployment", "gatewright-envoy-dedicated"),
    ("PodTemplate", "gatewright-envoy-isolated"),
];

/// The specification of a fleet's pods.
struct Pods(Value);

impl Pods {
    fn of(all: &[Value], kind: &str, name: &str) -> Result<Self> {
        let object = find(all, kind, name).with_context(|| name.to_owned())?;
        let template = match kind {
            "PodTemplate" => &object["template"],
            _ => &object["spec"]["template"],
        };
        Ok(Self(template["spec"].clone()))
    }

    /// An entry by its name, such as one of the `containers`.
    fn named(&self, field: &str, name: &str) -> Option<&Value> {
        let mut all = self.0[field].as_array().into_iter().flatten();
        all.find(|one| one["name"] == name)
    }
}

/// Renders the chart with all fleets and more settings.
fn with_fleets(helm: &Helm, more: &str) -> Result<Vec<Value>> {
    let fleets = "envoy.dedicated.enabled=true,isolated.enabled=true";
    helm.template(&["--set", &format!("{fleets}{more}")])
}

/// Returns the value after `--stats=` of the pods of a fleet, and their ports.
fn statistics(all: &[Value], kind: &str, name: &str) -> Result<(Option<String>, Vec<Value>)> {
    let pods = Pods::of(all, kind, name)?;
    let bootstrap = pods
        .named("initContainers", "bootstrap")
        .context("the bootstrap")?;
    let envoy = pods.named("containers", "envoy").context("Envoy")?;
    let arguments = bootstrap["args"].as_array().context("arguments")?.iter();
    let stats = arguments
        .filter_map(Value::as_str)
        .find_map(|argument| argument.strip_prefix("--stats="));
    let ports = envoy["ports"].as_array().cloned().unwrap_or_default();
    Ok((stats.map(str::to_owned), ports))
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn envoys_of_all_fleets_have_a_port_for_statistics_where_that_is_said() -> Result<()> {
    let helm = Helm::new(None)?;
    let none = with_fleets(&helm, "")?;
    assert!(find(&none, "PodMonitor", "gatewright-envoys").is_none());
    for (kind, name) in FLEETS {
        assert_eq!(statistics(&none, kind, name)?.0, None, "{name}");
    }

    let all = with_fleets(
        &helm,
        ",monitoring.envoys.enabled=true,envoy.hostPorts=true",
    )?;
    for (kind, name) in FLEETS {
        let (stats, ports) = statistics(&all, kind, name)?;
        assert_eq!(stats.as_deref(), Some("0.0.0.0:19001"), "{name}");
        let own = json!({"name": "statistics", "containerPort": 19001});
        assert!(
            ports.contains(&own),
            "{name}: no port of the node: {ports:?}"
        );
    }
    let monitor = find(&all, "PodMonitor", "gatewright-envoys").context("a PodMonitor")?;
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["port"], "statistics");
    assert_eq!(endpoint["scheme"], "https");
    let policy = "gatewright-envoy-statistics";
    assert!(
        find(&all, "NetworkPolicy", policy).is_none(),
        "for everybody"
    );

    let six = with_fleets(
        &helm,
        ",monitoring.envoys.enabled=true,monitoring.envoys.address=::",
    )?;
    let (stats, _) = statistics(&six, "DaemonSet", "gatewright-envoy")?;
    assert_eq!(stats.as_deref(), Some("[::]:19001"));

    // Only the clients of probes reach it, and everybody every other port.
    let from = ",networkPolicy.probesFrom[0].podSelector.matchLabels.app=prometheus";
    let clients = json!([{"podSelector": {"matchLabels": {"app": "prometheus"}}}]);
    let all = with_fleets(&helm, &format!(",monitoring.envoys.enabled=true{from}"))?;
    let policy = find(&all, "NetworkPolicy", policy).context("a policy")?;
    let ingress = json!([
        {"ports": [{"port": 1, "endPort": 19000}, {"port": 19002, "endPort": 65535},
            {"port": 1, "endPort": 65535, "protocol": "UDP"}]},
        {"ports": [{"port": 19001}], "from": clients},
    ]);
    assert_eq!(policy["spec"]["ingress"], ingress);
    let strict = ",networkPolicy.envoys.enabled=true";
    let all = with_fleets(
        &helm,
        &format!(",monitoring.envoys.enabled=true{from}{strict}"),
    )?;
    for (_, name) in FLEETS {
        let policy = find(&all, "NetworkPolicy", name).with_context(|| name.to_owned())?;
        let rules = policy["spec"]["ingress"].as_array().context("rules")?;
        let own = json!({"ports": [{"port": 19001}], "from": clients});
        assert_eq!(rules.last(), Some(&own), "{name}");
    }
    assert!(
        find(&all, "NetworkPolicy", "gatewright-envoy-statistics").is_none(),
        "it would open what the others close"
    );
    Ok(())
}

/// Returns what the pods of a fleet know of the reader of statistics: whether the bootstrap reads
/// it, and the Secret.
fn reader(all: &[Value], kind: &str, name: &str) -> Result<(bool, Value)> {
    let pods = Pods::of(all, kind, name)?;
    let bootstrap = pods
        .named("initContainers", "bootstrap")
        .context("the bootstrap")?;
    let is_read = bootstrap["args"]
        .as_array()
        .context("arguments")?
        .contains(&json!("--stats-credentials=/statistics"));
    for container in ["envoy", "drain"] {
        let container_of = pods.named("containers", container).context("a container")?;
        let mut mounts = container_of["volumeMounts"]
            .as_array()
            .into_iter()
            .flatten();
        assert!(
            mounts.all(|mount| mount["name"] != "statistics"),
            "{container} of {name} has no password"
        );
    }
    let volume = pods.named("volumes", "statistics");
    let secret = volume.map(|volume| volume["secret"].clone());
    Ok((is_read, secret.unwrap_or_default()))
}

/// The credentials by which Prometheus reads the statistics of Envoys.
fn basic_auth(all: &[Value]) -> Result<Value> {
    let monitor = find(all, "PodMonitor", "gatewright-envoys").context("a PodMonitor")?;
    Ok(monitor["spec"]["podMetricsEndpoints"][0]["basicAuth"].clone())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn numbers_of_traffic_have_a_reader_with_a_password_in_all_fleets() -> Result<()> {
    let helm = Helm::new(None)?;
    let none = with_fleets(&helm, ",monitoring.envoys.enabled=true")?;
    assert_eq!(basic_auth(&none)?, Value::Null, "nobody needs one");
    assert!(find(&none, "Secret", "gatewright-statistics").is_none());
    for (kind, name) in FLEETS {
        assert_eq!(reader(&none, kind, name)?, (false, Value::Null), "{name}");
    }

    let all = with_fleets(
        &helm,
        ",monitoring.envoys.enabled=true,monitoring.envoys.traffic=true",
    )?;
    let items =
        json!([{"key": "namespace", "path": "username"}, {"key": "token", "path": "password"}]);
    let secret = json!({"secretName": "gatewright-statistics", "items": items});
    for (kind, name) in FLEETS {
        assert_eq!(reader(&all, kind, name)?, (true, secret.clone()), "{name}");
    }
    let expected = json!({"username": {"name": "gatewright-statistics", "key": "namespace"},
        "password": {"name": "gatewright-statistics", "key": "token"}});
    assert_eq!(basic_auth(&all)?, expected);
    let made = find(&all, "Secret", "gatewright-statistics").context("a Secret")?;
    assert_eq!(made["type"], "kubernetes.io/service-account-token");
    let bound = all.iter().filter(|object| {
        let subjects = object["subjects"].as_array().into_iter().flatten();
        subjects
            .clone()
            .any(|subject| subject["name"] == "gatewright-statistics")
    });
    assert_eq!(bound.count(), 0, "its account has no right");

    let all = with_fleets(
        &helm,
        ",monitoring.envoys.enabled=true,monitoring.envoys.traffic=true,monitoring.envoys.credentialsSecret=mine",
    )?;
    assert!(find(&all, "Secret", "gatewright-statistics").is_none());
    assert_eq!(
        basic_auth(&all)?["password"],
        json!({"name": "mine", "key": "password"})
    );
    Ok(())
}

#[test]
#[ignore = "needs Helm: e2e/tools install helm"]
fn the_dashboards_are_rendered_whole() -> Result<()> {
    let helm = Helm::new(None)?;
    assert!(find(&helm.template(&[])?, "ConfigMap", "gatewright-dashboard").is_none());
    let dashboard =
        "monitoring.dashboard.enabled=true,monitoring.dashboard.annotations.folder=edge";
    let alone = helm.template(&["--set", dashboard])?;
    let board = find(&alone, "ConfigMap", "gatewright-dashboard").context("a dashboard")?;
    assert!(
        board["data"]["traffic.json"].is_null(),
        "nobody counts the traffic"
    );
    let all = with_fleets(
        &helm,
        &format!(",{dashboard},monitoring.envoys.enabled=true,monitoring.envoys.traffic=true"),
    )?;
    let board = find(&all, "ConfigMap", "gatewright-dashboard").context("a dashboard")?;
    assert_eq!(board["metadata"]["labels"]["grafana_dashboard"], "1");
    assert_eq!(board["metadata"]["annotations"]["folder"], "edge");
    for name in ["gatewright.json", "traffic.json"] {
        let text = board["data"][name].as_str().context("its text")?;
        let rendered: Value = serde_json::from_str(text)?;
        let file = chart().join("dashboards").join(name);
        let written: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        assert_eq!(rendered, written, "{name}");
    }
    Ok(())
}
