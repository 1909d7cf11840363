//! The functions that the fuzz targets run: plain functions of bytes, which panic when something
//! holds no more. `e2e/inside/tests/fuzz` runs them on the kept corpus and on mutations of it, with
//! nothing but a stable compiler; `e2e/fuzz` has libFuzzer run them, guided by coverage.
//!
//! No case waits for a clock: what answers in a target answers at once.

mod bytes;
mod ca;
mod certificates;
mod choice;
mod dns;
mod manifests;
mod objects;
mod run;

use std::path::{Path, PathBuf};

pub use choice::Choice;
pub use objects::{all_kinds, kinds};
pub use run::{Run, corpus, mutated};

/// A function to be fuzzed.
#[derive(Clone, Copy)]
pub struct Target {
    /// The folder of its corpus, and the name of its binary in `e2e/fuzz`.
    pub name: &'static str,
    /// Panics when something is wrong.
    pub run: fn(&[u8]),
    /// An input that is a little different; the second one is another of the corpus.
    pub mutate: fn(&[u8], &[u8], &mut Choice) -> Vec<u8>,
    /// Seeds of the target, beside the corpus.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Fewer bytes that may fail in the same way, most promising first.
    pub smaller: fn(&[u8]) -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 7] = [
    Target {
        name: "objects",
        run: objects::run,
        mutate: objects::mutate,
        seeds: objects::seeds,
        smaller: objects::smaller,
    },
    Target {
        name: "manifests",
        run: manifests::run,
        mutate: manifests::mutate,
        seeds: manifests::seeds,
        smaller: bytes::smaller,
    },
    Target {
        name: "xds_request",
        run: xds::fuzz::request,
        mutate: bytes::mutate,
        seeds: bytes::none,
        smaller: bytes::smaller,
    },
    Target {
        name: "xds_conversation",
        run: xds::fuzz::conversation,
        mutate: bytes::mutate,
        seeds: bytes::none,
        smaller: bytes::smaller,
    },
    Target {
        name: "dns",
        run: dns::run,
        mutate: bytes::mutate,
        seeds: bytes::none,
        smaller: bytes::smaller,
    },
    Target {
        name: "ca",
        run: ca::run,
        mutate: bytes::mutate,
        seeds: bytes::none,
        smaller: bytes::smaller,
    },
    Target {
        name: "certificates",
        run: certificates::run,
        mutate: certificates::mutate,
        seeds: certificates::seeds,
        smaller: bytes::smaller,
    },
];

/// The target of a name.
///
/// # Panics
/// When there is none.
pub fn target(name: &str) -> &'static Target {
    TARGETS
        .iter()
        .find(|target| target.name == name)
        .unwrap_or_else(|| panic!("no target {name}"))
}

/// A file or folder of the checkout.
fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}
