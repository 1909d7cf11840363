//! Tests of edits that are refused: what was live stays, and the status has the field.

use super::*;

#[test]
fn a_broken_edit_leaves_what_was_live_and_a_foreign_object_is_left_alone() {
    let mut engine = engine();
    engine.apply(tenant_with_namespaces(json!({"apex": "a.org"})));
    engine.apply(vec![http("tenant-a", "r", &["x.a.org"])]);
    let delta = engine.apply(vec![tenant("tenant-a", json!({"apex": ""}))]);
    assert!(
        delta.objects.is_empty() && delta.verdicts.is_empty(),
        "{delta:?}"
    );
    assert!(
        engine
            .readiness(&name())
            .is_some_and(|r| r.frozen && r.message.starts_with("spec.apex"))
    );
    engine.apply(vec![tenant("tenant-a", json!({"apex": "a.org"}))]);
    assert_eq!(
        engine.readiness(&name()).map(|r| r.reason),
        Some("Reconciled")
    );
    let issuer = Derived {
        kind: DerivedKind::Issuer,
        name: ObjectName::new("tenant-a", "cozystack-gateway"),
    };
    let delta = engine.apply(vec![Change::Existing(
        issuer.clone(),
        Some(Existing {
            owner: "other".into(),
            ..Existing::default()
        }),
    )]);
    assert_eq!(delta.objects.keys().collect::<Vec<_>>(), [&issuer]);
    assert_eq!(
        engine.readiness(&name()).map(|r| r.reason),
        Some("ForeignObject")
    );
}

#[test]
fn every_broken_edit_is_told_with_its_field_and_leaves_what_was_live() {
    for (spec, field) in [
        (json!({}), "spec.apex"),
        (json!({"apex": ""}), "spec.apex"),
        (json!({"apex": "A.org"}), "spec.apex"),
        (json!({"apex": "b.org"}), "spec.apex"),
        (
            json!({"apex": "a.org", "certMode": "magic"}),
            "spec.certMode",
        ),
        (json!({"apex": "a.org", "certMode": "dns01"}), "spec.dns01"),
        (provider("route53"), "spec.dns01.route53"),
        (provider("clay-tablets"), "spec.dns01.provider"),
        (
            json!({"apex": "a.org", "certMode": "existingSecret"}),
            "spec.wildcardSecretRef.name",
        ),
        (
            json!({"apex": "a.org", "issuerName": "mine"}),
            "spec.issuerName",
        ),
    ] {
        let mut engine = engine();
        engine.apply(tenant_with_namespaces(json!({"apex": "a.org"})));
        engine.apply(vec![http("tenant-a", "r", &["x.a.org"])]);
        let before = view(&engine);
        let delta = engine.apply(vec![tenant("tenant-a", spec.clone())]);
        assert!(
            delta.objects.is_empty() && delta.verdicts.is_empty() && delta.wants.is_empty(),
            "{spec}: {delta:?}"
        );
        assert_eq!(view(&engine), before, "{spec}");
        let readiness = engine.readiness(&name()).expect("it has one");
        assert!(
            readiness.frozen && readiness.message.starts_with(field),
            "{spec}: {readiness:?}"
        );
    }
}

fn provider(name: &str) -> Value {
    json!({"apex": "a.org", "certMode": "dns01", "dns01": {"provider": name}})
}
