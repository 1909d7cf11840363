//! AWS Signature Version 4: a pure function of the request, the keys and the time.
//!
//! Rules: "Create a signed AWS API request" in the IAM user guide. The tests below use AWS's
//! published test suite.

use hyper::http::request::Builder;
use jiff::Timestamp;
use ring::hmac;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::super::http::encode;
use super::credentials::AwsKeys;

/// The parts of a request that are signed.
pub(crate) struct Signable<'a> {
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    /// Encoded path.
    pub(crate) path: &'a str,
    /// Decoded query parameters.
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) content_type: Option<&'a str>,
    pub(crate) body: &'a [u8],
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
}

impl Signable<'_> {
    /// Returns the query in canonical form, which is also sent in this form.
    pub(crate) fn canonical_query(&self) -> String {
        let mut pairs: Vec<(String, String)> = self
            .query
            .iter()
            .map(|(k, v)| (encode(k), encode(v)))
            .collect();
        pairs.sort();
        pairs
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect::<Vec<_>>()
            .join("&")
    }

    /// Adds the headers of a signature by `keys` at `now`.
    pub(crate) fn sign(&self, mut request: Builder, keys: &AwsKeys, now: Timestamp) -> Builder {
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        request = request
            .header("x-amz-date", &time)
            .header("authorization", self.authorization(keys, &time));
        if let Some(content_type) = self.content_type {
            request = request.header("content-type", content_type);
        }
        if let Some(token) = &keys.session_token {
            request = request.header("x-amz-security-token", token.expose());
        }
        if let Some(headers) = request.headers_mut() {
            headers
                .values_mut()
                .for_each(|value| value.set_sensitive(true));
        }
        request
    }

    fn authorization(&self, keys: &AwsKeys, time: &str) -> String {
        let mut headers = vec![("host", self.host), ("x-amz-date", time)];
        headers.extend(self.content_type.map(|kind| ("content-type", kind)));
        headers.extend(
            keys.session_token
                .as_ref()
                .map(|token| ("x-amz-security-token", token.expose())),
        );
        headers.sort();
        let signed = headers
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(";");
        let lines: String = headers
            .iter()
            .map(|(name, value)| format!("{name}:{}\n", value.trim()))
            .collect();
        // All services but S3 encode the path twice; an encoded path of ours has no dot segments.
        let path = self
            .path
            .split('/')
            .map(encode)
            .collect::<Vec<_>>()
            .join("/");
        let canonical = format!(
            "{}\n{}\n{}\n{lines}\n{signed}\n{}",
            self.method,
            if path.is_empty() { "/" } else { &path },
            self.canonical_query(),
            hex(&Sha256::digest(self.body)),
        );
        let date = &time[..8];
        let scope = format!("{date}/{}/{}/aws4_request", self.region, self.service);
        let to_sign = format!(
            "AWS4-HMAC-SHA256\n{time}\n{scope}\n{}",
            hex(&Sha256::digest(canonical))
        );
        let secret = Zeroizing::new(format!("AWS4{}", keys.secret_access_key.expose()));
        let mut key = mac(secret.as_bytes(), date);
        for part in [self.region, self.service, "aws4_request"] {
            key = mac(key.as_ref(), part);
        }
        let signature = hex(mac(key.as_ref(), &to_sign).as_ref());
        format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={signed}, Signature={signature}",
            keys.access_key_id
        )
    }
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::secret::Secret;
    use super::*;

    /// Signs with keys and time of AWS's own test suite.
    fn signature(signable: Signable<'_>) -> String {
        let keys = AwsKeys {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session_token: None,
        };
        let header = signable.authorization(&keys, "20150830T123600Z");
        header
            .rsplit_once("Signature=")
            .expect("a signature")
            .1
            .to_owned()
    }

    const VANILLA: Signable<'static> = Signable {
        method: "GET",
        host: "example.amazonaws.com",
        path: "/",
        query: &[],
        content_type: None,
        body: b"",
        region: "us-east-1",
        service: "service",
    };

    #[test]
    fn the_test_suites_vanilla_request() {
        assert_eq!(
            signature(VANILLA),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
    }

    #[test]
    fn the_test_suites_query_out_of_order() {
        let query: &[(&str, &str)] = &[("Param2", "value2"), ("Param1", "value1")];
        assert_eq!(
            signature(Signable { query, ..VANILLA }),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"
        );
    }

    #[test]
    fn the_documentations_list_users() {
        let signable = Signable {
            host: "iam.amazonaws.com",
            query: &[("Action", "ListUsers"), ("Version", "2010-05-08")],
            content_type: Some("application/x-www-form-urlencoded; charset=utf-8"),
            service: "iam",
            ..VANILLA
        };
        assert_eq!(
            signature(signable),
            "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
    }
}
