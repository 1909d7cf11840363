//! Checks imports for circles: none between folders, and none of more than three files.
//!
//! Imports are read as text: `use` trees and paths that begin with `crate`, `self` or `super`. A
//! re-exported name (`pub use`) belongs to the file that defines it. A module and its submodules
//! are one: imports from its ancestors do not count. Tests are excluded.

mod rust_files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rust_files::rust_files;

/// The crates by the folder of their root module, with subfolders that are crates of their own.
const CRATES: [(&str, &[&str]); 11] = [
    ("src/core", &["objects", "tenancy", "translate"]),
    ("src/core/objects", &["gateway_api"]),
    ("src/core/tenancy", &[]),
    ("src/core/translate", &[]),
    ("src/envoy", &[]),
    ("src/control", &[]),
    ("src/pki", &[]),
    ("src/kubernetes", &[]),
    (
        "src",
        &[
            "core",
            "envoy",
            "control",
            "kubernetes",
            "pki",
            "public_suffix",
        ],
    ),
    ("xds/src", &[]),
    ("acme/src", &[]),
];
/// The maximum number of files in a circle.
const MOST: usize = 3;
/// The name of folders that have a file for each row of a list. A row uses what its layer is made
/// of, and the layer uses the list (docs/decisions/040-settings.md).
const OF_A_LIST: &str = "settings";

/// The path of a module, from the root of its crate.
type Module = Vec<String>;
type Arrows = BTreeMap<Module, BTreeSet<Module>>;

struct Import {
    path: Vec<String>,
    name: String,
    is_handed_on: bool,
}

struct Crate {
    imports: BTreeMap<Module, Vec<Import>>,
}

impl Crate {
    fn read(folder: &str, others: &[&str]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut imports = BTreeMap::new();
        let mut tests = BTreeSet::new();
        for file in rust_files(&root) {
            let path = file
                .strip_prefix(&root)
                .expect("found below the root")
                .with_extension("");
            let mut module: Module = path
                .iter()
                .map(|part| part.to_str().expect("names are UTF-8").to_owned())
                .collect();
            if others.contains(&&*module[0]) {
                continue;
            }
            if module.last().is_some_and(|last| {
                last == "mod" || (module.len() == 1 && (last == "lib" || last == "main"))
            }) {
                module.pop();
            }
            let code = code(&fs::read_to_string(&file).expect("sources are readable UTF-8"));
            tests
                .extend(test_modules(&code).map(|name| [&module[..], &[name.to_owned()]].concat()));
            imports
                .entry(module)
                .or_insert_with(Vec::new)
                .extend(read_imports(without_tests(&code)));
        }
        imports.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        assert!(imports.len() > 3, "{folder}: its modules were found");
        Self { imports }
    }

    /// Resolves a path to its module, and the name in that module.
    fn resolve(
        &self,
        from: &Module,
        path: &[String],
        depth: usize,
    ) -> Option<(Module, Option<String>)> {
        let mut rest = path;
        let mut module = match rest.first().map(String::as_str)? {
            "crate" => {
                rest = &rest[1..];
                Module::new()
            }
            "self" => {
                rest = &rest[1..];
                from.clone()
            }
            "super" => {
                let above = rest.iter().take_while(|part| *part == "super").count();
                rest = &rest[above..];
                from[..from.len().checked_sub(above)?].to_vec()
            }
            first => {
                let below = [&from[..], &[first.to_owned()]].concat();
                self.imports.contains_key(&below).then(|| from.clone())?
            }
        };
        while let Some(next) = rest.first() {
            let below = [&module[..], std::slice::from_ref(next)].concat();
            if !self.imports.contains_key(&below) {
                break;
            }
            module = below;
            rest = &rest[1..];
        }
        let Some(name) = rest.first().filter(|name| *name != "self") else {
            return Some((module, None));
        };
        let handed_on = self.imports[&module]
            .iter()
            .find(|import| import.is_handed_on && import.name == *name);
        match handed_on.filter(|_| depth < 8) {
            Some(import) => self.resolve(&module, &import.path, depth + 1),
            None => Some((module, Some(name.clone()))),
        }
    }

    /// Returns the imports between files.
    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (module, imports) in &self.imports {
            for import in imports.iter().filter(|import| !import.is_handed_on) {
                let Some((other, Some(_))) = self.resolve(module, &import.path, 0) else {
                    continue;
                };
                if !module.starts_with(&other) {
                    arrows.entry(module.clone()).or_default().insert(other);
                }
            }
        }
        arrows
    }

    /// Returns the folder of a module: its own, if it has one.
    fn folder(&self, module: &Module) -> Module {
        let has_own = self
            .imports
            .keys()
            .any(|other| other.len() > module.len() && other.starts_with(module));
        module[..module.len() - usize::from(!has_own)].to_vec()
    }
}

/// Returns a text without comments.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| {
        if line.trim_start().starts_with("//") {
            ""
        } else {
            line
        }
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the modules that only tests have.
fn test_modules(code: &str) -> impl Iterator<Item = &str> {
    let marked = code.split("#[cfg(test)]").skip(1).map(str::trim_start);
    marked.filter_map(|rest| {
        rest.trim_start_matches("pub ")
            .strip_prefix("mod ")?
            .split([';', ' '])
            .next()
    })
}

/// Returns the code of a file before its own tests.
fn without_tests(code: &str) -> &str {
    let at = code.match_indices("#[cfg(test)]\nmod ").find(|(at, _)| {
        let declared = code[*at..].lines().nth(1).unwrap_or_default();
        declared.ends_with('{')
    });
    at.map_or(code, |(at, _)| &code[..at])
}

fn read_imports(code: &str) -> Vec<Import> {
    let mut imports = Vec::new();
    let mut body = String::new();
    let mut statement: Option<(bool, String)> = None;
    for line in code.lines() {
        let bare = line
            .strip_prefix("pub(crate) ")
            .or_else(|| line.strip_prefix("pub(super) "));
        let bare = bare.or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
        match (&mut statement, bare.strip_prefix("use ")) {
            (None, None) => body += &format!("{line}\n"),
            (None, Some(tree)) => statement = Some((bare.len() < line.len(), tree.to_owned())),
            (Some((_, tree)), _) => *tree += line.trim(),
        }
        if let Some((is_handed_on, tree)) = statement.take_if(|(_, tree)| tree.ends_with(';')) {
            imports.extend(
                paths(tree.trim_end_matches(';'))
                    .into_iter()
                    .map(|(path, name)| Import {
                        path,
                        name,
                        is_handed_on,
                    }),
            );
        }
    }
    // Paths in the code, including those that begin with an imported module.
    let named = |first: &str| {
        imports
            .iter()
            .find(|import| import.name == first)
            .map(|import| import.path.clone())
    };
    let words = body.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    let inline: Vec<Import> = words
        .filter(|word| word.contains("::") && !word.starts_with("::"))
        .filter_map(|word| {
            let path: Vec<String> = word
                .split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect();
            let path = match named(path.first()?) {
                Some(import) => [&import[..], &path[1..]].concat(),
                None => path,
            };
            Some(Import {
                name: path.last()?.clone(),
                path,
                is_handed_on: false,
            })
        })
        .collect();
    imports.extend(inline);
    imports
}

/// Returns the paths of a `use` tree, each with its local name.
fn paths(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some((before, list)) = tree.split_once('{') else {
        let (path, alias) = tree
            .split_once(" as ")
            .map_or((tree, None), |(path, alias)| (path, Some(alias)));
        let path: Vec<String> = path
            .split("::")
            .map(|part| part.trim().to_owned())
            .filter(|part| part != "self" || !tree.contains("::"))
            .collect();
        let name = alias
            .map(str::to_owned)
            .or_else(|| path.last().cloned())
            .unwrap_or_default();
        return vec![(path, name)];
    };
    let list = list.trim().strip_suffix('}').expect("what opens is closed");
    let mut all = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in list.char_indices().chain([(list.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let item = list[start..at].trim();
                if !item.is_empty() {
                    all.extend(paths(&format!("{}{item}", before.trim())));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    all
}

/// Returns the circles of imports.
fn circles(arrows: &Arrows) -> BTreeSet<BTreeSet<&Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = arrows
        .keys()
        .map(|from| (from, reach(from, arrows)))
        .collect();
    let together = |from: &&Module| -> BTreeSet<&Module> {
        reached[*from]
            .iter()
            .copied()
            .filter(|to| reached.get(to).is_some_and(|back| back.contains(*from)))
            .collect()
    };
    arrows
        .keys()
        .map(|from| together(&from))
        .filter(|circle| circle.len() > 1)
        .collect()
}

fn reach<'a>(from: &Module, arrows: &'a Arrows) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        let next = arrows
            .get(module)
            .into_iter()
            .flatten()
            .filter(|other| found.insert(*other));
        open.extend(next.collect::<Vec<_>>());
    }
    found
}

fn told(folder: &str, circle: &BTreeSet<&Module>) -> String {
    let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
    format!("{folder}: {}", names.join(", "))
}

#[test]
fn no_more_than_three_files_import_each_other_in_a_circle() {
    let mut broken = Vec::new();
    for (folder, others) in CRATES {
        let arrows = Crate::read(folder, others).arrows();
        broken.extend(
            circles(&arrows)
                .iter()
                .filter(|circle| circle.len() > MOST)
                .map(|circle| told(folder, circle)),
        );
    }
    assert!(
        broken.is_empty(),
        "give what they have in common a file below them:\n  {}",
        broken.join("\n  ")
    );
}

#[test]
fn no_folders_import_each_other_in_a_circle() {
    let mut broken = Vec::new();
    for (folder, others) in CRATES {
        let all = Crate::read(folder, others);
        let mut arrows = Arrows::new();
        for (from, to) in all
            .arrows()
            .iter()
            .flat_map(|(from, all)| all.iter().map(move |to| (from, to)))
        {
            let (from, to) = (all.folder(from), all.folder(to));
            let has_list = [&from, &to]
                .iter()
                .any(|folder| folder.last().is_some_and(|name| name == OF_A_LIST));
            // A folder and its subfolders are one.
            if !has_list && !from.starts_with(&to) && !to.starts_with(&from) {
                arrows.entry(from).or_default().insert(to);
            }
        }
        broken.extend(circles(&arrows).iter().map(|circle| told(folder, circle)));
    }
    assert!(
        broken.is_empty(),
        "one of them stands above the other:\n  {}",
        broken.join("\n  ")
    );
}

#[test]
fn states_name_no_stage_and_rules_neither() {
    let mut broken = Vec::new();
    for folder in ["src/core/tenancy", "src/core/translate"] {
        for (from, all) in Crate::read(folder, &[]).arrows() {
            for to in &all {
                if let (Some(one), Some(other)) = (rank(&from), rank(to))
                    && one < other
                {
                    let (from, to) = (from.join("::"), to.join("::"));
                    broken.push(format!("{folder}: {from} names {to}"));
                }
            }
        }
    }
    assert!(
        broken.is_empty(),
        "rules are below states, and states below stages:\n  {}",
        broken.join("\n  ")
    );
}

/// Returns the place of a module of an engine in the order of its folders.
fn rank(module: &Module) -> Option<usize> {
    let part = module.first()?;
    ["rule", "state", "stage"]
        .iter()
        .position(|folder| folder == part)
}

#[test]
fn circles_are_found() {
    let arrow = |from: &str, to: &[&str]| {
        (
            vec![from.to_owned()],
            to.iter()
                .map(|to| vec![(*to).to_owned()])
                .collect::<BTreeSet<Module>>(),
        )
    };
    let arrows = Arrows::from([
        arrow("a", &["b"]),
        arrow("b", &["c", "d"]),
        arrow("c", &["a"]),
        arrow("d", &[]),
    ]);
    let found: Vec<String> = circles(&arrows)
        .iter()
        .map(|circle| told("x", circle))
        .collect();
    assert_eq!(found, ["x: a, b, c"]);
    let tree = "super::a::{self, b::{C, D as E}, f}";
    let read: Vec<String> = paths(tree)
        .iter()
        .map(|(path, name)| format!("{} {name}", path.join("::")))
        .collect();
    assert_eq!(
        read,
        [
            "super::a a",
            "super::a::b::C C",
            "super::a::b::D E",
            "super::a::f f"
        ]
    );
}
