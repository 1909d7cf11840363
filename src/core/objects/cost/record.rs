//! What an entry of a record of ownership takes in a ConfigMap: its key, a second time in
//! `managedFields`, and its value.

use crate::model::Hostname;

/// The names of the fields and the numbers of a value: `{"hostname":"","namespace":"","since":...`
const OWNER: u64 = 76;
/// The same of the listeners that a namespace is admitted to, beside their names.
const LISTENERS: u64 = 40;
/// A key that is a digest.
const DIGEST: u64 = 36;
/// The field of a hostname among tenants.
const TENANTS: u64 = 15;

/// The entry of a hostname that a namespace owns on addresses that several share; of one to which
/// it is admitted with the names of the listeners.
pub fn of_owner(name: &Hostname, namespace: &str, listeners: Option<[&str; 2]>) -> u64 {
    let (key, names) = match listeners {
        None => (length(name), 0),
        Some([namespace, place]) => (DIGEST, LISTENERS + (namespace.len() + place.len()) as u64),
    };
    2 * key + OWNER + names + length(name) + namespace.len() as u64
}

/// The entry of a hostname that a namespace has among the tenants of TenantGateways.
pub fn of_tenant(name: &Hostname, namespace: &str) -> u64 {
    2 * DIGEST + OWNER + TENANTS + length(name) + namespace.len() as u64
}

/// The length of a hostname, of which the catch-all has a name.
fn length(name: &Hostname) -> u64 {
    name.as_str().len().max("_any".len()) as u64
}
