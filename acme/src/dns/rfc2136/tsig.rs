//! TSIG (RFC 8945) with SHA-2: signs messages, and verifies the signatures of answers.

use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hickory_proto::op::Message;
use hickory_proto::rr::Name;
use hickory_proto::rr::rdata::TSIG;
use hickory_proto::rr::rdata::tsig::{
    TsigAlgorithm, TsigError, make_tsig_record, message_tbs, signed_bitmessage_to_buf,
};
use zeroize::Zeroizing;

use super::super::secret::Secret;

/// Tolerated difference of the two clocks, in seconds (RFC 8945, 10).
const FUDGE: u16 = 300;

/// The algorithm of a key. MD5 and SHA-1 are not offered (RFC 8945, 6 deprecates them).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TsigHash {
    /// `hmac-sha256`
    Sha256,
    /// `hmac-sha384`
    Sha384,
    /// `hmac-sha512`
    Sha512,
}

impl TsigHash {
    /// Returns the name of the algorithm, as name servers know it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "hmac-sha256",
            Self::Sha384 => "hmac-sha384",
            Self::Sha512 => "hmac-sha512",
        }
    }

    fn algorithm(self) -> TsigAlgorithm {
        match self {
            Self::Sha256 => TsigAlgorithm::HmacSha256,
            Self::Sha384 => TsigAlgorithm::HmacSha384,
            Self::Sha512 => TsigAlgorithm::HmacSha512,
        }
    }
}

impl FromStr for TsigHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text
            .trim_end_matches('.')
            .to_ascii_lowercase()
            .replace('-', "")
            .as_str()
        {
            "hmacsha256" => Ok(Self::Sha256),
            "hmacsha384" => Ok(Self::Sha384),
            "hmacsha512" => Ok(Self::Sha512),
            _ => Err(format!(
                "algorithm: {text:?} is not offered; use hmac-sha256, hmac-sha384 or hmac-sha512"
            )),
        }
    }
}

/// A TSIG key, shared with a name server.
pub(crate) struct TsigKey {
    name: Name,
    hash: TsigHash,
    bytes: Zeroizing<Vec<u8>>,
}

/// The reason why an answer is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unsigned {
    /// The server reports BADSIG: it has another secret.
    BadSignature,
    /// The server reports BADKEY: it has no key of this name and algorithm.
    BadKey,
    /// The clocks differ by more than the tolerance.
    BadTime,
    /// The answer is not signed by the key, or its signature is wrong.
    NotBelieved(&'static str),
}

impl TsigKey {
    pub(crate) fn new(name: &str, hash: TsigHash, secret: &Secret) -> Result<Self, String> {
        let mut key_name = Name::from_ascii(name.to_ascii_lowercase())
            .ok()
            .filter(|name| !name.is_root())
            .ok_or_else(|| format!("keyName: {name:?} is not a domain name"))?;
        key_name.set_fqdn(true);
        if secret.expose().contains(['{', '}']) {
            return Err(
                "secret: is a whole key block of the name server; give only the text in quotes behind its word \
                        `secret`, and its name and algorithm as keyName and algorithm"
                    .to_owned(),
            );
        }
        // The message of the decoder would quote a byte of the secret.
        let bytes = BASE64_STANDARD
            .decode(secret.expose())
            .map(Zeroizing::new)
            .map_err(|_| {
                "secret: is not base64; take it as it stands in the name server's key file"
                    .to_owned()
            })?;
        if bytes.is_empty() {
            return Err("secret: is empty".to_owned());
        }
        Ok(Self {
            name: key_name,
            hash,
            bytes,
        })
    }

    pub(crate) fn name(&self) -> String {
        self.name.to_string().trim_end_matches('.').to_owned()
    }

    pub(crate) fn hash(&self) -> TsigHash {
        self.hash
    }

    /// Adds the signature to a message and returns its MAC, which the answer's signature covers
    /// (RFC 8945, 5.3.1).
    pub(crate) fn sign(&self, message: &mut Message, now: u64) -> Result<Vec<u8>, String> {
        let tsig = TSIG::new(
            self.hash.algorithm(),
            now,
            FUDGE,
            Vec::new(),
            message.id,
            None,
            Vec::new(),
        );
        let signed = message_tbs(message, &tsig, &self.name).map_err(|error| error.to_string())?;
        let mac = self
            .hash
            .algorithm()
            .mac_data(&self.bytes, &signed)
            .map_err(|error| error.to_string())?;
        message.set_signature(Box::new(make_tsig_record(
            self.name.clone(),
            tsig.set_mac(mac.clone()),
        )));
        Ok(mac)
    }

    /// Verifies an answer (RFC 8945, 5.2 and 5.3).
    pub(crate) fn verify(
        &self,
        answer: &[u8],
        request_mac: &[u8],
        now: u64,
    ) -> Result<(), Unsigned> {
        let (signed, record) = signed_bitmessage_to_buf(answer, Some(request_mac), true)
            .map_err(|_| Unsigned::NotBelieved("the answer is not signed"))?;
        let tsig = &record.data;
        match tsig.error {
            // BADSIG and BADKEY are unsigned (RFC 8945, 5.3.2); BADTIME has the server's time.
            Some(TsigError::BadSig) => return Err(Unsigned::BadSignature),
            Some(TsigError::BadKey) => return Err(Unsigned::BadKey),
            Some(TsigError::BadTime) => return Err(Unsigned::BadTime),
            Some(_) => {
                return Err(Unsigned::NotBelieved(
                    "the server reports an unknown TSIG error",
                ));
            }
            None => {}
        }
        if record.name != self.name || tsig.algorithm != self.hash.algorithm() {
            return Err(Unsigned::NotBelieved("the answer is signed by another key"));
        }
        if self
            .hash
            .algorithm()
            .verify_mac(&self.bytes, &signed, &tsig.mac)
            .is_err()
        {
            return Err(Unsigned::NotBelieved("the answer's signature is wrong"));
        }
        if now.abs_diff(tsig.time) > u64::from(tsig.fudge.min(FUDGE)) {
            return Err(Unsigned::BadTime);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_sha2_is_accepted() {
        assert_eq!("HMAC-SHA512.".parse(), Ok(TsigHash::Sha512));
        assert_eq!("hmacsha256".parse(), Ok(TsigHash::Sha256));
        assert!(
            "hmac-md5"
                .parse::<TsigHash>()
                .expect_err("MD5")
                .contains("hmac-sha256")
        );
    }

    #[test]
    fn a_bad_secret_is_refused_without_being_quoted() {
        let error = TsigKey::new("k.", TsigHash::Sha256, &Secret::new("n0t!base64"))
            .err()
            .expect("an error");
        assert!(
            error.contains("base64") && !error.contains("n0t"),
            "{error}"
        );
        let block = "key \"k\" {\n  algorithm hmac-sha256;\n  secret \"c2VjcmV0c2VjcmV0\";\n};";
        let error = TsigKey::new("k.", TsigHash::Sha256, &Secret::new(block))
            .err()
            .expect("an error");
        assert!(
            error.contains("key block") && !error.contains("c2Vj"),
            "{error}"
        );
    }

    #[test]
    fn a_tampered_or_unsigned_answer_is_not_believed() {
        let key =
            TsigKey::new("k", TsigHash::Sha256, &Secret::new("c2VjcmV0c2VjcmV0")).expect("a key");
        let mut answer = Message::response(7, hickory_proto::op::OpCode::Update);
        let bare = answer.to_vec().expect("encodes");
        assert!(matches!(
            key.verify(&bare, b"", 1_000),
            Err(Unsigned::NotBelieved("the answer is not signed"))
        ));
        // The answer is signed like a request: its signature does not cover ours, so that a
        // replayed request is no answer.
        key.sign(&mut answer, 1_000).expect("signs");
        let signed = answer.to_vec().expect("encodes");
        assert!(matches!(
            key.verify(&signed, b"our mac", 1_000),
            Err(Unsigned::NotBelieved("the answer's signature is wrong"))
        ));
    }

    proptest! {
        /// The network may change an answer in any way: only what was signed is accepted.
        #[test]
        fn an_answer_with_a_byte_changed_is_not_believed(at in any::<usize>(), to in any::<u8>(), cut in 0usize..40) {
            let key = TsigKey::new("k", TsigHash::Sha256, &Secret::new("c2VjcmV0c2VjcmV0")).expect("a key");
            let mut answer = Message::response(7, hickory_proto::op::OpCode::Update);
            key.sign(&mut answer, 1_000).expect("signs");
            let mut bytes = answer.to_vec().expect("encodes");
            let at = at % bytes.len();
            bytes[at] ^= to;
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            prop_assert!(key.verify(&bytes, b"our mac", 1_000).is_err());
        }

        #[test]
        fn any_answer_of_a_server_is_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let key = TsigKey::new("k", TsigHash::Sha256, &Secret::new("c2VjcmV0c2VjcmV0")).expect("a key");
            prop_assert!(key.verify(&bytes, b"our mac", 1_000).is_err());
            if let Ok(message) = Message::from_vec(&bytes) {
                // A decoded message can be printed.
                drop(format!("{message:?}"));
            }
        }
    }
}
