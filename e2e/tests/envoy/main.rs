//! Tests of the program and its fixtures on a real Envoy, without Kubernetes.

mod answers;
mod backend_tls;
mod certificates;
mod client_certificates;
mod cors;
mod experimental;
mod explained;
mod fixtures;
mod full_disk;
mod grpc;
mod hot_restart;
mod last_good;
mod layout;
mod listener_filters;
mod live;
mod once;
mod pages;
mod ports;
mod program;
mod quickstart;
mod redirects;
mod standalone;
mod statistics;
mod tenancy;
mod terminating;
mod websocket;
