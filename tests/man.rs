//! Man pages and completions of a release: generated from the command line, with every command and
//! every flag.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command as Program, Output};

use clap::{Command, CommandFactory};
use gatewright::cli::Cli;

fn gatewright(arguments: &[&str]) -> Output {
    let out = Program::new(env!("CARGO_BIN_EXE_gatewright"))
        .args(arguments)
        .output()
        .expect("it runs");
    assert!(
        out.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    out
}

/// Collects the flags of every command by the name of its page, as `gatewright-certs-renew`.
fn commands(of: &Command, name: &str, all: &mut BTreeMap<String, Vec<String>>) {
    let flags = of
        .get_arguments()
        .filter(|arg| !arg.is_hide_set())
        .filter_map(|arg| arg.get_long());
    all.insert(name.to_owned(), flags.map(str::to_owned).collect());
    for sub in of.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        commands(sub, &format!("{name}-{}", sub.get_name()), all);
    }
}

#[test]
fn every_command_has_a_page_with_all_of_its_flags() {
    let dir = tempfile::Builder::new()
        .prefix("man")
        .tempdir()
        .expect("a directory");
    let into = dir.path().join("man/man1");
    gatewright(&["man", &into.display().to_string()]);
    let mut wanted = BTreeMap::new();
    commands(&Cli::command(), "gatewright", &mut wanted);
    assert!(
        wanted.len() > 15 && wanted.contains_key("gatewright-certs-renew"),
        "{:?}",
        wanted.keys()
    );
    let mut there: Vec<String> = fs::read_dir(&into)
        .expect("pages")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    there.sort();
    let mut names: Vec<String> = wanted.keys().map(|name| format!("{name}.1")).collect();
    names.sort();
    assert_eq!(there, names);
    for (name, flags) in wanted {
        let page = fs::read_to_string(into.join(format!("{name}.1"))).expect("a page");
        assert!(page.contains(&format!(".TH {name} 1")), "{name}: {page}");
        // A hyphen is written with a backslash (groff_man(7)).
        let plain = page.replace("\\-", "-");
        for flag in flags {
            assert!(
                plain.contains(&format!("--{flag}")),
                "{name} says nothing of --{flag}"
            );
        }
        // Examples keep their lines.
        if name == "gatewright-certs" {
            assert!(
                plain.contains(".SH EXAMPLES\n.nf\n  gatewright certs --watch    "),
                "{plain}"
            );
        }
    }
}

#[test]
fn completion_scripts_name_every_command() {
    let mut root = Cli::command();
    root.build();
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(gatewright(&["completion", shell]).stdout).expect("text");
        for sub in root.get_subcommands() {
            assert!(
                script.contains(sub.get_name()),
                "{shell}: {}",
                sub.get_name()
            );
        }
    }
    // A shell reads the completions.
    let dir = tempfile::Builder::new()
        .prefix("completion")
        .tempdir()
        .expect("a directory");
    let file: &Path = &dir.path().join("gatewright.bash");
    fs::write(file, gatewright(&["completion", "bash"]).stdout).expect("a file");
    let sourced = Program::new("bash")
        .args(["-c", ". \"$1\" && complete -p gatewright", "bash"])
        .arg(file)
        .output();
    let sourced = sourced.expect("bash runs");
    assert!(
        sourced.status.success(),
        "{}",
        String::from_utf8_lossy(&sourced.stderr)
    );
}
