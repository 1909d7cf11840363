//! Certificates by ACME in the program: Pebble asks our Envoy, and what it issues is served.

mod damage;
mod nameless;
mod passed;
mod proofs;
mod refusals;
mod served;
mod site;
mod troubles;
