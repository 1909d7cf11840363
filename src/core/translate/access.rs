//! The effect of an AccessPolicy by itself. One that cannot be carried out closes what it is
//! attached to.

use std::sync::Arc;

use super::attached_policies::{Effect, JudgedAttachment};
use crate::inputs::{AccessRules, AttachedPolicy};
use crate::model::{Access, Reason};

/// An AccessPolicy by itself; `beyond` is why it is one too many, if it is.
pub(super) fn judged(
    policy: &Arc<AttachedPolicy>,
    rules: &Result<AccessRules, String>,
    beyond: Option<(Reason, String)>,
) -> JudgedAttachment {
    let rules = match beyond {
        Some(beyond) => Err(beyond),
        None => rules
            .as_ref()
            .map_err(|text| (Reason::Invalid, text.clone())),
    };
    let (accepted, effect) = match rules {
        Ok(AccessRules { addresses }) => {
            let access = Access {
                policy: policy.meta.name.clone(),
                addresses: addresses.clone(),
            };
            (Ok(()), Effect::Admit(Arc::new(access)))
        }
        Err((reason, text)) => {
            let told = format!("{text}; requests are answered 500");
            (Err((reason, told)), Effect::Close)
        }
    };
    JudgedAttachment {
        policy: policy.clone(),
        accepted,
        effect,
    }
}
