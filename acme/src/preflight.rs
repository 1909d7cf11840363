//! The interface of the pre-flight check, which runs before an order is placed. It is implemented
//! by code that knows DNS and the data plane.

use std::sync::Arc;

use async_trait::async_trait;

use crate::challenge::ChallengeKind;
use crate::client::Directory;
use crate::names::DnsName;

mod self_check;

pub use self_check::{SelfCheck, SelfCheckError};

/// The effect of a finding on an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// A finding stops the order.
    Strict,
    /// A finding is logged, and the order is placed.
    #[default]
    Warn,
    /// The pre-flight check does not run.
    Skip,
}

/// The input of a pre-flight check.
#[derive(Clone, Debug)]
pub struct PreflightRequest<'a> {
    /// The name.
    pub name: &'a DnsName,
    /// The kind of challenge that would prove it.
    pub kind: ChallengeKind,
    /// The CA's directory, with its names for CAA.
    pub directory: &'a Directory,
    /// URL of our account at the CA.
    pub account_url: &'a str,
    /// The thumbprint of the account's key.
    pub thumbprint: &'a str,
}

/// A pre-flight check. Each finding is a stable sentence that names the cause and the fix.
#[async_trait]
pub trait Preflight: Send + Sync {
    /// Returns the findings for a name; empty if an order may be placed.
    async fn findings(&self, request: &PreflightRequest<'_>) -> Vec<String>;

    /// Returns why an order for a name would fail for certain; then none is placed, and there are
    /// no findings.
    async fn obstacle(&self, _request: &PreflightRequest<'_>) -> Option<String> {
        None
    }
}

/// A pre-flight check with its strictness.
#[derive(Clone)]
pub struct PreflightPolicy {
    /// The check that runs before an order is placed.
    pub preflight: Arc<dyn Preflight>,
    /// The effect of its findings.
    pub strictness: Strictness,
}
