//! The view of the API server under faults: kinds that disappear and return, missing rights, no
//! answers, a Lease that cannot be renewed. Nothing is deleted by incomplete knowledge, and nothing
//! is served by halves.

#[allow(
    dead_code,
    unreachable_pub,
    reason = "the tests of tenancy use the rest"
)]
mod absence;
mod dedicated;
mod definitions;
mod features;
mod older_bundle;
mod pages;
mod rights;
mod silence;
mod term;
mod token;
mod versions;
