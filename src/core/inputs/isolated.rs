//! `spec.isolated` of GatewayParameters: the Envoys of a Gateway of fleet Isolated.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// So many Envoys a Gateway has where nothing says how many.
pub const ISOLATED_REPLICAS: u16 = 2;
/// So many Envoys a Gateway has at most.
const MOST_REPLICAS: u16 = 100;
/// What Envoys may use of the processor that they request, in percent, before there are more of them.
const TARGET_CPU: u8 = 80;

/// The pods with the Envoys of one Gateway: what of them is not as the installation has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct IsolatedParameters {
    /// How many; not beside `autoscaling`.
    pub replicas: Option<u16>,
    /// Between which bounds their number follows what they use; not beside `replicas`.
    pub autoscaling: Option<Autoscaling>,
    /// How many Gateways may ask for by parameters of their own, of a class's parameters; [`IsolatedParameters::replicas`] without.
    pub max_replicas: Option<u16>,
    /// What they may use.
    pub resources: Option<Arc<Resources>>,
    /// The labels of the nodes that they run on.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The taints of nodes that they tolerate.
    pub tolerations: Option<Arc<[Toleration]>>,
    /// Labels beside ours.
    pub labels: BTreeMap<String, String>,
}

impl IsolatedParameters {
    /// The fields that only those of a class have, where one is said.
    pub fn of_classes(&self) -> Option<&'static str> {
        let Self { replicas: _, autoscaling: _, max_replicas, resources, node_selector, tolerations, labels } = self;
        let said = [
            ("maxReplicas", max_replicas.is_some()),
            ("resources", resources.is_some()),
            ("nodeSelector", node_selector.is_some()),
            ("tolerations", tolerations.is_some()),
            ("labels", !labels.is_empty()),
        ];
        said.into_iter().find_map(|(field, said)| said.then_some(field))
    }

    /// How many Envoys a Gateway has; with `autoscaling`, at first.
    pub fn count(&self) -> u16 {
        match &self.autoscaling {
            Some(autoscaling) => autoscaling.least(),
            None => self.replicas.unwrap_or(ISOLATED_REPLICAS),
        }
    }

    /// How many Envoys a Gateway may ask for, by these parameters of its class.
    pub fn most(&self) -> u16 {
        let own = self.autoscaling.as_ref().map_or_else(|| self.count(), |autoscaling| autoscaling.max_replicas);
        self.max_replicas.unwrap_or(own)
    }
}

/// `autoscaling` of the Envoys: what their HorizontalPodAutoscaler says (`autoscaling/v2`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Autoscaling {
    /// At least so many.
    pub min_replicas: Option<u16>,
    /// At most so many.
    pub max_replicas: u16,
    /// The mean of what they use, in percent of what they request of the processor, beyond which there are more of them.
    #[serde(rename = "targetCPUUtilizationPercentage")]
    pub target_cpu: Option<u8>,
}

impl Autoscaling {
    /// At least so many Envoys a Gateway has.
    pub fn least(&self) -> u16 {
        self.min_replicas.unwrap_or(ISOLATED_REPLICAS.min(self.max_replicas))
    }

    /// The target of the processor, in percent.
    pub fn target(&self) -> u8 {
        self.target_cpu.unwrap_or(TARGET_CPU)
    }

    fn check(&self) -> Result<(), String> {
        for (field, count) in [("minReplicas", self.min_replicas), ("maxReplicas", Some(self.max_replicas))] {
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
            wrong => {
                Err(format!("isolated.autoscaling.targetCPUUtilizationPercentage: expected 1 to 100, found {wrong}"))
            }
        }
    }
}

/// Whether a number of Envoys is one that a Gateway may have.
fn bounded(field: &str, count: Option<u16>) -> Result<(), String> {
    match count.filter(|count| !(1..=MOST_REPLICAS).contains(count)) {
        Some(count) => Err(format!("isolated.{field}: expected 1 to {MOST_REPLICAS}, found {count}")),
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

/// Processor time and memory, each as a quantity of Kubernetes.
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

/// How a taint is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the API")]
pub enum TolerationOperator {
    Exists,
    Equal,
}

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the API")]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// The same as it is written.
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
        let Written { replicas, autoscaling, max_replicas, resources, node_selector, tolerations, labels } = written;
        bounded("replicas", replicas)?;
        bounded("maxReplicas", max_replicas)?;
        if let Some(autoscaling) = &autoscaling {
            autoscaling.check()?;
            if replicas.is_some() {
                return Err("isolated: replicas and autoscaling exclude each other, leave one out".to_owned());
            }
        }
        let amounts = resources.iter().flat_map(|resources| [&resources.requests, &resources.limits]);
        for text in amounts.flat_map(|amounts| [&amounts.cpu, &amounts.memory]).flatten() {
            if !is_quantity(text) {
                return Err(format!("isolated.resources: {text:?} is no quantity: expected one as 500m or 512Mi"));
            }
        }
        if let Some(key) = labels.keys().find(|key| is_ours(key)) {
            return Err(format!(
                "isolated.labels: {key} is not to be had: the controller tells pods by labels of that prefix"
            ));
        }
        Ok(Self { replicas, autoscaling, max_replicas, resources, node_selector, tolerations, labels })
    }
}

/// Whether Services, policies and Deployments tell pods of ours from each other by a label.
fn is_ours(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    key == "pod-template-hash"
        || ["gatewright.io", "kubernetes.io", "k8s.io"]
            .iter()
            .any(|domain| prefix == *domain || prefix.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
}

/// Whether a text is digits, perhaps with a fraction, and a suffix (Kubernetes, `resource.Quantity`); no sign, no exponent.
fn is_quantity(text: &str) -> bool {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let parts: Vec<&str> = number.split('.').collect();
    let plain = parts.len() <= 2 && parts.iter().all(|part| !part.is_empty()) && number.len() <= 18;
    plain && matches!(suffix, "" | "m" | "k" | "M" | "G" | "T" | "Ki" | "Mi" | "Gi" | "Ti")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> Result<IsolatedParameters, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn what_pods_are_told_from_each_other_by_cannot_be_asked_for() {
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
        let good = read(json!({"labels": {"team": "a", "notkubernetes.io/x": "b"}})).expect("labels of others");
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
        assert_eq!((good.count(), good.most()), (3, 5));
        assert_eq!(good.of_classes(), Some("maxReplicas"));
        assert_eq!(read(json!({})).map(|none| (none.count(), none.most(), none.of_classes())), Ok((2, 2, None)));
        let scaled =
            |autoscaling: Value| read(json!({"autoscaling": autoscaling})).map(|all| (all.count(), all.most()));
        assert_eq!(scaled(json!({"maxReplicas": 1})), Ok((1, 1)));
        assert_eq!(scaled(json!({"minReplicas": 3, "maxReplicas": 6})), Ok((3, 6)));
    }
}
