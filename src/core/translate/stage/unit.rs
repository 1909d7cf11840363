//! The unit of compilation: what one hostname on one frontend becomes.

use crate::rule::chain_class::ChainClass;
use crate::rule::protocol::Protocol;
use gatewright_objects::model::{
    Cluster, FrontendId, Hostname, Requests, Scope, VirtualHost, WeightedTarget,
};

/// The outcome of one hostname on one frontend.
#[derive(Default)]
pub(super) struct Unit {
    pub(super) scope: Option<Scope>,
    /// The virtual host on plain HTTP.
    pub(super) plain: Option<VirtualHost>,
    /// The listener whose table the virtual host is in.
    pub(super) table: Option<(Hostname, VirtualHost)>,
    pub(super) cluster: Option<Cluster>,
    pub(super) chain_class: Option<ChainClass>,
    /// The targets of all connections to the port.
    pub(super) shares: Option<Vec<WeightedTarget>>,
    /// The targets of its datagrams.
    pub(super) datagrams: Option<Vec<WeightedTarget>>,
}

impl Unit {
    /// The unit of a port that passes nothing on.
    pub(super) fn refused(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Udp => Self {
                datagrams: Some(Vec::new()),
                ..Self::default()
            },
            _ => Self {
                shares: Some(Vec::new()),
                ..Self::default()
            },
        }
    }

    /// The unit that excludes a hostname from the wildcard or catch-all listener over it.
    pub(super) fn kept_off(id: &FrontendId, hostname: &Hostname, protocol: Protocol) -> Self {
        let virtual_host = VirtualHost::new(hostname.clone(), Vec::new());
        match protocol {
            Protocol::Http => Self {
                plain: Some(virtual_host),
                ..Self::default()
            },
            _ => {
                let scope = hostname.is_exact().then(|| Scope {
                    frontend: id.clone(),
                    requests: Requests::Misdirected,
                    virtual_host,
                });
                Self {
                    scope,
                    chain_class: Some(ChainClass::closed()),
                    ..Self::default()
                }
            }
        }
    }
}
