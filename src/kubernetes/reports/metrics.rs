//! The metrics about requests for reports.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::reporter::ReportCounts;
use crate::metrics::counters;

/// Returns the metrics with nothing counted: their names and descriptions.
pub fn described() -> Box<dyn Collector> {
    Box::new(ReportCounts::default())
}

impl Collector for ReportCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let writes = self.0.read();
        let to = &mut encoder;
        let help = "Requests for reports answered, refused and removed, and removals of all of a namespace";
        counters(to, "report_writes", help, "action", &writes.begun)?;
        let help = "Writes about requests for reports that failed, by class";
        counters(to, "report_write_failures", help, "class", &writes.failed)
    }
}
