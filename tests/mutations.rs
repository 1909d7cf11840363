//! Mutation test: invalid and extreme objects through the whole pure pipeline.
//!
//! A case takes the golden cases' objects, changes some fields to values at the edge of a type or beyond it, and puts
//! and deletes the objects in some order. In every case nothing panics, each message for Envoy satisfies Envoy's
//! constraints, and the result equals one translation of the last objects from nothing.
//!
//! `cargo test` runs some hundred cases, the same each time. `make fuzz SECONDS=60` runs others for as long as one
//! likes. The objects of a failed case are written to `tests/mutations/`, whose cases are run first.

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use gatewright_control::publish;
use gatewright_core::inputs::{Object, ObjectChange, ObjectKey};
use gatewright_core::model::ObjectName;
use gatewright_core::pipeline::{Pipeline, Written};
use gatewright_core::tenancy;
use gatewright_core::translate::{Change, Delta, Fact, Ownable, Ownership, Settings};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The number of cases of one `cargo test`.
const CASES: u64 = 400;

/// The values that are written where a text is expected.
const TEXTS: [&str; 32] = [
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
];

const NUMBERS: [i64; 11] =
    [0, 1, -1, 80, 443, 65_535, 65_536, i32::MAX as i64, u32::MAX as i64 + 1, i64::MAX, i64::MIN];

/// Pseudo-random numbers from a seed (SplitMix64).
struct Choice(u64);

impl Choice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).expect("less than a usize")
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a readable case");
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    documents.map(|document| Value::deserialize(document).expect("YAML")).filter(|value| !value.is_null()).collect()
}

/// Returns the objects of the golden cases, case by case.
fn corpus() -> Vec<Vec<Value>> {
    let folders = ["src/core/translate/testdata", "src/core/tenancy/testdata"];
    let files = folders.iter().flat_map(|folder| fs::read_dir(root().join(folder)).expect("golden cases"));
    let mut paths: Vec<PathBuf> = files.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".in.yaml"));
    paths.sort();
    let cases: Vec<Vec<Value>> = paths.iter().map(|path| documents(path)).collect();
    assert!(cases.len() > 100, "the golden cases are there");
    cases
}

/// The steps of a case; an object that is to be deleted has `delete: true` beside its `kind`.
type Case = Vec<Value>;

/// Generates the case of a seed: some golden cases together, with some of their objects changed, deleted and put again.
fn case(seed: u64, corpus: &[Vec<Value>]) -> Case {
    let mut choice = Choice(seed);
    let mut objects: Vec<Value> = Vec::new();
    for _ in 0..1 + choice.below(2) {
        objects.extend(choice.of(corpus).iter().cloned());
    }
    let mut steps = objects.clone();
    for _ in 0..2 + choice.below(8) {
        let mut object = choice.of(&objects).clone();
        if choice.below(5) == 0 {
            object["delete"] = json!(true);
        } else {
            for _ in 0..1 + choice.below(3) {
                let family = choice.of(corpus);
                let donor = choice.of(family).clone();
                mutate(&mut object, &donor, &mut choice);
            }
        }
        // A step may come before the one that it refers to.
        let at = choice.below(steps.len() + 1);
        steps.insert(at, object);
    }
    steps
}

/// Changes one place below `value`.
fn mutate(value: &mut Value, donor: &Value, choice: &mut Choice) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = choice.of(&names).clone();
            match choice.below(12) {
                0 => drop(fields.remove(&name)),
                1 => {
                    if let Some(given) = donor.get(&name).or_else(|| donor["spec"].get(&name)) {
                        fields.insert(name, given.clone());
                    }
                }
                _ => mutate(fields.get_mut(&name).expect("it was named"), donor, choice),
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = choice.below(items.len());
            match choice.below(8) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                2 => items.extend(vec![items[at].clone(); 20]),
                _ => mutate(&mut items[at], donor, choice),
            }
        }
        // Certificates and keys are changed by character.
        Value::String(text) if text.len() > 60 && text.is_ascii() && choice.below(3) > 0 => {
            let at = choice.below(text.len());
            let letter = *choice.of(b"Aa0+/=\n-");
            text.replace_range(at..=at, &char::from(letter).to_string());
        }
        Value::String(text) => match choice.below(4) {
            0 => *text = text.repeat(40),
            1 => text.push_str(choice.of::<&str>(&TEXTS)),
            _ => *text = (*choice.of(&TEXTS)).to_owned(),
        },
        Value::Number(_) => *value = json!(choice.of(&NUMBERS)),
        Value::Bool(is) => *is = !*is,
        _ => *value = json!(choice.of(&TEXTS)),
    }
}

/// The time of the golden cases.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_785_000_000)
}

fn pipeline() -> Pipeline {
    let settings = Settings {
        envoys: Some(ObjectName::new("gatewright-system", "gatewright-envoy")),
        ..Settings::new("gatewright.io/gateway-controller", vec!["127.0.0.1".parse().expect("an address")])
    };
    Pipeline::new(settings, tenancy::Settings::default(), Written::Here)
}

/// Returns the change of a step, if it can be parsed; every second one as an API server would have admitted it.
fn change(at: usize, step: &Value) -> Option<ObjectChange> {
    let mut step = step.clone();
    let deleted = step.as_object_mut()?.remove("delete").is_some();
    let object = if at.is_multiple_of(2) { Object::parse(step) } else { Object::parse_admitted(step) }.ok()?;
    Some(if deleted { ObjectChange::Delete(object.key()) } else { ObjectChange::Put(object) })
}

/// Runs a case. Returns the first error.
fn run(case: &Case) -> Result<(), String> {
    let mut pipeline = pipeline();
    let mut last: BTreeMap<ObjectKey, Object> = BTreeMap::new();
    let mut records: BTreeMap<Ownable, Ownership> = BTreeMap::new();
    // A start from nothing cannot know what was live before a TenantGateway or a Secret became invalid.
    let mut keeps = false;
    for (at, step) in case.iter().enumerate() {
        let Some(change) = change(at, step) else { continue };
        match &change {
            ObjectChange::Put(object) => {
                let before = last.insert(object.key(), object.clone());
                keeps |= matches!(object, Object::TenantGateway(_));
                keeps |= matches!(object, Object::Secret(_)) && before.is_some_and(|before| before != *object);
            }
            ObjectChange::Delete(key) => drop(last.remove(key)),
        }
        let outcome = pipeline.apply(vec![Change::Object(change)], now());
        constraints(&outcome.delta)?;
        for (what, owner) in outcome.delta.records {
            match owner {
                Some(owner) => drop(records.insert(what, owner)),
                None => drop(records.remove(&what)),
            }
        }
    }
    if keeps {
        return Ok(());
    }
    let mut anew = self::pipeline();
    let recorded = records.into_iter().map(|(what, owner)| Change::Fact(Fact::Recorded(what, Some(owner))));
    anew.apply(last.into_values().map(Change::put).chain(recorded).collect(), now());
    let (was, is): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (pipeline.engine().statuses().collect(), anew.engine().statuses().collect());
    for (key, status) in &is {
        if was.get(key) != Some(status) {
            return Err(format!("{key}: the status is\n{:#?}\nand from nothing\n{status:#?}", was.get(key)));
        }
    }
    if was.len() != is.len() || pipeline.engine().digest() != anew.engine().digest() {
        return Err("what is served is not what a start from nothing serves".to_owned());
    }
    Ok(())
}

/// Checks the constraints of Envoy's messages.
fn constraints(delta: &Delta) -> Result<(), String> {
    for resource in delta.resources.values().flatten() {
        let encoded = publish::encode(resource);
        let url = encoded.kind().type_url();
        gatewright_envoy::check(url.rsplit('/').next().unwrap_or(url), &encoded.body())
            .map_err(|text| format!("{}: {text}", encoded.name()))?;
    }
    Ok(())
}

/// As [`run`], with a panic as an error.
fn outcome(case: &Case) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| run(case))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("without a text")))
    })
}

/// Returns a case with fewer steps that still fails.
fn shrunk(mut case: Case) -> Case {
    let mut at = 0;
    while at < case.len() {
        let mut fewer = case.clone();
        fewer.remove(at);
        if outcome(&fewer).is_err() { case = fewer } else { at += 1 }
    }
    case
}

fn fail(case: Case, seed: u64) -> ! {
    let case = shrunk(case);
    let why = outcome(&case).expect_err("what is left of it fails as well");
    let mut text = Vec::new();
    for step in &case {
        text.extend_from_slice(b"---\n");
        step.serialize(&mut serde_yaml_ng::Serializer::new(&mut text)).expect("JSON is YAML");
    }
    let path = root().join(format!("tests/mutations/{seed}.yaml"));
    fs::create_dir_all(root().join("tests/mutations")).expect("a folder for the case");
    fs::write(&path, text).expect("a file for the case");
    panic!("{why}\nthe case is written to {}", path.display());
}

#[test]
fn what_failed_once() {
    let Ok(folder) = fs::read_dir(root().join("tests/mutations")) else { return };
    for entry in folder {
        let path = entry.expect("a readable folder").path();
        if let Err(why) = outcome(&documents(&path)) {
            panic!("{}: {why}", path.display());
        }
    }
}

#[test]
fn whatever_objects_say_the_end_is_that_of_a_start_from_nothing() {
    let corpus = corpus();
    let seconds = std::env::var("GATEWRIGHT_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let Some(seconds) = seconds.map(Duration::from_secs) else {
        for seed in 0..CASES {
            let case = case(seed, &corpus);
            if outcome(&case).is_err() {
                fail(case, seed);
            }
        }
        return;
    };
    let (began, from) = (Instant::now(), u64::from(std::process::id()) << 32);
    let mut seed = from;
    while began.elapsed() < seconds {
        let case = case(seed, &corpus);
        if outcome(&case).is_err() {
            fail(case, seed);
        }
        seed += 1;
    }
    assert!(seed > from, "some case was run");
}
