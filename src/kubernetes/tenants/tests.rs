use serde_json::json;

use super::*;
use crate::runtime::KINDS;
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

#[tokio::test]
async fn a_trouble_that_went_with_its_object_is_told_no_more() {
    let (tenancy, tenant) = tenancy();
    let service = tower::service_fn(|_: hyper::Request<kube::client::Body>| {
        std::future::pending::<Result<hyper::Response<kube::client::Body>, std::convert::Infallible>>(
        )
    });
    let mut tenants = Tenants::new(Client::new(service, "default"));
    let mut view = WatchSync::new(&KINDS);
    for kind in KINDS {
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
