//! Access: the clients that AccessPolicies admit.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::Deserialize;

use crate::address_forms::mapped_within;

use super::{BackendId, Login, ObjectName, TokenAuth, Users};

/// What one AccessPolicy asks of every request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The policy.
    pub policy: ObjectName,
    /// The effect on requests that it does not admit.
    pub enforcement: Enforcement,
    /// The clients by address; `None` if any may send requests.
    pub addresses: Option<AddressList>,
    /// The clients by name and password; `None` if nobody is asked for them.
    pub users: Option<BasicAuth>,
    /// The clients that have logged in at a provider; `None` if nobody has to.
    pub login: Option<Login>,
    /// The clients by tokens of an issuer; `None` if nobody is asked for them.
    pub tokens: Option<TokenAuth>,
}

/// The effect of a policy on requests that it does not admit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum Enforcement {
    /// They are refused.
    #[default]
    Enforce,
    /// They pass, and their lines in the access log name the policy.
    Report,
}

impl Access {
    /// True if it refuses nothing, and tells only what it would refuse.
    pub fn only_reports(&self) -> bool {
        self.enforcement == Enforcement::Report
    }

    /// The backends that it sends requests to.
    pub fn servers(&self) -> impl Iterator<Item = &BackendId> {
        let login = self.login.iter().map(|login| &login.server);
        let keys = self.tokens.iter().filter_map(|auth| auth.keys.server());
        login.chain(keys)
    }

    /// The same, to change them.
    pub fn servers_mut(&mut self) -> impl Iterator<Item = &mut BackendId> {
        let login = self.login.iter_mut().map(|login| &mut login.server);
        let tokens = self.tokens.iter_mut();
        login.chain(tokens.filter_map(|auth| auth.keys.server_mut()))
    }
}

/// Clients by their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressList {
    /// The networks of clients that may send requests; empty for all.
    pub allow: Arc<[IpNet]>,
    /// The networks of clients that may not, although they are allowed.
    pub deny: Arc<[IpNet]>,
}

impl AddressList {
    /// The number of networks.
    pub fn len(&self) -> usize {
        self.allow.len() + self.deny.len()
    }

    /// The number of ranges by which Envoy finds clients: a network of IPv4 in both forms, one of
    /// IPv6 without the IPv4-mapped addresses in it.
    pub fn ranges(&self) -> usize {
        let networks = self.allow.iter().chain(&*self.deny);
        networks
            .map(|network| match network {
                IpNet::V4(_) => 2,
                IpNet::V6(v6) => 1 + usize::from(mapped_within(*v6).is_some()),
            })
            .sum()
    }

    /// True if a client may send requests. One at an IPv4-mapped address is a client of IPv4.
    pub fn admits(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        (self.allow.is_empty() || is_in(&self.allow, client)) && !is_in(&self.deny, client)
    }

    /// True if it lists no network.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Clients by name and password, by the scheme Basic (RFC 7617).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BasicAuth {
    /// The Secret with the users.
    pub secret: ObjectName,
    /// The users.
    pub users: Users,
    /// The lower-case name of the header in which backends get the name of the user.
    pub forward_username: Option<Arc<str>>,
    /// True if backends get the credentials as well.
    pub forwards_credentials: bool,
}

fn is_in(networks: &[IpNet], client: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&client))
}
