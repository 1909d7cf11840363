//! AccessPolicies that cannot be read close what they were written for: from a directory and from
//! an API server alike, in a file of their own and in one with their route.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::SystemTime;

use gatewright_core::inputs::{Object, ObjectChange};
use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::tenancy;
use gatewright_core::translate::{Change, Question, Settings};
use serde_json::Value;

use super::{Folder, parse, read_yaml};

const SITE: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: ours}
spec: {controllerName: ours}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {gatewayClassName: ours, listeners: [{name: http, port: 80, protocol: HTTP}]}
";

const ROUTE: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: shop}
spec:
  parentRefs: [{name: edge}]
  hostnames: [shop.example.org]
  rules: [{name: main, backendRefs: [{name: web, port: 80}]}]
";

/// Its `allow` admits nobody who asks here.
const POLICY: &str = "\
apiVersion: gatewright.io/v1alpha1
kind: AccessPolicy
metadata: {name: guard, namespace: shop}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}]
  clientAddress: {allow: [198.51.100.0/24]}
";

const ALLOW: &str = "clientAddress: {allow: [198.51.100.0/24]}";
const TARGET: &str = "[{group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}]";
const META: &str = "{name: guard, namespace: shop}";

/// Edits of the policy that an API server may have admitted by another definition.
const STORED: &[(&str, &str)] = &[
    (ALLOW, "clientAddress: {alow: [198.51.100.0/24]}"),
    (
        ALLOW,
        "clientAddress: {allow: [198.51.100.0/24], denny: []}",
    ),
    (ALLOW, "clientAddress: {allow: [5]}"),
    (ALLOW, "clientAddress: {allow: [nonsense]}"),
    (ALLOW, "clientAddress: {allow: [198.51.100.1/24]}"),
    (ALLOW, "clientAddress: {allow: [[198.51.100.0/24]]}"),
    (ALLOW, "clientAddress: {allow: 198.51.100.0/24}"),
    (ALLOW, "clientAddress: {allow: {a: b}}"),
    (ALLOW, "clientAddress: {allow: true}"),
    (ALLOW, "clientAddress: {allow: []}"),
    (ALLOW, "clientAddress: {}"),
    (ALLOW, "clientAddress: []"),
    (ALLOW, "clientAddress: [198.51.100.0/24]"),
    (ALLOW, "clientAddress: true"),
    (ALLOW, "clientAddress: text"),
    (ALLOW, "clientAdress: {allow: [198.51.100.0/24]}"),
    (ALLOW, "clientAddresses: {allow: [198.51.100.0/24]}"),
    (ALLOW, "enforcement: Enforce"),
    (
        ALLOW,
        "enforcement: report\n  clientAddress: {allow: [198.51.100.0/24]}",
    ),
    (
        ALLOW,
        "enforcement: 5\n  clientAddress: {allow: [198.51.100.0/24]}",
    ),
    (
        ALLOW,
        "enforcement: [Enforce]\n  clientAddress: {allow: [198.51.100.0/24]}",
    ),
    (
        ALLOW,
        "mode: Strict\n  clientAddress: {allow: [198.51.100.0/24]}",
    ),
    (ALLOW, "jwt: {}"),
    (ALLOW, "jwt: 5"),
    (ALLOW, "jwt: {issuer: a, jwks: {inline: '{}'}}"),
    (ALLOW, "basicAuth: {}"),
    (ALLOW, "basicAuth: {users: staff}"),
    (ALLOW, "basicAuth: {users: {name: ''}}"),
    (ALLOW, "basicAuth: {users: {name: a}, credentials: Drop}"),
    (ALLOW, "basicAuth: {users: {name: a}}\n  jwt: {issuer: a}"),
    (ALLOW, "oidc: {}"),
    (ALLOW, "oidc: text"),
    (ALLOW, "externalAuth: {}"),
    (
        ALLOW,
        "externalAuth: {protocol: HTTPS, backendRef: {name: auth, port: 80}}",
    ),
    (ALLOW, "externalAuth: {protocol: HTTP, backendRef: auth}"),
    (ALLOW, "apiKey: {headers: [x-key]}"),
    ("gatewright.io/v1alpha1", "gatewright.io/v1beta1"),
    ("gatewright.io/v1alpha1", "gatewright.io/v1"),
    ("gatewright.io/v1alpha1", "gatewright.io/v2alpha1"),
    ("name: shop}]", "name: shop, sectionName: 5}]"),
    ("name: shop}]", "name: shop, sectionName: gone}]"),
    (
        "name: shop}]",
        "name: shop}, {group: gateway.networking.k8s.io, kind: HTTPRoute}]",
    ),
    ("name: shop}]", "name: shop}, 5]"),
    (
        "name: shop}]",
        "name: shop, namespace: other, weight: x}]\n  mode: x",
    ),
    ("targetRefs:", "mode: x\n  targetRefs:"),
];

/// Edits of the policy that an API server refuses, and a directory has all the same.
const WRITTEN: &[(&str, &str)] = &[
    (TARGET, "[{kind: HTTPRoute, name: shop}]"),
    (
        TARGET,
        "[{group: gateway.networking.k8s.io/v1, kind: HTTPRoute, name: shop}]",
    ),
    (
        TARGET,
        "[{group: gateway.networking.k8s.io, kind: httproute, name: shop}]",
    ),
    (
        TARGET,
        "[{group: gateway.networking.k8s.io, kind: Route, name: shop}]",
    ),
    (TARGET, "[{group: gateway.networking.k8s.io, name: shop}]"),
    (
        TARGET,
        "{group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}",
    ),
    ("targetRefs: [{", "targetRef: {"),
    ("targetRefs:", "targetrefs:"),
    (META, "{name: guard, namespace: shop, labels: 5}"),
    (META, "{name: guard, namespace: shop, annotations: [a]}"),
    (META, "{name: Guard_1, namespace: shop}"),
    (META, "{name: 5, namespace: shop}"),
    (META, "{namespace: shop}"),
    ("kind: AccessPolicy", "kind: accesspolicy"),
    ("apiVersion: gatewright.io/v1alpha1\n", ""),
    ("gatewright.io/v1alpha1", "gatewright.oi/v1alpha1"),
    // Texts that are cut off, or no YAML.
    ("198.51.100.0/24]}\n", "198.51"),
    ("198.51.100.0/24]}\n", ""),
    (
        ALLOW,
        "clientAddress: {allow: [198.51.100.0/24]}\n  clientAddress: {}",
    ),
    (ALLOW, "clientAddress: allow: [198.51.100.0/24]"),
    (ALLOW, "\tclientAddress: {}"),
    (ALLOW, "clientAddress: *network"),
    (ALLOW, "clientAddress: {allow: ['198.51.100.0/24]}"),
    (ALLOW, "clientAddress: {<<: 5}"),
    (ALLOW, "}"),
];

/// Edits by which nobody can tell what the policy is for.
const HIDDEN: &[(&str, &str)] = &[
    (TARGET, "[]"),
    (TARGET, "[5]"),
    (
        TARGET,
        "[{group: gateway.networking.k8s.io, kind: HTTPRoute}]",
    ),
    (
        TARGET,
        "[{group: gateway.networking.k8s.io, kind: HTTPRoute, name: [shop]}]",
    ),
    (TARGET, "[{group: gateway.networking.k8s.io, ki"),
    ("targetRefs:", "targets:"),
    (META, "{name: guard, namespace: 5}"),
    (META, "5"),
    ("kind: AccessPolicy", "kind: AccessPol"),
    ("kind: AccessPolicy\n", ""),
    (POLICY, "apiVersion: gatewright.io/v1alpha1\nki"),
    (
        POLICY,
        "apiVersion: gatewright.io/v1alpha1\nkind: AccessPolicy\n",
    ),
    (POLICY, "{{ if .Values.guard }}\nkind: AccessPolicy\n"),
];

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Served,
    Closed,
    NotFound,
}

fn edited((from, to): (&str, &str)) -> String {
    let policy = POLICY.replacen(from, to, 1);
    assert_ne!(policy, POLICY, "{from}");
    if to == "targetRef: {" {
        return policy.replacen("shop}]", "shop}", 1);
    }
    policy
}

fn answer(objects: Vec<Object>) -> Answer {
    answer_at(objects, "/")
}

fn answer_at(objects: Vec<Object>, path: &str) -> Answer {
    let settings = Settings::new("ours", vec![Ipv4Addr::LOCALHOST.into()]);
    let mut pipeline = Pipeline::new(settings, tenancy::Settings::default(), Written::Here);
    let changes = objects.into_iter().map(Change::put).collect();
    pipeline.apply(changes, SystemTime::UNIX_EPOCH);
    let explanation = pipeline.engine().explain(&Question {
        path: path.to_owned(),
        client: Some(Ipv4Addr::new(203, 0, 113, 1).into()),
        ..Question::get(false, "shop.example.org", 80)
    });
    let failed = explanation.links.iter().find(|link| !link.ok);
    match failed.map(|link| link.what) {
        Some("access") => Answer::Closed,
        Some("endpoints") | None => Answer::Served,
        Some(_) => Answer::NotFound,
    }
}

/// What a directory with these files is read as, and the number of files that may hide a policy.
fn from_directory(files: &[&str]) -> (Vec<Object>, usize) {
    let mut folder = Folder::default();
    let mut objects = Vec::new();
    for (number, text) in files.iter().enumerate() {
        let path = format!("{number}.yaml");
        let path = Path::new(&path);
        let outcome = folder.put(path, parse(path, text));
        objects.extend(
            outcome
                .changes
                .into_iter()
                .filter_map(|change| match change {
                    ObjectChange::Put(object) => Some(object),
                    ObjectChange::Delete(_) => None,
                }),
        );
    }
    (objects, folder.hidden_access().count())
}

/// What an API server with these objects is read as.
fn from_api_server(documents: &[&str]) -> Vec<Object> {
    let documents = documents.iter().flat_map(|text| text.split("---\n"));
    let objects = documents.map(|text| {
        let value: Value = read_yaml(text).expect("YAML");
        Object::parse_admitted(value).unwrap_or_else(|why| panic!("{why}: {text}"))
    });
    objects.collect()
}

#[test]
fn the_site_is_served_without_a_policy_and_closed_to_others_with_it() {
    assert_eq!(
        answer(from_directory(&[SITE, ROUTE]).0),
        Answer::Served,
        "without"
    );
    let (objects, hidden) = from_directory(&[SITE, ROUTE, POLICY]);
    assert_eq!(answer(objects), Answer::Closed, "with");
    assert_eq!(hidden, 0, "it is read");
}

#[test]
fn a_policy_that_cannot_be_read_closes_its_route_wherever_it_comes_from() {
    for edit in STORED {
        let policy = edited(*edit);
        let (objects, _) = from_directory(&[SITE, ROUTE, &policy]);
        assert_eq!(answer(objects), Answer::Closed, "a directory: {policy}");
        let objects = from_api_server(&[SITE, ROUTE, &policy]);
        assert_eq!(answer(objects), Answer::Closed, "an API server: {policy}");
    }
    for edit in WRITTEN {
        let policy = edited(*edit);
        let (objects, _) = from_directory(&[SITE, ROUTE, &policy]);
        assert_eq!(answer(objects), Answer::Closed, "{policy}");
        // The same objects in the other order, and in a List.
        let (objects, _) = from_directory(&[&policy, ROUTE, SITE]);
        assert_eq!(answer(objects), Answer::Closed, "first: {policy}");
    }
    assert!(STORED.len() + WRITTEN.len() + HIDDEN.len() >= 51);
}

#[test]
fn a_new_route_in_the_file_of_a_policy_that_cannot_be_read_is_not_open() {
    for edit in STORED.iter().chain(WRITTEN).chain(HIDDEN) {
        let policy = edited(*edit);
        for file in [
            format!("{ROUTE}---\n{policy}"),
            format!("{policy}\n---\n{ROUTE}"),
        ] {
            let (objects, _) = from_directory(&[SITE, &file]);
            assert_ne!(answer(objects), Answer::Served, "{file}");
        }
    }
}

#[test]
fn a_policy_of_which_nobody_knows_what_it_is_for_is_told() {
    for edit in HIDDEN {
        let policy = edited(*edit);
        let (_, hidden) = from_directory(&[SITE, ROUTE, &policy]);
        assert_eq!(hidden, 1, "{policy}");
    }
    for other in [
        "services:\n  web: {image: nginx}\n",
        "services:\n  web: {image: nginx\n",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n",
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nspec: {rules: [\n",
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {prots: []}\n",
    ] {
        assert_eq!(from_directory(&[other]).1, 0, "{other}");
    }
}

#[test]
fn a_route_whose_filter_cannot_be_read_is_not_served_without_it() {
    let wide = ROUTE.replace("{name: shop,", "{name: wide,");
    for (from, to) in [
        ("rules: [{", "rules: [{filters: [{type: ExternalOAuth}], "),
        ("rules: [{", "rules: [{filterz: [{type: ExternalAuth}], "),
        ("rules: [{", "rules: [{filters: 5, "),
        (
            "gateway.networking.k8s.io/v1\n",
            "gateway.networking.k8s.io/v2\n",
        ),
        ("{name: shop,", "{name: shop, labels: 5,"),
    ] {
        let path = "matches: [{path: {value: /admin}}], backendRefs";
        let guarded = ROUTE.replace("backendRefs", path).replacen(from, to, 1);
        let (objects, _) = from_directory(&[SITE, &guarded]);
        assert_ne!(answer(objects), Answer::Served, "{guarded}");
        // A wider route serves what it served, and nothing else where the matches can be read.
        let (objects, _) = from_directory(&[SITE, &guarded, &wide]);
        assert_eq!(answer(objects.clone()), Answer::Served, "{guarded}");
        if to.starts_with("rules") {
            let guarded_path = answer_at(objects, "/admin");
            assert_ne!(guarded_path, Answer::Served, "{guarded}");
        }
    }
}

#[test]
fn a_section_that_is_not_there_closes_its_target() {
    let gateway = "[{group: gateway.networking.k8s.io, kind: Gateway, name: edge, sectionName: ";
    let route = "[{group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop, sectionName: ";
    let whole = "{group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}, ";
    // Everybody who asks is admitted where the policy is in effect.
    let open = "clientAddress: {allow: [0.0.0.0/0]}";
    for (target, rules, expected) in [
        (format!("{route}main}}]"), open, Answer::Served),
        (format!("{route}renamed}}]"), open, Answer::Closed),
        (format!("{gateway}http}}]"), open, Answer::Served),
        (format!("{gateway}https}}]"), open, Answer::Closed),
        // One that only reports closes nothing.
        (
            format!("{route}renamed}}]"),
            "enforcement: Report\n  clientAddress: {allow: [0.0.0.0/0]}",
            Answer::Served,
        ),
        // On a target and a section of it, it is on the target.
        (
            format!("{route}renamed}}]").replacen('[', &format!("[{whole}"), 1),
            open,
            Answer::Served,
        ),
        // Another object is not affected.
        (
            format!("{route}renamed}}]").replace("name: shop,", "name: other,"),
            open,
            Answer::Served,
        ),
    ] {
        let policy = POLICY.replace(TARGET, &target).replace(ALLOW, rules);
        let (objects, hidden) = from_directory(&[SITE, ROUTE, &policy]);
        assert_eq!(hidden, 0, "it is read: {policy}");
        assert_eq!(answer(objects), expected, "{policy}");
        let objects = from_api_server(&[SITE, ROUTE, &policy]);
        assert_eq!(answer(objects), expected, "an API server: {policy}");
    }
}

#[test]
fn a_grant_that_cannot_be_read_grants_nothing() {
    let grant = "apiVersion: gateway.networking.k8s.io/v1\nkind: ReferenceGrant\nmetadata: {name: a, namespace: b}\nspec:\n  \
                 from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}]\n  to: [{group: '', kind: Service}]\n";
    assert_eq!(from_directory(&[grant]).0.len(), 1, "it can be read");
    for (from, to) in [
        ("from:", "form:"),
        ("Service}]", "Service, names: a}]"),
        ("/v1\n", "/v3\n"),
        ("namespace: shop}]", "namespace: [shop]}]"),
    ] {
        let (objects, _) = from_directory(&[&grant.replace(from, to)]);
        assert_eq!(objects.len(), 0, "{to}");
    }
}
