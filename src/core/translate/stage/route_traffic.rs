//! The effect of a TrafficPolicy on Gateways, ListenerSets and routes. One that cannot be carried
//! out has none: it guards nothing. Where only a body of its answers is missing, the other fields
//! have theirs.

use std::sync::Arc;

use crate::key::Verdict;
use crate::state::answers;
use crate::state::attached_policies::{AttachedPolicies, Effect, JudgedAttachment};
use crate::state::traffic_settings::TrafficSettings;
use gatewright_objects::inputs::{
    AttachedPolicy, AttachmentTarget, CompressionRules, Kind, OverrideRules, RequestBodyRules,
    RouteTraffic,
};
use gatewright_objects::limits::ObjectLimits;
use gatewright_objects::model::{
    Bodies, BodyBuffer, Compression, LimitedBy, ObjectName, RateLimits, Reason, RequestBody,
    ResponseOverride, ResponseOverrides,
};
use gatewright_objects::store::Store;

/// A TrafficPolicy by itself; `beyond` is why it is one too many, if it is.
pub(crate) fn judged(
    policy: &Arc<AttachedPolicy>,
    rules: &Result<RouteTraffic, String>,
    beyond: Option<(Reason, String)>,
    limits: &ObjectLimits,
    store: &Store,
) -> JudgedAttachment {
    let settings = match (beyond, rules) {
        (Some(beyond), _) => Err(beyond),
        (None, Err(text)) => Err((Reason::Invalid, text.clone())),
        (None, Ok(rules)) => within(rules, limits).map(|()| settings(policy, rules, limits, store)),
    };
    let (accepted, settings) = match settings {
        Ok(found) => found,
        Err((reason, text)) => {
            let told = format!("{text}; the policy has no effect");
            (Err((reason, told)), TrafficSettings::default())
        }
    };
    JudgedAttachment {
        credentials: None,
        policy: policy.clone(),
        accepted,
        effect: Effect::Traffic(settings),
    }
}

/// The settings of a policy, and whether they are all that it asks for.
fn settings(
    policy: &AttachedPolicy,
    rules: &RouteTraffic,
    limits: &ObjectLimits,
    store: &Store,
) -> (Verdict, TrafficSettings) {
    let RouteTraffic {
        rate_limit,
        compression,
        response_override,
        request_body,
    } = rules;
    let policy = &policy.meta.name;
    let rate_limits = rate_limit.as_ref().map(|limits| {
        Arc::new(RateLimits {
            policy: policy.clone(),
            limits: limits.clone(),
        })
    });
    let compression = compression.clone().map(|rules| {
        let CompressionRules {
            types,
            min_bytes,
            algorithms,
        } = rules;
        Arc::new(Compression {
            policy: policy.clone(),
            types,
            min_bytes,
            algorithms,
        })
    });
    let (accepted, overrides) = match overrides(policy, response_override, store) {
        Ok(overrides) => (Ok(()), overrides),
        Err(text) => {
            let told = format!("{text}; responseOverride has no effect");
            (Err((Reason::Invalid, told)), None)
        }
    };
    let request = request_body.map(|rules| {
        let RequestBodyRules { max_bytes, buffer } = rules;
        Arc::new(RequestBody {
            policy: policy.clone(),
            max_bytes,
            buffer,
            max_buffered: limits.buffered_bytes(),
        })
    });
    let settings = TrafficSettings {
        rate_limits,
        bodies: Bodies {
            compression,
            overrides,
            request,
        },
    };
    (accepted, settings)
}

/// The answers in place of errors, with their bodies.
fn overrides(
    policy: &ObjectName,
    rules: &[OverrideRules],
    store: &Store,
) -> Result<Option<Arc<ResponseOverrides>>, String> {
    if rules.is_empty() {
        return Ok(None);
    }
    let all = rules.iter().enumerate().map(|(index, rules)| {
        let OverrideRules {
            statuses,
            status,
            content_type,
            body,
        } = rules;
        let body = answers::bytes(body, store)
            .map_err(|why| format!("responseOverride[{index}].response.body: {why}"))?;
        Ok(ResponseOverride {
            statuses: statuses.clone(),
            status: *status,
            content_type: content_type.clone(),
            body,
        })
    });
    let overrides = all.collect::<Result<Vec<_>, String>>()?;
    Ok(Some(Arc::new(ResponseOverrides {
        policy: policy.clone(),
        overrides,
    })))
}

/// Ok if no limit asks for more clients than an object may have, and no body is collected that is
/// larger than allowed.
fn within(rules: &RouteTraffic, limits: &ObjectLimits) -> Verdict {
    let collected = rules
        .request_body
        .filter(|body| body.buffer == BodyBuffer::All);
    if let Some(body) = collected.filter(|body| body.max_bytes > limits.buffered_bytes().into()) {
        let text = format!(
            "requestBody.maxBytes: {}, with buffer All limits.object.bufferedBodyKib is {}",
            body.max_bytes, limits.buffered_body_kib
        );
        return Err((Reason::LimitReached, text));
    }
    let most = limits.rate_limit_clients;
    let all = rules.rate_limit.iter().flat_map(|all| all.iter());
    for (index, limit) in all.enumerate() {
        let clients = limit.by.buckets();
        if limit.by != LimitedBy::Everyone && clients > most {
            let text = format!(
                "rateLimit[{index}].by.maxClients: {clients}, limits.object.rateLimitClients is {most}"
            );
            return Err((Reason::LimitReached, text));
        }
    }
    Ok(())
}

/// The note of an accepted policy: what of it is not as one may expect.
pub(crate) fn note(judged: &JudgedAttachment) -> String {
    match &judged.effect {
        Effect::Traffic(TrafficSettings {
            rate_limits: Some(_),
            ..
        }) => "rateLimit: each Envoy counts for itself".to_owned(),
        Effect::Admit(access) if access.only_reports() => {
            "enforcement Report: nobody is refused, access logs name whom the policy would refuse"
                .to_owned()
        }
        Effect::Traffic(_) | Effect::Admit(_) | Effect::Close | Effect::Nothing => String::new(),
    }
}

/// Ok if a TrafficPolicy decides about all its settings at a target.
pub(crate) fn takes_effect(
    attached: &AttachedPolicies,
    judged: &JudgedAttachment,
    target: &AttachmentTarget,
) -> Verdict {
    let rivals = attached.rivals(judged, target);
    let Some((_, first)) = rivals.first() else {
        return Ok(());
    };
    let fields: Vec<&str> = rivals.iter().map(|(field, _)| *field).collect();
    let section = target.section.as_deref();
    let place = section.map_or_else(
        || target.object.to_string(),
        |section| format!("{section:?} of {}", target.object),
    );
    let text = format!(
        "{}: {place} has {} {}, which takes precedence (older, or first by name)",
        fields.join(", "),
        Kind::TrafficPolicy.as_str(),
        first.name.name
    );
    Err((Reason::Conflicted, text))
}
