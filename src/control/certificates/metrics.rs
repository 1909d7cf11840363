//! The metrics of the certificate manager, as a snapshot. No host and no tenant becomes a label.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The metrics about certificates.
#[derive(Clone, Debug, Default)]
pub struct CertificateMetrics {
    /// The numbers of wanted certificates that are there and good, that are pending, that have a
    /// reason for their absence, that Envoys or TLS clients refuse, and whose renewals fail.
    pub wants: [(&'static str, usize); 5],
    /// The number of requests to CAs by action and status; status 0 is no answer.
    pub requests: BTreeMap<(&'static str, u16), u64>,
}

impl Collector for CertificateMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self { wants, requests } = self;
        let mut family =
            encoder.encode_descriptor("certificates", "Certificates", None, MetricType::Gauge)?;
        for (state, count) in wants {
            let value = ConstGauge::new(i64::try_from(*count).unwrap_or(i64::MAX));
            value.encode(family.encode_family(&[("state", *state)])?)?;
        }
        let mut family = encoder.encode_descriptor(
            "acme_requests",
            "Requests to CAs",
            None,
            MetricType::Counter,
        )?;
        for ((action, status), count) in requests {
            let status = status.to_string();
            ConstCounter::new(*count)
                .encode(family.encode_family(&[("action", *action), ("status", &status)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Program, text};

    #[test]
    fn figures_are_told_beside_the_programs() {
        let metrics = CertificateMetrics {
            wants: [
                ("held", 2),
                ("waiting", 1),
                ("failing", 0),
                ("refused", 0),
                ("unrenewed", 0),
            ],
            requests: BTreeMap::from([(("order", 201), 3), (("directory", 0), 1)]),
        };
        let text = text(
            Program::default(),
            &xds::Cache::new(),
            vec![Box::new(metrics)],
        );
        for line in [
            "gatewright_certificates{state=\"held\"} 2",
            "gatewright_acme_requests_total{action=\"order\",status=\"201\"} 3",
            "gatewright_acme_requests_total{action=\"directory\",status=\"0\"} 1",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
