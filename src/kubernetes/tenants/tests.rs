use kube::core::DynamicObject;
use serde_json::json;

use super::*;
use gatewright_core::tenancy::{Change, Namespace, Settings, TenantGateway};

/// The state of a TenantGateway that is implemented here.
fn tenancy() -> (Tenancy, ObjectName) {
    let labels = BTreeMap::from(["host", "gateway"].map(|label| {
        let value = if label == "host" { "a.org" } else { "tenant-a" };
        (format!("namespace.cozystack.io/{label}"), value.to_owned())
    }));
    let value = json!({"metadata": {"namespace": "tenant-a", "name": "cozystack", "uid": "u"}, "spec": {"apex": "a.org"}});
    let tenant = TenantGateway::parse(&value).expect("a TenantGateway");
    let name = tenant.name.clone();
    let mut tenancy = Tenancy::new(Settings::default());
    tenancy.apply(vec![
        Change::Namespace(
            "tenant-a".into(),
            Some(Namespace {
                labels,
                ..Namespace::default()
            }),
        ),
        Change::TenantGateway(name.clone(), Some(tenant)),
    ]);
    (tenancy, name)
}

/// A writer at an API server that never answers.
fn writer() -> Tenants {
    let service = tower::service_fn(|_: hyper::Request<kube::client::Body>| {
        std::future::pending::<Result<hyper::Response<kube::client::Body>, std::convert::Infallible>>(
        )
    });
    Tenants::new(Client::new(service, "default"))
}

#[tokio::test]
async fn a_trouble_that_went_with_its_object_is_told_no_more() {
    let (tenancy, tenant) = tenancy();
    let mut tenants = writer();
    let mut view = WatchSync::new(Kind::ALL);
    for kind in Kind::ALL.iter().copied() {
        view.complete(kind);
    }
    let name = ObjectName::new("tenant-a", "cozystack-gone-00000000-tls");
    let key = ObjectKey::new(Kind::Certificate, name.clone());
    let task = Task::Object(Derived {
        kind: DerivedKind::Certificate,
        name,
    });
    tenants.trouble(
        &task,
        (
            "ContestedByAnotherWriter",
            "somebody changes it back".to_owned(),
        ),
        &tenancy,
    );
    let status = Task::Status(tenant);
    tenants.worker.drop(&status);
    tenants.forget(&key);
    tenants.write(
        DecisionInputs {
            tenancy: &tenancy,
            seen: &BTreeMap::new(),
            view: &view,
        },
        true,
    );
    assert!(tenants.troubles.len() == 0 && tenants.worker.is_wanted(&status));
}

#[tokio::test]
async fn the_answer_to_a_write_does_not_bring_a_deleted_object_back() {
    let (tenancy, _) = tenancy();
    let name = ObjectName::new("tenant-a", "cozystack-a-00000000-tls");
    let key = ObjectKey::new(Kind::Certificate, name.clone());
    let derived = Derived {
        kind: DerivedKind::Certificate,
        name,
    };
    let answer: DynamicObject = serde_json::from_value(json!({"apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": {"namespace": "tenant-a", "name": derived.name.name, "uid": "1", "resourceVersion": "7"}}))
    .expect("an object");
    for is_deleted in [true, false] {
        let mut tenants = writer();
        let task = Task::Object(derived.clone());
        tenants.worker.want(task.clone(), Instant::now());
        assert_eq!(tenants.worker.take(Instant::now()), Some(task.clone()));
        if is_deleted {
            tenants.forget(&key);
        }
        let outcome = WriteOutcome {
            task: task.clone(),
            outcome: Ok(Some(Box::new(answer.clone()))),
            took: Duration::ZERO,
        };
        tenants.take_outcome(outcome, &tenancy);
        assert_eq!(tenants.held.contains_key(&derived), !is_deleted);
        assert!(tenants.deleted.is_empty(), "it is asked once");
        assert!(tenants.worker.is_wanted(&task), "it is compared again");
    }
}
