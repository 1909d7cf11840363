//! Parses the documents of one file.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use zeroize::Zeroizing;

use super::cut::before_mistake;
use super::faults::{Fault, faults};
use super::named_files::{FIELD, NamedFiles};
use super::place;
use super::unique_keys::{read_json, read_yaml};
use gatewright_control::event::Event;
use gatewright_core::inputs::{Kind, Object, ObjectKey, Secret, Unreadable};

/// A problem of a file, or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file.
    pub path: Arc<PathBuf>,
    /// The line, from 1; 0 where it concerns the whole file.
    pub line: usize,
    /// The object, as far as it is known.
    pub object: Option<String>,
    /// The kind of the problem.
    pub kind: ProblemKind,
    /// The message: the error, and the remedy.
    pub reason: String,
    /// True if an AccessPolicy may be in it, and nobody knows for what.
    pub hides_access: bool,
}

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// It cannot be read.
    Unreadable,
    /// An object that is defined elsewhere as well; that definition is used.
    DefinedTwice,
}

impl ProblemKind {
    /// The reason, for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            ProblemKind::Unreadable => "Unreadable",
            ProblemKind::DefinedTwice => "DefinedTwice",
        }
    }
}

impl Problem {
    /// A part of a file that cannot be read.
    pub(super) fn unreadable(
        path: Arc<PathBuf>,
        line: usize,
        object: Option<String>,
        reason: String,
    ) -> Self {
        Self {
            path,
            line,
            object,
            kind: ProblemKind::Unreadable,
            reason,
            hides_access: false,
        }
    }

    /// The same, if an AccessPolicy may be in it that nobody can read.
    pub(super) fn hiding_access(self, hides_access: bool) -> Self {
        Self {
            hides_access,
            ..self
        }
    }

    /// An object that is defined elsewhere as well.
    pub(super) fn defined_twice(path: &Path, line: usize, key: &ObjectKey, reason: String) -> Self {
        let (path, object) = (Arc::new(path.to_path_buf()), Some(key.to_string()));
        Self {
            path,
            line,
            object,
            kind: ProblemKind::DefinedTwice,
            reason,
            hides_access: false,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if let Some(object) = &self.object {
            write!(f, ": {object}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl Problem {
    /// Converts the problem to an event for the log.
    pub fn event(&self) -> Event {
        let Self {
            path, line, object, ..
        } = self;
        let file = path.display().to_string();
        Event::Manifest {
            file,
            line: *line,
            object: object.clone(),
            text: self.to_string(),
        }
    }
}

/// The content of a file.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// The objects, each with its first line.
    pub objects: Vec<(usize, Object)>,
    /// What is in effect of objects that cannot be read as a whole, as long as there is nothing
    /// better.
    pub salvaged: Vec<(usize, Object)>,
    /// The problems of the parts that could not be parsed.
    pub problems: Vec<Problem>,
    /// The files that Secrets have in place of data.
    pub files: BTreeSet<PathBuf>,
    /// True if the files of a Secret give none, and may be half written.
    pub has_broken_files: bool,
}

/// Reads a file that a Secret of a namespace names, or says why not.
pub(super) type ReadFile<'a> = &'a dyn Fn(&str, &Path) -> Result<Zeroizing<String>, String>;

/// The maximum number of documents in one file.
const DOCUMENTS: usize = 100_000;

/// Parses the text of a file: JSON by the suffix of its name, otherwise YAML with any number of
/// documents. Secrets have data, and name no files.
pub fn parse(path: &Path, text: &str) -> Parsed {
    parse_in(None, path, text)
}

/// The same of a text whose objects without `metadata.namespace` are in this namespace.
pub(super) fn parse_in(namespace: Option<&str>, path: &Path, text: &str) -> Parsed {
    parse_with(namespace, path, text, &|_, _| {
        Err("is not read here: give the Secret data".to_owned())
    })
}

/// The same, with files of Secrets.
pub(super) fn parse_with(
    namespace: Option<&str>,
    path: &Path,
    text: &str,
    read_file: ReadFile<'_>,
) -> Parsed {
    // Editors on Windows put a byte order mark before the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parsed = Parsed::default();
    let path = Arc::new(path.to_path_buf());
    let json = path.extension().is_some_and(|ending| ending == "json");
    let documents = if json {
        vec![(1, text)]
    } else {
        documents(text)
    };
    if documents.len() > DOCUMENTS {
        let reason = format!(
            "{} documents in one file, at most {DOCUMENTS} are read",
            documents.len()
        );
        parsed
            .problems
            .push(Problem::unreadable(path, 0, None, reason));
        return parsed;
    }
    for (line, text) in documents {
        let value = if json {
            from_json(text)
        } else {
            from_yaml(text)
        };
        match value {
            Ok(Value::Null) => {}
            Ok(value) => {
                let mut document = Document::new(namespace, &path, line, read_file);
                document.take("", value);
                document.finish(text, &mut parsed);
            }
            Err((at, message)) => {
                let reason = in_file(&message, line, at);
                let line = line.saturating_add(at.saturating_sub(1));
                let rest = Unreadable::cut(&before_mistake(text), text, reason.clone());
                let problem = Problem::unreadable(path.clone(), line, None, reason);
                parsed
                    .problems
                    .push(problem.hiding_access(rest.hides_access));
                parsed
                    .salvaged
                    .extend(rest.salvaged.map(|object| (line, object)));
            }
        }
    }
    parsed
}

/// The documents of a file as values: the first line, the text and the value of each.
///
/// # Errors
/// When one cannot be read: a message with file and line.
pub(crate) fn values<'a>(
    file: &str,
    text: &'a str,
) -> Result<Vec<(usize, &'a str, Value)>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let is_json = file.ends_with(".json");
    let documents = if is_json {
        vec![(1, text)]
    } else {
        documents(text)
    };
    let read = if is_json { from_json } else { from_yaml };
    documents
        .into_iter()
        .map(|(line, text)| match read(text) {
            Ok(value) => Ok((line, text, value)),
            Err((at, message)) => {
                let place = line.saturating_add(at.saturating_sub(1));
                Err(format!("{file}:{place}: {}", in_file(&message, line, at)))
            }
        })
        .collect()
}

/// What was read of one document. The lines are looked up at the end, all at once.
struct Document<'a> {
    /// The namespace of objects that do not say theirs.
    namespace: Option<&'a str>,
    path: &'a Arc<PathBuf>,
    /// The first line.
    line: usize,
    objects: Vec<(String, Object)>,
    salvaged: Vec<(String, Object)>,
    problems: Vec<(String, Problem)>,
    read_file: ReadFile<'a>,
    files: BTreeSet<PathBuf>,
    has_broken_files: bool,
}

impl<'a> Document<'a> {
    fn new(
        namespace: Option<&'a str>,
        path: &'a Arc<PathBuf>,
        line: usize,
        read_file: ReadFile<'a>,
    ) -> Self {
        Self {
            namespace,
            path,
            line,
            objects: Vec::new(),
            salvaged: Vec::new(),
            problems: Vec::new(),
            read_file,
            files: BTreeSet::new(),
            has_broken_files: false,
        }
    }

    /// Takes the object, or the objects of the List, that the document has at a place.
    fn take(&mut self, place: &str, mut value: Value) {
        if value.get("kind").and_then(Value::as_str) == Some("List") {
            let Some(Value::Array(items)) = value.get_mut("items").map(Value::take) else {
                return self.refuse(place, None, "a List needs items".to_owned(), false);
            };
            for (number, item) in items.into_iter().enumerate() {
                self.take(&below(place, &format!("items[{number}]")), item);
            }
            return;
        }
        without_nulls(&mut value);
        if let Some(namespace) = self.namespace {
            place_in(namespace, &mut value);
        }
        let named = match NamedFiles::of(&value, self.path) {
            Ok(named) => named,
            Err(why) => {
                let reason = format!("{FIELD}: {why}");
                return self.refuse(&below(place, FIELD), name(&value), reason, false);
            }
        };
        let read = named.map(|named| {
            let data = self.data(&named, &value);
            if let Ok(data) = &data {
                value["stringData"] = data.clone();
            }
            (named, data.map(drop))
        });
        match Object::parse_written(&value) {
            Ok(Object::Secret(secret)) => {
                let secret = match read {
                    Some((named, read)) => self.of_files(secret, &named, read),
                    None => secret,
                };
                secret.judge();
                self.objects.push((place.to_owned(), secret.into()));
            }
            Ok(object) => self.objects.push((place.to_owned(), object)),
            Err(unreadable) => {
                let Unreadable {
                    why,
                    salvaged,
                    hides_access,
                } = *unreadable;
                for Fault { field, reason } in faults(&value, why) {
                    let field = field.as_deref().or_else(|| field_of(&reason));
                    let field = field.map_or_else(|| place.to_owned(), |field| below(place, field));
                    self.refuse(&field, name(&value), reason, hides_access);
                }
                self.salvaged
                    .extend(salvaged.map(|object| (place.to_owned(), object)));
            }
        }
    }

    /// Reads the files that a Secret names.
    fn data(&mut self, named: &NamedFiles, secret: &Value) -> Result<Value, String> {
        self.files.extend(named.paths());
        let namespace = secret.pointer("/metadata/namespace");
        let namespace = namespace.and_then(Value::as_str).unwrap_or("default");
        named.data(|file| (self.read_file)(namespace, file))
    }

    /// The Secret of files, or of what is wrong with them.
    fn of_files(&mut self, secret: Secret, named: &NamedFiles, read: Result<(), String>) -> Secret {
        let secret = secret.of_files(&named.to_string(), read);
        self.has_broken_files |= secret.certificate.is_err() && secret.users.is_err();
        secret
    }

    fn refuse(&mut self, field: &str, object: Option<String>, reason: String, hides_access: bool) {
        let problem = Problem::unreadable(self.path.clone(), self.line, object, reason);
        let problem = problem.hiding_access(hides_access);
        self.problems.push((field.to_owned(), problem));
    }

    /// Adds everything to the content of the file.
    fn finish(self, text: &str, parsed: &mut Parsed) {
        let Self {
            namespace: _,
            path: _,
            line,
            objects,
            salvaged,
            problems,
            read_file: _,
            files,
            has_broken_files,
        } = self;
        parsed.files.extend(files);
        parsed.has_broken_files |= has_broken_files;
        let fields: Vec<&str> = objects
            .iter()
            .chain(&salvaged)
            .map(|(place, _)| place.as_str())
            .chain(problems.iter().map(|(field, _)| field.as_str()))
            .collect();
        let lines = if fields.iter().all(|field| field.is_empty()) {
            vec![0; fields.len()]
        } else {
            place::lines_of(text, &fields)
        };
        let mut lines = lines.into_iter().map(|offset| line + offset);
        let objects = objects.into_iter().zip(&mut lines);
        parsed
            .objects
            .extend(objects.map(|((_, object), line)| (line, object)));
        let salvaged = salvaged.into_iter().zip(&mut lines);
        parsed
            .salvaged
            .extend(salvaged.map(|((_, object), line)| (line, object)));
        let problems = problems.into_iter().zip(lines);
        parsed
            .problems
            .extend(problems.map(|((_, problem), line)| Problem { line, ..problem }));
    }
}

/// The path of a field below a place; the document itself has the empty one.
fn below(place: &str, field: &str) -> String {
    match place {
        "" => field.to_owned(),
        place => format!("{place}.{field}"),
    }
}

/// Puts an object that does not say its namespace into this one, as `kubectl apply -n` does.
fn place_in(namespace: &str, value: &mut Value) {
    let kind = value.get("kind").and_then(Value::as_str);
    let mut kinds = Kind::READ.iter();
    let is_namespaced = kinds.any(|of| of.namespaced() && Some(of.as_str()) == kind);
    if let Some(Value::Object(meta)) = value.get_mut("metadata").filter(|_| is_namespaced) {
        meta.entry("namespace").or_insert_with(|| namespace.into());
    }
}

/// Removes fields that are null, and a status without other fields: to the API server such a field
/// is absent, and programs in Go (such as `ingress2gateway`) write `status: {parents: null}`.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(without_nulls);
            fields.retain(|name, field| !(field.is_null() || name == "status" && is_empty(field)));
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

fn is_empty(field: &Value) -> bool {
    field.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Returns kind and name of an invalid object.
fn name(value: &Value) -> Option<String> {
    let kind = value.get("kind")?.as_str()?.split_whitespace().next()?;
    let meta = value.get("metadata")?;
    let name = meta.get("name")?.as_str()?;
    let namespace = match kind {
        "Namespace" | "GatewayClass" => String::new(),
        _ => format!(
            "{}/",
            meta.get("namespace")
                .and_then(Value::as_str)
                .unwrap_or("default")
        ),
    };
    Some(format!("{} {namespace}{name}", kind.to_lowercase()))
}

/// Returns the field that a message names: the path before the first colon, or after `unknown
/// field`.
fn field_of(reason: &str) -> Option<&str> {
    let path = reason
        .strip_prefix("unknown field ")
        .or_else(|| reason.split_once(": ").map(|(path, _)| path));
    path.filter(|path| !path.contains(' '))
}

/// Returns the YAML documents of a text, each with its first line.
pub(super) fn documents(text: &str) -> Vec<(usize, &str)> {
    let mut all = Vec::new();
    let mut start = 0;
    let mut first = 1;
    let mut at = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let bare = line.trim_end();
        if bare == "---" || bare.starts_with("--- ") || bare == "..." {
            all.push((first, &text[start..at]));
            start = at + line.len();
            first = index + 2;
        }
        at += line.len();
    }
    all.push((first, &text[start..]));
    all
}

fn from_yaml(text: &str) -> Result<Value, (usize, String)> {
    // The parser expands aliases under a limit of its own.
    read_yaml(text).or_else(|error| {
        if text
            .lines()
            .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
        {
            return Ok(Value::Null);
        }
        let line = error.location().map_or(1, |place| place.line());
        Err((line, format!("not YAML: {error}")))
    })
}

fn from_json(text: &str) -> Result<Value, (usize, String)> {
    read_json(text).map_err(|error| (error.line(), format!("not JSON: {error}")))
}

/// Converts the line numbers in a parser's message about a document that begins in line `first` to
/// those of the file. The line `at` of the document is omitted, since the problem has it.
fn in_file(message: &str, first: usize, at: usize) -> String {
    let mut parts = message.split(" at line ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let number = &part[..part.len() - rest.len()];
        text += &match number.parse::<usize>() {
            Ok(line) if line == at => format!(" at{rest}"),
            Ok(line) => format!(
                " at line {}{rest}",
                first.saturating_add(line.saturating_sub(1))
            ),
            Err(_) => format!(" at line {part}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Parsed {
        parse(Path::new("x.yaml"), text)
    }

    const SERVICE: &str =
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  ports: [{port: 80}]\n";

    #[test]
    fn several_documents_and_lists_are_read() {
        let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n";
        let parsed = check(&format!("# a comment\n---\n{SERVICE}---\n{list}"));
        assert_eq!(parsed.problems, []);
        assert_eq!(
            parsed
                .objects
                .iter()
                .map(|(line, _)| *line)
                .collect::<Vec<_>>(),
            [3, 12]
        );
    }

    #[test]
    fn a_problem_names_the_line_and_hurts_no_other_document() {
        let broken = "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec:\n  prots: []\n";
        let parsed = check(&format!("{broken}---\n{SERVICE}---\na: [\n"));
        assert_eq!(parsed.objects.len(), 1);
        assert_eq!(
            parsed.problems[0].to_string(),
            "x.yaml:5: service default/bad: unknown field spec.prots"
        );
        assert!(
            parsed.problems[1].reason.starts_with("not YAML") && parsed.problems[1].line >= 12,
            "{:?}",
            parsed.problems[1]
        );
    }

    #[test]
    fn a_mistake_of_syntax_is_told_with_one_line_which_is_that_of_the_file() {
        fn told(text: &str) -> Vec<String> {
            check(text)
                .problems
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        }
        let head = "# a comment\n---\n";
        let colon = "kind: Service\nmetadata: name: web\n";
        let why = "not YAML: mapping values are not allowed in this context at column 15";
        assert_eq!(told(colon), [format!("x.yaml:2: {why}")]);
        assert_eq!(
            told(&format!("{head}{colon}")),
            [format!("x.yaml:4: {why}")]
        );
        assert_eq!(
            told(&format!("{head}{SERVICE}---\n{colon}")),
            [format!("x.yaml:10: {why}")]
        );
        // The line where the construct began is a line of the file as well.
        let open = told(&format!("{head}spec:\n  ports: [80,\nkind: Service\n"));
        let began = "while parsing a flow sequence at line 4 column 10";
        assert!(
            open[0].starts_with("x.yaml:6: ") && open[0].ends_with(began),
            "{open:?}"
        );
        let json = parse(Path::new("x.json"), "{\n\n]").problems[0].to_string();
        assert_eq!(json, "x.json:3: not JSON: key must be a string at column 1");
    }

    #[test]
    fn every_mistake_in_a_list_has_its_line_and_the_text_is_read_once_for_all_lines() {
        fn list(routes: usize) -> String {
            let head = "apiVersion: v1\nkind: List\nitems:\n";
            let route = "- apiVersion: gateway.networking.k8s.io/v1\n  kind: HTTPRoute\n  metadata:\n    name: rN\n    \
                         namespace: default\n  spec:\n    hostnames: [rN.example.org]\n    rules:\n    - backendRefs:\n      \
                         - name: web\n        port: \"80\"\n";
            let routes = (0..routes).map(|number| route.replace('N', &number.to_string()));
            head.to_owned() + &routes.collect::<String>()
        }
        for routes in [1, 400] {
            let before = place::tests::PASSES.get();
            let parsed = check(&list(routes));
            let passes = place::tests::PASSES.get() - before;
            assert_eq!(passes, 1, "passes over {routes} routes");
            let lines: Vec<usize> = parsed.problems.iter().map(|one| one.line).collect();
            let expected: Vec<usize> = (0..routes).map(|number| 3 + 11 * (number + 1)).collect();
            assert_eq!(lines, expected, "the lines of the ports");
            let salvaged: Vec<usize> = parsed.salvaged.iter().map(|(line, _)| *line).collect();
            let expected: Vec<usize> = (0..routes).map(|number| 4 + 11 * number).collect();
            assert_eq!(salvaged, expected, "the lines of the routes");
        }
        // Lists in Lists, in JSON.
        let service = "{\"apiVersion\": \"v1\", \"kind\": \"Service\", \"metadata\": {\"name\": \"a\"},\n\"spec\": {\"prots\": []}}";
        let inner = format!("{{\"kind\": \"List\", \"items\": [\n{service},\n{service}]}}");
        let outer = format!("{{\"kind\": \"List\", \"items\": [\n{inner}]}}");
        let problems = parse(Path::new("x.json"), &outer).problems;
        let lines: Vec<usize> = problems.iter().map(|one| one.line).collect();
        assert_eq!(lines, [4, 6], "{problems:?}");
    }

    #[test]
    fn a_route_of_many_rules_is_not_read_once_for_each_rule() {
        let rule = "  - matches: [{path: {value: /a}}]\n    filters: 5\n".repeat(3000);
        let route = format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: a}}\nspec:\n  \
             hostnames: [a.example.org]\n  rules:\n{rule}"
        );
        let parsed = check(&route);
        let [(_, Object::Route(route))] = &parsed.salvaged[..] else {
            panic!("{:?}", parsed.problems)
        };
        assert_eq!(route.rules.len(), 0, "more than a route may have");
        assert_eq!(route.hostnames.len(), 1, "its hostnames stay its own");
    }

    #[test]
    fn an_error_of_a_type_names_the_field_and_its_line() {
        let route = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a}\nspec:\n  rules:\n  \
                     - backendRefs:\n    - name: a\n      port: 80\n  - backendRefs:\n    - name: a\n      port: \"80\"\n";
        let why = "httproute default/a: spec.rules[1].backendRefs[0].port: expected a whole number, found \"80\"";
        assert_eq!(
            check(&format!("{SERVICE}---\n{route}")).problems[0].to_string(),
            format!("x.yaml:17: {why}")
        );
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        let parsed = check(&format!("\u{feff}{SERVICE}---\n{SERVICE}"));
        assert_eq!(parsed.objects.len(), 2, "{:?}", parsed.problems);
        assert_eq!(parsed.problems.len(), 0, "{:?}", parsed.problems);
        let json = "\u{feff}{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {\"name\": \"a\"}}";
        assert_eq!(parse(Path::new("x.json"), json).objects.len(), 1);
    }

    #[test]
    fn unsupported_kinds_are_reported() {
        let parsed = check("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n");
        assert!(
            parsed.problems[0].reason.contains("HTTPRoute"),
            "{:?}",
            parsed.problems
        );
        let parsed = check("kind: Service\n");
        assert!(parsed.problems[0].reason.contains("apiVersion"));
    }

    #[test]
    fn aliases_cannot_blow_a_small_file_up() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            bomb += &format!(
                "a{i}: &a{i} [{}]\n",
                vec![format!("*a{}", i - 1); 10].join(", ")
            );
        }
        assert_eq!(check(&bomb).objects.len(), 0);
        assert_eq!(check(&bomb).problems.len(), 1);
    }

    #[test]
    fn a_field_that_is_null_is_one_that_is_not_there() {
        let text = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a, labels: null}\nspec:\n  \
                    parentRefs: [{name: web, port: null}]\n  rules: null\nstatus: {parents: null}\n";
        let parsed = check(text);
        assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
        assert_eq!(parsed.objects.len(), 1);
    }

    #[test]
    fn two_equal_keys_of_a_mapping_are_refused_with_the_line_of_the_second() {
        fn told(file: &str, text: &str) -> (Vec<String>, Vec<String>) {
            let parsed = parse(Path::new(file), text);
            let objects: Vec<String> = parsed
                .objects
                .iter()
                .map(|(_, object)| object.key().to_string())
                .collect();
            (
                objects,
                parsed
                    .problems
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>(),
            )
        }
        let block = SERVICE.replace("spec:\n", "spec:\n  ports: []\n");
        let why = "x.yaml:12: not YAML: spec: duplicate key \"ports\" at column 3";
        let all = format!(
            "{SERVICE}---\n{block}---\n{}",
            SERVICE.replace("web", "beside")
        );
        assert_eq!(
            told("x.yaml", &all),
            (
                vec![
                    "service default/web".into(),
                    "service default/beside".into()
                ],
                vec![why.into()]
            )
        );
        for (text, place) in [
            (
                "apiVersion: v1\nkind: Service\nkind: Service\n",
                "x.yaml:3: not YAML: duplicate key \"kind\"",
            ),
            (
                "spec: {ports: [],\n  ports: []}\n",
                "x.yaml:2: not YAML: spec: duplicate key \"ports\"",
            ),
            (
                "a:\n- b: 1\n- c: 1\n  \"c\": 2\n",
                "x.yaml:4: not YAML: a[1]: duplicate key \"c\"",
            ),
            (
                "a: {1: x, \"1\": y}\n",
                "x.yaml:1: not YAML: a: duplicate key \"1\"",
            ),
            (
                "a: {? b : 1, b: 2}\n",
                "x.yaml:1: not YAML: a: duplicate key \"b\"",
            ),
            (
                "a: &a {x: 1}\nb: {<<: *a, <<: *a}\n",
                "x.yaml:2: not YAML: b: duplicate key \"<<\"",
            ),
        ] {
            let (objects, problems) = told("x.yaml", text);
            assert_eq!(objects, [""; 0], "{text}");
            assert!(
                problems.len() == 1 && problems[0].starts_with(place),
                "{problems:?}"
            );
        }
        let json = "{\"kind\": \"Service\",\n \"spec\": {\"ports\": [],\n  \"ports\": []}}";
        let problems = told("x.json", json).1;
        assert!(
            problems[0].starts_with("x.json:3: not JSON: duplicate key \"ports\""),
            "{problems:?}"
        );
        // In a List, too, no object of the document is used.
        let list = "kind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a, name: b}}\n";
        assert_eq!(told("x.yaml", list).0, [""; 0]);
        // Equal keys of different mappings are usual.
        assert_eq!(check(&format!("{SERVICE}---\n{SERVICE}")).problems, []);
    }

    #[test]
    fn merge_keys_add_what_a_mapping_does_not_have() {
        fn read(text: &str) -> Value {
            from_yaml(text).expect("YAML")
        }
        let expected = read("a: {x: 1, y: 2}\nb: {x: 1, y: 3, z: 4}\n");
        assert_eq!(
            read("a: &a {x: 1, y: 2}\nb: {y: 3, <<: *a, z: 4}\n"),
            expected
        );
        assert_eq!(
            read("a: &a {x: 1, y: 2}\nb:\n  <<: [{y: 3}, *a]\n  z: 4\n"),
            expected,
            "the first one goes first"
        );
        let wrong = from_yaml("a: 1\nb: {<<: x}\n").expect_err("no mapping");
        assert_eq!(wrong.0, 2, "{wrong:?}");
        assert!(wrong.1.contains("<<"), "{wrong:?}");
        assert_eq!(
            from_json("{\"<<\": {\"x\": 1}}").expect("JSON")["<<"]["x"],
            1,
            "JSON has no merge keys"
        );
    }

    #[test]
    fn json_is_read_as_well() {
        let parsed = parse(
            Path::new("x.json"),
            r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}"#,
        );
        assert_eq!(parsed.objects.len(), 1, "the object is read");
        assert_eq!(parsed.problems.len(), 0, "there is no problem");
        assert_eq!(parse(Path::new("x.json"), "{\n\n]").problems[0].line, 3);
    }
}
