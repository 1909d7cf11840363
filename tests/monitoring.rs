//! The chart's rules and dashboards for Prometheus and Grafana use existing metrics: each name, its
//! type and its labels are in the registry of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use gatewright_control::certificates::CertificateMetrics;
use gatewright_control::metrics::{Program, text};
use gatewright_core::translate::CertificateEnds;
use serde_json::Value;

/// The labels that Prometheus adds in a cluster.
const ADDED: [&str; 2] = ["namespace", "pod"];
/// The labels of families that have no series until something is counted, or there is a view.
const UNTIL_COUNTED: [(&str, &[&str]); 17] = [
    ("gatewright_kind", &["kind", "state"]),
    ("gatewright_kind_age_seconds", &["kind"]),
    ("gatewright_xds_view_age_seconds", &["view"]),
    // Prometheus renames the label `namespace` of the program, since pods have one.
    (
        "gatewright_namespace_quota",
        &["exported_namespace", "quota"],
    ),
    (
        "gatewright_namespace_quota_used",
        &["exported_namespace", "quota"],
    ),
    ("gatewright_xds_view_proxies_left_behind", &["view"]),
    ("gatewright_write_failures", &["class"]),
    ("gatewright_tenant_writes", &["kind"]),
    ("gatewright_tenant_write_failures", &["class"]),
    ("gatewright_service_writes", &["action"]),
    ("gatewright_service_write_failures", &["class"]),
    ("gatewright_record_writes", &["record"]),
    ("gatewright_unrecorded_owners", &[]),
    ("gatewright_record_write_failures", &["class"]),
    ("gatewright_certificate_writes", &["action"]),
    ("gatewright_certificate_write_failures", &["class"]),
    ("gatewright_acme_requests", &["action", "status"]),
];

/// The statistics of Envoy that `statistics.rs`, `otlp_logs.rs` and `tracing.rs` of
/// `e2e/inside/tests/envoy` read, with their labels and the one that the monitor of the chart adds.
const OF_ENVOY: [(&str, &[&str]); 6] = [
    (
        "envoy_access_logs_open_telemetry_access_log_logs_dropped",
        &["view"],
    ),
    (
        "envoy_cluster_upstream_rq_max_duration_reached",
        &["view", "envoy_cluster_name"],
    ),
    ("envoy_tracing_opentelemetry_spans_sent", &["view"]),
    (
        "envoy_overload_envoy_resource_monitors_fixed_heap_pressure",
        &["view"],
    ),
    ("envoy_server_memory_heap_size", &["view"]),
    ("envoy_server_memory_allocated", &["view"]),
];

/// Statistics of Envoy about traffic, with their labels: `e2e/inside/tests/envoy/traffic.rs` has
/// Prometheus read them from an Envoy and evaluate every panel.
const OF_TRAFFIC: [(&str, &[&str]); 15] = [
    ("envoy_gatewright_requests", &["tenant", "class", "route"]),
    ("envoy_gatewright_request_bytes", &["tenant"]),
    ("envoy_gatewright_response_bytes", &["tenant"]),
    (
        "envoy_gatewright_request_milliseconds_bucket",
        &["tenant", "le"],
    ),
    ("envoy_gatewright_request_milliseconds_count", &["tenant"]),
    ("envoy_server_live", &[]),
    (
        "envoy_http_downstream_rq_total",
        &["envoy_http_conn_manager_prefix"],
    ),
    (
        "envoy_http_downstream_rq_xx",
        &[
            "envoy_http_conn_manager_prefix",
            "envoy_response_code_class",
        ],
    ),
    (
        "envoy_http_downstream_rq_time_bucket",
        &["envoy_http_conn_manager_prefix", "le"],
    ),
    (
        "envoy_http_downstream_cx_active",
        &["envoy_http_conn_manager_prefix"],
    ),
    ("envoy_tcp_downstream_cx_total", &["envoy_tcp_prefix"]),
    ("envoy_cluster_upstream_rq_total", &["envoy_cluster_name"]),
    (
        "envoy_cluster_upstream_rq_xx",
        &["envoy_cluster_name", "envoy_response_code_class"],
    ),
    (
        "envoy_cluster_upstream_rq_time_bucket",
        &["envoy_cluster_name", "le"],
    ),
    ("envoy_cluster_upstream_cx_active", &["envoy_cluster_name"]),
];

/// Returns the names of all series, with their labels.
fn series() -> BTreeMap<String, BTreeSet<String>> {
    let certificates = Box::new(CertificateMetrics::default());
    let replica = gatewright_kubernetes::metrics::described();
    let reports = gatewright_kubernetes::reports::described();
    let last_good = gatewright::controller::described();
    let propagation = Box::new(gatewright_control::propagation::Propagation::default());
    let ends = CertificateEnds {
        next: Some(SystemTime::UNIX_EPOCH),
        ..CertificateEnds::default()
    };
    let program = Program {
        ends,
        ..Program::default()
    };
    let shown = text(
        program,
        &xds::Cache::new(),
        vec![certificates, replica, reports, last_good, propagation],
    );
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in shown.lines().filter(|line| !line.starts_with('#')) {
        let (name, selected) = selector(line);
        labels.entry(name.to_owned()).or_default().extend(selected);
    }
    for (family, kind) in shown
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
    {
        let known = UNTIL_COUNTED
            .iter()
            .find(|(name, _)| *name == family)
            .map(|(_, labels)| *labels);
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        for suffix in suffixes {
            let of = labels.entry(format!("{family}{suffix}")).or_default();
            of.extend(known.into_iter().flatten().map(ToString::to_string));
        }
    }
    let of_envoys = OF_ENVOY.iter().chain(&OF_TRAFFIC);
    labels.extend(of_envoys.map(|(name, labels)| {
        let labels = labels.iter().map(ToString::to_string);
        ((*name).to_owned(), labels.collect())
    }));
    labels
}

/// Returns the metric name at the start of a text, and the labels in braces after it.
fn selector(text: &str) -> (&str, Vec<String>) {
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let inside = rest
        .strip_prefix('{')
        .and_then(|rest| rest.split_once('}'))
        .map_or("", |(inside, _)| inside);
    // Values are in quotes: every other part is a label with its operator.
    let labels = inside
        .split('"')
        .step_by(2)
        .map(|part| part.trim_matches([',', ' ', '=', '!', '~']));
    (
        name,
        labels
            .filter(|label| !label.is_empty())
            .map(str::to_owned)
            .collect(),
    )
}

/// Returns where the names of metrics begin.
fn metrics(expression: &str) -> impl Iterator<Item = usize> {
    let all = ["gatewright_", "envoy_"]
        .into_iter()
        .flat_map(|prefix| expression.match_indices(prefix));
    all.map(|(at, _)| at).filter(|at| {
        let before = expression[..*at].chars().next_back();
        before.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_')
    })
}

/// Returns the errors of a PromQL expression.
fn wrong(expression: &str, series: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut found = Vec::new();
    let mut known: BTreeSet<&str> = ADDED.into();
    for at in metrics(expression) {
        let (name, labels) = selector(&expression[at..]);
        match series.get(name) {
            // Envoy's labels have the prefix of its metrics.
            None if series.values().any(|labels| labels.contains(name)) => {}
            None => found.push(format!("no metric is called {name}")),
            Some(of) => {
                let unknown = labels
                    .iter()
                    .filter(|label| !of.contains(*label) && !ADDED.contains(&label.as_str()));
                found.extend(unknown.map(|label| format!("{name} has no label {label}")));
                known.extend(of.iter().map(String::as_str));
            }
        }
    }
    for list in expression.split(" by (").skip(1) {
        let labels = list
            .split(')')
            .next()
            .unwrap_or_default()
            .split(',')
            .map(str::trim);
        found.extend(
            labels
                .filter(|label| !known.contains(label))
                .map(|label| format!("nothing has the label {label}")),
        );
    }
    if metrics(expression).next().is_none() {
        found.push("it asks for no metric of ours".to_owned());
    }
    found
}

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/chart")
        .join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_panel_of_the_dashboards_shows_a_metric_that_there_is() {
    for name in ["gatewright", "traffic"] {
        check_dashboard(name);
    }
}

fn check_dashboard(name: &str) {
    let board = read(&format!("dashboards/{name}.json"));
    let board: Value = serde_json::from_str(&board).expect("JSON");
    let series = series();
    let mut broken = Vec::new();
    let mut ids = BTreeSet::new();
    let mut drawn = 0;
    for panel in board["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        assert!(
            ids.insert(panel["id"].as_u64()),
            "{title}: the id is there twice"
        );
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            broken.extend(
                wrong(expression, &series)
                    .into_iter()
                    .map(|why| format!("{title}: {why}")),
            );
            // `{{label}}` in a legend must be a label of the expression's result.
            for label in target["legendFormat"]
                .as_str()
                .unwrap_or_default()
                .split("{{")
                .skip(1)
            {
                let label = label.split("}}").next().unwrap_or_default();
                let lists = expression
                    .split(" by (")
                    .skip(1)
                    .filter_map(|list| list.split(')').next());
                if !lists
                    .flat_map(|list| list.split(','))
                    .any(|of| of.trim() == label)
                {
                    broken.push(format!("{title}: the expression leaves no label {label}"));
                }
            }
            drawn += 1;
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(drawn >= 20, "{drawn} expressions");
}

#[test]
fn every_alert_speaks_of_a_metric_that_there_is() {
    let text =
        read("templates/monitoring.yaml").replace("{{ $.Release.Namespace }}", "gatewright-system");
    let series = series();
    let expressions: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "))
        .collect();
    assert!(expressions.len() >= 7, "{expressions:?}");
    let broken: Vec<String> = expressions
        .iter()
        .flat_map(|of| {
            wrong(of, &series)
                .into_iter()
                .map(move |why| format!("{of}: {why}"))
        })
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn wrong_expressions_are_found() {
    let series = series();
    for (expression, why) in [
        (
            "sum(gatewright_changes)",
            "no metric is called gatewright_changes",
        ),
        (
            "gatewright_xds_nack_total{kind=\"cds\"}",
            "gatewright_xds_nack_total has no label kind",
        ),
        (
            "sum by (reason) (gatewright_xds_refused_rpc_total)",
            "nothing has the label reason",
        ),
        ("up == 0", "it asks for no metric of ours"),
    ] {
        assert_eq!(wrong(expression, &series), [why], "{expression}");
    }
    let right = "histogram_quantile(0.9, sum by (le, type) (rate(gatewright_xds_ack_latency_seconds_bucket{namespace=\"a\"}[1m])))";
    assert_eq!(wrong(right, &series), Vec::<String>::new());
}
