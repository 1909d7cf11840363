//! The settings of the chart: a value for each flag of the controller.

use clap::{Arg, ArgAction, CommandFactory};
use gatewright::cli::Cli;
use serde_json::{Value, json};

/// Flags that the chart sets itself, and those that make no sense in a pod.
pub(super) const OF_THE_CHART: [&str; 20] = [
    "admin",
    "challenges",
    "dedicated-envoys",
    "envoy-credentials",
    "envoy-identity",
    "envoys",
    "fleet-views",
    "help",
    "identity",
    "kubeconfig",
    "last-good",
    "last-good-key",
    "metrics-access",
    "namespace",
    "namespaces",
    "pod-uid",
    "probes",
    "probes-tls-dir",
    "xds",
    // HTTP-01 of other Envoys is answered by --challenges.
    "acme-responder",
];
/// Rejected in a cluster.
pub(super) const NOT_IN_A_CLUSTER: &str = "acme-tls-alpn";

pub(super) fn camel(flag: &str) -> String {
    let mut words = flag.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        name + &word[..1].to_uppercase() + &word[1..]
    })
}

/// Returns the flags of `gatewright controller` that are settings of the chart.
pub(super) fn flags() -> Vec<Arg> {
    let command = Cli::command();
    let controller = command.find_subcommand("controller").expect("there is one");
    let all = controller.get_arguments().filter(|arg| {
        let flag = arg.get_long().unwrap_or("help");
        !OF_THE_CHART.contains(&flag) && flag != NOT_IN_A_CLUSTER
    });
    all.cloned().collect()
}

pub(super) fn is_number(arg: &Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    let numbers = [
        "SECONDS",
        "PORT",
        "COUNT",
        "BYTES",
        "HOURS",
        "NUMBER",
        "KIB",
        "MIB",
        "INSTRUCTIONS",
    ];
    names.iter().any(|name| numbers.contains(&name.as_str()))
}

pub(super) fn defaults(arg: &Arg) -> Vec<String> {
    arg.get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect()
}

/// Returns the schema of a flag's setting.
pub(super) fn setting(arg: &Arg) -> Value {
    let help = arg
        .get_long_help()
        .or_else(|| arg.get_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let choices: Vec<String> = arg
        .get_possible_values()
        .iter()
        .map(|value| value.get_name().to_owned())
        .collect();
    let mut one = match arg.get_action() {
        ArgAction::SetTrue => json!({"type": "boolean"}),
        _ if is_number(arg) => json!({"type": "integer", "minimum": 0}),
        _ if !choices.is_empty() => json!({"enum": choices}),
        _ => json!({"type": "string", "minLength": 1}),
    };
    if matches!(arg.get_action(), ArgAction::Append) {
        one = json!({"type": "array", "items": one});
    }
    let default = defaults(arg);
    one["description"] = json!(help.split_whitespace().collect::<Vec<_>>().join(" "));
    if !matches!(arg.get_action(), ArgAction::SetTrue) && !default.is_empty() {
        one["description"] = json!(format!(
            "{} [default: {}]",
            one["description"].as_str().unwrap_or_default(),
            default.join(", ")
        ));
    }
    one
}
