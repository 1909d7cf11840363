//! The program and its fixtures on a real Envoy, without Kubernetes.

mod answers;
mod fixtures;
mod grpc;
mod hot_restart;
mod last_good;
mod layout;
mod live;
mod program;
mod standalone;
mod tenancy;
