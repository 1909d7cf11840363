//! `spec.healthCheck` of a TrafficPolicy.

use serde::Deserialize;

use super::text::{exact_hostname, quoted};
use super::trafficpolicy_value::{number, number_or, percent, time_or};
use crate::model::{HealthCheck, OutlierDetection, Probe};

/// The longest path of a check.
const PATH: usize = 1024;
/// The longest name of a gRPC service.
const SERVICE: usize = 253;
/// The most statuses of a healthy endpoint.
const STATUSES: usize = 16;

/// `healthCheck`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WrittenHealthCheck {
    active: Option<WrittenActive>,
    passive: Option<WrittenPassive>,
    panic_threshold: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenActive {
    r#type: ProbeType,
    timeout: Option<String>,
    interval: Option<String>,
    unhealthy_threshold: Option<i64>,
    healthy_threshold: Option<i64>,
    http: Option<WrittenHttp>,
    grpc: Option<WrittenGrpc>,
}

#[derive(Clone, Copy, Deserialize)]
enum ProbeType {
    #[serde(rename = "HTTP")]
    Http,
    #[serde(rename = "TCP")]
    Tcp,
    #[serde(rename = "GRPC")]
    Grpc,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenHttp {
    path: String,
    hostname: Option<String>,
    expected_statuses: Option<Vec<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGrpc {
    service: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenPassive {
    #[serde(rename = "consecutive5XxErrors")]
    consecutive_5xx_errors: Option<i64>,
    consecutive_gateway_errors: Option<i64>,
    interval: Option<String>,
    base_ejection_time: Option<String>,
    max_ejection_percent: Option<i64>,
}

/// The active check, the passive one, and the panic threshold.
pub(super) type Checks = (Option<HealthCheck>, Option<OutlierDetection>, Option<u8>);

/// Reads the checks.
pub(super) fn read(written: WrittenHealthCheck) -> Result<Checks, String> {
    let WrittenHealthCheck {
        active,
        passive,
        panic_threshold,
    } = written;
    let panic = panic_threshold.map(|value| percent("healthCheck.panicThreshold", value));
    Ok((
        active.map(read_active).transpose()?,
        passive.map(read_passive).transpose()?,
        panic.transpose()?,
    ))
}

fn read_active(written: WrittenActive) -> Result<HealthCheck, String> {
    let WrittenActive {
        r#type,
        timeout,
        interval,
        unhealthy_threshold,
        healthy_threshold,
        http,
        grpc,
    } = written;
    fn field(name: &str) -> String {
        format!("healthCheck.active.{name}")
    }
    let probe = match (r#type, http, grpc) {
        (ProbeType::Http, Some(http), None) => read_http(http)?,
        (ProbeType::Tcp, None, None) => Probe::Tcp,
        (ProbeType::Grpc, None, grpc) => read_grpc(grpc)?,
        (ProbeType::Http, None, _) => return Err(field("http: type HTTP needs it")),
        (ProbeType::Http, Some(_), Some(_)) => return Err(field("grpc: it belongs to type GRPC")),
        (ProbeType::Tcp, ..) => return Err(field("type: TCP has neither http nor grpc")),
        (ProbeType::Grpc, Some(_), _) => return Err(field("http: it belongs to type HTTP")),
    };
    Ok(HealthCheck {
        probe,
        // Envoy acknowledges no cluster while one waits for its first checks.
        timeout: time_or(&field("timeout"), timeout, "1s", ("100ms", "2s"))?,
        interval: time_or(&field("interval"), interval, "3s", ("2s", "10m"))?,
        unhealthy_threshold: number_or(
            &field("unhealthyThreshold"),
            unhealthy_threshold,
            3,
            1..=100,
        )?,
        healthy_threshold: number_or(&field("healthyThreshold"), healthy_threshold, 1, 1..=100)?,
    })
}

fn read_http(written: WrittenHttp) -> Result<Probe, String> {
    let WrittenHttp {
        path,
        hostname,
        expected_statuses,
    } = written;
    let field = "healthCheck.active.http";
    let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_path || path.len() > PATH {
        return Err(format!(
            "{field}.path: {} is no path of at most {PATH} characters that begins with /",
            quoted(&path)
        ));
    }
    let hostname = hostname
        .map(|name| exact_hostname(&name).map_err(|why| format!("{field}.hostname: {why}")))
        .transpose()?;
    let statuses = expected_statuses.unwrap_or_else(|| vec![200]);
    if statuses.is_empty() || statuses.len() > STATUSES {
        return Err(format!(
            "{field}.expectedStatuses: 1 to {STATUSES} statuses are expected, found {}",
            statuses.len()
        ));
    }
    let statuses = statuses.into_iter().map(|status| {
        let status = number(&format!("{field}.expectedStatuses"), status, 100..=599)?;
        Ok(u16::try_from(status).expect("it is at most 599"))
    });
    Ok(Probe::Http {
        path,
        hostname: hostname.map(|name| name.to_string()),
        statuses: statuses.collect::<Result<_, String>>()?,
    })
}

fn read_grpc(written: Option<WrittenGrpc>) -> Result<Probe, String> {
    let service = written.and_then(|grpc| grpc.service).unwrap_or_default();
    let is_name = service.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_name || service.len() > SERVICE {
        return Err(format!(
            "healthCheck.active.grpc.service: {} is no name of at most {SERVICE} characters",
            quoted(&service)
        ));
    }
    Ok(Probe::Grpc { service })
}

fn read_passive(written: WrittenPassive) -> Result<OutlierDetection, String> {
    let WrittenPassive {
        consecutive_5xx_errors,
        consecutive_gateway_errors,
        interval,
        base_ejection_time,
        max_ejection_percent,
    } = written;
    fn field(name: &str) -> String {
        format!("healthCheck.passive.{name}")
    }
    let consecutive_5xx = number_or(
        &field("consecutive5XxErrors"),
        consecutive_5xx_errors,
        5,
        0..=1000,
    )?;
    let consecutive_gateway = number_or(
        &field("consecutiveGatewayErrors"),
        consecutive_gateway_errors,
        0,
        0..=1000,
    )?;
    if consecutive_5xx == 0 && consecutive_gateway == 0 {
        return Err(
            "healthCheck.passive: one of consecutive5XxErrors and consecutiveGatewayErrors must not be 0"
                .to_owned(),
        );
    }
    let most = max_ejection_percent.map(|value| percent(&field("maxEjectionPercent"), value));
    let ejected = &field("baseEjectionTime");
    Ok(OutlierDetection {
        consecutive_5xx,
        consecutive_gateway,
        interval: time_or(&field("interval"), interval, "3s", ("1s", "1h"))?,
        base_ejection_time: time_or(ejected, base_ejection_time, "30s", ("1s", "1h"))?,
        max_ejection_percent: most.transpose()?.unwrap_or(50),
    })
}
