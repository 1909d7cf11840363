//! What every request to the API server has in common: its time limit and class of failure, the worker that gives each object
//! its turn, what is told of failures, and the statuses that are written.

pub(crate) mod conflict_backoff;
pub(crate) mod failure;
pub(crate) mod fence;
pub(crate) mod request;
pub(crate) mod status;
pub(crate) mod status_writer;
pub(crate) mod troubles;
pub(crate) mod undeclared;
pub(crate) mod work_queue;
pub(crate) mod worker;
