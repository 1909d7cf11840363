//! The command line of an Envoy. It is the only record of the private directory that the process
//! belongs to, its place in a chain of hot restarts, and what it was started with. Nothing about a
//! process is stored in a file, which could be damaged, or be about an earlier process with the
//! same id.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::Lifetime;

/// The time in which Envoy drains a listener that is removed or replaced. `--envoy-patience` is
/// longer.
const LISTENER_DRAIN_SECONDS: u32 = 5;

/// The shell.
pub(super) const SHELL: &str = "/bin/sh";

/// A script that starts a program as an orphan, and prints its process id. Envoy asks the kernel to
/// be ended with its parent (`PR_SET_PDEATHSIG` in Envoy's `HotRestartImpl`), so its parent must
/// have ended when it starts: the shell ends first, and the program is started only after a line
/// arrives on standard input.
pub(super) const DETACH: &str =
    r#"exec 3<&0; { read -r go <&3 && [ "$go" = go ] && exec "$@" 3<&- >/dev/null; } & echo $!"#;

/// The parameters with which an Envoy is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    /// The base id, which names the shared memory and the sockets of a chain of hot restarts.
    pub(super) base_id: u32,
    /// The restart epoch: the place in this chain, from 0.
    pub(super) epoch: u32,
    /// The [`digest`] of the bootstrap and the way of starting it.
    pub(super) digest: String,
}

/// Returns a short digest of a bootstrap and the way of starting it: an Envoy with another digest
/// is replaced.
pub(super) fn digest(bootstrap: &str, lifetime: Lifetime) -> String {
    let hash = Sha256::new()
        .chain_update(format!("{lifetime:?}\n"))
        .chain_update(bootstrap)
        .finalize();
    hash.iter().take(8).fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string");
        text
    })
}

/// Returns the prefix of the sockets by which Envoys of a chain communicate. The longest names that
/// Envoy makes of it fit into a socket's address below a private directory of 80 bytes.
pub(super) fn socket_prefix(dir: &Path) -> PathBuf {
    dir.join("hot")
}

/// Returns the path of the bootstrap with a [`digest`].
pub(super) fn bootstrap(dir: &Path, digest: &str) -> PathBuf {
    dir.join(format!("bootstrap-{digest}.json"))
}

impl Launch {
    /// Returns the path of its bootstrap.
    pub(super) fn bootstrap(&self, dir: &Path) -> PathBuf {
        bootstrap(dir, &self.digest)
    }

    /// Returns its command line, without the program. `patience` is the time that connections of
    /// the Envoy before it have to end.
    pub(super) fn arguments(&self, dir: &Path, patience: u32) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::with_capacity(18);
        let mut say = |flag: &str, value: &OsStr| arguments.extend([flag.into(), value.to_owned()]);
        // The first three identify the process, also to another version of this program: they must
        // not change.
        say("--base-id", self.base_id.to_string().as_ref());
        say("--restart-epoch", self.epoch.to_string().as_ref());
        say("--socket-path", socket_prefix(dir).as_ref());
        say("--socket-mode", "600".as_ref());
        say("--log-level", "info".as_ref());
        // Its filter of logins logs each request that it refuses, with the query.
        say("--component-log-level", "oauth2:off".as_ref());
        say(
            "--drain-time-s",
            LISTENER_DRAIN_SECONDS.to_string().as_ref(),
        );
        // Lines of the access log wait no longer than this.
        say("--file-flush-interval-msec", "1000".as_ref());
        say("--parent-shutdown-time-s", patience.to_string().as_ref());
        say("--config-path", self.bootstrap(dir).as_ref());
        arguments
    }

    /// Parses a command line, including the program; `None` when it is not that of an Envoy of this
    /// private directory.
    pub(super) fn parse(dir: &Path, command: &[OsString]) -> Option<Self> {
        // Between fork and exec it is the command line of the shell that starts it.
        let command = match command {
            [shell, flag, script, _, rest @ ..]
                if shell == SHELL && flag == "-c" && script == DETACH =>
            {
                rest
            }
            _ => command,
        };
        let (flags, rest) = command.get(1..)?.as_chunks::<2>();
        if !rest.is_empty() {
            return None;
        }
        let [
            [first, base_id],
            [second, epoch],
            [third, prefix],
            others @ ..,
        ] = flags
        else {
            return None;
        };
        if first != "--base-id" || second != "--restart-epoch" || third != "--socket-path" {
            return None;
        }
        if Path::new(prefix) != socket_prefix(dir)
            || others.iter().any(|[flag, _]| flag == "--mode")
        {
            return None;
        }
        let [_, bootstrap] = others.iter().find(|[flag, _]| flag == "--config-path")?;
        let bootstrap = Path::new(bootstrap);
        let digest = bootstrap
            .file_name()?
            .to_str()?
            .strip_prefix("bootstrap-")?
            .strip_suffix(".json")?;
        (bootstrap.parent() == Some(dir)).then_some(())?;
        let number = |text: &OsStr| text.to_str()?.parse().ok();
        Some(Self {
            base_id: number(base_id)?,
            epoch: number(epoch)?,
            digest: digest.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        Launch {
            base_id: 12_345_678,
            epoch: 3,
            digest: digest("{}", Lifetime::Independent),
        }
    }

    fn command(dir: &str) -> Vec<OsString> {
        let mut command = vec!["/usr/bin/envoy".into()];
        command.extend(launch().arguments(Path::new(dir), 60));
        command
    }

    #[test]
    fn a_process_is_known_by_its_command_line() {
        assert_eq!(
            Launch::parse(Path::new("/state"), &command("/state")),
            Some(launch())
        );
        assert_eq!(
            Launch::parse(Path::new("/other"), &command("/state")),
            None,
            "of another directory"
        );
        let mut starting = [SHELL, "-c", DETACH, "sh"].map(OsString::from).to_vec();
        starting.extend(command("/state"));
        assert_eq!(
            Launch::parse(Path::new("/state"), &starting),
            Some(launch()),
            "it is about to start"
        );
    }

    #[test]
    fn a_process_that_is_no_serving_envoy_is_left_alone() {
        let dir = Path::new("/state");
        let mut validates = command("/state");
        validates.extend(["--mode".into(), "validate".into()]);
        assert_eq!(Launch::parse(dir, &validates), None);
        let mut traced = command("/state");
        traced.splice(0..0, ["/usr/bin/strace".into(), "-f".into()]);
        assert_eq!(
            Launch::parse(dir, &traced),
            None,
            "a process that has Envoy's command line among its arguments"
        );
        let editor = ["vi", "/state/bootstrap-0123456789abcdef.json"].map(OsString::from);
        assert_eq!(Launch::parse(dir, &editor), None);
        for count in 0..command("/state").len() {
            assert_eq!(
                Launch::parse(dir, &command("/state")[..count]),
                None,
                "cut off after {count}"
            );
        }
    }

    #[test]
    fn another_bootstrap_or_another_lifetime_has_another_digest() {
        let all = [
            digest("{}", Lifetime::Independent),
            digest("[]", Lifetime::Independent),
            digest("{}", Lifetime::WithProgram),
        ];
        assert!(
            all[0] != all[1] && all[0] != all[2] && all.iter().all(|digest| digest.len() == 16),
            "{all:?}"
        );
    }

    #[test]
    fn sockets_of_a_chain_have_names_that_fit() {
        let longest = format!(
            "{}_udp_parent_{}",
            socket_prefix(Path::new(&"x".repeat(80))).display(),
            999_999_992
        );
        assert!(longest.len() < 108, "{}", longest.len());
    }
}
