//! How much work the engine did.

use crate::counters::counters;

counters! {
    /// How much work was done since the engine was made: what tests compare to the size of a change.
    pub struct Counters {
        /// Gateways and ListenerSets evaluated.
        parents,
        /// Hostnames and ports whose owner among namespaces was decided.
        owned,
        /// Hostnames on ports whose owner was decided.
        claims,
        /// Routes attached to parents.
        attachments,
        /// Routes whose rules were resolved.
        routes,
        /// (frontend, hostname) units compiled.
        units,
        /// Tables put together.
        tables,
        /// Frontends put together.
        frontends,
        /// Policies judged.
        policies,
        /// Statuses made.
        statuses,
    }
}
