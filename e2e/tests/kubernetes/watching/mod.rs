//! The view of a cluster when the API server is not at its best: kinds that come and go, rights that are missing, silence,
//! a Lease that cannot be renewed. Nothing is deleted by what is not known, and nothing is served half.

#[allow(dead_code, unreachable_pub, reason = "the tests of tenancy use the rest")]
mod absence;
mod dedicated;
mod definitions;
mod older_bundle;
mod pages;
mod rights;
mod silence;
mod term;
mod token;
mod versions;
