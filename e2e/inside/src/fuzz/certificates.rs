//! PEM and DER that somebody else wrote: certificates and keys of Secrets, bundles of CAs, chains
//! that a CA gives, requests of pods, and certificates of clients.
//!
//! The parts of an input stand behind each other, divided by a line of `====`. Nothing panics; what
//! is taken is taken in the same way once more; what goes to Envoy has no private key where
//! certificates belong, and is nothing but certificates.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use acme::{IssuedCertificate, PrivateKeyPem};
use base64::prelude::{BASE64_STANDARD, Engine};
use gatewright_core::inputs::{CaBundle, Object, parse_certificate};
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P384_SHA384,
    PKCS_ED25519,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde_json::json;
use x509_parser::prelude::{FromDer, X509Certificate};
use xds::{Authenticate, Authority, Certificates, Credentials, Peer, Views};

use super::{Choice, bytes};

const DIVIDER: &[u8] = b"\n====\n";
/// Lines and words that parsers look for.
const PIECES: [&str; 14] = [
    "-----BEGIN CERTIFICATE-----\n",
    "-----END CERTIFICATE-----\n",
    "-----BEGIN PRIVATE KEY-----\n",
    "-----END PRIVATE KEY-----\n",
    "-----BEGIN TRUSTED CERTIFICATE-----\n",
    "-----BEGIN X509 CERTIFICATE-----\n",
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n",
    "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n",
    "-----BEGIN CERTIFICATE REQUEST-----\n",
    "\r\n",
    "=",
    "====",
    "a line of text\n",
    "\0",
];

fn seed(chain: &str, key: &str) -> Vec<u8> {
    [chain.as_bytes(), DIVIDER, key.as_bytes()].concat()
}

/// Chains and keys of each algorithm, wildcards and addresses among their names, and a request.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let root_key = KeyPair::generate().expect("a key");
    let mut root = CertificateParams::new(vec!["root.example".to_owned()]).expect("a name");
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_pem = root.self_signed(&root_key).expect("a root").pem();
    let issuer = Issuer::new(root, root_key);
    let names = ["a.example.org", "*.b.example.org", "192.0.2.1"].map(str::to_owned);
    let mut all = Vec::new();
    for key in [
        KeyPair::generate(),
        KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
        KeyPair::generate_for(&PKCS_ED25519),
    ] {
        let key = key.expect("a key");
        let params = CertificateParams::new(names.to_vec()).expect("names");
        let leaf = params
            .clone()
            .signed_by(&key, &issuer)
            .expect("a certificate")
            .pem();
        all.push(seed(&format!("{leaf}{root_pem}"), &key.serialize_pem()));
        all.push(seed(
            &format!("{root_pem}a word\n{leaf}"),
            &key.serialize_pem(),
        ));
        all.push(seed(
            &params
                .serialize_request(&key)
                .expect("a request")
                .pem()
                .expect("PEM"),
            &root_pem,
        ));
    }
    all
}

/// A byte of the text or of the DER within, a piece that means something, or anything.
pub(super) fn mutate(data: &[u8], other: &[u8], choice: &mut Choice) -> Vec<u8> {
    let mut data = data.to_vec();
    match choice.below(4) {
        0 => bytes::mutate(&data, other, choice),
        1 => {
            let at = choice.below(data.len() + 1);
            data.splice(at..at, choice.of(&PIECES).bytes());
            data
        }
        // DER changes of its own: base64 would hide from bytes what belongs together.
        _ => within(&data, other, choice).unwrap_or(data),
    }
}

/// A block of PEM whose DER was changed.
fn within(data: &[u8], other: &[u8], choice: &mut Choice) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(data).ok()?;
    let begins: Vec<usize> = text
        .match_indices("-----BEGIN ")
        .map(|(at, _)| at)
        .collect();
    if begins.is_empty() {
        return None;
    }
    let begin = *choice.of(&begins);
    let body = begin + text[begin..].find('\n')? + 1;
    let end = body + text[body..].find("-----END ")?;
    let base64: String = text[body..end].split_whitespace().collect();
    let der = bytes::mutate(&BASE64_STANDARD.decode(base64).ok()?, other, choice);
    Some(
        [
            &text[..body],
            &BASE64_STANDARD.encode(der),
            "\n",
            &text[end..],
        ]
        .concat()
        .into_bytes(),
    )
}

/// Signs for pods.
fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| {
        Authority::new("fuzz", Duration::from_secs(3600), now()).expect("an authority")
    })
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_219_200)
}

fn parts(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data
        .windows(DIVIDER.len())
        .position(|window| window == DIVIDER);
    at.map_or((data, &[]), |at| (&data[..at], &data[at + DIVIDER.len()..]))
}

pub(super) fn run(data: &[u8]) {
    let (chain, key) = parts(data);
    of_secret(chain, key);
    of_bundle(chain);
    let texts = (std::str::from_utf8(chain), std::str::from_utf8(key));
    if let (Ok(chain), Ok(key)) = texts {
        let at = jiff::Timestamp::try_from(now()).expect("a time");
        let read =
            IssuedCertificate::read(chain.to_owned(), PrivateKeyPem::new(key.to_owned()), "ca");
        if let Ok(read) = &read {
            let again = IssuedCertificate::read(read.chain_pem.clone(), read.key_pem.clone(), "ca")
                .expect("once more");
            assert_eq!(again.names, read.names);
            drop(read.may_replace(&again, &read.names, at));
        }
        if let Err(error) = read {
            told(&error.to_string());
        }
        // Whatever a request says, the certificate has the identity that was proven and no other.
        let identity = "spiffe://gatewright/fleet/shared/pod/a";
        if let Ok(signed) = authority().sign_client(chain, identity, Duration::from_secs(60), now())
        {
            let der = CertificateDer::from_pem_slice(signed.as_bytes()).expect("a certificate");
            let (_, parsed) = X509Certificate::from_der(&der).expect("a certificate");
            let names = parsed
                .subject_alternative_name()
                .expect("it can be read")
                .expect("it has names");
            assert_eq!(names.value.general_names.len(), 1, "one name");
            assert!(
                names.value.general_names[0].to_string().contains(identity),
                "{:?}",
                names.value
            );
            assert!(!parsed.is_ca(), "it signs nothing");
        }
    }
    of_client(chain);
}

/// A Secret, as an API server gives it: what Envoy gets of it is certificates and nothing else.
fn of_secret(chain: &[u8], key: &[u8]) {
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"namespace": "a", "name": "b"},
        "data": {"tls.crt": BASE64_STANDARD.encode(chain), "tls.key": BASE64_STANDARD.encode(key)},
    });
    let Ok(Object::Secret(_)) = Object::parse(object) else {
        panic!("a Secret is read whatever is in it")
    };
    match parse_certificate(chain, key) {
        Ok(parsed) => {
            let given = parsed.chain();
            let blocks = pem::parse_many(&given).expect("PEM");
            let ders: Vec<_> = CertificateDer::pem_slice_iter(given.as_bytes())
                .collect::<Result<_, _>>()
                .expect("PEM");
            assert_eq!(
                blocks.len(),
                ders.len(),
                "nothing but certificates:\n{given}"
            );
            let ends = given.matches("-----END ").count();
            assert_eq!(ends, ders.len(), "no text between them:\n{given}");
            for der in &ders {
                let (rest, _) = X509Certificate::from_der(der).expect("each is a certificate");
                assert!(rest.is_empty(), "nothing behind a certificate");
            }
            let again = parse_certificate(given.as_bytes(), key).expect("once more");
            assert_eq!(again, parsed);
        }
        Err(error) => told(&error.to_string()),
    }
}

/// CA certificates of a ConfigMap or a trust bundle.
fn of_bundle(text: &[u8]) {
    match CaBundle::parse(text, "ca.crt") {
        Ok(bundle) => {
            let text = CaBundle::join(&[Arc::new(bundle)], SystemTime::UNIX_EPOCH);
            assert!(!text.contains("PRIVATE KEY-----"), "a key in {text}");
            assert!(
                text.is_empty() || CaBundle::parse(text.as_bytes(), "ca.crt").is_ok(),
                "what is written is read"
            );
        }
        Err(error) => told(&error.to_string()),
    }
}

/// A client's certificate, as if a trusted authority had signed it.
fn of_client(text: &[u8]) {
    let Ok(ders) = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>() else {
        return;
    };
    let peer = Peer::Tls {
        certificates: ders.into_iter().map(CertificateDer::into_owned).collect(),
    };
    let authenticate = Certificates::new(Views::new());
    let credentials = Credentials {
        peer: &peer,
        bearer: None,
    };
    let asked = authenticate.authenticate(&credentials);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    assert!(runtime.block_on(asked).is_err(), "nobody has a view");
}

fn told(text: &str) {
    assert!(text.len() < 16 << 10, "{} bytes are told", text.len());
    assert!(!text.contains("PRIVATE KEY-----"), "a key in {text:?}");
}
