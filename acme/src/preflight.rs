//! Looking before an order is spent: whoever knows DNS and the data plane says what is in the way.

use std::sync::Arc;

use async_trait::async_trait;

use crate::challenge::ChallengeKind;
use crate::client::Directory;
use crate::names::DnsName;

mod self_check;

pub use self_check::{SelfCheck, SelfCheckError};

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// A finding stops the order.
    Strict,
    /// A finding is told, and the order placed.
    #[default]
    Warn,
    /// Nobody looks.
    Skip,
}

/// What is asked about a name.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The name.
    pub name: &'a DnsName,
    /// How it would be proven.
    pub kind: ChallengeKind,
    /// The CA's directory, with its names for CAA.
    pub directory: &'a Directory,
    /// Our account at the CA.
    pub account_url: &'a str,
    /// The thumbprint of the account's key.
    pub thumbprint: &'a str,
}

/// Looks. Each finding is a stable sentence that names the cause and the fix.
#[async_trait]
pub trait Preflight: Send + Sync {
    /// What is in the way; nothing when the name is ready.
    async fn findings(&self, question: &Question<'_>) -> Vec<String>;
}

/// A pre-flight and what it weighs.
#[derive(Clone)]
pub struct Gate {
    /// Who looks.
    pub preflight: Arc<dyn Preflight>,
    /// How much a finding weighs.
    pub strictness: Strictness,
}
