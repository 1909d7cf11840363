//! Which of the Gateway API is served.

use clap::Args;
use gatewright_core::channel::Channel;

/// The Gateway API.
#[derive(Clone, Copy, Debug, Args)]
pub struct GatewayApi {
    /// Which channel of the Gateway API is served: its fields, where definitions of that channel are installed
    #[arg(long, value_enum, value_name = "CHANNEL", default_value_t)]
    pub gateway_api_channel: Channel,
}
