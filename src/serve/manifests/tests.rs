use std::path::Path;
use std::time::SystemTime;

use gatewright_core::external_name::{ExternalNames, NamePolicy};
use gatewright_core::tenancy;
use gatewright_core::translate::Settings;

use super::*;
use crate::manifest::parse;

fn plan(sites: &[&str], has_account: bool) -> Plan {
    let sites = sites.iter().map(|site| site.parse().expect("a site"));
    Plan {
        sites: sites.collect(),
        addresses: vec![[127, 0, 0, 1].into()],
        https_port: 8443,
        http_port: 8080,
        has_account,
        certificate: None,
    }
}

/// The findings of `lint`, as one text.
fn findings(plan: &Plan) -> String {
    let parsed = parse(Path::new("site.yaml"), &plan.manifests());
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let objects = parsed.objects.into_iter().map(|(_, object)| object);
    let settings = Settings {
        external_names: ExternalNames::On(NamePolicy {
            single_labels: true,
            ..NamePolicy::default()
        }),
        system_roots: Some("/etc/ssl/certs/ca-certificates.crt".into()),
        ..Settings::new(crate::configuration::CONTROLLER, plan.addresses.clone())
    };
    let found = crate::lint::lint(
        objects.collect(),
        crate::lint::Beside::Nothing,
        settings,
        tenancy::Settings::default(),
        None,
        SystemTime::UNIX_EPOCH,
    );
    let messages = found.into_iter().map(|finding| finding.message);
    messages.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_manifests_of_every_kind_of_site_are_accepted() {
    let plan = plan(
        &[
            "shop.example.org=3000",
            "shop.example.org/api=http://app:8080",
            "shop.example.org/partner=https://api.example.com",
            "localhost=[::1]:3000",
        ],
        true,
    );
    assert_eq!(findings(&plan), "");
    let text = plan.manifests();
    assert_eq!(text.matches("kind: HTTPRoute").count(), 2, "{text}");
    assert_eq!(text.matches("kind: BackendTLSPolicy").count(), 1, "{text}");
}

#[test]
fn public_hostnames_have_an_account_and_others_the_internal_authority() {
    let plan = plan(&["shop.example.org=1", "shop.localhost=2", "wiki=3"], true);
    assert_eq!(issuers(&plan), ["acme", "internal-ca", "internal-ca"]);
    let without = Plan {
        has_account: false,
        ..plan
    };
    assert_eq!(issuers(&without)[0], "internal-ca");
}

/// The issuers of the hostnames, in the order in which they were given.
fn issuers(plan: &Plan) -> Vec<String> {
    let manifests = plan.manifests();
    let after = manifests.split("gatewright.io/issuer: ").skip(1);
    after
        .filter_map(|rest| Some(rest.split_once(',')?.0.to_owned()))
        .collect()
}

#[test]
fn a_certificate_that_is_brought_is_served_for_the_hostnames_that_it_has() {
    let names = ["*.example.org", "wiki"].map(|name| Hostname::parse(name).expect("a hostname"));
    let plan = Plan {
        certificate: Some(BroughtCertificate {
            chain: "/etc/a \"b\".pem".into(),
            key: "/etc/a.key".into(),
            names: names.into(),
        }),
        ..plan(
            &[
                "shop.example.org=1",
                "a.b.example.org=2",
                "wiki=3",
                "localhost=4",
            ],
            true,
        )
    };
    assert_eq!(issuers(&plan), ["acme", "internal-ca"], "of the others");
    let text = plan.manifests();
    assert_eq!(text.matches("certificateRefs").count(), 2, "{text}");
    assert!(
        text.contains(r#"{gatewright.io/files: "tls.crt=/etc/a \"b\".pem,tls.key=/etc/a.key"}"#),
        "{text}"
    );
}
