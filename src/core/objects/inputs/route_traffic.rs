//! The settings of a TrafficPolicy (`gatewright.io/v1alpha1`) for Gateways, ListenerSets and routes.
//!
//! The bounds are those of the definition in `deploy/crds`, for manifests that no API server has
//! validated.

use std::sync::Arc;

use serde::Deserialize;

use super::LocalRef;
use super::compression::{self, CompressionRules, WrittenCompression};
use super::request_body::{self, RequestBodyRules, WrittenRequestBody};
use super::response_override::{self, OverrideRules, WrittenOverride};
use super::text::{self, Refused};
use super::trafficpolicy_value::{number, number_or};
use crate::model::{LimitUnit, LimitedBy, RateLimit};

/// The most rate limits of a policy.
const LIMITS: usize = 8;
/// The most requests of a limit, and of its burst.
const REQUESTS: u32 = 1_000_000;
/// The most clients that a limit can count by themselves.
const CLIENTS: u32 = 1_000_000;
/// As many of them as a limit has by default.
const DEFAULT_CLIENTS: u32 = 1_000;

/// What a TrafficPolicy asks of the requests of its Gateways, ListenerSets and routes. The nearest
/// policy wins for each field.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteTraffic {
    /// How many requests pass: at least one limit.
    pub rate_limit: Option<Arc<[RateLimit]>>,
    /// The compression of responses.
    pub compression: Option<CompressionRules>,
    /// Answers in place of errors; empty without the field.
    pub response_override: Vec<OverrideRules>,
    /// How long bodies of requests may be.
    pub request_body: Option<RequestBodyRules>,
}

impl RouteTraffic {
    /// The objects that it refers to.
    pub fn references(&self) -> impl Iterator<Item = &LocalRef> {
        self.response_override
            .iter()
            .filter_map(OverrideRules::config_map)
    }
}

/// The fields of `spec` that are about routes.
pub(super) struct WrittenRouteTraffic {
    pub(super) rate_limit: Option<Vec<WrittenRateLimit>>,
    pub(super) compression: Option<WrittenCompression>,
    pub(super) response_override: Option<Vec<WrittenOverride>>,
    pub(super) request_body: Option<WrittenRequestBody>,
}

impl WrittenRouteTraffic {
    /// The first of the fields that is there.
    pub(super) fn first_field(&self) -> Option<&'static str> {
        let Self {
            rate_limit,
            compression,
            response_override,
            request_body,
        } = self;
        let fields = [
            ("rateLimit", rate_limit.is_some()),
            ("compression", compression.is_some()),
            ("responseOverride", response_override.is_some()),
            ("requestBody", request_body.is_some()),
        ];
        let first = fields.into_iter().find(|(_, is_there)| *is_there);
        first.map(|(field, _)| field)
    }
}

/// `spec.rateLimit[]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenRateLimit {
    limit: WrittenLimit,
    by: WrittenBy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLimit {
    requests: i64,
    per: WrittenUnit,
    burst: Option<i64>,
}

#[derive(Clone, Copy, Deserialize)]
enum WrittenUnit {
    Second,
    Minute,
    Hour,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenBy {
    r#type: ByType,
    header: Option<WrittenHeader>,
    max_clients: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
enum ByType {
    Everyone,
    ClientAddress,
    Header,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHeader {
    name: String,
}

/// The settings as written, of a policy of this namespace.
///
/// # Errors
/// The field that cannot be carried out, and why.
pub(super) fn read(
    namespace: &Arc<str>,
    written: WrittenRouteTraffic,
) -> Result<RouteTraffic, String> {
    if written.first_field().is_none() {
        return Err(
            "spec: one of rateLimit, compression, responseOverride and requestBody is needed"
                .to_owned(),
        );
    }
    let WrittenRouteTraffic {
        rate_limit,
        compression,
        response_override,
        request_body,
    } = written;
    Ok(RouteTraffic {
        rate_limit: rate_limit.map(limits).transpose()?,
        compression: compression.map(compression::read).transpose()?,
        response_override: match response_override {
            Some(written) => response_override::read(namespace, written)?,
            None => Vec::new(),
        },
        request_body: request_body.as_ref().map(request_body::read).transpose()?,
    })
}

fn limits(written: Vec<WrittenRateLimit>) -> Result<Arc<[RateLimit]>, String> {
    if written.is_empty() || written.len() > LIMITS {
        let found = written.len();
        return Err(format!(
            "rateLimit: 1 to {LIMITS} limits are expected, found {found}"
        ));
    }
    let read = written
        .into_iter()
        .enumerate()
        .map(|(index, one)| limit(&format!("rateLimit[{index}]"), one));
    read.collect()
}

fn limit(field: &str, written: WrittenRateLimit) -> Result<RateLimit, String> {
    let WrittenRateLimit {
        limit: WrittenLimit {
            requests,
            per,
            burst,
        },
        by,
    } = written;
    let requests = number(&format!("{field}.limit.requests"), requests, 1..=REQUESTS)?;
    let field_burst = format!("{field}.limit.burst");
    Ok(RateLimit {
        requests,
        per: match per {
            WrittenUnit::Second => LimitUnit::Second,
            WrittenUnit::Minute => LimitUnit::Minute,
            WrittenUnit::Hour => LimitUnit::Hour,
        },
        burst: number_or(&field_burst, burst, requests, 1..=REQUESTS)?,
        by: limited_by(&format!("{field}.by"), by)?,
    })
}

fn limited_by(field: &str, written: WrittenBy) -> Result<LimitedBy, String> {
    let WrittenBy {
        r#type,
        header,
        max_clients,
    } = written;
    if r#type == ByType::Everyone && max_clients.is_some() {
        return Err(format!(
            "{field}.maxClients: type Everyone counts all clients together"
        ));
    }
    let most = format!("{field}.maxClients");
    let clients = number_or(&most, max_clients, DEFAULT_CLIENTS, 1..=CLIENTS)?;
    match (r#type, header) {
        (ByType::Everyone, None) => Ok(LimitedBy::Everyone),
        (ByType::ClientAddress, None) => Ok(LimitedBy::ClientAddress { clients }),
        (ByType::Header, Some(WrittenHeader { name })) => Ok(LimitedBy::Header {
            name: header_name(&format!("{field}.header.name"), &name)?,
            clients,
        }),
        (ByType::Header, None) => Err(format!("{field}.header: type Header needs it")),
        (_, Some(_)) => Err(format!("{field}.header: it belongs to type Header")),
    }
}

/// The name of a header in lower case. It stands in a format of Envoy's, in which other characters
/// of names have a meaning.
fn header_name(field: &str, name: &str) -> Result<String, String> {
    text::header_name(field, name).map_err(|Refused(text)| text)?;
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if !is_plain {
        return Err(format!(
            "{field}: letters, digits, \"-\", \"_\" and \".\" are expected, found {}",
            text::quoted(name)
        ));
    }
    Ok(name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
