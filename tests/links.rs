//! Links between pages lead to a page and to a heading of it, texts of the program, of the chart
//! and of comments name pages that are there, and the page of style has the numbers of `tidy.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

const FOLDERS: [&str; 10] = [
    "acme", "benches", "deploy", "docs", "e2e", "examples", "kind", "src", "tests", "xds",
];

/// Adds the files of a folder and of those below it, without what was built there.
fn add_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if !path.is_dir() {
            found.push(path);
        } else if !path.ends_with("target") {
            add_files(&path, found);
        }
    }
}

/// Returns the texts of the project, by their paths from its root.
fn texts() -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for entry in fs::read_dir(root).expect("the root") {
        paths.push(entry.expect("an entry").path());
    }
    for folder in FOLDERS {
        add_files(&root.join(folder), &mut paths);
    }
    paths
        .iter()
        .filter(|path| path.is_file())
        .filter_map(|path| {
            let name = path.strip_prefix(root).expect("in the project");
            Some((name.to_owned(), fs::read_to_string(path).ok()?))
        })
        .collect()
}

/// Returns the anchors of the headings of a page, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut found = BTreeSet::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let heading = line.trim_start_matches('#');
        if is_code || heading == line || !heading.starts_with(' ') {
            continue;
        }
        let anchor: String = heading
            .trim()
            .to_lowercase()
            .chars()
            .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect();
        let again = (1..)
            .map(|number| format!("{anchor}-{number}"))
            .find(|again| !found.contains(again));
        let is_new = found.insert(anchor);
        found.extend(again.filter(|_| !is_new));
    }
    found
}

/// Returns the path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                found.pop();
            }
            Component::CurDir => {}
            part => found.push(part),
        }
    }
    found
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// Returns the lines of a page that look like rows of a table and are none, with their numbers: a
/// row that no head is above, or one with another number of cells than the head.
fn stray_rows(page: &str) -> Vec<(usize, &str)> {
    fn cells(row: &str) -> usize {
        row.replace("\\|", "").matches('|').count()
    }
    let mut stray = Vec::new();
    let mut is_code = false;
    let mut head = None;
    let lines: Vec<&str> = page.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let row = line.trim();
        if row.starts_with("```") {
            is_code = !is_code;
        }
        if is_code || !row.starts_with('|') {
            head = None;
            continue;
        }
        let next = lines.get(index + 1).map_or("", |next| next.trim());
        let begins =
            next.starts_with('|') && next.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '));
        match head {
            None if begins => head = Some(cells(row)),
            Some(count) if count == cells(row) => {}
            None | Some(_) => stray.push((index + 1, *line)),
        }
    }
    stray
}

#[test]
fn tables_are_whole() {
    let mut broken = Vec::new();
    for (name, text) in texts() {
        if name.extension().is_none_or(|ending| ending != "md") {
            continue;
        }
        for (line, row) in stray_rows(&text) {
            broken.push(format!("{}:{line}: {row}", name.display()));
        }
    }
    assert!(
        broken.is_empty(),
        "rows that are shown as text:\n{}",
        broken.join("\n")
    );
}

#[test]
fn a_row_without_its_table_is_found() {
    let table = "| a | b |\n| --- | --- |\n| `x \\| y` | c |\n";
    assert_eq!(stray_rows(table), [], "a table");
    assert_eq!(stray_rows("```sh\n| grep a\n```\n"), [], "code");
    let cut = format!("{table}\n| d | e |\n| f | g |\n");
    let lines: Vec<usize> = stray_rows(&cut).iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [5, 6], "rows after an empty line");
    let uneven = format!("{table}| d |\n");
    assert_eq!(
        stray_rows(&uneven),
        [(4, "| d |")],
        "a row with fewer cells"
    );
}

#[test]
fn links_lead_to_headings() {
    let texts = texts();
    let mut broken = Vec::new();
    let mut count = 0;
    for (path, text) in texts.iter().filter(|(path, _)| is_page(path)) {
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', ' ']).next());
        for link in links.filter(|link| !link.contains("://")) {
            let Some((page, anchor)) = link.split_once('#') else {
                continue;
            };
            let target = match page {
                "" => path.clone(),
                page => plain(&path.parent().expect("a folder").join(page)),
            };
            count += 1;
            let is_there = texts
                .get(&target)
                .is_some_and(|text| anchors(text).contains(anchor));
            if !is_there {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(count > 60, "links with anchors are found: {count}");
    assert!(broken.is_empty(), "no heading:\n  {}", broken.join("\n  "));
}

#[test]
fn pages_that_texts_name_are_there() {
    let texts = texts();
    let mut broken = Vec::new();
    for (path, text) in &texts {
        for (at, _) in text.match_indices("docs/") {
            let before = text[..at].chars().next_back();
            let named: String = text[at..]
                .chars()
                .take_while(|letter| letter.is_ascii_alphanumeric() || "/-.".contains(*letter))
                .collect();
            let named = named.trim_end_matches('.');
            let is_ours = !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '/');
            if is_ours && is_page(Path::new(named)) && !texts.contains_key(Path::new(named)) {
                broken.push(format!("{}: {named}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "no page:\n  {}", broken.join("\n  "));
}

#[test]
fn anchors_are_those_of_github() {
    let page = "# Wildcards, and hosts: DNS-01\n```sh\n# no heading\n```\n## `a` b\n## `a` b\n";
    let expected = ["wildcards-and-hosts-dns-01", "a-b", "a-b-1"];
    let expected: BTreeSet<String> = expected.map(str::to_owned).into();
    assert_eq!(anchors(page), expected);
}

#[test]
fn the_page_of_style_has_the_numbers_that_are_counted() {
    let texts = texts();
    let (page, tidy) = (
        &texts[Path::new("docs/style.md")],
        &texts[Path::new("tests/tidy.rs")],
    );
    let number = |name: &str| {
        let (_, rest) = tidy
            .split_once(&format!("const {name}: usize = "))
            .unwrap_or_else(|| panic!("tidy.rs has {name}"));
        rest.split(';').next().expect("it ends").to_owned()
    };
    for row in [
        format!("comments and its tests | {} |", number("LONGEST")),
        format!("a line with a comment | {} |", number("COMMENT_WIDTH")),
        format!(
            "of a file; of all files | {}; {}, and falling |",
            number("CLOSURES_OF_A_FILE"),
            number("CLOSURES")
        ),
    ] {
        assert!(page.contains(&row), "docs/style.md has no row: {row}");
    }
}
