//! Filters of a listener (GEP-5224): what every request to its hosts passes before a route is
//! looked for.

use super::ExternalAuth;

/// The filters before the routes of a virtual host. They belong to the virtual host, and not to a
/// filter chain: there is no way to its routes that does not lead through it, whichever connection
/// a request comes on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenerFilters {
    /// These servers are asked one after the other; what the first one says no to, the second is
    /// not shown.
    Ask(Vec<ExternalAuth>),
    /// Nobody passes: a filter cannot be carried out.
    Refuse,
}

impl ListenerFilters {
    /// The number of servers that a listener of plain HTTP may ask.
    pub const ON_PLAIN_HTTP: usize = 2;

    /// The servers that are asked.
    pub fn servers(&self) -> &[ExternalAuth] {
        match self {
            ListenerFilters::Ask(servers) => servers,
            ListenerFilters::Refuse => &[],
        }
    }
}
