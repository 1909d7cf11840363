//! Fixtures of tests: real counterparts (API server, Envoy, CA, DNS, ...) and the program itself as
//! a process, each started by the test that needs it, on loopback, and ended with it.
//!
//! No crate of the product is named here, so that an edit of the product compiles none of it again.
//! Fixtures that need one are in `e2e/inside`.

pub mod acme_proxy;
pub mod apiserver;
pub mod auth;
pub mod bind;
pub mod caddy;
pub mod callgrind;
pub mod certmanager;
pub mod chromium;
pub mod cilium;
pub mod client_ca;
pub mod clock;
pub mod cluster;
pub mod collector;
pub mod conformance;
pub mod deploy;
pub mod dimensions;
pub mod disk;
pub mod echo;
pub mod envoy;
pub mod envoys;
pub mod gatewright;
pub mod grpc;
pub mod haproxy;
pub mod held;
pub mod helm;
pub mod hex;
pub mod http1;
pub mod http_server;
pub mod issuer;
pub mod key_server;
pub mod kubeconform;
pub mod kubelet;
pub mod link;
pub mod load;
pub mod loopback;
pub mod metrics_api;
pub mod moto;
pub mod nginx;
pub mod oauth2_proxy;
pub mod oidc;
pub mod pebble;
pub mod port;
pub mod private_dir;
pub mod probe;
mod process;
pub mod prometheus;
pub mod quic;
pub mod registry;
pub mod scripted_provider;
pub mod setting;
pub mod simenvoy;
pub mod switched;
pub mod tenants;
/// A test CA of ours, for behaviour that Pebble lacks.
pub mod testca;
pub mod tls_backend;
pub mod tls_sessions;
pub mod ui;
pub mod usage;
pub mod walkthrough;
pub mod webdriver;
pub mod webhook;
pub mod websocket;
pub mod xds_ca;
