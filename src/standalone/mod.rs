//! The standalone gateway: a directory of manifests, a certificate authority and an Envoy, on one machine.

mod admin;
mod authority;
mod check;
mod demo;
mod echo;
mod private_dir;
mod site;
mod supervisor;

pub use admin::{AdminError, ask, serve as serve_admin};
pub use authority::Authority;
pub use check::{CheckError, fetch};
pub use demo::{Demo, demo};
pub use echo::Echo;
pub use private_dir::{PrivateDir, PrivateDirError};
pub use site::{Applied, Site};
pub use supervisor::{EnvoyError, find_envoy, supervise};
