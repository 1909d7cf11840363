//! Parts of the product on a real API server, beside the controller as a process: its storage, what
//! tenancy computes, and `deploy/` as the program's own types read it.

mod chart;
mod cilium;
mod converted;
mod deploy;
mod formats;
mod status_maxima;
mod storage;
mod stories;
