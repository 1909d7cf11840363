use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::*;
use crate::certificate::chain_of;

fn at(days: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + days * 86_400).expect("in range")
}

fn names(list: &[&str]) -> Names {
    Names::parse(list).expect("names")
}

fn ca(dir: &tempfile::TempDir) -> InternalCa {
    let permit = Constraints::permit(["example.internal"]).expect("constraints");
    InternalCa::open(
        InternalCaConfig::new("internal", dir.path().join("ca"), permit),
        at(0),
    )
    .expect("opens")
}

/// Verifies a chain as a TLS client does.
fn client_trusts(
    bundle: &str,
    chain_pem: &str,
    name: &str,
    now: Timestamp,
) -> Result<(), webpki::Error> {
    let chain = chain_of(chain_pem).expect("a chain");
    let roots = chain_of(bundle).expect("roots");
    let anchors: Vec<_> = roots
        .iter()
        .map(|r| {
            webpki::anchor_from_trusted_cert(r)
                .expect("an anchor")
                .to_owned()
        })
        .collect();
    let leaf = webpki::EndEntityCert::try_from(&chain[0])?;
    let intermediates: &[CertificateDer<'_>] = &chain[1..];
    leaf.verify_for_usage(
        webpki::ALL_VERIFICATION_ALGS,
        &anchors,
        intermediates,
        UnixTime::since_unix_epoch(Duration::from_secs(now.as_second() as u64)),
        webpki::KeyUsage::server_auth(),
        None,
        None,
    )?;
    leaf.verify_is_valid_for_subject_name(&ServerName::try_from(name.to_owned()).expect("a name"))
}

#[test]
fn clients_that_trust_the_bundle_accept_the_leaf() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = ca(&dir);
    let leaf = ca
        .sign(
            &names(&["a.example.internal", "*.b.example.internal"]),
            None,
            at(0),
        )
        .expect("signs");
    for name in ["a.example.internal", "x.b.example.internal"] {
        client_trusts(&ca.bundle_pem(at(0)), &leaf.chain_pem, name, at(1)).expect("trusted");
    }
    assert_eq!(chain_of(&leaf.chain_pem).expect("a chain").len(), 2);
    assert_eq!(leaf.lifetime().as_hours(), 90 * 24);
    assert!(leaf.ari_id.is_some());
}

#[test]
fn names_outside_the_constraints_are_refused_by_us_and_by_clients() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = ca(&dir);
    for name in ["example.com", "badexample.internal", "*.com.example"] {
        let error = ca
            .sign(&names(&[name]), None, at(0))
            .expect_err(name)
            .to_string();
        assert!(
            error.contains("example.internal") && error.contains("permitted"),
            "{error}"
        );
    }
    // Somebody who stole the key signs without our checks; the constraints in the certificate stop
    // him.
    let key = PrivateKeyPem::generate_p256().expect("a key");
    let chain = ca
        .signing()
        .authority
        .sign(&names(&["bank.example.com"]), &key, DAY, at(0))
        .expect("the thief signs");
    assert_eq!(
        client_trusts(&ca.bundle_pem(at(0)), &chain, "bank.example.com", at(0)),
        Err(webpki::Error::NameConstraintViolation)
    );
}

/// A reader of the record has the key that signs leaves, valid for a limited time, and none that
/// signs another intermediate.
#[test]
fn the_key_of_the_root_is_kept_nowhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = ca(&dir);
    fn is_kept(ca: &InternalCa) -> bool {
        let state: serde_json::Value = serde_json::from_slice(&ca.record()).expect("JSON");
        state["generations"]
            .as_array()
            .expect("generations")
            .iter()
            .any(|g| g.get("root_key").is_some())
    }
    assert!(!is_kept(&ca));
    ca.roll_over(at(10)).expect("rolls over");
    assert!(!is_kept(&ca));
    let file = fs::read_to_string(dir.path().join("ca/ca.json")).expect("there");
    assert_eq!(
        file.matches("PRIVATE KEY").count(),
        2 * 2,
        "one for each of two intermediates: {file}"
    );
}

/// Earlier versions kept the root's key, and their roots were valid for ten years.
#[test]
fn the_key_of_a_root_of_earlier_versions_is_destroyed_and_the_root_stays() {
    let permit = Constraints::permit(["example.internal"]).expect("constraints");
    let (root, key) = authority::make_root("Example", &permit, DAY * 3650, at(0)).expect("a root");
    let (chain, chain_key) =
        authority::make_intermediate("Example", &permit, (&root, &key), DAY * 1095, at(0))
            .expect("an intermediate");
    let record = serde_json::json!({"generations": [{"root_pem": root, "root_key": key, "chain_pem": chain,
        "chain_key": chain_key, "signs_from": at(0), "chain_ends": at(1095), "root_ends": at(3650),
        "published_until": at(3650)}]});
    let config = InternalCaConfig::new("internal", "/nowhere", permit);
    let ca =
        InternalCa::of_record(config, Some(record.to_string().as_bytes()), at(300)).expect("opens");
    assert!(!String::from_utf8_lossy(&ca.record()).contains("root_key"));
    for day in [300, 1200, 2600] {
        let leaf = ca
            .sign(&names(&["a.example.internal"]), None, at(day))
            .expect("signs");
        client_trusts(
            &ca.bundle_pem(at(day)),
            &leaf.chain_pem,
            "a.example.internal",
            at(day),
        )
        .expect("trusted");
        let trusted = client_trusts(&root, &leaf.chain_pem, "a.example.internal", at(day));
        assert_eq!(
            trusted.is_ok(),
            day < 2000,
            "the old root goes on for as long as its last intermediate: {day}"
        );
    }
}

#[test]
fn no_constraints_is_an_explicit_choice() {
    let error = Constraints::permit(Vec::<String>::new())
        .expect_err("refused")
        .to_string();
    assert!(error.contains("unconstrained"), "{error}");
    let dir = tempfile::tempdir().expect("a directory");
    let config = InternalCaConfig::new(
        "internal",
        dir.path().join("ca"),
        Constraints::Unconstrained,
    );
    let ca = InternalCa::open(config, at(0)).expect("opens");
    let leaf = ca
        .sign(&names(&["anything.example"]), None, at(0))
        .expect("signs");
    client_trusts(
        &ca.bundle_pem(at(0)),
        &leaf.chain_pem,
        "anything.example",
        at(0),
    )
    .expect("trusted");
}

#[test]
fn opening_again_gives_the_same_ca_and_its_files_are_private() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = ca(&dir).bundle_pem(at(0));
    let again = ca(&dir);
    assert_eq!(first, again.bundle_pem(at(0)));
    assert_eq!(
        fs::read_to_string(again.bundle_path()).expect("there"),
        first
    );
    fn mode(p: PathBuf) -> u32 {
        fs::metadata(p).expect("there").permissions().mode() & 0o777
    }
    assert_eq!(mode(dir.path().join("ca")), 0o700);
    assert_eq!(mode(dir.path().join("ca/ca.json")), 0o600);
}

#[test]
fn wider_constraints_than_the_ca_certificate_has_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(ca(&dir));
    let wider = Constraints::permit(["example.internal", "example.org"]).expect("constraints");
    let config = InternalCaConfig::new("internal", dir.path().join("ca"), wider);
    assert!(matches!(
        InternalCa::open(config, at(0)),
        Err(CaError::OtherConstraints { .. })
    ));
    let narrower = Constraints::permit(["team.example.internal"]).expect("constraints");
    let config = InternalCaConfig::new("internal", dir.path().join("ca"), narrower);
    InternalCa::open(config, at(0)).expect("narrower is fine");
}

#[test]
fn a_new_root_is_published_before_it_signs_and_the_old_one_until_its_last_leaf_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = ca(&dir);
    let old_roots = ca.bundle_pem(at(0));
    ca.roll_over(at(10)).expect("rolls over");
    ca.roll_over(at(11)).expect("is already on its way");
    assert_eq!(ca.generations().len(), 2);
    let both = ca.bundle_pem(at(11));
    assert_eq!(both.matches("BEGIN").count(), 2);
    // Until the overlap is over, a client that has not seen the new root trusts every new leaf.
    let during = ca
        .sign(&names(&["a.example.internal"]), None, at(39))
        .expect("signs");
    client_trusts(&old_roots, &during.chain_pem, "a.example.internal", at(39))
        .expect("the old root signs still");
    let after = ca
        .sign(&names(&["a.example.internal"]), None, at(41))
        .expect("signs");
    assert!(client_trusts(&old_roots, &after.chain_pem, "a.example.internal", at(41)).is_err());
    client_trusts(&both, &after.chain_pem, "a.example.internal", at(41))
        .expect("the new root signs");
    // Old leaves stay trusted; once the longest of them has expired, the old root is removed.
    client_trusts(
        &ca.bundle_pem(at(41)),
        &during.chain_pem,
        "a.example.internal",
        at(41),
    )
    .expect("trusted");
    ca.advance(at(40 + 399)).expect("advances");
    assert_eq!(ca.bundle_pem(at(40 + 399)).matches("BEGIN").count(), 1);
}

#[test]
fn twenty_years_pass_without_a_leaf_that_clients_refuse() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = ca(&dir);
    for day in (0..20 * 365).step_by(20) {
        let leaf = ca
            .sign(&names(&["a.example.internal"]), None, at(day))
            .expect("signs");
        client_trusts(
            &ca.bundle_pem(at(day)),
            &leaf.chain_pem,
            "a.example.internal",
            at(day),
        )
        .expect("trusted");
        let last = at(day) + DAY * 89;
        client_trusts(
            &ca.bundle_pem(last),
            &leaf.chain_pem,
            "a.example.internal",
            last,
        )
        .expect("to its end");
    }
    assert!(ca.generations().iter().all(|g| g.root_ends > at(20 * 365)));
}

#[test]
fn a_ca_of_the_users_signs_and_a_wrong_one_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let permit = Constraints::permit(["example.internal"]).expect("constraints");
    let (root, key) = authority::make_root("Example", &permit, DAY * 100, at(0)).expect("a root");
    let (chain, chain_key) =
        authority::make_intermediate("Example", &permit, (&root, &key), DAY * 50, at(0))
            .expect("an intermediate");
    let config = InternalCaConfig::new("own", dir.path().join("ca"), permit);
    let ca = InternalCa::bring_your_own(config.clone(), &chain, chain_key.clone(), &root, at(0))
        .expect("opens");
    let leaf = ca
        .sign(&names(&["a.example.internal"]), None, at(0))
        .expect("signs");
    client_trusts(&root, &leaf.chain_pem, "a.example.internal", at(1)).expect("trusted");
    // The leaf never outlives the CA.
    assert_eq!(leaf.not_after, at(50));
    fn open(
        chain: &str,
        key: PrivateKeyPem,
        config: &InternalCaConfig,
        root: &str,
    ) -> Option<CaError> {
        InternalCa::bring_your_own(config.clone(), chain, key, root, at(0)).err()
    }
    assert!(
        open(&chain, key, &config, &root)
            .expect("refused")
            .to_string()
            .contains("does not belong")
    );
    let end_entity = chain_of(&leaf.chain_pem)
        .map(|_| leaf.chain_pem.clone())
        .expect("a chain");
    assert!(
        open(&end_entity, leaf.key_pem.clone(), &config, &root)
            .expect("refused")
            .to_string()
            .contains("no CA certificate")
    );
    assert!(matches!(
        InternalCa::bring_your_own(config, &chain, chain_key, &root, at(60)).err(),
        Some(CaError::Ended(_))
    ));
}

#[test]
fn leaves_live_from_an_hour_to_398_days() {
    let dir = tempfile::tempdir().expect("a directory");
    let ca = ca(&dir);
    let host = names(&["a.example.internal"]);
    let hour = ca
        .sign(&host, Some(SignedDuration::from_hours(1)), at(0))
        .expect("signs");
    assert_eq!(hour.not_after, at(0) + SignedDuration::from_hours(1));
    for wrong in [SignedDuration::from_mins(10), DAY * 400] {
        assert!(ca.sign(&host, Some(wrong), at(0)).is_err());
    }
}

#[test]
fn a_ca_is_restored_from_an_external_record() {
    fn permit() -> Constraints {
        Constraints::permit(["example.internal"]).expect("constraints")
    }
    fn config() -> InternalCaConfig {
        InternalCaConfig::new("internal", "/nowhere", permit())
    }
    let first = InternalCa::of_record(config(), None, at(0)).expect("made");
    let record = first.record();
    let again = InternalCa::of_record(config(), Some(&record), at(1)).expect("opened");
    assert_eq!(again.bundle_pem(at(1)), first.bundle_pem(at(1)));
    assert_eq!(*again.record(), *record, "nothing to keep anew");
    let leaf = again
        .sign(&names(&["a.example.internal"]), None, at(1))
        .expect("signs");
    client_trusts(
        &first.bundle_pem(at(1)),
        &leaf.chain_pem,
        "a.example.internal",
        at(2),
    )
    .expect("trusted");
    again.roll_over(at(2)).expect("rolls over");
    assert_ne!(*again.record(), *record);
    assert!(matches!(
        InternalCa::of_record(config(), Some(b"{"), at(1)),
        Err(CaError::Storage(StorageError::Damaged { .. }))
    ));
}
