//! Parts of the standalone gateway: private directory, built-in example, and supervision of an
//! Envoy on the same machine.

mod check;
mod check_tls;
mod claim_log;
mod demo;
mod echo;
mod first_seen;
mod hand_over;
mod port_probe;
mod private_dir;
mod supervisor;
mod suspects_file;
mod ticket_file;

pub use check::{Answer, CheckError, check, example};
pub use claim_log::{ClaimLog, ClaimLogError, Entry, Ownership};
pub use demo::Demo;
pub use echo::Echo;
pub use first_seen::FirstSeen;
pub use hand_over::{HandOverError, routes as hand_over_routes, take_over};
pub use port_probe::PortProbe;
pub use private_dir::{PrivateDir, PrivateDirError};
pub use supervisor::{Lifetime, NoEnvoy, Order, Supervisor, access_log, find, has_envoy};
pub use suspects_file::SuspectsFile;
pub use ticket_file::TicketFile;
