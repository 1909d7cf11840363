//! How the endpoints of a backend are chosen, checked and limited, as the policy of its Service
//! says.

use std::time::Duration;

/// The settings of a backend. A field without a value leaves what every backend has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendSettings {
    /// How an endpoint is chosen.
    pub load_balancing: LoadBalancing,
    /// True if endpoints of an Envoy's own zone come first, as the Service says, and not a policy.
    /// A consistent hash goes by none.
    pub prefers_zone: bool,
    /// The timeout of a connection to an endpoint.
    pub connect_timeout: Option<Duration>,
    /// The time after which a connection for HTTP without a request is closed.
    pub idle_timeout: Option<Duration>,
    /// The limits of each Envoy.
    pub limits: BackendLimits,
    /// The checks that each Envoy makes of every endpoint.
    pub active: Option<HealthCheck>,
    /// The treatment of endpoints that fail requests.
    pub passive: Option<OutlierDetection>,
    /// Per cent of healthy endpoints below which all of them are used; at most 100.
    pub panic_percent: Option<u8>,
    /// The header by which each connection begins.
    pub proxy_protocol: Option<ProxyHeader>,
}

impl BackendSettings {
    /// The key of the hash by which endpoints are chosen.
    pub fn hash(&self) -> Option<&HashKey> {
        match &self.load_balancing {
            LoadBalancing::ConsistentHash(key) => Some(key),
            LoadBalancing::LeastRequest | LoadBalancing::RoundRobin | LoadBalancing::Random => None,
        }
    }
}

/// How an endpoint is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LoadBalancing {
    /// The one with fewer requests under way, of two at random.
    #[default]
    LeastRequest,
    /// One after the other.
    RoundRobin,
    /// At random.
    Random,
    /// The same for the same key, as long as the endpoints are the same; most keys keep theirs when
    /// one comes or goes.
    ConsistentHash(HashKey),
}

/// The part that requests of one client have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashKey {
    /// The address of the client.
    SourceIp,
    /// The value of a header of this lower-case name.
    Header(String),
    /// The value of a cookie.
    Cookie {
        /// Its name.
        name: String,
        /// Its lifetime, with which clients without it get one; zero for a session cookie. `None`
        /// if the application sets it.
        ttl: Option<Duration>,
    },
}

/// The hash of a share's requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestHash {
    /// Its key.
    pub key: HashKey,
    /// True if a cookie that is set has the attribute Secure: if the host is served over TLS.
    pub secure: bool,
}

/// The limits of what an Envoy sends to a backend at a time; `None` for the installation's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendLimits {
    /// Connections.
    pub connections: Option<u32>,
    /// Requests that wait for a connection.
    pub pending: Option<u32>,
    /// Requests.
    pub requests: Option<u32>,
    /// Retries.
    pub retries: Option<u32>,
}

/// A check of endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HealthCheck {
    /// How an endpoint is asked.
    pub probe: Probe,
    /// The time for an answer.
    pub timeout: Duration,
    /// The time between checks of an endpoint; no less than the timeout.
    pub interval: Duration,
    /// So many failures in a row take an endpoint out; never 0.
    pub unhealthy_threshold: u32,
    /// So many successes in a row take it back; never 0.
    pub healthy_threshold: u32,
}

/// How an endpoint is asked whether it is healthy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Probe {
    /// A GET request.
    Http {
        /// Path and query.
        path: String,
        /// The host; the name of the Service if `None`.
        hostname: Option<String>,
        /// The statuses of a healthy endpoint; never empty.
        statuses: Vec<u16>,
    },
    /// A connection.
    Tcp,
    /// `grpc.health.v1.Health/Check` for a service; of the whole server if it is empty.
    Grpc {
        /// The service.
        service: String,
    },
}

/// The treatment of endpoints that fail requests, or connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutlierDetection {
    /// So many statuses 500 to 599, or failed connections, in a row take an endpoint out; never if
    /// 0.
    pub consecutive_5xx: u32,
    /// So many statuses 502, 503 and 504, or failed connections, in a row do; never if 0.
    pub consecutive_gateway: u32,
    /// The time between looks at endpoints that may come back.
    pub interval: Duration,
    /// For so long an endpoint is out the first time, twice as long the second, and so on.
    pub base_ejection_time: Duration,
    /// Per cent of the endpoints that may be out at a time; at most 100.
    pub max_ejection_percent: u8,
}

/// The version of the PROXY protocol header that a backend gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProxyHeader {
    /// The text of version 1.
    V1,
    /// The bytes of version 2.
    V2,
}
