//! Certificates that the controller gets itself, on a real API server: by ACME through real Envoy, by the internal CA, by one
//! replica of several, and from the hands of cert-manager.

mod beside;
mod dns;
mod handover;
mod path;
mod place;
mod replicas;
mod rights;
#[path = "../kube_tenancy/site.rs"]
#[allow(dead_code, reason = "each of the two uses its part")]
mod site;
mod storage;
mod to_and_fro;
