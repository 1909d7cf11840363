//! Tests of the crate `xds` with real clients: Envoy, gRPC, many streams.

mod clients;
mod crowd;
mod envoy;
mod grpc;
mod identity;
mod network;
