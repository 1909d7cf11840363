//! The records of ownership as JSON, for people.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ControlPlane;
use gatewright_core::model::Hostname;
use gatewright_core::tenancy::Record;
use gatewright_core::translate::{Ownable, OwnerRecord};

fn time(seconds: u64) -> Option<Timestamp> {
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
}

impl ControlPlane {
    /// Returns the owners of hostnames and ports on addresses that namespaces share, and among
    /// tenants of TenantGateways, from the records.
    pub fn owners(&self) -> Value {
        let address = |(what, owner): (&Ownable, &OwnerRecord)| {
            json!({
                "what": what.to_string(), "namespace": &*owner.namespace, "protocol": owner.protocol,
                "since": time(owner.since / 1000), "released": owner.released.and_then(time),
            })
        };
        // `since` of a tenant's record is an order and not a time.
        let tenant = |(hostname, record): (&Hostname, &Record)| {
            json!({
                "what": format!("hostname {hostname} among tenants"), "namespace": &*record.namespace,
                "protocol": null, "since": null, "released": record.released.and_then(time),
            })
        };
        let tenants = self.pipeline.tenancy().records().iter().map(tenant);
        Value::Array(self.engine().record().map(address).chain(tenants).collect())
    }
}
