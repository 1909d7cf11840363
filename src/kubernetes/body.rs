//! The body of a Secret, which is asked for when something refers to it.

use kube::api::Api;
use kube::core::DynamicObject;
use tokio::time::sleep;
use tracing::warn;

use super::failure::Failure;
use crate::inputs::Object;
use crate::model::ObjectName;

/// Fetches a Secret; `None` when it is gone.
pub(super) async fn body(api: &Api<DynamicObject>, name: &ObjectName) -> Option<Object> {
    let mut told = false;
    for failures in 0.. {
        match api.get_opt(&name.name).await {
            Ok(found) => {
                let mut object = found?;
                object.metadata.managed_fields = None;
                let value = serde_json::to_value(object).ok()?;
                return match Object::parse_admitted(value) {
                    Ok(object) => Some(object),
                    Err(error) => {
                        warn!("secret {name} is passed over: {error}");
                        None
                    }
                };
            }
            Err(error) => {
                let failure = Failure::of(&error);
                if !std::mem::replace(&mut told, true) {
                    warn!("reading secret {name}: {failure}");
                }
                // Without the right it is as good as gone; the next version of the Secret is asked for again.
                if failures > 2 && matches!(failure, Failure::Forbidden(_) | Failure::Refused(_)) {
                    return None;
                }
                sleep(failure.pause(failures)?).await;
            }
        }
    }
    None
}
