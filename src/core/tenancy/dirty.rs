//! The work list of one change: what has to be redone, stage by stage.

use std::sync::Arc;

use super::claim::ClaimId;
use super::delta::{Delta, Derived, Existing};
use super::host::{HostId, Name, Shard};
use super::work_list::{Todo, WorkList};
use super::{ClaimKey, Desired, Verdict};
use crate::model::ObjectName;

/// The work lists. Any stage marks what it touches, by adding to these lists, which is why they are open; only
/// [`Tenancy::apply`](super::Tenancy::apply) takes out of them.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) existing: Vec<(Derived, Option<Existing>)>,
    pub(super) namespaces: Todo<Arc<str>>,
    pub(super) tenants: Todo<ObjectName>,
    /// TenantGateways that are checked.
    pub(super) checked: Todo<ObjectName>,
    pub(super) claims: WorkList<ClaimId>,
    pub(super) names: Todo<Name>,
    pub(super) hosts: WorkList<HostId>,
    pub(super) shards: Todo<Shard>,
    pub(super) verdicts: WorkList<ClaimId>,
    pub(super) readiness: Todo<ObjectName>,
    pub(super) delta: Delta,
    /// Objects for `delta` at the end, the latest last: there may be as many as hosts.
    pub(super) emitted: Vec<(Derived, Option<Desired>)>,
    pub(super) judged: Vec<((ClaimKey, ObjectName), Option<Verdict>)>,
}
