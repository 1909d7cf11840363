//! Decides what to do with the Envoys that run already. Pure.

use serde::Deserialize;

use super::process::Process;

/// The information of an Envoy about itself (`/server_info` of its admin interface).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Info {
    /// Commit, version and kind of build.
    pub(super) version: String,
    /// `LIVE` once it has its configuration.
    pub(super) state: String,
    /// The hot-restart version: Envoys with the same one can take over from each other.
    #[serde(default)]
    pub(super) hot_restart_version: String,
    command_line_options: CommandLine,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct CommandLine {
    base_id: String,
    restart_epoch: u32,
}

impl Info {
    /// Returns whether the information is about this process.
    pub(super) fn is_of(&self, process: &Process) -> bool {
        let CommandLine {
            base_id,
            restart_epoch,
        } = &self.command_line_options;
        *base_id == process.launch.base_id.to_string() && *restart_epoch == process.launch.epoch
    }

    /// Returns whether Envoy has its configuration.
    pub(super) fn is_live(&self) -> bool {
        self.state == "LIVE"
    }

    /// Returns only the version number.
    pub(super) fn number(&self) -> &str {
        self.version.split('/').nth(1).unwrap_or(&self.version)
    }
}

/// The Envoy that should run.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The digest of the bootstrap and the way of starting it.
    pub(super) digest: String,
    /// The version of the executable; `None` when it is not known.
    pub(super) version: Option<String>,
    /// The hot-restart version of the executable; `None` when it is not known.
    pub(super) hot_restart_version: Option<String>,
}

/// The way to get to the wanted Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Starts an Envoy, since none runs.
    Start,
    /// Adopts this process, which is the wanted Envoy.
    Adopt(Process),
    /// Starts an Envoy that takes over the listening sockets of this process by a hot restart. The
    /// text is the reason.
    Restart(Process, String),
    /// Starts an Envoy beside the running ones, on the same ports, and ends those when it serves,
    /// since a hot restart is not possible. The text is the reason.
    Replace(String),
}

/// Returns the plan. `answer` is the information from the Envoy that has the admin interface.
pub(super) fn plan(found: &[Process], answer: Option<&Info>, wanted: &Wanted) -> Plan {
    let Some(newest) = found.last() else {
        return Plan::Start;
    };
    let Some((process, info)) =
        answer.and_then(|info| Some((found.iter().find(|one| info.is_of(one))?, info)))
    else {
        return Plan::Replace(format!(
            "process {} does not answer at its admin socket",
            newest.pid
        ));
    };
    let pid = process.pid;
    let why = if wanted
        .version
        .as_ref()
        .is_some_and(|version| *version != info.version)
    {
        format!("process {pid} is version {}", info.number())
    } else if process.launch.digest != wanted.digest {
        format!("process {pid} has another bootstrap")
    } else {
        return Plan::Adopt(process.clone());
    };
    if wanted.hot_restart_version.as_ref() == Some(&info.hot_restart_version) {
        Plan::Restart(process.clone(), why)
    } else {
        Plan::Replace(format!(
            "{why}, from which this one cannot take over sockets"
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::launch::Launch;
    use super::*;

    fn process(pid: u32, epoch: u32, digest: &str) -> Process {
        Process::of_child(
            pid,
            Launch {
                base_id: 7,
                epoch,
                digest: digest.to_owned(),
            },
        )
    }

    fn info(epoch: u32, version: &str) -> Info {
        serde_json::from_value(
            json!({ "version": format!("abc/{version}/Clean"), "state": "LIVE",
            "hot_restart_version": "11.104", "uptime_current_epoch": "3s",
            "command_line_options": { "base_id": "7", "restart_epoch": epoch, "concurrency": 2 } }),
        )
        .expect("an answer")
    }

    fn wanted() -> Wanted {
        let version = Some("abc/1.40.0/Clean".to_owned());
        let hot = Some("11.104".to_owned());
        Wanted {
            digest: "d".to_owned(),
            version,
            hot_restart_version: hot,
        }
    }

    #[test]
    fn an_envoy_is_adopted_restarted_or_replaced() {
        let old = process(1, 0, "d");
        let new = process(2, 1, "d");
        assert_eq!(plan(&[], None, &wanted()), Plan::Start);
        assert_eq!(
            plan(&[], Some(&info(0, "1.40.0")), &wanted()),
            Plan::Start,
            "an answer of somebody else's"
        );
        assert_eq!(
            plan(
                std::slice::from_ref(&old),
                Some(&info(0, "1.40.0")),
                &wanted()
            ),
            Plan::Adopt(old.clone())
        );
        // During a hot restart the newer Envoy has the admin interface.
        assert_eq!(
            plan(
                &[old.clone(), new.clone()],
                Some(&info(1, "1.40.0")),
                &wanted()
            ),
            Plan::Adopt(new.clone())
        );
        let restarted = |found: Process, version: &str| match plan(
            &[found],
            Some(&info(0, version)),
            &wanted(),
        ) {
            Plan::Restart(_, why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            restarted(process(1, 0, "e"), "1.40.0"),
            "process 1 has another bootstrap"
        );
        assert_eq!(
            restarted(old.clone(), "1.39.2"),
            "process 1 is version 1.39.2"
        );
        let replaced = |answer: Option<&Info>, wanted: &Wanted| match plan(
            std::slice::from_ref(&old),
            answer,
            wanted,
        ) {
            Plan::Replace(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(replaced(None, &wanted()).contains("process 1 does not answer"));
        assert!(
            replaced(Some(&info(5, "1.40.0")), &wanted()).contains("process 1 does not answer")
        );
        let other = Wanted {
            hot_restart_version: Some("12.104".to_owned()),
            ..wanted()
        };
        assert!(replaced(Some(&info(0, "1.39.2")), &other).contains("1.39.2, from which"));
    }

    #[test]
    fn a_program_that_does_not_say_its_version_is_taken_for_the_same() {
        let (old, wanted) = (
            process(1, 0, "d"),
            Wanted {
                version: None,
                ..wanted()
            },
        );
        assert_eq!(
            plan(
                std::slice::from_ref(&old),
                Some(&info(0, "1.39.2")),
                &wanted
            ),
            Plan::Adopt(old)
        );
    }
}
