//! The reader of PEM and keys, and the judgement, on what rcgen makes. The real Envoy judges a
//! table of keys and certificates in `e2e/inside/tests/envoy/certificates.rs`.

use std::time::{Duration, SystemTime};

use pki::{Finding, Jwk, JwkError, KeyError, PrivateKey, Problem, PublicKey, Refuser, Signature};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

/// A day of 2027: the certificates of `testdata` are valid from 2026 to 2126.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

struct Made {
    leaf: String,
    issuer: String,
    key: String,
}

/// A leaf with its intermediate, both changed by a function each.
fn made(
    of_leaf: impl FnOnce(&mut CertificateParams),
    of_issuer: impl FnOnce(&mut CertificateParams),
) -> Made {
    let root_key = generated();
    let issuer_key = generated();
    let key = generated();
    let root = Issuer::new(ca("root"), root_key);
    let mut issuer = ca("intermediate");
    of_issuer(&mut issuer);
    let issuer_pem = issuer.signed_by(&issuer_key, &root).expect("signs").pem();
    let mut leaf = CertificateParams::new(vec!["a.example.org".to_owned()]).expect("a name");
    of_leaf(&mut leaf);
    let leaf = leaf
        .signed_by(&key, &Issuer::new(issuer, issuer_key))
        .expect("signs")
        .pem();
    fn unix(text: String) -> String {
        text.replace("\r\n", "\n")
    }
    Made {
        leaf: unix(leaf),
        issuer: unix(issuer_pem),
        key: unix(key.serialize_pem()),
    }
}

fn generated() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn ca(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn plain() -> Made {
    made(|_| (), |_| ())
}

fn read(text: &str) -> Result<usize, String> {
    pki::certificates(text.as_bytes())
        .map(|found| found.len())
        .map_err(|why| why.to_string())
}

#[test]
fn usual_pem_is_read() {
    let Made { leaf, issuer, key } = plain();
    let parameters =
        "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    let bag =
        "Bag Attributes\n    localKeyID: 54 69 6D 65 20 31 37\nsubject=CN = a\nissuer=CN = b\n";
    for (what, text) in [
        ("plain", format!("{leaf}{issuer}")),
        ("CR LF", format!("{leaf}{issuer}").replace('\n', "\r\n")),
        ("a byte order mark", format!("\u{feff}{leaf}{issuer}")),
        (
            "byte order marks of both files",
            format!("\u{feff}{leaf}\u{feff}{issuer}"),
        ),
        ("blank lines", format!("\n\n{leaf}\n\n{issuer}\n")),
        (
            "text between",
            format!("the leaf\n{leaf}the issuer\n{issuer}"),
        ),
        ("bag attributes", format!("{bag}{leaf}{bag}{issuer}")),
        (
            "trailing spaces",
            format!("{leaf}{issuer}").replace('\n', "  \n"),
        ),
        (
            "indented",
            format!("{leaf}{issuer}").replace('\n', "\n    "),
        ),
        ("no last line end", format!("{leaf}{}", issuer.trim_end())),
        (
            "no line end between",
            format!("{}{issuer}", leaf.trim_end()),
        ),
        ("text before BEGIN", format!("leaf: {leaf}issuer: {issuer}")),
        (
            "parameters and a key between",
            format!("{leaf}{parameters}{key}{issuer}"),
        ),
        (
            "X509 CERTIFICATE",
            format!("{leaf}{issuer}").replace("CERTIFICATE", "X509 CERTIFICATE"),
        ),
        (
            "TRUSTED CERTIFICATE",
            format!("{leaf}{issuer}").replace("CERTIFICATE", "TRUSTED CERTIFICATE"),
        ),
        (
            "on one line each",
            format!("{leaf}{issuer}").replace('\n', " "),
        ),
        ("the leaf twice", format!("{leaf}{leaf}{issuer}")),
        (
            "another END",
            format!("-----END CERTIFICATE-----\n{leaf}{issuer}"),
        ),
    ] {
        assert_eq!(read(&text), Ok(2), "{what}");
    }
    let commented = format!(
        "{leaf}{issuer}# {}\n",
        issuer.trim_end().replace('\n', "\n# ")
    );
    assert_eq!(
        read(&commented),
        Ok(2),
        "what is commented out is no certificate"
    );
}

#[test]
fn no_certificate_is_dropped_without_a_word() {
    let Made { leaf, issuer, .. } = plain();
    fn second(text: String, leaf: &str) -> String {
        read(&format!("{leaf}{text}")).expect_err("it is not read")
    }
    let line = leaf.lines().count() + 1;
    for (what, text, says) in [
        (
            "four hyphens",
            issuer.replacen("-----BEGIN", "----BEGIN", 1),
            "base64 data outside",
        ),
        (
            "a misspelt BEGIN",
            issuer.replacen("BEGIN", "BEGN", 1),
            "base64 data outside",
        ),
        (
            "a small begin",
            issuer.replacen("BEGIN", "begin", 1),
            "base64 data outside",
        ),
        (
            "no BEGIN",
            issuer.split_once('\n').expect("lines").1.to_owned(),
            "base64 data outside",
        ),
        (
            "dashes of a word processor",
            issuer.replacen("-----", "\u{2014}", 1),
            "base64 data outside",
        ),
        (
            "a misspelt label",
            issuer.replace("CERTIFICATE", "CERTIFCATE"),
            "the label \"CERTIFCATE\"",
        ),
        (
            "an open BEGIN line",
            issuer.replacen("CERTIFICATE-----", "CERTIFICATE----", 1),
            "five hyphens",
        ),
        (
            "no END",
            issuer.replace("-----END CERTIFICATE-----", ""),
            "has no END line",
        ),
        (
            "another END label",
            issuer.replace("END CERTIFICATE", "END CERTIFICAT"),
            "another label",
        ),
        (
            "line breaks as \\n",
            issuer.replace('\n', "\\n"),
            "written as \\n",
        ),
        (
            "not base64",
            issuer.replacen("MII", "%%%", 1),
            "is not base64",
        ),
        (
            "empty",
            "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n".to_owned(),
            "is empty",
        ),
        ("PKCS #7", issuer.replace("CERTIFICATE", "PKCS7"), "PKCS #7"),
        (
            "cut short",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n".to_owned(),
            "no X.509",
        ),
    ] {
        let told = second(text, &leaf);
        assert!(told.contains(says), "{what}: {told}");
        let place = [
            format!("part 2 (line {line})"),
            format!("line {}", line + 1),
            format!("line {line} "),
        ];
        assert!(
            place.iter().any(|place| told.contains(place)),
            "{what} does not say where: {told}"
        );
    }
    assert_eq!(
        read(&leaf.replace('-', "-\0")).expect_err("UTF-16"),
        "the text is UTF-16, expected ASCII or UTF-8"
    );
    let crl = issuer.replace("CERTIFICATE", "X509 CRL");
    let refused = pki::bundle(format!("{leaf}{crl}").as_bytes())
        .expect_err("a revocation list")
        .to_string();
    assert!(
        refused.starts_with("part 2") && refused.contains("revocation list"),
        "{refused}"
    );
}

#[test]
fn no_message_quotes_a_key() {
    let Made { key, .. } = plain();
    let secret = &key.lines().nth(1).expect("a line")[..20];
    for text in [
        key.replace("-----END PRIVATE KEY-----", ""),
        key.replace('\n', "\\n"),
        key.replacen("-----\n", "", 1),
        key.replacen("PRIVATE KEY-----\n", "", 1),
        key.lines().skip(1).collect::<Vec<_>>().join("\n"),
        key.replace("PRIVATE KEY", secret),
    ] {
        let of_key = PrivateKey::from_pem(text.as_bytes())
            .expect_err("not a key")
            .to_string();
        let of_chain = pki::certificates(text.as_bytes())
            .expect_err("no chain")
            .to_string();
        assert!(
            !of_key.contains(&secret[..8]) && !of_chain.contains(&secret[..8]),
            "{of_key}; {of_chain}"
        );
    }
}

#[test]
fn keys_say_what_is_wrong_with_them() {
    let Made { leaf, key, .. } = plain();
    let told = |text: &str| {
        PrivateKey::from_pem(text.as_bytes())
            .expect_err("not a key")
            .to_string()
    };
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    assert_eq!(
        PrivateKey::from_pem(encrypted.as_bytes()),
        Err(KeyError::Encrypted)
    );
    let headers = "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n";
    let old = key
        .replacen("-----\n", headers, 1)
        .replace("PRIVATE KEY", "EC PRIVATE KEY");
    assert_eq!(
        PrivateKey::from_pem(old.as_bytes()),
        Err(KeyError::Encrypted)
    );
    assert!(
        told(&key.replace("PRIVATE", "OPENSSH PRIVATE")).contains("ssh-keygen"),
        "OpenSSH's format"
    );
    assert_eq!(told(&leaf), "no private key in PEM in it, only CERTIFICATE");
    assert_eq!(told(""), "no private key in PEM in it");
}

#[test]
fn a_key_belongs_to_its_certificate_however_it_is_written() {
    let Made { leaf, issuer, key } = plain();
    let ders = pki::certificates(format!("{leaf}{issuer}").as_bytes()).expect("a chain");
    let read = PrivateKey::from_pem(key.as_bytes()).expect("a key");
    assert!(read.belongs_to(&ders[0]), "it is the leaf's");
    assert!(!read.belongs_to(&ders[1]), "it is not the issuer's");
    let again = PrivateKey::from_pem(pki::encode("PRIVATE KEY", read.pkcs8()).as_bytes());
    assert_eq!(again, Ok(read), "what is written is read");
}

fn judged(made: &Made, now: SystemTime) -> Vec<Finding> {
    pki::judge(
        &pki::certificates(format!("{}{}", made.leaf, made.issuer).as_bytes()).expect("a chain"),
        now,
    )
}

#[test]
fn a_chain_is_judged() {
    let now = now();
    fn unknown() -> CustomExtension {
        CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0])
    }
    fn critical() -> CustomExtension {
        let mut extension = unknown();
        extension.set_criticality(true);
        extension
    }
    fn staple() -> CustomExtension {
        CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 24], vec![0x30, 3, 2, 1, 5])
    }
    fn first(made: Made, now: &SystemTime) -> Option<(usize, Refuser, Problem)> {
        judged(&made, *now)
            .into_iter()
            .next()
            .map(|found| (found.position, found.refuser, found.problem))
    }
    assert_eq!(first(plain(), &now), None, "nothing is wrong with it");
    let usages = made(
        |leaf| leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature],
        |_| (),
    );
    assert_eq!(first(usages, &now), None, "the usage that TLS needs");
    assert_eq!(
        first(
            made(|leaf| leaf.custom_extensions.push(unknown()), |_| ()),
            &now
        ),
        None,
        "it is not critical"
    );
    let usage = made(
        |leaf| leaf.key_usages = vec![KeyUsagePurpose::KeyEncipherment],
        |_| (),
    );
    assert_eq!(
        first(usage, &now),
        Some((0, Refuser::Envoy, Problem::KeyUsage)),
        "keyUsage"
    );
    let purpose = made(
        |leaf| leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
        |_| (),
    );
    assert_eq!(
        first(purpose, &now),
        Some((0, Refuser::Clients, Problem::ExtendedKeyUsage)),
        "extKeyUsage"
    );
    let stapled = made(|leaf| leaf.custom_extensions.push(staple()), |_| ());
    assert_eq!(
        first(stapled, &now),
        Some((0, Refuser::Envoy, Problem::MustStaple)),
        "must-staple"
    );
    let of_leaf = made(|leaf| leaf.custom_extensions.push(critical()), |_| ());
    assert_eq!(
        first(of_leaf, &now),
        Some((0, Refuser::Clients, Problem::Critical("1.2.3.4".into()))),
        "critical in the leaf"
    );
    let of_issuer = made(|_| (), |issuer| issuer.custom_extensions.push(critical()));
    assert_eq!(
        first(of_issuer, &now),
        Some((1, Refuser::Clients, Problem::Critical("1.2.3.4".into()))),
        "and above it"
    );
    let no_ca = made(|_| (), |issuer| issuer.is_ca = IsCa::NoCa);
    assert_eq!(
        first(no_ca, &now),
        Some((1, Refuser::Clients, Problem::NotCa)),
        "basicConstraints"
    );
    let no_signer = made(
        |_| (),
        |issuer| issuer.key_usages = vec![KeyUsagePurpose::DigitalSignature],
    );
    assert_eq!(
        first(no_signer, &now),
        Some((1, Refuser::Clients, Problem::NoCertSign)),
        "keyCertSign"
    );
    let nameless = made(|leaf| leaf.subject_alt_names.clear(), |_| ());
    assert_eq!(
        first(nameless, &now),
        Some((0, Refuser::Clients, Problem::NoNames)),
        "no subjectAltName"
    );
    let ended = made(
        |_| (),
        |issuer| issuer.not_after = rcgen::date_time_ymd(2020, 1, 1),
    );
    assert!(
        matches!(
            first(ended, &now),
            Some((1, Refuser::Clients, Problem::Ended(_)))
        ),
        "an ended intermediate"
    );
    let coming = made(
        |leaf| leaf.not_before = rcgen::date_time_ymd(2999, 1, 1),
        |_| (),
    );
    assert!(
        matches!(
            first(coming, &now),
            Some((0, Refuser::Clients, Problem::NotYet(_)))
        ),
        "not valid yet"
    );
    let day_one = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    assert!(
        !judged(&plain(), day_one).is_empty(),
        "the time is an argument"
    );
}

#[test]
fn a_signature_is_right_wrong_or_unchecked() {
    let one = plain();
    let other = plain();
    let der = |text: &str| {
        pki::certificates(text.as_bytes())
            .expect("a certificate")
            .remove(0)
    };
    let leaf = der(&one.leaf);
    let issuer = der(&one.issuer);
    let stranger = der(&other.issuer);
    let signed = |by: &[u8]| {
        pki::signed_by(
            &pki::read(&leaf).expect("reads"),
            &pki::read(by).expect("reads"),
        )
    };
    assert_eq!(signed(&issuer), Signature::Right, "its issuer");
    assert_eq!(
        signed(&stranger),
        Signature::Wrong,
        "another key under the same name"
    );
    assert_eq!(signed(&leaf), Signature::Wrong, "another name");
}

/// Chains of a leaf and its intermediate, made with OpenSSL: algorithms that rcgen does not have.
#[test]
fn ecdsa_is_verified_with_every_hash_and_curve_that_envoy_has() {
    let now = now();
    for (name, text) in [
        (
            "P-256 with SHA-512",
            include_str!("testdata/p256-sha512.pem"),
        ),
        (
            "P-384 with SHA-256",
            include_str!("testdata/p384-sha256.pem"),
        ),
        (
            "P-384 with SHA-512",
            include_str!("testdata/p384-sha512.pem"),
        ),
        (
            "P-521 with SHA-256",
            include_str!("testdata/p521-sha256.pem"),
        ),
        (
            "P-521 with SHA-512",
            include_str!("testdata/p521-sha512.pem"),
        ),
    ] {
        let chain = pki::certificates(text.as_bytes()).expect("a chain");
        let signed = |leaf: &[u8]| {
            pki::signed_by(
                &pki::read(leaf).expect("reads"),
                &pki::read(&chain[1]).expect("reads"),
            )
        };
        assert_eq!(signed(&chain[0]), Signature::Right, "{name}");
        // The name of the host stands in the signed part.
        let mut other = chain[0].to_vec();
        let at = other
            .windows(9)
            .position(|bytes| bytes == b"a.example")
            .expect("its name");
        other[at] = b'b';
        assert_eq!(signed(&other), Signature::Wrong, "{name}, changed");
        assert_eq!(pki::judge(&chain, now), [], "{name}");
    }
    let chain =
        pki::certificates(include_bytes!("testdata/brainpool-sha256.pem")).expect("a chain");
    let signed = pki::signed_by(
        &pki::read(&chain[0]).expect("reads"),
        &pki::read(&chain[1]).expect("reads"),
    );
    assert_eq!(signed, Signature::Unchecked, "OpenSSL has this curve");
}

#[test]
fn a_key_of_a_set_is_one_that_envoy_loads() {
    // The base point of P-256 (SP 800-186).
    let x = "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY";
    let y = "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU";
    fn ec(crv: &str, x: &str, y: &str) -> Result<PublicKey, JwkError> {
        Jwk::Ec { crv, x, y }.public_key()
    }
    fn rsa(n: &str, e: &str) -> Result<PublicKey, JwkError> {
        Jwk::Rsa { n, e }.public_key()
    }
    assert!(ec("P-256", x, y).is_ok(), "a point of the curve");
    assert_eq!(ec("P-256", y, x), Err(JwkError::Point), "another one");
    assert_eq!(ec("P-384", x, y), Err(JwkError::Point), "too short");
    assert_eq!(ec("P-255", x, y), Err(JwkError::Curve), "no such curve");
    let padded = format!("{x}=");
    let wrong = ec("P-256", &padded, y);
    assert_eq!(wrong, Err(JwkError::Base64("x")), "padding");
    // 2048 bits, the first and the last of which are set.
    let n = format!("{}Q", "_".repeat(341));
    let bits = rsa(&n, "AQAB").map(|key| key.rsa_bits());
    assert_eq!(bits, Ok(Some(2048)), "the usual exponent");
    assert!(rsa(&n, "AQAA").is_err(), "an even exponent");
    assert!(rsa("_w", "AQAB").is_err(), "a short modulus");
    let even = format!("{}A", "_".repeat(341));
    assert_eq!(
        rsa(&even, "AQAB"),
        Err(JwkError::Modulus),
        "an even modulus"
    );
}
