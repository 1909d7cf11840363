//! The rules of the project that a machine can check: pure folders stay pure, files stay short,
//! nothing is left unfinished.

use std::fs;
use std::path::{Path, PathBuf};

/// The pure files: no client, task, clock or log. `core` and `envoy` are checked by their
/// Cargo.toml as well.
const PURE: [&str; 38] = [
    "src/core/",
    "src/plan/",
    "src/pki/",
    "src/envoy/",
    "src/control/envoy_identity.rs",
    "src/control/publish.rs",
    "src/kubernetes/crds/verdict.rs",
    "src/kubernetes/write/as_written.rs",
    "src/kubernetes/write/conflict_backoff.rs",
    "src/kubernetes/expose/plan.rs",
    "src/kubernetes/write/failure.rs",
    "src/kubernetes/keys/ca_rotation.rs",
    "src/kubernetes/keys/pod_review.rs",
    "src/kubernetes/write/work_queue.rs",
    "src/kubernetes/replicas/record.rs",
    "src/kubernetes/reader/references.rs",
    "src/kubernetes/reports/pace.rs",
    "src/kubernetes/reports/part.rs",
    "src/kubernetes/reports/requests.rs",
    "src/kubernetes/secrets/refs.rs",
    "src/kubernetes/write/status.rs",
    "src/kubernetes/storage/secret_targets.rs",
    "src/kubernetes/storage/entry.rs",
    "src/kubernetes/storage/secret.rs",
    "src/kubernetes/managed_fields.rs",
    "src/kubernetes/live_object.rs",
    "src/kubernetes/deviation.rs",
    "src/kubernetes/defaults.rs",
    "src/kubernetes/tenants/label.rs",
    "src/kubernetes/tenants/report.rs",
    "src/kubernetes/tenants/troubles.rs",
    "src/kubernetes/watch/sync.rs",
    "src/kubernetes/watch/backoff.rs",
    "src/convert/",
    "src/client/said.rs",
    "src/client/stand_ins.rs",
    "src/standalone/supervisor/launch.rs",
    "src/standalone/supervisor/plan.rs",
];

/// The words that make a file impure.
const IMPURE: [&str; 14] = [
    "kube::Api",
    "kube::Client",
    "kube::client",
    "kube::runtime",
    "tokio",
    "tracing::",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::thread",
    "std::process",
    "std::env",
    "SystemTime::now",
    "Instant::now",
];

/// The crates that would make the core impure.
const OUTSIDE_OF_CORE: [&str; 9] = [
    "kube",
    "tokio",
    "tonic",
    "envoy-types",
    "prost",
    "hyper",
    "tracing",
    "xds",
    "acme",
];

/// The crates that would make a pure crate impure, by its folder.
const FORBIDDEN: [(&str, &[&str]); 8] = [
    ("src/core", &OUTSIDE_OF_CORE),
    ("src/core/objects", &OUTSIDE_OF_CORE),
    ("src/core/tenancy", &OUTSIDE_OF_CORE),
    ("src/core/translate", &OUTSIDE_OF_CORE),
    (
        "src/pki",
        &[
            "kube",
            "k8s-openapi",
            "tokio",
            "tonic",
            "envoy-types",
            "hyper",
            "tracing",
            "gatewright-core",
        ],
    ),
    (
        "src/envoy",
        &[
            "kube",
            "k8s-openapi",
            "tokio",
            "tonic",
            "hyper",
            "tracing",
            "acme",
        ],
    ),
    ("xds", &["kube", "k8s-openapi", "acme", "gatewright-core"]),
    (
        "acme",
        &[
            "kube",
            "k8s-openapi",
            "envoy-types",
            "tonic",
            "xds",
            "gatewright-core",
        ],
    ),
];

const FOLDERS: [&str; 6] = ["src", "xds", "acme", "e2e", "benches", "tests"];
const GENERATED: &str = "src/core/objects/gateway_api";
/// The most lines of code of a file, without its blank lines, its comments and its own unit tests.
const LONGEST: usize = 600;
/// The most characters of a line with a comment, which rustfmt does not break. Drawings and
/// addresses may be wider.
const COMMENT_WIDTH: usize = 100;

/// The most closures with names in the product code of a file, and of all files. A closure that
/// gets a name is a function, or stands where it is used; both numbers only fall.
const CLOSURES_OF_A_FILE: usize = 6;
const CLOSURES: usize = 250;

struct Source {
    path: String,
    text: String,
}

impl Source {
    /// Returns the lines of code before the file's own tests, numbered, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self
            .text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line));
        let before_tests = lines.take_while(|(_, line)| line.trim() != "#[cfg(test)]");
        before_tests.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn is_test(&self) -> bool {
        self.path.contains("/tests/")
            || self.path.starts_with("tests/")
            || self.path.ends_with("/tests.rs")
    }

    fn is_product(&self) -> bool {
        let folders = ["src/", "xds/src/", "acme/src/"];
        !self.is_test() && folders.iter().any(|folder| self.path.starts_with(folder))
    }

    fn is_generated(&self) -> bool {
        self.path.starts_with(GENERATED)
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in FOLDERS {
        visit(root, &root.join(folder), &mut found);
    }
    assert!(
        found.iter().any(|source| source.path == "src/main.rs"),
        "the walk found the sources"
    );
    found
}

fn visit(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            visit(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("sources are readable UTF-8");
            let path = path
                .strip_prefix(root)
                .expect("found below the root")
                .display()
                .to_string();
            found.push(Source { path, text });
        }
    }
}

fn check(rule: &str, broken: Vec<String>) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn pure_folders_are_pure() {
    let mut broken = Vec::new();
    for source in sources()
        .iter()
        .filter(|source| PURE.iter().any(|folder| source.path.starts_with(folder)))
    {
        for (number, line) in source.code() {
            broken.extend(
                IMPURE
                    .iter()
                    .filter(|word| line.contains(*word))
                    .map(|word| format!("{}:{number}: {word}", source.path)),
            );
        }
    }
    check(
        "no client, task, clock or log here; take the value as an argument",
        broken,
    );
}

#[test]
fn layers_are_what_cargo_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut broken = Vec::new();
    for (folder, forbidden) in FORBIDDEN {
        let manifest = fs::read_to_string(root.join(folder).join("Cargo.toml"))
            .expect("each crate has a Cargo.toml");
        let (_, dependencies) = manifest
            .split_once("[dependencies]")
            .expect("each crate has dependencies");
        let dependencies = dependencies
            .split("[dev-dependencies]")
            .next()
            .unwrap_or_default();
        let named = dependencies
            .lines()
            .filter_map(|line| line.split(['.', ' ', '=']).next());
        broken.extend(
            named
                .filter(|name| forbidden.contains(name))
                .map(|name| format!("{folder}/Cargo.toml: {name}")),
        );
    }
    check(
        "a pure crate names no client, runtime or log, and a lower layer no higher one",
        broken,
    );
}

/// Crates that compile sources of other folders.
const TAKEN: [(&str, &str); 4] = [
    ("e2e", "benches/"),
    ("e2e/inside", "benches/"),
    ("e2e/inside", "xds/examples/"),
    ("acme", "e2e/src/pebble.rs"),
];

/// Returns the folder of each crate, that of the program first, with its manifest.
fn manifests() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("Cargo.toml")).expect("the workspace has a manifest");
    let (_, members) = text.split_once("members = [").expect("it has members");
    let (members, _) = members.split_once(']').expect("they end");
    let folders = members
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|folder| *folder != ".");
    std::iter::once("")
        .chain(folders)
        .map(|folder| {
            let manifest = root.join(folder).join("Cargo.toml");
            let manifest = fs::read_to_string(manifest).expect("each crate has a Cargo.toml");
            (folder.to_owned(), manifest)
        })
        .collect()
}

/// Returns the names of a manifest's dependencies, those of its tests as well.
fn declared(manifest: &str) -> Vec<&str> {
    in_sections(manifest, &["[dependencies]", "[dev-dependencies]"])
}

#[test]
fn fixtures_name_no_crate_of_the_product() {
    let manifests = manifests();
    let names: Vec<&str> = manifests
        .iter()
        .filter_map(|(_, manifest)| manifest.split("name = \"").nth(1)?.split('"').next())
        .collect();
    assert!(names.contains(&"gatewright-core"), "{names:?}");
    let (_, fixtures) = manifests
        .iter()
        .find(|(folder, _)| folder == "e2e")
        .expect("the fixtures are a crate");
    let named = declared(fixtures).into_iter();
    check(
        "an edit of the product would compile all fixtures again; e2e/inside may name its crates",
        named
            .filter(|name| names.contains(name))
            .map(|name| format!("e2e/Cargo.toml: {name}"))
            .collect(),
    );
}

/// Returns the keys in these sections of a manifest.
fn in_sections<'a>(manifest: &'a str, sections: &[&str]) -> Vec<&'a str> {
    let mut section = "";
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if sections.contains(&section)
            && let Some((name, _)) = line.split_once(['.', ' ', '='])
            && !name.is_empty()
            && !name.starts_with('#')
        {
            names.push(name);
        }
    }
    names
}

#[test]
fn every_declared_dependency_is_named() {
    let manifests = manifests();
    let sources = sources();
    let mut broken = Vec::new();
    for (folder, manifest) in &manifests {
        let own = sources.iter().filter(|source| {
            let crates = manifests.iter().map(|(folder, _)| folder);
            let nearest = crates
                .filter(|folder| Path::new(&source.path).starts_with(folder))
                .max_by_key(|folder| folder.len());
            let is_taken = TAKEN
                .iter()
                .any(|(by, path)| by == folder && source.path.starts_with(path));
            nearest == Some(folder) || is_taken
        });
        let own: Vec<&str> = own.map(|source| &*source.text).collect();
        let unused = declared(manifest).into_iter().filter(|name| {
            let path = name.replace('-', "_");
            !own.iter().any(|text| names(text, &path))
        });
        broken.extend(unused.map(|name| format!("{folder}/Cargo.toml: {name}")));
    }
    let all: Vec<&str> = manifests
        .iter()
        .flat_map(|(_, manifest)| declared(manifest))
        .collect();
    let of_workspace = in_sections(&manifests[0].1, &["[workspace.dependencies]"]);
    let unused = of_workspace.into_iter().filter(|name| !all.contains(name));
    broken.extend(unused.map(|name| format!("Cargo.toml: {name} of the workspace")));
    check("each dependency is named by the crate's code", broken);
}

/// Returns whether a source has this name as a whole word.
fn names(text: &str, name: &str) -> bool {
    fn is_word(character: char) -> bool {
        character.is_alphanumeric() || character == '_'
    }
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(is_word) && !text[at + name.len()..].starts_with(is_word)
    })
}

/// The files with the functions that name tasks.
const NAMES_TASKS: [&str; 4] = [
    "src/control/tasks.rs",
    "src/tasks.rs",
    "src/wiring.rs",
    "acme/src/storage/mod.rs",
];

#[test]
fn every_task_has_a_name() {
    let mut broken = Vec::new();
    let spawns = |line: &str| {
        ["spawn(", "spawn_blocking("]
            .iter()
            .any(|call| line.contains(call))
    };
    for source in sources() {
        if !source.is_product() || NAMES_TASKS.contains(&source.path.as_str()) {
            continue;
        }
        let code: Vec<_> = source.code().collect();
        for (index, (number, line)) in code
            .iter()
            .enumerate()
            .filter(|(_, (_, line))| spawns(line))
        {
            // Processes have command lines, and threads are built with their name.
            let is_other = line.contains("spawn()") || line.contains("thread.spawn(");
            let next = code.get(index + 1).map_or("", |(_, next)| next.trim());
            let call = format!("{line}{next}");
            let has_name = [
                "named(",
                "instrument(",
                "tasks.spawn(\"",
                "tasks::spawn(\"",
                "wiring.spawn(\"",
            ]
            .iter()
            .any(|name| call.contains(name));
            if !is_other && !has_name {
                broken.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    check(
        "a task has a name, by `tasks::named` and `tasks::blocking`, or a span in a crate that cannot name these",
        broken,
    );
}

#[test]
fn files_are_short() {
    let long = sources()
        .into_iter()
        .filter(|source| !source.is_generated());
    let long = long
        .map(|source| {
            let lines = source.code().filter(|(_, line)| !line.trim().is_empty());
            (lines.count(), source.path)
        })
        .filter(|(lines, _)| *lines > LONGEST);
    check(
        "one file, one noun: split these",
        long.map(|(lines, path)| format!("{path}: {lines} lines of code"))
            .collect(),
    );
}

/// True if a line begins a closure with a name; rustfmt puts a long one on the next line.
fn names_a_closure(line: &str, next: &str) -> bool {
    let Some(binding) = line.trim_start().strip_prefix("let ") else {
        return false;
    };
    let value = match binding.split_once(" = ") {
        Some((name, value)) if !name.contains(['(', '{']) => value,
        Some(_) => return false,
        None if binding.ends_with(" =") => next.trim_start(),
        None => return false,
    };
    let value = value.trim_start_matches("async ");
    value.trim_start_matches("move ").starts_with('|')
}

#[test]
fn closures_with_names_are_few() {
    let mut broken = Vec::new();
    let mut all = 0;
    for source in sources() {
        if !source.is_product() || source.is_generated() {
            continue;
        }
        let code: Vec<_> = source.code().map(|(_, line)| line).collect();
        let count = code
            .windows(2)
            .filter(|lines| names_a_closure(lines[0], lines[1]))
            .count();
        all += count;
        if count > CLOSURES_OF_A_FILE {
            broken.push(format!("{}: {count}", source.path));
        }
    }
    check("make functions of these closures with names", broken);
    assert!(
        all <= CLOSURES,
        "{all} closures with names, of {CLOSURES} at most: make functions of some"
    );
}

#[test]
fn an_assertion_says_one_thing() {
    let opening = concat!("assert_", "eq!(");
    let tuple = concat!("assert_", "eq!((");
    let mut broken = Vec::new();
    for source in sources() {
        let lines: Vec<_> = source.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let next = lines.get(index + 1).map_or("", |next| next.trim());
            if line.contains(tuple) || line.trim_end().ends_with(opening) && next == "(" {
                broken.push(format!("{}:{}", source.path, index + 1));
            }
        }
    }
    check("one assertion for each part, with a message", broken);
}

#[test]
fn booleans_and_maps_are_used_plainly() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| !source.is_generated()) {
        for (index, line) in source.text.lines().enumerate() {
            let line = line.trim_start();
            let matches_on_bool = ["true", "false"].iter().any(|word| {
                line.strip_prefix(word)
                    .is_some_and(|rest| rest.starts_with(" =>") || rest.starts_with(" if "))
            });
            let drops = line.contains(concat!("dro", "p("))
                && [".insert(", ".remove("]
                    .iter()
                    .any(|call| line.contains(call));
            if matches_on_bool || drops {
                broken.push(format!("{}:{}: {line}", source.path, index + 1));
            }
        }
    }
    check(
        "`if` for a boolean, and a statement for an insertion or a removal",
        broken,
    );
}

#[test]
fn comments_are_as_narrow_as_code() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| !source.is_generated()) {
        for (index, line) in source.text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            let may_be_wide = ["=>", "═", "─", "→", "://", "`"]
                .iter()
                .any(|sign| line.contains(sign));
            if is_comment && !may_be_wide && line.chars().count() > COMMENT_WIDTH {
                broken.push(format!("{}:{}", source.path, index + 1));
            }
        }
    }
    check("break these comments", broken);
}

#[test]
fn nothing_unwraps_outside_of_tests() {
    let word = concat!(".unw", "rap()");
    let mut broken = Vec::new();
    for source in sources()
        .iter()
        .filter(|source| !source.is_test() && !source.is_generated())
    {
        broken.extend(
            source
                .code()
                .filter(|(_, line)| line.contains(word))
                .map(|(number, _)| format!("{}:{number}", source.path)),
        );
    }
    check("say why it cannot happen: expect(\"...\")", broken);
}

#[test]
fn nothing_is_left_to_do() {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("unimplemen", "ted!"),
    ];
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| !source.is_generated()) {
        for (index, line) in source.text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                broken.push(format!("{}:{}", source.path, index + 1));
            }
        }
    }
    check("do it, or write it down as an issue", broken);
}

#[test]
fn every_crate_that_is_listed_as_pure_exists() {
    let sources = sources();
    let lost = PURE.iter().filter(|folder| {
        !sources
            .iter()
            .any(|source| source.path.starts_with(**folder))
    });
    check(
        "a file that moved is not looked at any more",
        lost.map(ToString::to_string).collect(),
    );
}

/// Returns the Markdown files of the project, with their texts.
fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        "",
        "docs",
        "docs/decisions",
        "docs/reference",
        "docs/upstream",
        "benches",
        "benches/certificates",
        "acme",
        "xds",
        "deploy",
        "kind",
        "examples",
    ];
    let entries = folders
        .iter()
        .filter_map(|folder| fs::read_dir(root.join(folder)).ok())
        .flatten();
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let documents =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents
        .map(|path| {
            (
                path.clone(),
                fs::read_to_string(path).expect("documents are readable UTF-8"),
            )
        })
        .collect()
}

#[test]
fn documents_name_files_that_are_there() {
    let sources = sources();
    let mut broken = Vec::new();
    for (document, text) in documents() {
        let spans = text.split('`').skip(1).step_by(2);
        for span in spans.filter(|span| span.ends_with(".rs") && !span.contains([' ', '*', '\n'])) {
            let is_there =
                |source: &Source| source.path == span || source.path.ends_with(&format!("/{span}"));
            if !sources.iter().any(is_there) {
                broken.push(format!("{}: {span}", document.display()));
            }
        }
        let folder = document.parent().expect("a file is in a folder");
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#', ' ']).next());
        for link in links.filter(|link| {
            !link.is_empty() && !link.contains("://") && !link.starts_with("mailto:")
        }) {
            if !folder.join(link).exists() {
                broken.push(format!("{}: a link to {link}", document.display()));
            }
        }
    }
    check("documents name files that are there", broken);
}
