//! Certificates that the controller issues itself, on a real API server: by ACME through a real
//! Envoy, by the internal CA, by one replica of several, and taken over from cert-manager.

mod beside;
mod clock;
mod denied;
mod dns;
mod handover;
mod losers;
mod lost;
mod namespace_deleted;
mod path;
pub(crate) mod place;
mod replicas;
mod rights;
mod to_and_fro;
mod unrenewed;
