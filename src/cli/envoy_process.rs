//! The lifetime of Envoy when the program ends or is replaced.

use clap::{Args, ValueEnum};

/// The fate of Envoy when this program is killed or fails. On SIGTERM and SIGINT Envoy ends too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EnvoyLifetime {
    /// Envoy continues to serve its configuration, and the next start adopts it
    Independent,
    /// Envoy is ended at once
    WithProgram,
}

/// The settings of Envoy's process.
#[derive(Clone, Debug, Args)]
pub struct EnvoyProcess {
    /// Fate of Envoy when this program is killed or fails; on SIGTERM and SIGINT Envoy always ends
    /// with it [default: independent; with-program for the built-in example, with --once, and as
    /// the first process of a container]
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        env = "GATEWRIGHT_ENVOY_LIFETIME"
    )]
    pub envoy_lifetime: Option<EnvoyLifetime>,
    /// Drain time of the old Envoy in a hot restart (changed bootstrap or version of Envoy), in
    /// seconds; its remaining connections are then closed
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(6..=86400))]
    pub envoy_patience: u32,
    /// Take over the private directory from the running program, without an interruption: that
    /// program ends, and its Envoy continues to serve
    #[arg(long)]
    pub take_over: bool,
}
