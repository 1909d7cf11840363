//! Gatewright: from a tenant's hostname to the right Envoy, with the right certificate and a
//! truthful status.
//!
//! This crate is the program: its command line, the two runtimes (a directory, a cluster), and the
//! offline commands.

mod about;
pub mod answer;
pub mod backup_command;
pub mod bundle;
pub mod bundle_command;
pub mod certs_command;
pub mod claims_command;
pub mod cli;
pub mod client;
pub mod configuration;
pub mod configuration_command;
mod connection_pressure;
pub mod controller;
pub mod convert;
pub mod convert_command;
pub mod crds_command;
mod definitions;
pub mod drain;
pub mod envoy_command;
pub mod envoy_identity;
pub mod envoys_command;
pub mod explain_command;
pub mod history_command;
mod history_file;
pub mod huge_pages;
pub mod images;
pub mod init;
pub mod kinds_command;
pub mod lint;
mod listening;
pub mod logging;
pub mod man;
pub mod manifest;
pub mod offline;
pub mod plan;
pub mod plan_command;
pub mod private_file;
pub mod progress;
mod replace;
pub mod request_log;
pub mod run;
pub mod schema;
pub mod screen;
pub mod serve;
pub mod source;
pub mod standalone;
pub mod statistics;
pub mod status_command;
pub mod table;
mod tasks;
mod tls_client;
pub mod ui;
pub mod version;
mod wiring;

pub use tasks::log_panics;
