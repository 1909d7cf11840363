//! Alerts of the chart, by Prometheus's own promtool.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::deploy::folder;
use e2e::helm::{Helm, NAMESPACE};
use serde_json::{Value, json};

/// Returns the alert rules of the chart.
fn rules() -> Result<Value> {
    let values = "monitoring.prometheusRule.enabled=true,monitoring.envoys.enabled=true,monitoring.envoys.traffic=true";
    let all = Helm::new(None)?.template(&["--set", values])?;
    let rules = all
        .into_iter()
        .find(|object| object["kind"] == "PrometheusRule");
    Ok(rules.context("the chart has alerts")?["spec"].clone())
}

fn rule<'a>(rules: &'a Value, name: &str) -> Result<&'a Value> {
    let groups = rules["groups"].as_array().context("groups")?;
    let mut all = groups
        .iter()
        .filter_map(|group| group["rules"].as_array())
        .flatten();
    all.find(|rule| rule["alert"] == name)
        .with_context(|| format!("no alert {name}"))
}

/// A test of promtool: the metric of these pods in the notation of promtool, one value for each
/// minute, and the number that the alert tells after so many minutes, or none.
fn case(
    alert: &Value,
    metric: &str,
    labels: &str,
    pods: &[&str],
    told: &[(u32, Option<u32>)],
) -> Value {
    labelled_case(alert, metric, labels, pods, None, told)
}

/// The same for an alert that has a label of the metric.
fn labelled_case(
    alert: &Value,
    metric: &str,
    labels: &str,
    pods: &[&str],
    own: Option<(&str, &str)>,
    told: &[(u32, Option<u32>)],
) -> Value {
    let series = |(pod, values): (usize, &&str)| {
        let series = format!("{metric}{{namespace=\"{NAMESPACE}\",pod=\"{pod}\"{labels}}}");
        json!({"series": series, "values": values})
    };
    let mut annotations = alert["annotations"].to_string();
    let mut all_labels = alert["labels"].clone();
    if let Some((name, value)) = own {
        annotations = annotations.replace(&format!("{{{{ $labels.{name} }}}}"), value);
        all_labels[name] = json!(value);
    }
    let at = |(minute, count): &(u32, Option<u32>)| -> Result<Value> {
        let Some(count) = count else {
            return Ok(
                json!({"eval_time": format!("{minute}m"), "alertname": alert["alert"], "exp_alerts": []}),
            );
        };
        let annotations: Value =
            serde_json::from_str(&annotations.replace("{{ $value }}", &count.to_string()))?;
        let expected = json!([{"exp_labels": all_labels, "exp_annotations": annotations}]);
        Ok(
            json!({"eval_time": format!("{minute}m"), "alertname": alert["alert"], "exp_alerts": expected}),
        )
    };
    let series: Vec<Value> = pods.iter().enumerate().map(series).collect();
    let told: Vec<Value> = told
        .iter()
        .map(|told| at(told).expect("an annotation is JSON"))
        .collect();
    json!({"interval": "1m", "input_series": series, "alert_rule_test": told})
}

/// Has promtool run these tests of the rules.
fn run(rules: &Value, tests: &[Value]) -> Result<()> {
    let promtool = folder().join("../.tools/promtool");
    ensure!(
        promtool.exists(),
        "no {}; run: e2e/tools install promtool",
        promtool.display()
    );
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("rules.yaml"), rules.to_string())?;
    let file = dir.path().join("tests.yaml");
    fs::write(
        &file,
        json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
            .to_string(),
    )?;
    let output = Command::new(promtool)
        .args(["test", "rules"])
        .arg(&file)
        .output()
        .context("running promtool")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{text}");
    Ok(())
}

#[test]
#[ignore = "needs Helm and promtool: e2e/tools install helm promtool"]
fn the_end_of_a_certificate_is_an_alert_before_it_and_another_after_it() -> Result<()> {
    let rules = rules()?;
    let ends = rule(&rules, "GatewrightCertificateEnds")?;
    let ended = rule(&rules, "GatewrightCertificateEnded")?;
    let ending = "gatewright_certificates_ending";
    let past = "gatewright_certificates_ended";
    let tests = [
        // The second comes into the week, and the first ends: it is in the other alert, which hides
        // nothing.
        case(
            ends,
            ending,
            "",
            &["0x30 1x90 2x90 1x90"],
            &[(60, None), (100, Some(1)), (190, Some(2)), (290, Some(1))],
        ),
        case(
            ended,
            past,
            "",
            &["0x30 1x200"],
            &[(60, None), (100, Some(1))],
        ),
        // One of them told by all replicas is one.
        case(
            ends,
            ending,
            "",
            &["1x200", "1x200"],
            &[(30, None), (61, Some(1))],
        ),
        case(ends, ending, "", &["0x200"], &[(180, None)]),
        case(ended, past, "", &["0x200"], &[(180, None)]),
        case(ends, ending, "", &[], &[(180, None)]),
    ];
    run(&rules, &tests)
}

#[test]
#[ignore = "needs Helm and promtool: e2e/tools install helm promtool"]
fn a_certificate_that_fails_or_is_refused_is_an_alert() -> Result<()> {
    let rules = rules()?;
    let alert = rule(&rules, "GatewrightCertificatesFail")?;
    let metric = "gatewright_certificates";
    let of = |state: &str, values: &[&str], told: &[(u32, Option<u32>)]| {
        case(alert, metric, &format!(",state=\"{state}\""), values, told)
    };
    let tests = [
        of("failing", &["1x200"], &[(30, None), (61, Some(1))]),
        of("refused", &["1x200"], &[(30, None), (61, Some(1))]),
        of("refused", &["1x40 0x200"], &[(61, None)]),
        of("held", &["7x200"], &[(180, None)]),
        of("waiting", &["7x200"], &[(180, None)]),
    ];
    run(&rules, &tests)
}

#[test]
#[ignore = "needs Helm and promtool: e2e/tools install helm promtool"]
fn what_keeps_envoys_from_their_configuration_is_an_alert() -> Result<()> {
    let rules = rules()?;
    let left = rule(&rules, "GatewrightEnvoyLeftBehind")?;
    let left = |values: &str, told: &[(u32, Option<u32>)]| {
        let metric = "gatewright_xds_view_proxies_left_behind";
        labelled_case(
            left,
            metric,
            ",view=\"shared\"",
            &[values],
            Some(("view", "shared")),
            told,
        )
    };
    let serving = rule(&rules, "GatewrightNotServing")?;
    let serving = |values: &str, told: &[(u32, Option<u32>)]| {
        labelled_case(
            serving,
            "gatewright_serving",
            "",
            &[values],
            Some(("pod", "0")),
            told,
        )
    };
    let unrecorded = rule(&rules, "GatewrightOwnersNotRecorded")?;
    let unrecorded = |values: &[&str], told: &[(u32, Option<u32>)]| {
        case(unrecorded, "gatewright_unrecorded_owners", "", values, told)
    };
    let tests = [
        left("0x10 1x60", &[(10, None), (20, Some(1))]),
        left("0x60", &[(50, None)]),
        left("1x3 0x60", &[(20, None)]),
        // A start takes less than the time of the alert.
        serving("0x5 1x60", &[(4, None), (20, None)]),
        serving("1x10 0x60", &[(15, None), (25, Some(0))]),
        // The lease holder tells it, and another replica nothing.
        unrecorded(&["3x60", "0x60"], &[(5, None), (15, Some(3))]),
        unrecorded(&["0x60", "0x60"], &[(50, None)]),
    ];
    run(&rules, &tests)
}

#[test]
#[ignore = "needs Helm and promtool: e2e/tools install helm promtool"]
fn what_is_nearly_used_up_is_an_alert() -> Result<()> {
    let rules = rules()?;
    let large = rule(&rules, "GatewrightLastGoodTooLarge")?;
    let large = |values: &[&str], told: &[(u32, Option<u32>)]| {
        case(large, "gatewright_last_good_too_large", "", values, told)
    };
    let heap = rule(&rules, "GatewrightEnvoyHeap")?;
    let heap = |values: &[&str], told: &[(u32, Option<u32>)]| {
        let metric = "envoy_overload_envoy_resource_monitors_fixed_heap_pressure";
        let own = Some(("view", "isolated/shop/edge"));
        labelled_case(
            heap,
            metric,
            ",view=\"isolated/shop/edge\"",
            values,
            own,
            told,
        )
    };
    let quota = rule(&rules, "GatewrightQuotaNearlyUsed")?;
    let quota = |used: &str, told: &[u32]| near_quota(quota, used, told);
    let tests = [
        large(&["0x10 1x120", "0x130"], &[(60, None), (80, Some(1))]),
        large(&["1x30 0x100"], &[(40, None), (100, None)]),
        heap(&["20x10 85x60", "20x70"], &[(15, None), (25, Some(85))]),
        heap(&["80x60"], &[(50, None)]),
        heap(&["95x5 20x60"], &[(12, None)]),
        quota("91x200", &[90]),
        quota("90x200", &[]),
        quota("99x50 10x200", &[]),
    ];
    run(&rules, &tests)
}

#[test]
#[ignore = "needs Helm and promtool: e2e/tools install helm promtool"]
fn lines_of_access_logs_that_are_lost_for_long_are_an_alert() -> Result<()> {
    let rules = rules()?;
    let alert = rule(&rules, "GatewrightAccessLogLinesLost")?;
    let lost = |values: &[&str], told: &[(u32, Option<u32>)]| {
        labelled_case(
            alert,
            "envoy_access_logs_open_telemetry_access_log_logs_dropped",
            ",view=\"shared\"",
            values,
            Some(("view", "shared")),
            told,
        )
    };
    let tests = [
        // One of two Envoys, until the collector is back.
        lost(
            &["0x20 1+5x60 301x60", "0x140"],
            &[(30, None), (50, Some(0)), (120, None)],
        ),
        // A restart of the collector takes a few minutes.
        lost(
            &["0x20 100x2 200x100"],
            &[(22, None), (36, None), (60, None)],
        ),
        // An Envoy without a collector, and one that starts again.
        lost(&["0x140"], &[(60, None)]),
        lost(&["500x60 0x60"], &[(50, None), (100, None)]),
        lost(&[], &[(60, None)]),
    ];
    run(&rules, &tests)
}

#[test]
#[ignore = "needs Helm and promtool: e2e/tools install helm promtool"]
fn spans_that_are_lost_for_long_are_an_alert() -> Result<()> {
    let rules = rules()?;
    let alert = rule(&rules, "GatewrightSpansLost")?;
    let refused =
        r#"envoy_cluster_upstream_rq_xx{envoy_cluster_name="otlp",envoy_response_code_class="5","#;
    let silent = r#"envoy_cluster_upstream_rq_max_duration_reached{envoy_cluster_name="otlp","#;
    let others = r#"envoy_cluster_upstream_rq_xx{envoy_cluster_name="shop/web_80",envoy_response_code_class="5","#;
    let sent = "envoy_tracing_opentelemetry_spans_sent{";
    let lost = |series: &[(&str, &str)], told: &[(u32, Option<u32>)]| {
        let mut test = labelled_case(alert, "up", "", &[], Some(("view", "shared")), told);
        let series = series.iter().map(|(labels, values)| {
            let series = format!("{labels}namespace=\"{NAMESPACE}\",pod=\"a\",view=\"shared\"}}");
            json!({"series": series, "values": values})
        });
        test["input_series"] = series.collect();
        test
    };
    let tests = [
        lost(
            &[(refused, "0x20 1+5x60 301x60"), (sent, "0+10x140")],
            &[(30, None), (50, Some(0)), (120, None)],
        ),
        lost(
            &[(silent, "0x20 1+5x60 301x60"), (sent, "0+10x140")],
            &[(30, None), (50, Some(0)), (120, None)],
        ),
        lost(&[(others, "0+5x140"), (sent, "0+10x140")], &[(60, None)]),
        // Lines of access logs, without any span.
        lost(&[(refused, "0+5x140"), (sent, "0x140")], &[(60, None)]),
        lost(&[(refused, "0x140"), (sent, "0+10x140")], &[(60, None)]),
    ];
    run(&rules, &tests)
}

/// A test of a namespace with a quota of 100 clusters, of which it uses these; two replicas tell
/// it. The alert is there at these minutes, and not after half an hour.
fn near_quota(alert: &Value, used: &str, told: &[u32]) -> Value {
    let series = |metric: &str, pod: u8, values: &str| {
        let labels = "exported_namespace=\"shop\",quota=\"clusters\"";
        let series = format!("{metric}{{namespace=\"{NAMESPACE}\",pod=\"{pod}\",{labels}}}");
        json!({"series": series, "values": values})
    };
    let replicas = (0..2).flat_map(|pod| {
        [
            series("gatewright_namespace_quota_used", pod, used),
            series("gatewright_namespace_quota", pod, "100x200"),
        ]
    });
    let text = alert["annotations"]
        .to_string()
        .replace("{{ $labels.exported_namespace }}", "shop")
        .replace("{{ $labels.quota }}", "clusters");
    let annotations: Value = serde_json::from_str(&text).expect("an annotation is JSON");
    let mut labels = alert["labels"].clone();
    labels["exported_namespace"] = json!("shop");
    labels["quota"] = json!("clusters");
    let there = json!([{"exp_labels": labels, "exp_annotations": annotations}]);
    let at = |minute: u32| {
        let expected = if told.contains(&minute) {
            there.clone()
        } else {
            json!([])
        };
        json!({"eval_time": format!("{minute}m"), "alertname": alert["alert"], "exp_alerts": expected})
    };
    let checks: Vec<Value> = [30, 90, 150]
        .into_iter()
        .filter(|minute| *minute != 150 || told.is_empty())
        .map(at)
        .collect();
    json!({"interval": "1m", "input_series": replicas.collect::<Vec<_>>(), "alert_rule_test": checks})
}

/// A test of an alert about the namespace `shop` beside a healthy one. `series` are names with
/// labels, and values of each minute; the alert has a share in percent at these minutes.
fn tenant_case(alert: &Value, series: &[(&str, &str)], told: &[(u32, Option<&str>)]) -> Value {
    let series: Vec<Value> = series
        .iter()
        .map(|(name, values)| {
            let name = name.replace('{', &format!("{{namespace=\"{NAMESPACE}\",pod=\"a\","));
            json!({"series": name, "values": values})
        })
        .collect();
    let told: Vec<Value> = told
        .iter()
        .map(|(minute, share)| {
            let expected: Vec<Value> = share.map(|share| told_of_shop(alert, share)).into_iter().collect();
            json!({"eval_time": format!("{minute}m"), "alertname": alert["alert"], "exp_alerts": expected})
        })
        .collect();
    json!({"interval": "1m", "input_series": series, "alert_rule_test": told})
}

/// An alert about the namespace `shop` with a share in percent.
fn told_of_shop(alert: &Value, share: &str) -> Value {
    let text = alert["annotations"]
        .to_string()
        .replace("{{ $labels.tenant }}", "shop")
        .replace("{{ $value | humanizePercentage }}", share);
    let annotations: Value = serde_json::from_str(&text).expect("an annotation is JSON");
    let mut labels = alert["labels"].clone();
    labels["tenant"] = json!("shop");
    json!({"exp_labels": labels, "exp_annotations": annotations})
}

/// A case of the alert about errors, of requests of `shop` that fail.
fn errors(alert: &Value, failed: &str, told: &[(u32, Option<&str>)]) -> Value {
    const OK: &str = "envoy_gatewright_requests{tenant=\"shop\",class=\"2\"}";
    const FAILED: &str = "envoy_gatewright_requests{tenant=\"shop\",class=\"5\"}";
    const OTHER: &str = "envoy_gatewright_requests{tenant=\"blog\",class=\"2\"}";
    const NOBODY: &str = "envoy_gatewright_requests{tenant=\"\",class=\"5\"}";
    let series = [
        (OK, "0+90x240"),
        (FAILED, failed),
        (OTHER, "0+1000x240"),
        (NOBODY, "0+100x240"),
    ];
    tenant_case(alert, &series, told)
}

/// A case of the alert about slow requests, of those of `shop` that are fast.
fn slow(alert: &Value, fast: &str, told: &[(u32, Option<&str>)]) -> Value {
    const FAST: &str = "envoy_gatewright_request_milliseconds_bucket{tenant=\"shop\",le=\"1000\"}";
    const ALL: &str = "envoy_gatewright_request_milliseconds_count{tenant=\"shop\"}";
    tenant_case(alert, &[(FAST, fast), (ALL, "0+100x240")], told)
}

#[test]
#[ignore = "needs Helm and promtool: e2e/tools install helm promtool"]
fn a_tenant_whose_requests_fail_or_are_slow_is_an_alert() -> Result<()> {
    let rules = rules()?;
    let failing = rule(&rules, "GatewrightTenantErrors")?;
    let late = rule(&rules, "GatewrightTenantSlow")?;
    let tests = [
        // A tenth of the requests, for two hours and after their end.
        errors(
            failing,
            "0+10x120 1200x120",
            &[(100, Some("10%")), (130, None)],
        ),
        errors(failing, "0+1x240", &[(100, None), (200, None)]),
        errors(failing, "0x240", &[(100, None)]),
        slow(late, "0+75x240", &[(100, Some("25%"))]),
        slow(late, "0+90x240", &[(100, None)]),
    ];
    run(&rules, &tests)
}
