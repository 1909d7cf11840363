//! The GatewayParameters that a Gateway or a GatewayClass refers to.

use gatewright_objects::inputs::{GatewayClass, OWN_GROUP, Parameters, ParametersRef};
use gatewright_objects::store::Store;

/// The parameters of a class, or an error text.
pub(crate) fn class_parameters(
    class: &GatewayClass,
    store: &Store,
) -> Result<Option<Parameters>, String> {
    let Some(reference) = &class.parameters else {
        return Ok(None);
    };
    let path = "spec.parametersRef";
    let found = parameters(reference, path, store)?;
    if found.service.name.is_some() {
        Err(format!(
            "{path}: spec.service.name belongs to the parameters of a Gateway: leave it out"
        ))
    } else {
        Ok(Some(found))
    }
}

/// The parameters that a reference at a path leads to, or an error text.
pub(crate) fn parameters(
    reference: &ParametersRef,
    path: &str,
    store: &Store,
) -> Result<Parameters, String> {
    let ParametersRef {
        group,
        kind,
        namespace,
        name,
    } = reference;
    let Some(target) = reference.target() else {
        return Err(match namespace {
            None if group == OWN_GROUP => {
                format!("{path}: {kind} {name} needs a namespace")
            }
            _ => format!(
                "{path}: {kind} {name} of group {group:?} is not read: refer to GatewayParameters of group {:?}",
                OWN_GROUP
            ),
        });
    };
    let Some(found) = store.parameters(&target) else {
        let note = store.unwatched(&target);
        return Err(format!(
            "{path}: GatewayParameters {target} is not there: create it, or remove the reference{note}"
        ));
    };
    found
        .spec
        .clone()
        .map_err(|text| format!("{path}: GatewayParameters {target}: {text}"))
}
