//! Commands of `docs/` and of the other pages for readers: each is run by a test that is named
//! here, or stands in a list with the reason why none runs it; and each command line of ours is one
//! that the program accepts.

#[path = "pages/commands.rs"]
mod commands;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use gatewright::cli::Cli;
use gatewright::configuration;
use gatewright_control::certificates::DnsSettings;
use gatewright_core::inputs::Kind;

use commands::{NOT_RUN, RUN};

/// A fenced block of commands.
struct Block {
    page: String,
    line: usize,
    /// The words after the language.
    mark: String,
    commands: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the pages for readers, with their texts.
fn pages() -> Vec<(String, String)> {
    let mut paths: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "SECURITY.md"]
        .map(|name| root().join(name))
        .into();
    for folder in ["docs", "docs/reference", "benches", "benches/certificates"] {
        let entries = fs::read_dir(root().join(folder))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path());
        paths.extend(
            entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")),
        );
    }
    paths.sort();
    let name = |path: &Path| {
        let under_docs = path
            .strip_prefix(root().join("docs"))
            .or(path.strip_prefix(root()));
        under_docs
            .expect("a page is in the project")
            .display()
            .to_string()
    };
    paths
        .iter()
        .map(|path| (name(path), fs::read_to_string(path).expect("UTF-8")))
        .collect()
}

/// Returns the fenced blocks of a page that have commands.
fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        let inside = lines
            .by_ref()
            .map(|(line, _)| line.trim_start())
            .take_while(|line| !line.starts_with("```"));
        let inside: Vec<&str> = inside.collect();
        let (language, mark) = info.split_once(' ').unwrap_or((info, ""));
        let commands = match language {
            "sh" | "bash" | "shell" => commands(&inside),
            "console" => commands(
                &inside
                    .iter()
                    .filter_map(|line| line.strip_prefix("$ "))
                    .collect::<Vec<_>>(),
            ),
            _ => continue,
        };
        found.push(Block {
            page: page.to_owned(),
            line: number + 1,
            mark: mark.to_owned(),
            commands,
        });
    }
    found
}

/// Returns command lines, without comments and here-documents; a line that continues is one with
/// the next.
fn commands(lines: &[&str]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    let mut document = None;
    for line in lines {
        if let Some(end) = &document {
            if line.trim() == *end {
                document = None;
            }
            continue;
        }
        document = line
            .split_once("<<")
            .map(|(_, word)| word.trim().trim_matches('\'').to_owned());
        let line = uncommented(line);
        let (line, continues) = line
            .strip_suffix('\\')
            .map_or((line, false), |line| (line.trim_end(), true));
        match found.last_mut().filter(|_| goes_on) {
            Some(last) => *last = format!("{last} {}", line.trim()),
            None if line.is_empty() => {}
            None => found.push(line.to_owned()),
        }
        goes_on = continues || line.ends_with('|');
    }
    found
}

/// Returns a line without its comment.
fn uncommented(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        match (quote, letter) {
            (None, '#') if before == ' ' => return line[..at].trim_end(),
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
        before = letter;
    }
    line.trim_end()
}

/// Returns the command lines of our program in a line of shell, as words.
fn ours(line: &str) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut is_first = true;
    let mut in_ours = false;
    for word in words(line) {
        match &*word {
            "|" | "&&" | "||" | ";" | "&" | "--" | "until" | "while" | "if" | "do" | "then"
            | "!" => {
                (is_first, in_ours) = (true, false);
            }
            word if word.starts_with(['>', '<']) || word.starts_with("2>") => in_ours = false,
            "gatewright" if is_first => {
                found.push(vec![word]);
                (is_first, in_ours) = (false, true);
            }
            _ => {
                if in_ours && let Some(last) = found.last_mut() {
                    last.push(word);
                }
                is_first = false;
            }
        }
    }
    found
}

/// Splits a line into words as a shell does, in as far as pages need it.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            (None, ' ') => {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()))
            }
            (None, ';') => {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
                words.push(";".to_owned());
            }
            _ => word.push(letter),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// Returns why the program does not accept a command line. Missing arguments are no fault of a
/// command that a text only mentions.
fn unaccepted(words: &[String]) -> Option<String> {
    // Words in capitals stand for something of the reader.
    let refused = Cli::command()
        .try_get_matches_from(words.iter().map(|word| match &**word {
            "URL" | "https://HOST/PATH" => "https://shop.example.org/".to_owned(),
            "HOST" => "shop.example.org".to_owned(),
            "HOST:8080" => "gatewright:8080".to_owned(),
            _ => word.clone(),
        }))
        .err()?;
    let is_a_part = refused.get(ContextKind::InvalidValue)
        == Some(&ContextValue::String(String::new()))
        || matches!(
            refused.kind(),
            ErrorKind::MissingRequiredArgument
                | ErrorKind::MissingSubcommand
                | ErrorKind::DisplayHelp
                | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                | ErrorKind::DisplayVersion
        );
    (!is_a_part).then(|| {
        format!(
            "{}: {}",
            words.join(" "),
            refused.to_string().lines().next().unwrap_or_default()
        )
    })
}

fn check(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn every_command_of_a_page_is_run_or_has_a_reason() {
    let all: Vec<Block> = pages()
        .iter()
        .flat_map(|(page, text)| blocks(page, text))
        .collect();
    assert!(all.len() > 60, "blocks are found: {}", all.len());
    let run: BTreeSet<&String> = all
        .iter()
        .filter(|block| !block.mark.is_empty())
        .flat_map(|block| &block.commands)
        .collect();
    let mut broken = Vec::new();
    let mut tests = BTreeSet::new();
    let mut reasons = BTreeSet::new();
    for block in &all {
        let at = format!("{}:{}", block.page, block.line);
        if let Some((_, part)) = block
            .mark
            .split_once(' ')
            .or((!block.mark.is_empty()).then_some(("", "")))
        {
            match RUN
                .iter()
                .find(|(page, of, ..)| (*page, *of) == (&*block.page, part))
            {
                Some(test) => {
                    tests.insert(test);
                }
                None => broken.push(format!(
                    "{at}: no test of RUN runs part {part:?} of the page"
                )),
            }
            continue;
        }
        for command in block
            .commands
            .iter()
            .filter(|command| !run.contains(command))
        {
            match NOT_RUN
                .iter()
                .find(|(begins, _)| command.starts_with(begins))
            {
                Some(reason) => {
                    reasons.insert(reason);
                }
                None => broken.push(format!("{at}: {command}")),
            }
        }
    }
    broken.extend(
        RUN.iter()
            .filter(|test| !tests.contains(test))
            .map(|test| format!("{test:?} has no block")),
    );
    broken.extend(
        NOT_RUN
            .iter()
            .filter(|one| !reasons.contains(one))
            .map(|one| format!("{one:?} is not needed")),
    );
    check(
        "mark the block and name its test in RUN, or give the reason in NOT_RUN",
        &broken,
    );
}

#[test]
fn tests_that_are_named_are_there() {
    let is_there = |(page, part, file, test): &(&str, &str, &str, &str)| {
        let text = ["e2e/tests", "e2e/inside/tests"]
            .iter()
            .find_map(|folder| fs::read_to_string(root().join(folder).join(file)).ok())
            .unwrap_or_default();
        let names_part = part.is_empty() || text.contains(&format!("{page}\", \"{part}\""));
        text.contains(&format!("fn {test}()")) && text.contains(page) && names_part
    };
    let lost = RUN
        .iter()
        .filter(|test| !is_there(test))
        .map(|test| format!("{test:?}"));
    check(
        "the file has the test, and names the page and its part",
        &lost.collect::<Vec<_>>(),
    );
}

#[test]
fn the_program_accepts_every_command_line_of_the_pages() {
    let mut broken = Vec::new();
    let mut count = 0;
    for (page, text) in pages() {
        let fenced = blocks(&page, &text);
        let in_blocks = fenced.iter().flat_map(|block| &block.commands).cloned();
        let prose: String = text.split("```").step_by(2).collect();
        let spans = prose
            .split('`')
            .skip(1)
            .step_by(2)
            .map(|span| span.replace('\n', " "));
        let spans =
            spans.filter(|span| span.starts_with("gatewright ") && !span.contains("COMMAND"));
        for words in in_blocks.chain(spans).flat_map(|line| ours(&line)) {
            count += 1;
            broken.extend(unaccepted(&words).map(|why| format!("{page}: {why}")));
        }
    }
    assert!(count > 60, "command lines are found: {count}");
    check("the program accepts it", &broken);
}

/// Returns the YAML blocks of a page.
fn yaml(page: &str) -> impl Iterator<Item = &str> {
    page.split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
}

/// Blocks that are a whole configuration, or one section of it.
#[test]
fn the_program_reads_every_configuration() {
    let head = "apiVersion: config.gatewright.io/v1alpha1\nkind: Configuration\n";
    let sections: BTreeSet<String> = configuration::reference()
        .into_iter()
        // The chart has a value of this name.
        .filter(|field| !field.path.contains('.') && field.path != "metrics")
        .filter(|field| !head.contains(&field.path))
        .map(|field| field.path + ":")
        .collect();
    let mut count = 0;
    let mut broken = Vec::new();
    for (page, text) in pages() {
        for block in yaml(&text) {
            let first = block.split_whitespace().next().unwrap_or_default();
            let whole = match block {
                whole if whole.contains("kind: Configuration") => whole.to_owned(),
                section if sections.contains(first) && section.starts_with(first) => {
                    head.to_owned() + section
                }
                _ => continue,
            };
            let file = tempfile::NamedTempFile::new().expect("a file");
            fs::write(file.path(), whole).expect("written");
            count += 1;
            let read = configuration::load(Some(file.path()), &[]);
            broken.extend(read.err().map(|error| format!("{page}: {error}")));
        }
    }
    assert!(count > 4, "configurations are found: {count}");
    check("the program reads it", &broken);
}

#[test]
fn the_program_reads_the_settings_of_dns_providers() {
    let page = fs::read_to_string(root().join("docs/certificates.md")).expect("a page");
    let providers = yaml(&page)
        .find(|text| text.starts_with("cloudflare:"))
        .expect("the providers");
    for line in providers.lines() {
        serde_yaml_ng::from_str::<DnsSettings>(line)
            .unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    assert_eq!(providers.lines().count(), 6, "{providers}");
}

#[test]
fn the_page_of_standalone_names_every_kind_that_is_read() {
    let page = fs::read_to_string(root().join("docs/standalone.md")).expect("the page");
    let list = page
        .split_once("**Which kinds.** ")
        .and_then(|(_, rest)| rest.split_once('.'))
        .expect("the list")
        .0;
    let named: BTreeSet<&str> = list
        .split([',', ' ', '\n'])
        .filter(|word| !matches!(*word, "" | "and"))
        .collect();
    let read = Kind::READ.iter().map(|kind| kind.as_str());
    assert_eq!(named, read.collect());
}

#[test]
fn words_of_a_shell_are_understood() {
    let lines = [
        "a \\",
        "  b   # why",
        "# nothing",
        "c <<'END'",
        "gatewright lost",
        "END",
        "d |",
        "gatewright lint -",
    ];
    assert_eq!(
        commands(&lines),
        ["a b", "c <<'END'", "d | gatewright lint -"]
    );
    let line = "until gatewright status -o 'yaml' 2>&1 | gatewright lint - && helm install gatewright x -- gatewright certs; a";
    let found: Vec<String> = ours(line).iter().map(|words| words.join(" ")).collect();
    assert_eq!(
        found,
        [
            "gatewright status -o yaml",
            "gatewright lint -",
            "gatewright certs"
        ]
    );
    let unknown = |line: &str| unaccepted(&words(line));
    assert_eq!(unknown("gatewright explain URL"), None);
    assert_eq!(unknown("gatewright explain"), None);
    assert!(
        unknown("gatewright explain --no-such-flag URL").is_some()
            && unknown("gatewright sing").is_some()
    );
}
