//! What comes of an AccessPolicy by itself. One that cannot be carried out closes what it is
//! attached to.

use std::sync::Arc;

use super::attached_policies::{Effect, JudgedAttachment};
use crate::inputs::{AccessRules, AttachedPolicy};
use crate::model::{Access, Reason};

/// An AccessPolicy by itself.
pub(super) fn judged(
    policy: &Arc<AttachedPolicy>,
    rules: &Result<AccessRules, String>,
) -> JudgedAttachment {
    let (accepted, effect) = match rules {
        Ok(AccessRules { addresses }) => {
            let access = Access {
                policy: policy.meta.name.clone(),
                addresses: addresses.clone(),
            };
            (Ok(()), Effect::Admit(Arc::new(access)))
        }
        Err(text) => (Err((Reason::Invalid, text.clone())), Effect::Close),
    };
    JudgedAttachment {
        policy: policy.clone(),
        accepted: accepted.map_err(closed),
        resolved: None,
        effect,
    }
}

/// A refusal, with what becomes of requests.
fn closed((reason, text): (Reason, String)) -> (Reason, String) {
    (reason, format!("{text}; requests are answered 500"))
}
