//! Parts of the standalone gateway: private directory, built-in example, and supervision of an Envoy on the same
//! machine.

mod check;
mod claim_log;
mod demo;
mod echo;
mod hand_over;
mod private_dir;
mod refused_parts;
mod supervisor;

pub use check::{CheckError, check, example};
pub use claim_log::{Addresses, ClaimLog, ClaimLogError, Entry, Tenants};
pub use demo::Demo;
pub use echo::Echo;
pub use hand_over::{HandOverError, routes as hand_over_routes, take_over};
pub use private_dir::{PrivateDir, PrivateDirError};
pub use refused_parts::RefusedParts;
pub use supervisor::{Lifetime, NoEnvoy, Order, Supervisor, find};
