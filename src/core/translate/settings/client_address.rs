//! `clientAddress` of an AccessPolicy.

use ipnet::IpNet;

use super::explained::{Denial, ExplainedAccess, SHOWN};
use super::judging::Judging;
use gatewright_objects::model::ObjectName;
use gatewright_objects::request_outcome::ADDRESS_DENIED;
use gatewright_objects::settings::{AddressList, Judge, Refusal, Visit};

impl Judge<AddressList> for Judging<'_> {
    fn judge(&mut self, rules: &AddressList) -> Result<Option<AddressList>, Refusal> {
        Ok(Some(rules.clone()))
    }
}

impl Visit<AddressList> for ExplainedAccess<'_> {
    fn visit(&mut self, _: &ObjectName, list: &AddressList) {
        let AddressList { allow, deny } = list;
        if !allow.is_empty() {
            self.parts
                .push(format!("only clients of {}", listed(allow)));
        }
        if !deny.is_empty() {
            self.parts.push(format!("no clients of {}", listed(deny)));
        }
        let Some(client) = self.question.client() else {
            return;
        };
        self.findings.push(if list.admits(client) {
            Ok(format!("{client} is admitted"))
        } else {
            Err(Denial {
                why: format!("{client} is not admitted"),
                status: 403,
                cause: ADDRESS_DENIED,
            })
        });
    }
}

fn listed(networks: &[IpNet]) -> String {
    let shown: Vec<String> = networks
        .iter()
        .take(SHOWN)
        .map(ToString::to_string)
        .collect();
    let shown = shown.join(", ");
    match networks.len().saturating_sub(SHOWN) {
        0 => shown,
        rest => format!("{shown} and {rest} more"),
    }
}
