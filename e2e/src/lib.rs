//! Fixtures of tests: real counterparts (API server, Envoy, CA, DNS, ...), each started by the test
//! that needs it, on loopback, and ended with it.

pub mod acme_proxy;
pub mod answers;
pub mod apiserver;
pub mod auth;
pub mod bind;
pub mod certmanager;
pub mod chromium;
pub mod cilium;
pub mod client_ca;
pub mod clock;
pub mod cluster;
pub mod conformance;
pub mod deploy;
pub mod dimensions;
pub mod disk;
pub mod echo;
pub mod envoy;
pub mod envoys;
pub mod fuzz;
pub mod gatewright;
pub mod grpc;
pub mod held;
pub mod helm;
pub mod kubeconform;
pub mod kubelet;
pub mod link;
pub mod load;
pub mod moto;
pub mod pebble;
pub mod port;
pub mod probe;
mod process;
pub mod registry;
pub mod resources;
pub mod rig;
pub mod served;
pub mod simenvoy;
pub mod tenants;
/// A test CA of ours, for behaviour that Pebble lacks.
pub mod testca;
pub mod tls_backend;
pub mod usage;
pub mod walkthrough;
pub mod websocket;
pub mod world;
