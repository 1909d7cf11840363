//! Plans of small sites.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use gatewright_core::inputs::{Object, ObjectKey};
use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::tenancy;
use gatewright_core::translate::{self, Settings};

use gatewright::configuration::CONTROLLER;
use gatewright::manifest::parse;
use gatewright::plan::{Change, Effect, Emitted, Issuance, IssuerTerms, Plan, Sight, Step, World};

use super::secret_of;

const EDGE: &str = include_str!("../cli/plan.in/site/edge.yaml");
const BETA: &str = include_str!("../cli/plan.in/site/beta.yaml");
const SERVICES: &str = include_str!("../cli/plan.in/site/services.yaml");
const THIEF: &str = include_str!("../cli/plan.in/changes/thief.yaml");
const NEW: &str = include_str!("../cli/plan.in/changes/new.yaml");

fn objects(text: &str) -> Vec<Object> {
    let parsed = parse(Path::new("site.yaml"), text);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    parsed
        .objects
        .into_iter()
        .map(|(_, object)| object)
        .collect()
}

/// The plan of a change of the site `EDGE`, `BETA`, `SERVICES`, whose certificates are issued.
fn plan(change: Change) -> Plan {
    plan_of(&[EDGE, BETA, SERVICES], change)
}

fn plan_of(site: &[&str], mut change: Change) -> Plan {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000);
    let present: BTreeMap<ObjectKey, Object> = site
        .iter()
        .flat_map(|text| objects(text))
        .map(|object| (object.key(), object))
        .collect();
    change.date(&present, 1);
    let address = "127.0.0.1".parse().expect("an address");
    let settings = Settings::new(CONTROLLER, vec![address]);
    let mut pipeline = Pipeline::new(settings, tenancy::Settings::default(), Written::Here);
    let mut emitted = Emitted::default();
    let objects = present.values().cloned().map(translate::Change::put);
    emitted.take(pipeline.apply(objects.collect(), now));
    let wants = pipeline.engine().wants().into_iter();
    let issued = wants.map(|(want, _)| secret_of(&want.secret));
    let issued = issued.map(translate::Change::put).collect();
    emitted.take(pipeline.apply(issued, now));
    let before = World::of(&pipeline, &emitted, &Sight::whole());
    emitted.take(pipeline.apply(change.inputs(&present), now));
    let after = World::of(&pipeline, &emitted, &Sight::whole());
    let terms = IssuerTerms {
        challenge: "HTTP-01",
        per_domain: Some((50, 168)),
    };
    let issuance = Issuance(BTreeMap::from([("le".to_owned(), terms)]));
    Plan::new(&before, &after, &issuance)
}

fn put(text: &str) -> Change {
    Change {
        put: objects(text),
        ..Change::default()
    }
}

fn delete(text: &str) -> Change {
    Change {
        delete: objects(text).iter().map(Object::key).collect(),
        ..Change::default()
    }
}

/// The worst effect of each host.
fn worst(plan: &Plan) -> Vec<(&str, Effect)> {
    let hosts = plan.hosts.iter();
    hosts
        .map(|host| (&*host.hostname, *host.effects.first().expect("an effect")))
        .collect()
}

#[test]
fn a_listener_of_another_namespace_takes_a_host_that_is_given_up() {
    assert!(!plan(put(THIEF)).loses(), "its owner keeps what it serves");
    let plan = plan(Change {
        put: objects(THIEF),
        ..delete(BETA)
    });
    assert_eq!(worst(&plan), [("beta.example.org", Effect::ChangesHands)]);
    assert!(plan.loses(), "shop loses it");
    let place = &plan.hosts[0].places[0];
    assert!(place.new_listener, "{place:?}");
    let owner = place.before.as_ref().expect("it is served");
    assert_eq!(owner.routes, ["httproute shop/beta"]);
    let taker = place.after.as_ref().expect("it will be served");
    assert_eq!(taker.routes, ["httproute other/thief"]);
}

#[test]
fn what_is_there_already_changes_nothing() {
    let plan = plan(put(BETA));
    assert_eq!(plan, Plan::default());
    assert_eq!(plan.text(), "nothing changes\n");
}

#[test]
fn a_new_route_loses_nothing_and_says_what_is_in_clear() {
    let plan = plan(put(NEW));
    let expected = [
        ("b4.example.com", Effect::Appears),
        ("new.example.org", Effect::Appears),
    ];
    assert_eq!(worst(&plan), expected);
    let in_clear: Vec<bool> = plan.hosts.iter().map(|host| host.in_clear).collect();
    assert_eq!(in_clear, [true, false]);
    assert!(!plan.loses(), "nothing was there");
}

#[test]
fn what_ends_fails_or_has_no_certificate_yet_is_lost() {
    let broken = BETA.replace("name: web", "name: wbe");
    let acme = EDGE.replace("internal-ca", "le");
    let without_tls = BETA.replace("https", "http");
    let gone = EDGE.replace("*.example.org", "*.example.net");
    for (change, effect) in [
        (delete(BETA), Effect::Ends),
        (put(&broken), Effect::Fails),
        (put(&acme), Effect::AwaitsCertificate),
        (put(&without_tls), Effect::LosesTls),
        (put(&gone), Effect::Ends),
    ] {
        let plan = plan(change);
        assert!(
            worst(&plan).contains(&("beta.example.org", effect)),
            "{effect:?}: {plan:#?}"
        );
        assert!(plan.loses(), "{effect:?}: {plan:#?}");
    }
}

#[test]
fn another_application_of_the_same_namespace_is_no_loss() {
    let next = BETA.replace("name: web", "name: next");
    let added = BETA.replace("rules: [{", "rules: [{matches: [{path: {value: /shop}}], ");
    for (text, effect) in [
        (&next, Effect::ChangesApplication),
        (&added, Effect::ChangesRules),
    ] {
        let plan = plan(put(text));
        assert_eq!(worst(&plan), [("beta.example.org", effect)], "{plan:#?}");
        assert!(!plan.loses(), "{plan:#?}");
    }
}

#[test]
fn orders_are_counted_by_registered_domain() {
    let plan = plan(put(&EDGE.replace("internal-ca", "le")));
    let steps: Vec<Step> = plan.certificates.iter().map(|of| of.step).collect();
    assert!(steps.contains(&Step::Ordered), "{:?}", plan.certificates);
    assert_eq!(plan.orders.len(), 1, "{:?}", plan.orders);
    assert_eq!(plan.orders[0].domain, "example.org");
    assert_eq!(plan.orders[0].orders, 1, "one certificate");
    assert_eq!(plan.orders[0].of, 50, "of the CA's limit");
}

#[test]
fn a_removed_namespace_takes_all_that_is_in_it() {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    let change = delete(namespace);
    let plan = plan_of(&[EDGE, BETA, SERVICES, namespace], change);
    assert_eq!(worst(&plan), [("beta.example.org", Effect::Ends)]);
}

#[test]
fn a_removed_listener_drains_its_connections() {
    let plan = plan(delete(EDGE));
    let drained: Vec<bool> = plan
        .resources
        .drains
        .iter()
        .map(|drain| drain.chains.is_none())
        .collect();
    assert_eq!(drained, [true, true], "{:?}", plan.resources.drains);
}
