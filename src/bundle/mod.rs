//! A support bundle: what a program or a cluster says of itself, in one archive without secrets.
//!
//! ```text
//! admin socket, directory ==program==> entries ==archive==> FILE
//! API server ==recorded client==> entries ==^                |
//!        Bundle::open <======================================+
//!             +==> explain, status, history, ...
//!             +==replayed client==> ClusterView
//! ```
//!
//! Secrets are left out where something is read: no Secret is requested, no file of keys is opened,
//! and texts pass [`redaction`]. The first file of the archive is its table of contents.

mod archive;
mod contents;
mod program;
mod recording;
pub mod redaction;
mod replay;
mod site;

pub use archive::{Bundle, write};
pub use contents::{Contents, Entry, Of, State};
pub use program::{Place, of_program};
pub use recording::of_cluster;
