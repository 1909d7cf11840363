//! The common parts of requests to the API server: fence and failure classes, the worker with its
//! queue, reporting of failures, the writer of Gateways' objects, and that of statuses.

pub(crate) mod as_written;
pub(crate) mod conflict_backoff;
pub(crate) mod failure;
pub(crate) mod fence;
pub(crate) mod gateway_troubles;
pub(crate) mod gateway_writer;
pub(crate) mod object_write;
pub(crate) mod request;
pub(crate) mod status;
pub(crate) mod status_lists;
pub(crate) mod status_writer;
pub(crate) mod undeclared;
pub(crate) mod work_queue;
pub(crate) mod worker;
pub(crate) mod written;
