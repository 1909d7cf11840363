//! Certificates by ACME in the program: Pebble validates through our Envoy, and its certificates
//! are served.

mod damage;
mod fair;
mod held_port;
mod idle;
mod mended;
mod nacked;
mod nameless;
mod pace;
mod passed;
mod proofs;
mod refusals;
mod refused;
mod served;
pub(crate) mod site;
mod told;
mod troubles;
mod unreachable;
