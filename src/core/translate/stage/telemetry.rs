//! Traces of the requests of Gateways, by XTelemetryPolicies (GEP-4768): which policy a Gateway
//! goes by, and what comes of it.
//!
//! The collector of spans is a setting of a connection manager, and that of a port of the shared
//! fleet belongs to Gateways of all namespaces. Therefore a policy has effect at Gateways with
//! ports of their own alone.

use std::sync::Arc;

use crate::key::{ParentKey, Verdict};
use crate::rule::backend_reference::Referrer;
use crate::rule::gateway_exposure::Fleet;
use crate::rule::settings::Settings;
use crate::state::parents::Parents;
use crate::state::quotas::Quotas;
use gatewright_objects::channel::Channel;
use gatewright_objects::inputs::{Kind, TelemetryPolicy, TracingParameters, TracingRules};
use gatewright_objects::model::{AppProtocol, BackendId, ObjectName, Reason, Tracing, Transport};
use gatewright_objects::store::Store;

/// The tracing of the frontends of a Gateway; `None` for none, and for the shared fleet.
pub(crate) fn tracing(
    gateway: &ObjectName,
    parents: &Parents,
    store: &Store,
    quotas: &Quotas,
    settings: &Settings,
) -> Option<Arc<Tracing>> {
    let policy = first(gateway, parents, store, quotas, settings)?;
    let Ok(TracingRules::On(parameters)) = &policy.tracing else {
        return None;
    };
    let collector = collector(policy, parameters, store).ok()?;
    let TracingParameters {
        collector: _,
        port: _,
        headers,
        sampling,
        parents,
        service_name,
        span_name,
        attributes,
        unknown: _,
    } = &**parameters;
    Some(Arc::new(Tracing {
        collector,
        headers: headers.clone(),
        sampling: *sampling,
        parents: *parents,
        service_name: service_name.clone(),
        span_name: span_name.clone(),
        attributes: attributes.clone(),
    }))
}

/// The policy that a Gateway goes by: the first of those that can be carried out.
pub(crate) fn first<'a>(
    gateway: &ObjectName,
    parents: &Parents,
    store: &'a Store,
    quotas: &Quotas,
    settings: &Settings,
) -> Option<&'a Arc<TelemetryPolicy>> {
    let mut policies = quotas.telemetry_within(gateway, store);
    policies.find(|policy| accepted(policy, gateway, parents, settings).is_ok())
}

/// Ok if a policy that is within the quota can be carried out at a Gateway, where no other one
/// comes first.
pub(crate) fn accepted(
    policy: &TelemetryPolicy,
    gateway: &ObjectName,
    parents: &Parents,
    settings: &Settings,
) -> Verdict {
    if settings.channel == Channel::Standard {
        let text = "XTelemetryPolicy has no effect: it is of the experimental channel, gatewayApi.channel is standard";
        return Err((Reason::Invalid, text.to_owned()));
    }
    let parent = parents
        .get(&ParentKey::Gateway(gateway.clone()))
        .ok_or_else(|| {
            let text = format!("Gateway {} does not exist", gateway.name);
            (Reason::TargetNotFound, text)
        })?;
    if parent.placement.exposure.fleet == Fleet::Shared {
        let text = format!(
            "Gateway {} is of fleet Shared, whose ports have Gateways of all namespaces in common: traces need fleet \
             Dedicated or Isolated",
            gateway.name
        );
        return Err((Reason::Invalid, text));
    }
    match &policy.tracing {
        Ok(_) => Ok(()),
        Err(text) => Err((Reason::Invalid, text.clone())),
    }
}

/// The backend of the collector of a policy: OTLP is gRPC, whatever the Service says of its port.
pub(crate) fn collector(
    policy: &TelemetryPolicy,
    parameters: &TracingParameters,
    store: &Store,
) -> Result<BackendId, (Reason, String)> {
    let referrer = Referrer {
        store,
        kind: Kind::XTelemetryPolicy,
        name: &policy.meta.name,
        transport: Transport::Tcp,
    };
    let field = "spec.tracing.provider.backendRef";
    let (at, _) = referrer.look_up(&parameters.collector, parameters.port, field)?;
    Ok(BackendId::new(at, AppProtocol::Otlp))
}
