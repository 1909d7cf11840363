//! The served channel of the Gateway API.

use clap::Args;
use gatewright_core::channel::Channel;

/// The Gateway API.
#[derive(Clone, Copy, Debug, Args)]
pub struct GatewayApi {
    /// Release channel of the Gateway API whose fields are served. In a cluster the CRDs of that
    /// channel must be installed
    #[arg(long, value_enum, value_name = "CHANNEL", default_value_t)]
    pub gateway_api_channel: Channel,
}
