//! The controller on a real API server, with its real counterparts beside it: cert-manager, Cilium, a kubelet of our own.

mod bad_input;
mod cert_manager;
mod certificates;
mod chart;
mod cilium;
mod cilium_beside;
mod conformance;
mod deploy;
mod fixture;
mod fleet;
mod hardening;
mod image;
mod isolation;
mod limits;
mod own_class;
mod pods;
mod replicas;
mod resend;
mod revoke;
mod rights;
mod serving;
mod stories;
mod tenancy;
mod troubles;
mod trust;
mod watching;
