//! Transparent huge pages (`PR_SET_THP_DISABLE`, prctl(2)).

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};
use tracing::debug;

/// True if this program disabled huge pages, and not who started it.
static AVOIDED: AtomicBool = AtomicBool::new(false);

/// Disables huge pages for this process. The temporary and the permanent results of parsing at the
/// start lie next to each other: with huge pages (2 MB each) the allocator can return a fifth less
/// memory, and clearing them costs more than they save.
pub fn avoid() {
    if transparent_huge_pages_are_disabled().is_ok_and(|disabled| !disabled) {
        AVOIDED.store(disable(true), Ordering::Relaxed);
    }
}

/// Starts a process, which inherits the setting, as if this one had huge pages.
pub(crate) fn spare<T>(spawn: impl FnOnce() -> T) -> T {
    if !AVOIDED.load(Ordering::Relaxed) {
        return spawn();
    }
    disable(false);
    let spawned = spawn();
    disable(true);
    spawned
}

/// Returns whether it could be set.
fn disable(disabled: bool) -> bool {
    let set = disable_transparent_huge_pages(disabled);
    if let Err(error) = &set {
        debug!("transparent huge pages: {error}");
    }
    set.is_ok()
}
