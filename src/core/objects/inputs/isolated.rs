//! `spec.isolated` of GatewayParameters: the Envoys of a Gateway of fleet Isolated.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The default number of Envoys of a Gateway.
pub const ISOLATED_REPLICAS: u16 = 2;
/// The most Envoys that a Gateway may have.
const MOST_REPLICAS: u16 = 100;
/// The default target of CPU utilization for autoscaling, in percent of the requested CPU.
const TARGET_CPU: u8 = 80;

/// Settings for the pods with the Envoys of one Gateway, where they differ from those of the
/// installation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct IsolatedParameters {
    /// The number of Envoys; excludes `autoscaling`.
    pub replicas: Option<u16>,
    /// The bounds of horizontal autoscaling; excludes `replicas`.
    pub autoscaling: Option<Autoscaling>,
    /// In a class's parameters: the most Envoys that a Gateway may request in its own; see
    /// [`IsolatedParameters::most`].
    pub max_replicas: Option<u16>,
    /// Resource requests and limits of the Envoy container.
    pub resources: Option<Arc<Resources>>,
    /// The labels of the nodes that they may run on.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The taints of nodes that they tolerate.
    pub tolerations: Option<Arc<[Toleration]>>,
    /// Additional labels of the pods.
    pub labels: BTreeMap<String, String>,
}

impl IsolatedParameters {
    /// The name of a field that is set and that only a class's parameters may have, if there is
    /// one.
    pub fn of_classes(&self) -> Option<&'static str> {
        let Self {
            replicas: _,
            autoscaling: _,
            max_replicas,
            resources,
            node_selector,
            tolerations,
            labels,
        } = self;
        let said = [
            ("maxReplicas", max_replicas.is_some()),
            ("resources", resources.is_some()),
            ("nodeSelector", node_selector.is_some()),
            ("tolerations", tolerations.is_some()),
            ("labels", !labels.is_empty()),
        ];
        said.into_iter()
            .find_map(|(field, said)| said.then_some(field))
    }

    /// The number of Envoys of a Gateway; with `autoscaling`, the initial one.
    pub fn count(&self) -> u16 {
        match &self.autoscaling {
            Some(autoscaling) => autoscaling.least(),
            None => self.replicas.unwrap_or(ISOLATED_REPLICAS),
        }
    }

    /// The most Envoys that a Gateway may request, by these parameters of its class.
    pub fn most(&self) -> u16 {
        let own = self
            .autoscaling
            .as_ref()
            .map_or_else(|| self.count(), |autoscaling| autoscaling.max_replicas);
        self.max_replicas.unwrap_or(own)
    }
}

/// `autoscaling` of the Envoys: settings of their HorizontalPodAutoscaler (`autoscaling/v2`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Autoscaling {
    /// The least number of Envoys.
    pub min_replicas: Option<u16>,
    /// The largest number of Envoys.
    pub max_replicas: u16,
    /// The mean CPU utilization, in percent of the requested CPU, above which Envoys are added.
    #[serde(rename = "targetCPUUtilizationPercentage")]
    pub target_cpu: Option<u8>,
}

impl Autoscaling {
    /// The least number of Envoys of a Gateway.
    pub fn least(&self) -> u16 {
        self.min_replicas
            .unwrap_or(ISOLATED_REPLICAS.min(self.max_replicas))
    }

    /// The target of CPU utilization, in percent.
    pub fn target(&self) -> u8 {
        self.target_cpu.unwrap_or(TARGET_CPU)
    }

    fn check(&self) -> Result<(), String> {
        for (field, count) in [
            ("minReplicas", self.min_replicas),
            ("maxReplicas", Some(self.max_replicas)),
        ] {
            bounded(&format!("autoscaling.{field}"), count)?;
        }
        if self.least() > self.max_replicas {
            return Err(format!(
                "isolated.autoscaling: minReplicas {} is more than maxReplicas {}",
                self.least(),
                self.max_replicas
            ));
        }
        match self.target() {
            1..=100 => Ok(()),
            wrong => Err(format!(
                "isolated.autoscaling.targetCPUUtilizationPercentage: expected 1 to 100, found {wrong}"
            )),
        }
    }
}

/// Checks that a number of Envoys is within 1 to [`MOST_REPLICAS`].
fn bounded(field: &str, count: Option<u16>) -> Result<(), String> {
    match count.filter(|count| !(1..=MOST_REPLICAS).contains(count)) {
        Some(count) => Err(format!(
            "isolated.{field}: expected 1 to {MOST_REPLICAS}, found {count}"
        )),
        None => Ok(()),
    }
}

/// `resources` of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Amounts that the scheduler reserves for the container.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub requests: Amounts,
    /// Amounts that the container may not exceed.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub limits: Amounts,
}

/// CPU and memory, each as a quantity of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amounts {
    /// Cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}

impl Amounts {
    fn is_empty(&self) -> bool {
        self.cpu.is_none() && self.memory.is_none()
    }
}

/// A taint that is tolerated (`Toleration` of Kubernetes).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are those of the API")]
pub struct Toleration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// The operator by which a toleration's value is compared with the taint's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the API")]
pub enum TolerationOperator {
    Exists,
    Equal,
}

/// The effect of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the API")]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// [`IsolatedParameters`] as written, before validation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    replicas: Option<u16>,
    autoscaling: Option<Autoscaling>,
    max_replicas: Option<u16>,
    resources: Option<Arc<Resources>>,
    node_selector: Option<BTreeMap<String, String>>,
    tolerations: Option<Arc<[Toleration]>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl TryFrom<Written> for IsolatedParameters {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written {
            replicas,
            autoscaling,
            max_replicas,
            resources,
            node_selector,
            tolerations,
            labels,
        } = written;
        bounded("replicas", replicas)?;
        bounded("maxReplicas", max_replicas)?;
        if let Some(autoscaling) = &autoscaling {
            autoscaling.check()?;
            if replicas.is_some() {
                return Err(
                    "isolated: replicas and autoscaling exclude each other, leave one out"
                        .to_owned(),
                );
            }
        }
        let amounts = resources
            .iter()
            .flat_map(|resources| [&resources.requests, &resources.limits]);
        for text in amounts
            .flat_map(|amounts| [&amounts.cpu, &amounts.memory])
            .flatten()
        {
            if !is_quantity(text) {
                return Err(format!(
                    "isolated.resources: {text:?} is no quantity: expected one as 500m or 512Mi"
                ));
            }
        }
        if let Some(key) = labels.keys().find(|key| is_ours(key)) {
            return Err(format!(
                "isolated.labels: {key} is reserved: the controller selects pods by labels of that prefix"
            ));
        }
        Ok(Self {
            replicas,
            autoscaling,
            max_replicas,
            resources,
            node_selector,
            tolerations,
            labels,
        })
    }
}

/// True if a label key is reserved: Services, policies and Deployments select our pods by it.
fn is_ours(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    key == "pod-template-hash"
        || ["gatewright.io", "kubernetes.io", "k8s.io"]
            .iter()
            .any(|domain| {
                prefix == *domain
                    || prefix
                        .strip_suffix(domain)
                        .is_some_and(|rest| rest.ends_with('.'))
            })
}

/// True if a text is digits, optionally with a fraction, and a suffix (Kubernetes,
/// `resource.Quantity`); without sign or exponent.
fn is_quantity(text: &str) -> bool {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let parts: Vec<&str> = number.split('.').collect();
    let plain = parts.len() <= 2 && parts.iter().all(|part| !part.is_empty()) && number.len() <= 18;
    plain
        && matches!(
            suffix,
            "" | "m" | "k" | "M" | "G" | "T" | "Ki" | "Mi" | "Gi" | "Ti"
        )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> Result<IsolatedParameters, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn labels_that_distinguish_pods_cannot_be_requested() {
        for key in [
            "app.kubernetes.io/component",
            "gatewright.io/gateway",
            "kubernetes.io/x",
            "a.k8s.io/b",
            "pod-template-hash",
        ] {
            let told = read(json!({"labels": {key: "a"}})).expect_err(key);
            assert!(told.contains(key), "{told}");
        }
        let good = read(json!({"labels": {"team": "a", "notkubernetes.io/x": "b"}}))
            .expect("labels of others");
        assert_eq!(good.labels.len(), 2);
    }

    #[test]
    fn numbers_and_quantities_have_bounds() {
        for wrong in [
            json!({"replicas": 0}),
            json!({"replicas": 101}),
            json!({"maxReplicas": 0}),
            json!({"resources": {"limits": {"memory": "lots"}}}),
            json!({"resources": {"limits": {"memory": "-1"}}}),
            json!({"resources": {"limits": {"nvidia.com/gpu": "1"}}}),
            json!({"tolerations": [{"operator": "In"}]}),
            json!({"image": "mine"}),
            json!({"autoscaling": {}}),
            json!({"autoscaling": {"maxReplicas": 101}}),
            json!({"autoscaling": {"minReplicas": 3, "maxReplicas": 2}}),
            json!({"autoscaling": {"maxReplicas": 2, "targetCPUUtilizationPercentage": 0}}),
            json!({"autoscaling": {"maxReplicas": 2}, "replicas": 2}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
        let good = read(json!({"replicas": 3, "maxReplicas": 5, "resources": {
            "requests": {"cpu": "250m", "memory": "128Mi"}, "limits": {"memory": "1.5Gi"}},
            "nodeSelector": {"pool": "edge"}, "tolerations": [{"key": "edge", "operator": "Exists", "effect": "NoSchedule"}]}));
        let good = good.expect("it is right");
        assert_eq!(good.count(), 3, "the number is read");
        assert_eq!(good.most(), 5, "the greatest number is read");
        assert_eq!(good.of_classes(), Some("maxReplicas"));
        assert_eq!(
            read(json!({})).map(|none| (none.count(), none.most(), none.of_classes())),
            Ok((2, 2, None))
        );
        fn scaled(autoscaling: Value) -> Result<(u16, u16), String> {
            read(json!({"autoscaling": autoscaling})).map(|all| (all.count(), all.most()))
        }
        assert_eq!(scaled(json!({"maxReplicas": 1})), Ok((1, 1)));
        assert_eq!(
            scaled(json!({"minReplicas": 3, "maxReplicas": 6})),
            Ok((3, 6))
        );
    }
}
