//! The program as a plugin of kubectl: under the name `kubectl-gatewright` commands read the
//! cluster of the current context, and help says `kubectl gatewright`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{Command, CommandFactory, FromArgMatches, Parser};

use super::{Cli, Cluster, Command as Verb};

/// The name of the program by which kubectl finds its plugin.
const NAME: &str = "kubectl-gatewright";
/// The commands of which help tells: those that read a cluster, and those about the program.
const SHOWN: [&str; 13] = [
    "explain",
    "status",
    "lint",
    "plan",
    "certs",
    "history",
    "claims",
    "envoys",
    "logs",
    "support-bundle",
    "ui",
    "completion",
    "version",
];

const EXAMPLES: &str = "\
Examples:
  kubectl gatewright explain https://shop.example.org/cart
  kubectl gatewright status -n team-a
  kubectl gatewright lint ./manifests
  kubectl gatewright plan -f ./manifests
  kubectl gatewright certs -n team-a
  kubectl gatewright logs --errors -n team-a
  kubectl gatewright ui --open

The commands read what you may read of the cluster. What you may not read is marked.

Exit status: 0 success, 1 a problem was found or the command failed, 2 invalid command line.";

impl Cli {
    /// Parses a command line, which begins with the name of the program. Prints help or an error,
    /// and ends the process, where it is no command.
    pub fn of(arguments: Vec<OsString>) -> Self {
        let is_plan = arguments.get(1).is_some_and(|verb| verb == "plan");
        if !arguments.first().is_some_and(|name| is_plugin(name)) {
            return Self::try_parse_from(arguments).unwrap_or_else(|error| ended(&error, is_plan));
        }
        let matches = Self::plugin().try_get_matches_from(arguments);
        let matches = matches.unwrap_or_else(|error| ended(&error, is_plan));
        let mut cli =
            Self::from_arg_matches(&matches).unwrap_or_else(|error| ended(&error, is_plan));
        if let Some(cluster) = cli.command.cluster() {
            cluster.is_plugin = true;
        }
        cli
    }

    /// The commands as kubectl runs them.
    pub fn plugin() -> Command {
        Self::command()
            .name("kubectl gatewright")
            .bin_name("kubectl gatewright")
            .after_help(EXAMPLES)
            .mut_subcommands(|verb| {
                if !SHOWN.contains(&verb.get_name()) {
                    return verb.hide(true);
                }
                let Some(help) = verb.get_after_help().map(ToString::to_string) else {
                    return verb;
                };
                verb.after_help(help.replace("  gatewright ", "  kubectl gatewright "))
            })
    }
}

impl Verb {
    /// The cluster that the command may read.
    fn cluster(&mut self) -> Option<&mut Cluster> {
        match self {
            Self::Explain(options) => Some(&mut options.user.cluster),
            Self::Lint(options) => Some(&mut options.user.cluster),
            Self::Plan(options) => Some(&mut options.user.cluster),
            Self::Status(options) => Some(&mut options.cluster),
            Self::Certs(options) => Some(&mut options.asking.cluster),
            Self::History(options) => Some(&mut options.asking.cluster),
            Self::Claims(options) => Some(&mut options.asking.cluster),
            Self::Envoys(options) => Some(&mut options.asking.cluster),
            Self::Logs(options) => Some(&mut options.asking.cluster),
            Self::SupportBundle(options) => Some(&mut options.user.cluster),
            Self::Ui(options) => Some(&mut options.cluster),
            _ => None,
        }
    }
}

/// Prints help or an error, and ends the process. For `plan` 2 says that something is lost: a wrong
/// command line, which judges nothing, is 1 there.
fn ended(error: &clap::Error, is_plan: bool) -> ! {
    if is_plan && error.use_stderr() {
        // Standard error may be closed.
        let _ = error.print();
        std::process::exit(1);
    }
    error.exit()
}

fn is_plugin(program: &OsStr) -> bool {
    Path::new(program).file_stem() == Some(OsStr::new(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Cli {
        Cli::of(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn a_plugin_reads_the_cluster_of_the_current_context() {
        for (line, reads) in [
            ("/usr/bin/kubectl-gatewright status", true),
            ("gatewright status", false),
            ("gatewright status --context prod", true),
            ("gatewright status --kubeconfig config", true),
        ] {
            let Verb::Status(options) = parsed(line).command else {
                panic!("{line} is status");
            };
            assert_eq!(options.cluster.is_asked(), reads, "{line}");
        }
    }

    #[test]
    fn help_of_the_plugin_names_kubectl() {
        Cli::plugin().debug_assert();
        let help = Cli::plugin().render_help().to_string();
        assert!(help.contains("Usage: kubectl gatewright"), "{help}");
        let mut commands = help.lines();
        assert!(
            !commands.any(|line| line.starts_with("  standalone ")),
            "{help}"
        );
    }
}
