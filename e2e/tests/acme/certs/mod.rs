//! Certificates by ACME in the program: Pebble asks our Envoy, and what it issues is served.

mod damage;
mod fair;
mod mended;
mod nameless;
mod pace;
mod passed;
mod proofs;
mod refusals;
mod refused;
mod served;
mod site;
mod told;
mod troubles;
