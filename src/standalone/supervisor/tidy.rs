//! Removes leftovers of Envoys: sockets and bootstraps in the private directory, and shared memory.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

use super::launch::{bootstrap, socket_prefix};
use super::process::Process;

/// The upper bound of base ids; names that Envoy makes of one contain ten times the number.
const BASE_IDS: u64 = 100_000_000;

/// Returns the path of the shared memory of a chain of hot restarts, which Envoy does not remove.
fn shared_memory(base_id: u32) -> PathBuf {
    PathBuf::from(format!(
        "/dev/shm/envoy_shared_memory_{}",
        u64::from(base_id) * 10
    ))
}

/// Returns a base id that no Envoy of this machine uses.
pub(super) fn free_base_id() -> u32 {
    loop {
        // The system seeds it each time; nothing is hashed.
        let number = RandomState::new().build_hasher().finish() % BASE_IDS;
        let base_id = u32::try_from(number).expect("below 100,000,000");
        if base_id > 0 && !shared_memory(base_id).exists() {
            return base_id;
        }
    }
}

/// Removes the leftovers that no running Envoy needs. The bootstrap of the next one stays, if there
/// is to be one, so that its start takes no space.
pub(super) fn tidy(dir: &Path, running: &[Process], next: Option<&str>) {
    let base_ids: BTreeSet<u32> = running
        .iter()
        .map(|process| process.launch.base_id)
        .collect();
    let bootstraps: BTreeSet<PathBuf> = running
        .iter()
        .map(|process| bootstrap(dir, &process.launch.digest))
        .chain(next.map(|digest| bootstrap(dir, digest)))
        .collect();
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let gone = match base_id(dir, name) {
            Some(base_id) if !base_ids.contains(&base_id) => {
                // It may be removed already, or be another user's.
                let _ = fs::remove_file(shared_memory(base_id));
                true
            }
            Some(_) => false,
            None => {
                name.starts_with("bootstrap-")
                    && name.ends_with(".json")
                    && !bootstraps.contains(&path)
            }
        };
        if gone {
            // Another process may have removed it first.
            let _ = fs::remove_file(&path);
        }
    }
}

/// Returns the base id of the chain that a socket belongs to: its name ends in ten times the base
/// id, plus the epoch.
fn base_id(dir: &Path, name: &str) -> Option<u32> {
    let prefix = socket_prefix(dir);
    let rest = name
        .strip_prefix(prefix.file_name()?.to_str()?)?
        .strip_prefix('_')?;
    let (_, number) = rest.rsplit_once('_')?;
    u32::try_from(number.parse::<u64>().ok()? / 10).ok()
}

#[cfg(test)]
mod tests {
    use super::super::launch::Launch;
    use super::*;

    #[test]
    fn files_of_a_running_envoy_and_of_the_next_one_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let launch = Launch {
            base_id: 71,
            epoch: 1,
            digest: "aa".to_owned(),
        };
        let kept = [
            "hot_parent_711",
            "hot_udp_child_712",
            "bootstrap-aa.json",
            "bootstrap-cc.json",
            "lock",
            "hot_x_y",
            "bootstrap.json",
        ];
        let gone = ["hot_parent_720", "hot_udp_child_701", "bootstrap-bb.json"];
        for name in kept.into_iter().chain(gone) {
            fs::write(dir.path().join(name), "").expect("written");
        }
        tidy(dir.path(), &[Process::of_child(1, launch)], Some("cc"));
        assert!(kept.iter().all(|name| dir.path().join(name).exists()));
        assert!(gone.iter().all(|name| !dir.path().join(name).exists()));
    }

    #[test]
    fn a_base_id_fits_into_the_names_of_sockets() {
        let base_id = free_base_id();
        assert!(base_id > 0 && u64::from(base_id) < BASE_IDS);
    }
}
