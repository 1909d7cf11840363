//! Objects as nobody means to write them, through the whole pure pipeline.
//!
//! An input has a step in each line: an object that is put, or deleted (`"delete": true` beside its
//! `kind`); the first line may be settings instead. Whatever comes of it, nothing panics, each
//! message for Envoy keeps Envoy's constraints, no private key is in what is printed, and the end
//! is that of one translation of the last objects from nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use gatewright::offline;
use gatewright_control::publish;
use gatewright_core::channel::Channel;
use gatewright_core::inputs::{Kind, Located, Node, Object, ObjectChange, ObjectKey, Pod};
use gatewright_core::model::ObjectName;
use gatewright_core::ownership::{Ownable, OwnerRecord};
use gatewright_core::pipeline::{Outcome, Pipeline, Written};
use gatewright_core::tenancy::{self, DerivedKind};
use gatewright_core::translate::{Change, DedicatedEnvoys, Delta, Fact, Fleet, Settings};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Choice, checkout};

/// Values for fields of type string.
const TEXTS: [&str; 36] = [
    "",
    " ",
    "a\0b",
    "a\nb: c",
    "%00%2F..%2f",
    "/../..//a",
    "*",
    "*.*",
    "*.x.org",
    "x.org.",
    ".x.org",
    "X.Org",
    "xn--nxasmq6b",
    "\u{202e}moc.elgoog",
    "a..b",
    "com",
    "-1",
    "65536",
    "0.0.0.0",
    "::ffff:127.0.0.1",
    "169.254.169.254",
    "127.0.0.1:80",
    "kube-system",
    "(a*)*b",
    "(?P<n>[[:alpha:]]{1,1000})",
    "{{ .Values }}",
    "HTTP",
    "TLS",
    "Terminate",
    "Same",
    "5m",
    "99999999999999999999h",
    "x-gw-sni",
    "transfer-encoding",
    "Isolated",
    "2026-01-01T00:00:00Z",
];

const NUMBERS: [i64; 11] = [
    0,
    1,
    -1,
    80,
    443,
    65_535,
    65_536,
    i32::MAX as i64,
    u32::MAX as i64 + 1,
    i64::MAX,
    i64::MIN,
];

/// The settings that a first line may have; what is not said is as it is without.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    standard: bool,
    apart: bool,
    shared: bool,
    acme: bool,
    internal_ca: bool,
    in_cluster: bool,
}

impl Said {
    fn pipeline(self) -> (Settings, tenancy::Settings) {
        let service = ObjectName::new("gatewright-system", "gatewright-dedicated");
        let settings = Settings {
            envoys: Some(ObjectName::new("gatewright-system", "gatewright-envoy")),
            channel: if self.standard {
                Channel::Standard
            } else {
                Channel::Experimental
            },
            dedicated: if self.apart {
                DedicatedEnvoys::Apart(service)
            } else {
                DedicatedEnvoys::default()
            },
            fleet: if self.shared {
                Fleet::Shared
            } else {
                Fleet::Own
            },
            isolated: Some("gatewright-system".into()),
            believes_creation_times: self.in_cluster,
            ..Settings::new(
                "gatewright.io/gateway-controller",
                vec!["127.0.0.1".parse().expect("an address")],
            )
        };
        let certificates = match self {
            Said { acme: true, .. } => tenancy::Source::Acme,
            Said {
                internal_ca: true, ..
            } => tenancy::Source::InternalCa,
            _ => tenancy::Source::CertManager,
        };
        (
            settings,
            tenancy::Settings {
                certificates,
                ..tenancy::Settings::default()
            },
        )
    }
}

fn lines(data: &[u8]) -> Vec<Value> {
    data.split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

fn written(steps: &[Value]) -> Vec<u8> {
    let mut text = Vec::new();
    for step in steps {
        text.extend_from_slice(step.to_string().as_bytes());
        text.push(b'\n');
    }
    text
}

/// The objects of the golden cases, case by case, and pods and nodes, which files have none of.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let folders = ["src/core/translate/testdata", "src/core/tenancy/testdata"];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(checkout(folder)).expect("golden cases"));
    let mut paths: Vec<PathBuf> = files
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".in.yaml"));
    paths.sort();
    let cases = paths.iter().map(|path| {
        let text = fs::read_to_string(path).expect("a readable case");
        let documents = serde_yaml_ng::Deserializer::from_str(&text);
        let objects = documents.map(|document| Value::deserialize(document).expect("YAML"));
        let first = text.lines().next().unwrap_or_default();
        let said = json!({"settings": {
            "standard": !first.contains("channel: experimental"), "acme": first.contains("certificates: own"),
            "internal_ca": first.contains("certificates: internal-ca"),
        }});
        let all: Vec<Value> = std::iter::once(said).chain(objects.filter(|value| !value.is_null())).collect();
        written(&all)
    });
    let pod = json!({"kind": "Pod", "metadata": {"namespace": "default", "name": "web-1"}, "addresses": ["10.0.0.1"]});
    let node =
        json!({"kind": "Node", "metadata": {"name": "one"}, "addresses": ["192.0.2.1", "fd00::1"]});
    let cases: Vec<Vec<u8>> = cases.chain([written(&[pod, node])]).collect();
    assert!(cases.len() > 100, "the golden cases are there");
    cases
}

/// The kinds of objects that an input has.
pub fn kinds(data: &[u8]) -> BTreeSet<String> {
    lines(data)
        .iter()
        .filter_map(|step| step["kind"].as_str().map(str::to_owned))
        .collect()
}

/// Changes objects, puts and deletes some of them again, and has some of the other input's.
pub(super) fn mutate(data: &[u8], other: &[u8], choice: &mut Choice) -> Vec<u8> {
    let mut steps = lines(data);
    let others = lines(other);
    if steps.is_empty() {
        return other.to_vec();
    }
    if choice.below(4) == 0 {
        steps.extend(
            others
                .iter()
                .filter(|step| step.get("kind").is_some())
                .cloned(),
        );
    }
    if choice.below(16) == 0 {
        let fields = [
            "standard",
            "apart",
            "shared",
            "acme",
            "internal_ca",
            "in_cluster",
        ];
        let said: BTreeMap<&str, bool> = fields
            .into_iter()
            .map(|field| (field, choice.below(2) == 0))
            .collect();
        steps.retain(|step| step.get("settings").is_none());
        steps.insert(0, json!({"settings": said}));
    }
    for _ in 0..1 + choice.below(4) {
        let mut object = choice.of(&steps).clone();
        if object.get("kind").is_none() {
            continue;
        }
        if choice.below(5) == 0 {
            object["delete"] = json!(true);
        } else {
            for _ in 0..1 + choice.below(3) {
                let donor = if others.is_empty() {
                    Value::Null
                } else {
                    choice.of(&others).clone()
                };
                change_one(&mut object, &donor, choice);
            }
        }
        // A change may come before what it is about.
        let at = choice.below(steps.len() + 1);
        steps.insert(at, object);
    }
    if steps.len() > 60 {
        steps.drain(1..steps.len() - 59);
    }
    written(&steps)
}

/// It with fewer steps.
pub(super) fn smaller(data: &[u8]) -> Vec<Vec<u8>> {
    let steps = lines(data);
    (0..steps.len())
        .map(|at| {
            let mut fewer = steps.clone();
            fewer.remove(at);
            written(&fewer)
        })
        .collect()
}

/// Changes one place below `value`.
pub(super) fn change_one(value: &mut Value, donor: &Value, choice: &mut Choice) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = choice.of(&names).clone();
            match choice.below(12) {
                0 => {
                    fields.remove(&name);
                }
                1 => {
                    if let Some(given) = donor.get(&name).or_else(|| donor.get("spec")?.get(&name))
                    {
                        fields.insert(name, given.clone());
                    }
                }
                _ => change_one(fields.get_mut(&name).expect("it was named"), donor, choice),
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = choice.below(items.len());
            match choice.below(8) {
                0 => {
                    items.remove(at);
                }
                1 => items.push(items[at].clone()),
                2 if items.len() < 200 => items.extend(vec![items[at].clone(); 20]),
                _ => change_one(&mut items[at], donor, choice),
            }
        }
        // Certificates and keys, above all.
        Value::String(text) if text.len() > 60 && text.is_ascii() && choice.below(3) > 0 => {
            let at = choice.below(text.len());
            let letter = *choice.of(b"Aa0+/=\n-");
            text.replace_range(at..=at, &char::from(letter).to_string());
        }
        Value::String(text) => match choice.below(4) {
            0 if text.len() < 4096 => *text = text.repeat(40),
            1 => text.push_str(choice.of::<&str>(&TEXTS)),
            _ => *text = (*choice.of(&TEXTS)).to_owned(),
        },
        Value::Number(_) => *value = json!(choice.of(&NUMBERS)),
        Value::Bool(is) => *is = !*is,
        _ => *value = json!(choice.of(&TEXTS)),
    }
}

/// As golden cases have it.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_785_000_000)
}

/// The change that a step is, if it can be read; each second one as an API server would have
/// admitted it.
fn change(at: usize, step: &Value) -> Option<ObjectChange> {
    let mut step = step.clone();
    let deleted = step.as_object_mut()?.remove("delete").is_some();
    let object = match step["kind"].as_str() {
        Some(kind @ ("Pod" | "Node")) => located(kind, &step)?,
        _ if at.is_multiple_of(2) => Object::parse(step).ok()?,
        _ => Object::parse_admitted(step).ok()?,
    };
    Some(if deleted {
        ObjectChange::Delete(object.key())
    } else {
        ObjectChange::Put(object)
    })
}

/// A pod or a node, as a watch of them gives it.
fn located(kind: &str, step: &Value) -> Option<Object> {
    let text = |field: &str| step["metadata"][field].as_str().unwrap_or_default();
    let addresses = step["addresses"]
        .as_array()?
        .iter()
        .filter_map(|address| address.as_str()?.parse().ok());
    let located = Located {
        name: ObjectName::new(text("namespace"), text("name")),
        addresses: addresses.collect(),
    };
    Some(if kind == "Pod" {
        Object::Pod(Pod(located))
    } else {
        Object::Node(Node(located))
    })
}

/// What a start from nothing is told: the last objects, and what the program remembers of earlier
/// ones.
#[derive(Default)]
struct Last {
    objects: BTreeMap<ObjectKey, Object>,
    /// Secrets as they were when they last had a certificate that can be served.
    good: BTreeMap<ObjectKey, Object>,
    owners: BTreeMap<Ownable, OwnerRecord>,
    /// Whether hostnames have places in ListenerSets, which no input says.
    places: bool,
}

impl Last {
    fn take(&mut self, change: &ObjectChange) {
        match change {
            ObjectChange::Put(object) => {
                self.objects.insert(object.key(), object.clone());
                if matches!(object, Object::Secret(secret) if secret.usable(now()).is_some()) {
                    self.good.insert(object.key(), object.clone());
                }
            }
            ObjectChange::Delete(key) => {
                self.objects.remove(key);
                self.good.remove(key);
            }
        }
    }

    fn decided(&mut self, outcome: Outcome) {
        put(&mut self.owners, outcome.records());
        self.places |= outcome
            .tenancy
            .objects
            .keys()
            .any(|derived| derived.kind == DerivedKind::ListenerSet);
    }
}

fn put<K: Ord, V>(all: &mut BTreeMap<K, V>, changes: BTreeMap<K, Option<V>>) {
    for (key, value) in changes {
        match value {
            Some(value) => {
                all.insert(key, value);
            }
            None => {
                all.remove(&key);
            }
        }
    }
}

/// Has the pipeline tell its stages what they decided about each other, which the next call does.
fn settle(pipeline: &mut Pipeline, last: &mut Last) {
    for _ in 0..3 {
        last.decided(pipeline.apply(Vec::new(), now()));
    }
}

/// Runs the steps.
pub(super) fn run(data: &[u8]) {
    let mut steps = lines(data);
    let said = steps
        .first_mut()
        .and_then(|step| Said::deserialize(step.get_mut("settings")?.take()).ok());
    let (settings, tenancy) = said.unwrap_or_default().pipeline();
    let mut pipeline = Pipeline::new(settings.clone(), tenancy.clone(), Written::Here);
    let mut last = Last::default();
    for (at, step) in steps.iter().enumerate() {
        let Some(change) = change(at, step) else {
            continue;
        };
        last.take(&change);
        let outcome = pipeline.apply(vec![Change::Object(change)], now());
        constraints(&outcome.delta);
        last.decided(outcome);
    }
    settle(&mut pipeline, &mut last);
    shown(
        last.objects.values().cloned().collect(),
        settings.clone(),
        tenancy.clone(),
    );
    // A TenantGateway that cannot be carried out keeps what was live before.
    let is_frozen = |tenant| {
        pipeline
            .tenancy()
            .readiness(tenant)
            .is_none_or(|readiness| readiness.frozen)
    };
    if last.places || pipeline.tenancy().tenants().any(is_frozen) {
        return;
    }
    let Last {
        objects,
        good,
        owners,
        ..
    } = last;
    let mut anew = Pipeline::new(settings, tenancy, Written::Here);
    anew.apply(good.into_values().map(Change::put).collect(), now());
    let owners = owners
        .into_iter()
        .map(|(what, owner)| Change::Fact(Fact::Recorded(what, Some(owner))));
    let objects = objects.into_values().map(Change::put);
    anew.apply(objects.chain(owners).collect(), now());
    settle(&mut anew, &mut Last::default());
    let (was, is): (BTreeMap<_, _>, BTreeMap<_, _>) = (
        pipeline.engine().statuses().collect(),
        anew.engine().statuses().collect(),
    );
    for (key, status) in &is {
        assert_eq!(
            was.get(key),
            Some(status),
            "{key}: the status, and that of a start from nothing"
        );
    }
    assert_eq!(
        was.len(),
        is.len(),
        "as many statuses as after a start from nothing"
    );
    assert_eq!(
        pipeline.engine().digest(),
        anew.engine().digest(),
        "what is served is what a start from nothing serves"
    );
}

/// Checks that published resources keep the constraints of Envoy's messages.
fn constraints(delta: &Delta) {
    for resource in delta.resources.values().flatten() {
        let encoded = publish::encode(resource);
        let url = encoded.kind().type_url();
        if let Err(text) =
            gatewright_envoy::check(url.rsplit('/').next().unwrap_or(url), &encoded.body())
        {
            panic!("{}: {text}", encoded.name());
        }
    }
}

/// Checks that the result can be printed, and that the output has no private key.
fn shown(objects: Vec<Object>, settings: Settings, tenancy: tenancy::Settings) {
    let shown =
        offline::translate(objects, settings, tenancy, now()).expect("every resource can be shown");
    for document in shown
        .resources
        .iter()
        .chain(&shown.statuses)
        .chain(&shown.desired)
        .chain(&shown.services)
    {
        assert!(
            !document.to_string().contains("PRIVATE KEY-----"),
            "a private key in {document}"
        );
    }
}

/// Every kind that is read.
pub fn all_kinds() -> BTreeSet<String> {
    Kind::READ
        .iter()
        .chain(&[Kind::Pod, Kind::Node])
        .map(|kind| kind.as_str().to_owned())
        .collect()
}
