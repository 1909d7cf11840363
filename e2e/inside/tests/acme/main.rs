//! Tests of certificates with real and misbehaving CAs, DNS servers and providers: of the engine
//! `acme`, and of the program that uses it.

mod airgap;
mod answers;
mod answers_of_pebble;
mod badday;
mod certbot;
mod certs;
mod dns_bind;
mod dns_doubles;
mod dns_moto;
mod dns_pebble;
mod dns_view;
mod pebble;
mod serve;
mod side_by_side;
mod soak;
mod templates;
mod testca;
mod two_gateways;
mod worse;
