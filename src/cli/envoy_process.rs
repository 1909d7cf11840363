//! What becomes of Envoy when the program ends or is replaced.

use clap::{Args, ValueEnum};

/// What becomes of Envoy when this program is killed or fails. When it is told to end, Envoy ends too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EnvoyLifetime {
    /// Envoy serves on with the configuration that it has, and the next start takes it over
    Independent,
    /// Envoy ends at once
    WithProgram,
}

/// How the program and its Envoy come and go.
#[derive(Clone, Debug, Args)]
pub struct EnvoyProcess {
    /// What becomes of Envoy when this program is killed or fails; when it is told to end, Envoy ends too
    /// [default: independent; with-program for the built-in example and with --once]
    #[arg(long, value_enum, value_name = "HOW", env = "GATEWRIGHT_ENVOY_LIFETIME")]
    pub envoy_lifetime: Option<EnvoyLifetime>,
    /// How long connections of an Envoy have to end that another takes the place of, because its bootstrap or version is
    /// different
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(6..=86400))]
    pub envoy_patience: u32,
    /// Take the place of the program that uses this private directory, without a gap: it ends, and Envoy serves on
    #[arg(long)]
    pub take_over: bool,
}
