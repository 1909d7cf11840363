//! The standalone gateway: a directory of manifests, a certificate authority and an Envoy, on one machine.

mod admin;
mod check;
mod claim_book;
mod demo;
mod echo;
mod flood;
mod live;
mod private_dir;
mod supervisor;
mod tenants;

pub use admin::{Ask, AskError, What, ask, serve as serve_admin, serve_probes, tell};
pub use check::{CheckError, check, example};
pub use claim_book::{Addresses, ClaimBook, ClaimBookError, Entry, Tenants};
pub use demo::Demo;
pub use echo::Echo;
pub use live::Live;
pub use private_dir::{PrivateDir, PrivateDirError};
pub use supervisor::{NoEnvoy, Supervisor, find};
pub use tenants::{losers, tenants};
