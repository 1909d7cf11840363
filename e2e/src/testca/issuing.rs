//! The certificates that the CA issues when an order is finalized.

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD as BASE64, Engine};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    CertificateSigningRequestParams, CustomExtension, KeyPair, PKCS_ECDSA_P384_SHA384, SerialNumber,
};
use serde_json::Value;

use super::State;
use super::answer::{Answer, Kind, problem};

impl State {
    pub(super) fn finalize(
        &mut self,
        account: usize,
        id: usize,
        payload: &Value,
    ) -> Result<Answer> {
        let behaviour = self.behaviour.clone();
        if behaviour.failing_finalizes > 0 {
            self.behaviour.failing_finalizes -= 1;
            return Ok(problem(503, "serverInternal", "come back later"));
        }
        let order = self.orders.get(id).context("no such order")?;
        ensure!(
            order.finalized.is_none() && order.accepted.len() == order.names.len(),
            Kind("orderNotReady")
        );
        let der = BASE64.decode(payload["csr"].as_str().context("csr")?)?;
        let mut csr = CertificateSigningRequestParams::from_der(&der.as_slice().into())
            .context(Kind("badCSR"))?;
        let mut asked: Vec<_> = csr
            .params
            .subject_alt_names
            .iter()
            .filter_map(|n| {
                if let rcgen::SanType::DnsName(n) = n {
                    Some(n.to_string())
                } else {
                    None
                }
            })
            .collect();
        asked.sort();
        let mut ordered = order.names.clone();
        ordered.sort();
        ensure!(asked == ordered, Kind("badCSR"));
        if behaviour.wrong_name {
            csr.params.subject_alt_names =
                vec![rcgen::SanType::DnsName("other.example".try_into()?)];
        }
        for name in behaviour.added {
            csr.params
                .subject_alt_names
                .push(rcgen::SanType::DnsName(name.try_into()?));
        }
        let now = Timestamp::now() + behaviour.ahead;
        let life = behaviour
            .life
            .unwrap_or(SignedDuration::from_hours(24 * 90));
        let calendar = |t: Timestamp| time::OffsetDateTime::from_unix_timestamp(t.as_second());
        csr.params.not_before = calendar(now - SignedDuration::from_mins(1))?;
        csr.params.not_after = calendar(now + life)?;
        csr.params.serial_number = Some(SerialNumber::from(1000 + id as u64));
        csr.params.use_authority_key_identifier_extension = true;
        csr.params
            .custom_extensions
            .extend(behaviour.issuer_at.as_deref().map(authority_information));
        if let Some(template) = behaviour.template {
            template(&mut csr.params);
        }
        let leaf = if behaviour.other_key {
            csr.params
                .signed_by(
                    &KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384)?,
                    &self.issuer,
                )?
                .pem()
        } else {
            csr.signed_by(&self.issuer)?.pem()
        };
        let chain = if behaviour.leaf_only {
            leaf
        } else {
            format!("{leaf}{}", self.ca_pem)
        };
        let order = self.orders.get_mut(id).context("no such order")?;
        order.chain = Some(chain);
        order.finalized = Some(behaviour.processing.0);
        *self
            .counts
            .certificates
            .entry(order.names.join(","))
            .or_default() += 1;
        self.order(account, id, false)
    }
}

/// Makes the extension with the URL of a certificate's issuer: `AuthorityInfoAccess` with
/// `caIssuers`, shorter than 128 bytes.
fn authority_information(url: &str) -> CustomExtension {
    let tagged = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
    let ca_issuers = [0x06, 8, 0x2b, 6, 1, 5, 5, 7, 0x30, 2];
    let description = tagged(
        0x30,
        &[&ca_issuers[..], &tagged(0x86, url.as_bytes())].concat(),
    );
    CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 1], tagged(0x30, &description))
}
