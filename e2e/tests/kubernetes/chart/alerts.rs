//! Alerts of the chart, by Prometheus's own promtool.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use e2e::deploy::folder;
use e2e::helm::{Helm, NAMESPACE};
use serde_json::{Value, json};

const END: &str = "gatewright_certificates_next_end_timestamp_seconds";
const DAY: u32 = 24 * 60 * 60;

/// Returns the alert rules of the chart.
fn rules() -> Result<Value> {
    let all = Helm::new(None)?.template(&["--set", "monitoring.prometheusRule.enabled=true"])?;
    let rules = all.into_iter().find(|object| object["kind"] == "PrometheusRule");
    Ok(rules.context("the chart has alerts")?["spec"].clone())
}

fn rule<'a>(rules: &'a Value, name: &str) -> Result<&'a Value> {
    let groups = rules["groups"].as_array().context("groups")?;
    let mut all = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
    all.find(|rule| rule["alert"] == name).with_context(|| format!("no alert {name}"))
}

/// A test of promtool: pods that tell these ends of certificates, in seconds from the start, and whether the alert is
/// there after so many minutes.
fn case(alert: &Value, ends: &[u32], told: &[(u32, bool)]) -> Value {
    let pod = |(pod, end): (usize, &u32)| json!({"series": format!("{END}{{namespace=\"{NAMESPACE}\",pod=\"{pod}\"}}"), "values": format!("{end}x200")});
    let expected = json!([{"exp_labels": alert["labels"], "exp_annotations": alert["annotations"]}]);
    let at = |(minute, is_there): &(u32, bool)| {
        let alerts = if *is_there { expected.clone() } else { json!([]) };
        json!({"eval_time": format!("{minute}m"), "alertname": alert["alert"], "exp_alerts": alerts})
    };
    let series: Vec<Value> = ends.iter().enumerate().map(pod).collect();
    let told: Vec<Value> = told.iter().map(at).collect();
    json!({"interval": "1m", "input_series": series, "alert_rule_test": told})
}

#[test]
#[ignore = "needs Helm and promtool: e2e/tools install helm promtool"]
fn the_end_of_a_certificate_is_an_alert_a_week_before_it_and_after_it() -> Result<()> {
    let promtool = folder().join("../.tools/promtool");
    ensure!(promtool.exists(), "no {}; run: e2e/tools install promtool", promtool.display());
    let rules = rules()?;
    let alert = rule(&rules, "GatewrightCertificateEnds")?;
    let tests = [
        // It comes into the week after 30 minutes, and the alert an hour later.
        case(alert, &[7 * DAY + 30 * 60], &[(60, false), (100, true)]),
        case(alert, &[2 * DAY], &[(30, false), (61, true)]),
        // It ended at the start.
        case(alert, &[0], &[(30, false), (61, true)]),
        case(alert, &[60 * DAY, 2 * DAY], &[(61, true)]),
        case(alert, &[60 * DAY], &[(30, false), (180, false)]),
        case(alert, &[], &[(180, false)]),
    ];
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("rules.yaml"), rules.to_string())?;
    let file = dir.path().join("tests.yaml");
    fs::write(&file, json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}).to_string())?;
    let output = Command::new(promtool).args(["test", "rules"]).arg(&file).output().context("running promtool")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{text}");
    Ok(())
}
