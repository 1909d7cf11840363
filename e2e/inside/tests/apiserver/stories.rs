//! Every story of `src/core/tenancy/testdata` on a real API server. The controller's objects and
//! statuses are those that the engine computes offline, which the golden cases show; refusals of
//! the API server are listed.
//!
//! All stories run in one cluster at the same time, each in namespaces and below domains of its
//! own. All objects exist before the controller starts, as offline.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use e2e::apiserver::ApiServer;
use e2e::apiserver::manifests::documents;
use e2e::cluster::NAMESPACE;
use e2e_inside::world::free_port;
use futures::stream::{StreamExt, TryStreamExt};
use gatewright::offline::{self, Offline};
use gatewright_core::inputs::Object;
use gatewright_core::model::ObjectName;
use gatewright_core::tenancy::{self, Source};
use gatewright_core::translate::{Fleet, Settings};
use kube::api::ListParams;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use e2e::tenants::{ATTACHED, CERT_MANAGER, CLAIMS, GATEWAY, OWNER, TENANT, cluster};

const LIMIT: Duration = Duration::from_secs(240);
const CONTROLLER: &str = "gatewright.io/gateway-controller";
/// The kinds of the stories.
const KINDS: [(&str, &str); 12] = [
    ("v1", "Namespace"),
    (TENANT, "TenantGateway"),
    (GATEWAY, "GatewayClass"),
    (GATEWAY, "Gateway"),
    (GATEWAY, "ListenerSet"),
    (GATEWAY, "HTTPRoute"),
    (GATEWAY, "GRPCRoute"),
    (GATEWAY, "TLSRoute"),
    (GATEWAY, "TCPRoute"),
    (GATEWAY, "UDPRoute"),
    (CERT_MANAGER, "Issuer"),
    (CERT_MANAGER, "Certificate"),
];
/// The annotation of an ACME directory, replaced by one that does not exist: a test must not send
/// requests to a real CA.
const DIRECTORY: &str = "gatewright.io/acme-directory";
const ISSUER: &str = "gatewright.io/issuer";
const NO_CA: &str = "https://127.0.0.1:1/directory";
/// Objects that the API server rejects: the story, and a word of the reason.
const REFUSED: [(&str, &str); 11] = [
    ("invalid-apex-empty", "at least 1 chars long"),
    ("invalid-apex-missing", "spec.apex: Required value"),
    ("invalid-apex-upper-case", "spec.apex in body should match"),
    ("invalid-apex-wildcard", "spec.apex in body should match"),
    (
        "invalid-dns01-missing",
        "spec.dns01 is needed by certMode dns01",
    ),
    (
        "invalid-dns01-provider-unknown",
        "spec.dns01.provider: Unsupported value",
    ),
    (
        "invalid-issuer-unknown",
        "spec.issuerName: Unsupported value",
    ),
    ("invalid-mode-unknown", "spec.certMode: Unsupported value"),
    ("invalid-namespace-not-there", "not found"),
    (
        "invalid-wildcard-secret-missing",
        "spec.wildcardSecretRef.name is needed",
    ),
    ("refused-spelling", "spec.hostnames[0] in body should match"),
];

/// One story.
struct Story {
    name: String,
    objects: Vec<Value>,
    /// Its namespaces, and others that it mentions.
    namespaces: BTreeSet<String>,
    /// The reasons of its rejected objects.
    refused: Vec<String>,
}

impl Story {
    /// Reads a story and renames its objects. A number at the end keeps the order of names.
    fn read(path: &Path, number: usize, own: bool) -> Result<Self> {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .context("a name")?;
        let name = name.trim_end_matches(".in.yaml").to_owned();
        let mut objects = documents(&std::fs::read_to_string(path)?)?;
        let mut spaces = BTreeSet::new();
        let classes: BTreeSet<String> = objects
            .iter()
            .filter(|o| o["kind"] == "GatewayClass")
            .filter_map(name_of)
            .collect();
        for object in &mut objects {
            let asks = own || object["metadata"]["annotations"][ISSUER] == "acme";
            if object["kind"] == "TenantGateway"
                && asks
                && object["metadata"]["annotations"][DIRECTORY].is_null()
            {
                object["metadata"]["annotations"][DIRECTORY] = json!(NO_CA);
            }
            // The default class is replaced by the story's own.
            if object["kind"] == "TenantGateway"
                && classes.contains("cilium")
                && object["spec"]["gatewayClassName"].is_null()
            {
                object["spec"]["gatewayClassName"] = json!("cilium");
            }
            let field = if object["kind"] == "Namespace" {
                "name"
            } else {
                "namespace"
            };
            spaces.extend(object["metadata"][field].as_str().map(str::to_owned));
        }
        // Hashes of these hostnames collide, which renamed ones would not.
        let domains: &[&str] = if name.contains("collision") {
            &[]
        } else {
            &["example.org", "example.net", "other.org"]
        };
        let rename = |text: &str| {
            if spaces.contains(text) || classes.contains(text) {
                return format!("{text}-{number:03}");
            }
            domains.iter().fold(text.to_owned(), |text, domain| {
                text.replace(domain, &format!("s{number:03}.{domain}"))
            })
        };
        objects
            .iter_mut()
            .for_each(|object| rewrite(object, &rename));
        let namespaces = spaces.iter().map(|space| rename(space)).collect();
        Ok(Self {
            name,
            objects,
            namespaces,
            refused: Vec::new(),
        })
    }

    /// Applies all objects, and records the server's defaults. Rejected objects are removed from
    /// the story.
    async fn apply(mut self, server: &ApiServer) -> Result<Self> {
        let mut taken = Vec::new();
        for mut object in std::mem::take(&mut self.objects) {
            for ours in ["uid", "generation", "creationTimestamp"] {
                object["metadata"]
                    .as_object_mut()
                    .context("metadata")?
                    .remove(ours);
            }
            match server.put(object.clone()).await {
                Ok(there) => {
                    object["metadata"]["uid"] = json!(there.metadata.uid);
                    object["metadata"]["generation"] = json!(there.metadata.generation);
                    taken.push(object);
                }
                Err(error) => self.refused.push(format!("{error:#}")),
            }
        }
        self.objects = taken;
        Ok(self)
    }

    /// Computes the result of its objects offline.
    fn on_paper(&self, settings: &tenancy::Settings) -> Result<Offline> {
        let objects = self
            .objects
            .iter()
            .cloned()
            .map(Object::parse)
            .collect::<Result<Vec<_>, _>>()?;
        let engine = Settings {
            fleet: Fleet::Shared,
            envoys: Some(ObjectName::new(NAMESPACE, "gatewright-envoy")),
            ..Settings::new(CONTROLLER, vec![address(settings.certificates)])
        };
        Ok(offline::translate(
            objects,
            engine,
            settings.clone(),
            SystemTime::now(),
        )?)
    }
}

/// Returns the Service of replicas that answer challenges, if they do.
fn solver(answers: bool) -> tenancy::SolverService {
    tenancy::SolverService {
        namespace: NAMESPACE.into(),
        name: "gatewright-challenges".to_owned(),
        port: 80,
        answers,
    }
}

/// Returns the address of the Gateways of our class: the ports are the well-known ones.
fn address(source: Source) -> IpAddr {
    let last = match source {
        Source::CertManager => 1,
        Source::Acme => 2,
        Source::InternalCa => 3,
    };
    IpAddr::from([
        127,
        47,
        u8::try_from(std::process::id() % 250).expect("below 250"),
        last,
    ])
}

fn name_of(object: &Value) -> Option<String> {
    object["metadata"]["name"].as_str().map(str::to_owned)
}

/// Renames in every text of a value.
fn rewrite(value: &mut Value, rename: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = rename(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite(item, rename)),
        Value::Object(fields) => fields.values_mut().for_each(|value| rewrite(value, rename)),
        _ => {}
    }
}

/// All objects of the stories' kinds, by kind, namespace and name.
type There = BTreeMap<(String, String, String), Value>;

async fn there(server: &ApiServer) -> Result<There> {
    let mut all = There::new();
    for (api_version, kind) in KINDS {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource = kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk(
            group, version, kind,
        ));
        let resource = if kind == "GatewayClass" {
            kube::api::ApiResource {
                plural: "gatewayclasses".to_owned(),
                ..resource
            }
        } else {
            resource
        };
        let api: kube::Api<kube::api::DynamicObject> =
            kube::Api::all_with(server.client(), &resource);
        for object in api.list(&ListParams::default()).await? {
            let mut value = serde_json::to_value(&object)?;
            value["kind"] = json!(kind);
            let generation = value["metadata"]["generation"].clone();
            count_once(&mut value["status"], &generation);
            all.insert(key(&value), value);
        }
    }
    Ok(all)
}

/// Counts the present generation as the first one: on paper an object is written once, here maybe
/// in steps.
fn count_once(status: &mut Value, generation: &Value) {
    match status {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "observedGeneration" && value == generation {
                    *value = json!(1);
                } else {
                    count_once(value, generation);
                }
            }
        }
        Value::Array(all) => all
            .iter_mut()
            .for_each(|value| count_once(value, generation)),
        _ => {}
    }
}

fn key(object: &Value) -> (String, String, String) {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    (
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    )
}

/// Returns true if a value includes everything of another; lists must have equal lengths.
fn says(wanted: &Value, there: &Value) -> bool {
    match (wanted, there) {
        (Value::Object(wanted), Value::Object(there)) => wanted
            .iter()
            .all(|(name, value)| there.get(name).is_some_and(|there| says(value, there))),
        (Value::Array(wanted), Value::Array(there)) => {
            wanted.len() == there.len()
                && wanted
                    .iter()
                    .zip(there)
                    .all(|(wanted, there)| says(wanted, there))
        }
        (wanted, there) => wanted == there,
    }
}

/// Returns conditions without fields that differ between two runs: times, and numbers of Envoys;
/// and without `SupportedVersion`, which says what an API server has.
fn conditions(status: &Value) -> BTreeMap<String, Value> {
    let all = status["conditions"].as_array().into_iter().flatten();
    let all = all.filter(|condition| condition["type"] != "SupportedVersion");
    let told = |condition: &Value| {
        let said: Map<String, Value> = ["status", "reason", "message", "observedGeneration"]
            .iter()
            .filter_map(|field| Some(((*field).to_owned(), condition.get(*field)?.clone())))
            .filter(|(field, _)| {
                field != "message"
                    || condition["type"] != "Programmed"
                    || condition["status"] != "True"
            })
            .collect();
        (
            condition["type"].as_str().unwrap_or_default().to_owned(),
            Value::Object(said),
        )
    };
    all.map(told).collect()
}

/// Returns the comparable parts of a status: the conditions by their position.
fn told(status: &Value) -> BTreeMap<String, BTreeMap<String, Value>> {
    let mut all = BTreeMap::from([("".to_owned(), conditions(status))]);
    for parent in status["parents"].as_array().into_iter().flatten() {
        if [CLAIMS, CONTROLLER]
            .iter()
            .all(|ours| parent["controllerName"] != *ours)
        {
            continue;
        }
        let named = ["namespace", "name", "sectionName"]
            .map(|field| parent["parentRef"][field].to_string());
        all.insert(
            format!("{} {}", parent["controllerName"], named.join(" ")),
            conditions(parent),
        );
    }
    for listener in status["listeners"].as_array().into_iter().flatten() {
        let mut said = conditions(listener);
        for field in [
            "ready",
            "reason",
            "hostname",
            "certificateName",
            "attachedRoutes",
        ] {
            said.insert(field.to_owned(), listener[field].clone());
        }
        all.insert(format!("listener {}", listener["name"]), said);
    }
    all
}

/// Returns the differences between cluster and offline result.
fn differences(story: &Story, paper: &Offline, there: &There) -> Vec<String> {
    let mut found = Vec::new();
    let ours = |object: &Value| {
        let owner = &object["metadata"]["ownerReferences"][0];
        owner["kind"] == "TenantGateway"
            || object["metadata"]["name"]
                .to_string()
                .contains(".acme-challenges")
    };
    let of_story = |object: &Value| {
        let space = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let owner = object["metadata"]["ownerReferences"][0]["name"]
            .as_str()
            .unwrap_or_default();
        story.namespaces.contains(space) || story.namespaces.contains(owner)
    };
    let (labels, objects): (Vec<&Value>, Vec<&Value>) = paper
        .desired
        .iter()
        .partition(|object| object["kind"] == "Namespace");
    let wanted: BTreeMap<_, _> = objects
        .into_iter()
        .map(|object| (key(object), object))
        .collect();
    for (key, object) in there
        .iter()
        .filter(|(_, object)| ours(object) && of_story(object))
    {
        if !wanted.contains_key(key) {
            found.push(format!("{key:?} is not wanted: {}", object["metadata"]));
        }
    }
    for (key, object) in wanted {
        let Some(there) = there.get(&key) else {
            found.push(format!("{key:?} is missing"));
            continue;
        };
        for part in ["spec", "metadata"] {
            if !says(&object[part], &there[part]) {
                found.push(format!(
                    "{key:?} {part}: want {}\n  there {}",
                    object[part], there[part]
                ));
            }
        }
        if object["metadata"]["labels"] != there["metadata"]["labels"] {
            found.push(format!(
                "{key:?} has labels {}",
                there["metadata"]["labels"]
            ));
        }
    }
    for object in story
        .objects
        .iter()
        .filter(|object| object["kind"] == "Namespace")
    {
        let patch = labels.iter().find(|patch| key(patch) == key(object));
        let there = there.get(&key(object)).unwrap_or(&Value::Null);
        for (part, field) in [("labels", OWNER), ("annotations", ATTACHED)] {
            let given = &object["metadata"][part][field];
            let wanted = patch
                .and_then(|patch| patch["metadata"][part].get(field))
                .unwrap_or(given);
            if there["metadata"][part][field] != *wanted {
                found.push(format!(
                    "{:?} {field}: want {wanted}, there {}",
                    key(object),
                    there["metadata"][part][field]
                ));
            }
        }
    }
    for object in &paper.statuses {
        let there = there.get(&key(object)).unwrap_or(&Value::Null);
        let wanted = told(&object["status"]);
        let said = told(&there["status"]);
        if wanted != said {
            found.push(format!(
                "{:?} status: want {wanted:#?}\n  there {said:#?}",
                key(object)
            ));
        }
    }
    found
}

/// Applies the stories in a cluster, starts the controller, and waits until all equals the offline
/// result.
async fn check(more: &[&str], settings: tenancy::Settings) -> Result<usize> {
    let source = settings.certificates;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/core/tenancy/testdata");
    let mut paths: Vec<_> = std::fs::read_dir(&folder)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    let mut stories = Vec::new();
    for (number, path) in paths
        .iter()
        .filter(|path| path.to_string_lossy().ends_with(".in.yaml"))
        .enumerate()
    {
        let told = std::fs::read_to_string(path)?;
        let of = match told.lines().next().unwrap_or_default() {
            line if line.starts_with("# certificates: own") => Source::Acme,
            line if line.starts_with("# certificates: internal-ca") => Source::InternalCa,
            _ => Source::CertManager,
        };
        if of == source {
            stories.push(Story::read(path, number, of == Source::Acme)?);
        }
    }
    let cluster = cluster().await?.reached_at(address(source));
    let server = &cluster.server;
    let stories: Vec<Story> = futures::stream::iter(stories)
        .map(|story| story.apply(server))
        .buffered(8)
        .try_collect()
        .await?;
    for story in &stories {
        let known = REFUSED
            .iter()
            .find(|(name, _)| *name == story.name)
            .map(|(_, word)| word);
        assert_eq!(
            known.is_some(),
            !story.refused.is_empty(),
            "{}: {:#?}",
            story.name,
            story.refused
        );
        assert!(
            story
                .refused
                .iter()
                .all(|text| known.is_some_and(|word| text.contains(word))),
            "{}: {:#?}",
            story.name,
            story.refused
        );
    }
    let papers: Vec<Offline> = stories
        .iter()
        .map(|story| story.on_paper(&settings))
        .collect::<Result<_>>()?;
    let arguments: Vec<&str> = more
        .iter()
        .copied()
        .chain(["--set", "tenancy.acmeDirectories=Any"])
        .collect();
    let mut controller = cluster.controller_with("one", &arguments)?;
    controller.line("the view is complete").await?;
    // The Gateways of our class are served.
    let (_envoy, _tls) = cluster.envoy("envoy-a").await?;
    let deadline = Instant::now() + LIMIT;
    loop {
        let there = there(server).await?;
        let wrong: Vec<String> = stories
            .iter()
            .zip(&papers)
            .flat_map(|(story, paper)| {
                differences(story, paper, &there)
                    .into_iter()
                    .map(|text| format!("{}: {text}", story.name))
            })
            .collect();
        if wrong.is_empty() {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{} differences:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
        sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(cluster.denied()?, [], "every right that is needed is given");
    Ok(stories.len())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn every_story_of_tenancy_is_carried_out_beside_cert_manager() -> Result<()> {
    let settings = tenancy::Settings {
        solver: Some(solver(false)),
        ..tenancy::Settings::default()
    };
    let count = check(&[], settings).await?;
    assert!(count > 50, "{count} stories");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn every_story_of_our_own_certificates_is_carried_out() -> Result<()> {
    let challenges = format!("127.0.0.1:{}", free_port()?);
    let (certificates, solver) = (Source::Acme, Some(solver(true)));
    let settings = tenancy::Settings {
        certificates,
        solver,
        ..tenancy::Settings::default()
    };
    let count = check(
        &[
            "--set",
            "tenancy.certificates=Own",
            "--challenges",
            &challenges,
        ],
        settings,
    )
    .await?;
    assert!(count > 2, "{count} stories");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes: e2e/tools install kubernetes gateway-api cert-manager-crds"]
async fn every_story_of_the_internal_ca_for_all_is_carried_out() -> Result<()> {
    let (certificates, solver) = (Source::InternalCa, Some(solver(false)));
    let settings = tenancy::Settings {
        certificates,
        solver,
        ..tenancy::Settings::default()
    };
    assert!(
        check(&["--set", "tenancy.certificates=InternalCa"], settings).await? > 0,
        "there are some"
    );
    Ok(())
}
