//! `docs/supported.md` says what the code claims: the features in the status of a class of each
//! fleet, the kinds that are read, and the features that the conformance suite cannot prove.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use gatewright_core::channel::Channel;
use gatewright_core::definitions::Definitions;
use gatewright_core::inputs::{Kind, Object};
use gatewright_core::translate::{Change, Engine, Fact, Fleet, Settings, StatusBody};
use serde_json::json;

/// A row of a table: the names of its first cell, and its other cells.
struct Row {
    names: Vec<String>,
    cells: Vec<String>,
}

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a file")
}

/// Returns the rows of the first table of a section.
fn rows(section: &str) -> Vec<Row> {
    let page = text("docs/supported.md");
    let (_, section) = page
        .split_once(&format!("\n## {section}\n"))
        .unwrap_or_else(|| panic!("no section {section}"));
    let table = section
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    table.skip(2).map(row).collect()
}

/// Returns a row of a line; the names are what begins with a capital letter between backticks.
fn row(line: &str) -> Row {
    let mut cells = line.trim_matches('|').split('|').map(str::trim);
    let first = cells.next().expect("a cell");
    let names = first.split('`').skip(1).step_by(2);
    Row {
        names: names
            .filter(|name| name.starts_with(char::is_uppercase))
            .map(str::to_owned)
            .collect(),
        cells: cells.map(str::to_owned).collect(),
    }
}

/// Returns the names of rows whose cell of a column has one of these words.
fn with(rows: &[Row], column: usize, words: &[&str]) -> BTreeSet<String> {
    rows.iter()
        .filter(|row| words.contains(&row.cells[column].split(':').next().unwrap_or_default()))
        .flat_map(|row| row.names.clone())
        .collect()
}

/// Returns the features that a class of this fleet claims.
fn claimed(fleet: Fleet, channel: Channel) -> BTreeSet<String> {
    let mut engine = Engine::new(Settings {
        fleet,
        channel,
        ..Settings::new("ours", Vec::new())
    });
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "ours"}, "spec": {"controllerName": "ours"}});
    let changes = vec![
        Change::put(Object::parse(class).expect("a class")),
        Change::Fact(Fact::Definitions(Definitions::default())),
        Change::Fact(Fact::TrustBundles(channel == Channel::Experimental)),
    ];
    let delta = engine.apply(changes, SystemTime::UNIX_EPOCH);
    let statuses = delta.statuses.into_values().flatten();
    let features = statuses.filter_map(|status| match status.body {
        StatusBody::Class(class) => Some(class.features),
        _ => None,
    });
    features.flatten().map(str::to_owned).collect()
}

#[test]
fn features_are_those_that_classes_claim() {
    let rows = rows("Features of the Gateway API");
    assert!(rows.len() > 10, "rows are found: {}", rows.len());
    for (column, fleet) in [
        (0, Fleet::Own),
        (1, Fleet::Shared),
        (2, Fleet::Dedicated),
        (2, Fleet::Isolated),
    ] {
        assert_eq!(
            with(&rows, column, &["yes"]),
            claimed(fleet, Channel::Standard),
            "{fleet:?}, standard channel"
        );
        assert_eq!(
            with(&rows, column, &["yes", "experimental"]),
            claimed(fleet, Channel::Experimental),
            "{fleet:?}, experimental channel"
        );
    }
}

#[test]
fn each_feature_and_cell_stands_once_and_is_known() {
    let rows = rows("Features of the Gateway API");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in rows.iter().flat_map(|row| &row.names) {
        *counts.entry(name).or_default() += 1;
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "features that stand twice: {twice:?}");
    for row in &rows {
        assert_eq!(row.cells.len(), 4, "{:?}", row.names);
        for cell in &row.cells[..3] {
            let word = cell.split(':').next().unwrap_or_default();
            assert!(
                ["yes", "no", "experimental"].contains(&word),
                "{:?}: {cell}",
                row.names
            );
        }
    }
}

#[test]
fn features_without_tests_are_those_of_the_list() {
    let list = text("e2e/conformance/unclaimed.txt");
    let listed: BTreeSet<String> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once(':')?.0.to_owned()))
        .collect();
    let rows = rows("Features of the Gateway API");
    assert_eq!(with(&rows, 3, &["no tests"]), listed);
    assert_eq!(
        with(&rows, 3, &["passes"]),
        claimed(Fleet::Dedicated, Channel::Standard),
        "the suite runs what fleet Dedicated claims"
    );
}

#[test]
fn kinds_are_those_that_are_read() {
    let rows = rows("Kinds of the Gateway API");
    let read: BTreeSet<String> = Kind::READ
        .iter()
        .filter(|kind| kind.group().starts_with("gateway.networking."))
        .map(|kind| kind.as_str().to_owned())
        .collect();
    assert_eq!(with(&rows, 0, &["yes", "experimental"]), read);
    let experimental: BTreeSet<String> = Kind::READ
        .iter()
        .filter(|kind| kind.group() == "gateway.networking.x-k8s.io")
        .map(|kind| kind.as_str().to_owned())
        .collect();
    assert_eq!(with(&rows, 0, &["experimental"]), experimental);
}
