//! How much work the engine did.

/// How much work was done since the engine was made: what tests compare to the size of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Gateways and ListenerSets evaluated.
    pub parents: usize,
    /// Hostnames and ports whose owner among namespaces was decided.
    pub owned: usize,
    /// Hostnames on ports whose owner was decided.
    pub claims: usize,
    /// Routes attached to parents.
    pub attachments: usize,
    /// Routes whose rules were resolved.
    pub routes: usize,
    /// (frontend, hostname) units compiled.
    pub units: usize,
    /// Tables put together.
    pub tables: usize,
    /// Frontends put together.
    pub frontends: usize,
    /// Statuses made.
    pub statuses: usize,
}

impl Counters {
    /// The work done since an earlier reading.
    pub fn since(&self, before: &Counters) -> Counters {
        Counters {
            parents: self.parents - before.parents,
            owned: self.owned - before.owned,
            claims: self.claims - before.claims,
            attachments: self.attachments - before.attachments,
            routes: self.routes - before.routes,
            units: self.units - before.units,
            tables: self.tables - before.tables,
            frontends: self.frontends - before.frontends,
            statuses: self.statuses - before.statuses,
        }
    }
}
