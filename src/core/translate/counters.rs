//! Counters of the engine's work.

use gatewright_objects::counters;

counters! {
    /// The amount of work since the engine was created; tests compare it with the size of a change.
    pub struct Counters {
        /// Gateways and ListenerSets evaluated.
        parents,
        /// Hostnames, ports and sockets whose owning namespace was decided.
        owned,
        /// Hostnames on ports whose listener was decided.
        claims,
        /// Routes attached to parents.
        attachments,
        /// Routes whose rules were resolved.
        routes,
        /// (frontend, hostname) units compiled.
        units,
        /// Tables assembled.
        tables,
        /// Frontends assembled.
        frontends,
        /// Policies judged.
        policies,
        /// Statuses computed.
        statuses,
    }
}
