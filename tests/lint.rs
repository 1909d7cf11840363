//! Tests of the output and the exit status of `gatewright lint`.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn lint(args: &[&str], input: &str) -> Output {
    gatewright(&[&["lint"], args].concat(), input)
}

fn gatewright(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gatewright"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // A command that reads nothing may be gone.
    let _ = child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

const TENANT: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: tenant-a, labels: {namespace.cozystack.io/host: a.org}}
---
apiVersion: gateway.cozystack.io/v1alpha1
kind: TenantGateway
metadata: {name: cozystack, namespace: tenant-a}
spec: {apex: a.org}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: cilium}
spec: {controllerName: io.cilium/gateway-controller}
";

#[test]
fn nothing_found_is_zero_something_is_one_and_a_wrong_command_line_two() {
    let good = lint(&["-"], TENANT);
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    assert_eq!(&*good.stdout, &b""[..], "{good:?}");
    let bad = lint(
        &["-", "-o", "json"],
        &TENANT.replace("apex: a.org", "apex: b.org"),
    );
    assert_eq!(bad.status.code(), Some(1), "{bad:?}");
    let found: serde_json::Value = serde_json::from_slice(&bad.stdout).expect("JSON");
    let finding = &found[0];
    assert_eq!(
        finding["file"].as_str(),
        Some("-"),
        "standard input is the file"
    );
    assert_eq!(
        finding["line"].as_u64(),
        Some(5),
        "the line is that of the object"
    );
    assert_eq!(finding["object"], "tenantgateway tenant-a/cozystack");
    assert_eq!(finding["reason"], "ApexNotAllowed");
    assert!(
        finding["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("spec.apex: b.org")),
        "{found}"
    );
    assert_eq!(lint(&[], "").status.code(), Some(2));
    assert_eq!(lint(&["-", "-o", "xml"], "").status.code(), Some(2));
}

#[test]
fn a_directory_is_read_and_what_cannot_be_read_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("tenant.yaml"), TENANT).expect("writes");
    let path = dir.path().display().to_string();
    assert_eq!(lint(&[&path], "").status.code(), Some(0));
    std::fs::write(
        dir.path().join("typo.yaml"),
        TENANT
            .replace("spec: {", "spec: {certMoed: http01, ")
            .replace("tenant-a", "x"),
    )
    .expect("writes");
    let told = lint(&[&path], "");
    let text = String::from_utf8_lossy(&told.stdout);
    assert!(
        told.status.code() == Some(1) && text.contains("typo.yaml") && text.contains("certMoed"),
        "{text}"
    );
}

#[test]
fn what_concerns_a_whole_file_has_no_line_and_a_second_definition_a_reason_of_its_own() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["a.yaml", "b.yaml"] {
        std::fs::write(dir.path().join(name), TENANT).expect("writes");
    }
    std::fs::write(dir.path().join("c.yaml"), b"\xff").expect("writes");
    let path = dir.path().display().to_string();
    let told = lint(&[&path], "");
    let text = String::from_utf8_lossy(&told.stdout);
    let row = |file: &str| {
        text.lines()
            .filter(|line| line.contains(file))
            .collect::<Vec<_>>()
    };
    assert!(
        row("/b.yaml:")
            .iter()
            .all(|line| line.contains("DefinedTwice"))
            && row("/b.yaml:").len() == 3,
        "{text}"
    );
    assert!(
        row("/c.yaml ")
            .iter()
            .all(|line| line.contains("Unreadable"))
            && row("/c.yaml ").len() == 1,
        "{text}"
    );
    let found: serde_json::Value =
        serde_json::from_slice(&lint(&[&path, "-o", "json"], "").stdout).expect("JSON");
    let whole = found
        .as_array()
        .expect("a list")
        .iter()
        .find(|finding| finding["reason"] == "Unreadable")
        .expect("found");
    assert!(whole.get("line").is_none(), "{whole}");
}

#[test]
fn the_listener_of_a_finding_is_named() {
    let gateway = "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: gatewright}
spec: {controllerName: gatewright.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: infra}
spec:
  gatewayClassName: gatewright
  listeners: [{name: own, port: 443, protocol: HTTPS, hostname: a.org, tls: {certificateRefs: [{name: gone}]}}]
";
    let text = lint(&["-"], gateway);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(
        text.contains("listener own: certificateRefs: Secret infra/gone does not exist"),
        "{text}"
    );
    let found: serde_json::Value =
        serde_json::from_slice(&lint(&["-", "-o", "json"], gateway).stdout).expect("JSON");
    assert_eq!(found[0]["listeners"], serde_json::json!(["own"]));
}

#[test]
fn a_namespace_that_uses_most_of_a_quota_is_told_with_what_needs_most() {
    let site = "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: gatewright}
spec: {controllerName: gatewright.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {gatewayClassName: gatewright, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}, {port: 81}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: web, port: 80}, {name: web, port: 81}]}]
";
    let text = |most: &str| {
        let output = lint(
            &["--set", &format!("limits.namespace.clusters={most}"), "-"],
            site,
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(text("3"), "", "two thirds are not most of it");
    let told = text("2");
    for part in [
        "httproute shop/web",
        "QuotaNearlyUsed",
        "namespace shop uses 2 of 2 clusters, which is limits.namespace.clusters",
        "httproute shop/web needs 2; a Service port is one cluster",
    ] {
        assert!(told.contains(part), "{part} is missing: {told}");
    }
    let told = text("1");
    assert!(told.contains("LimitReached"), "it is refused: {told}");
    assert!(!told.contains("QuotaNearlyUsed"), "nothing is used: {told}");
}

/// Where something that cannot work is told.
struct Told {
    what: &'static str,
    /// Sections of the configuration.
    configuration: String,
    /// The manifests, beside a GatewayClass and a Namespace.
    manifests: String,
    /// What `config check` says; nothing if the configuration is good.
    checked: &'static str,
    /// What `lint` says.
    linted: &'static str,
    /// What a status says; nothing where it is known only once a certificate is ordered.
    status: &'static str,
}

fn listener(issuer: &str) -> String {
    format!(
        "\
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge, namespace: infra}}
spec:
  gatewayClassName: gatewright
  listeners:
  - {{name: own, port: 443, protocol: HTTPS, hostname: a.org, tls: {{options: {{gatewright.io/issuer: {issuer}}}}}}}
"
    )
}

/// An AccessPolicy with a login for rule `app` of a route, whose other rule is open.
fn login(more: &str) -> String {
    format!(
        "{}{LOGIN}  oidc: {{{more}provider: {{issuer: 'https://id.a.org', authorizationEndpoint: 'https://id.a.org/a', \
         tokenEndpoint: 'https://id.a.org/t', backendRef: {{name: web, port: 80}}}}, clientID: shop, \
         clientSecret: {{name: login}}}}\n",
        listener("internal-ca")
    )
}

const LOGIN: &str = "\
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: infra}
spec:
  parentRefs: [{name: edge}]
  hostnames: [a.org]
  rules:
  - {name: app, matches: [{path: {value: /app}}], backendRefs: [{name: web, port: 80}]}
  - {name: open, backendRefs: [{name: web, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: infra}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: infra}
type: gatewright.io/oidc-client
stringData: {client-secret: a-secret-of-thirty-characters}
---
apiVersion: gatewright.io/v1alpha1
kind: AccessPolicy
metadata: {name: login, namespace: infra}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web, sectionName: app}]
";

/// A TenantGateway with annotations.
fn tenant(annotations: &str) -> String {
    "---\n".to_owned()
        + &TENANT.replace(
            "namespace: tenant-a}\nspec",
            &format!("namespace: tenant-a, annotations: {{{annotations}}}}}\nspec"),
        )
}

/// What cannot work although each file is valid by itself.
fn told(dir: &std::path::Path) -> Vec<Told> {
    let good = "issuers: {le: {directory: letsencrypt, agreeToTerms: true}}\n";
    let of_issuer = |what, configuration: String, checked, linted| Told {
        what,
        configuration,
        manifests: listener("le"),
        checked,
        linted,
        status: "",
    };
    let both = |what, le: &str, told| {
        let others = "c: {directory: letsencrypt, agreeToTerms: true}";
        of_issuer(
            what,
            format!("issuers: {{le: {{{le}}}, {others}}}\n"),
            told,
            told,
        )
    };
    let of_objects = |what, manifests: String, linted, status| Told {
        what,
        configuration: good.to_owned(),
        manifests,
        checked: "",
        linted,
        status,
    };
    let bad = dir.join("roots.pem").display().to_string();
    vec![
        of_issuer("nothing", good.to_owned(), "", ""),
        both(
            "no agreement",
            "directory: letsencrypt",
            "issuers.le.agreeToTerms: letsencrypt creates an account only",
        ),
        both(
            "no agreement with the CA of trials",
            "directory: 'https://ca.a.org/d', trial: letsencrypt-staging",
            "issuers.le.agreeToTerms: letsencrypt-staging creates an account only",
        ),
        both(
            "an unknown fallback",
            "directory: letsencrypt, agreeToTerms: true, fallback: [zz]",
            "issuers.le.fallback[0]: no issuer is called \"zz\": there are c, internal-ca",
        ),
        both(
            "itself as fallback",
            "directory: letsencrypt, agreeToTerms: true, fallback: [c, le]",
            "issuers.le.fallback[1]: \"le\" is the issuer itself",
        ),
        both(
            "a directory without a host",
            "directory: 'https://'",
            "issuers.le.directory: \"https://\": expected a URL with a host",
        ),
        both(
            "a directory that is no URL",
            "directory: lets",
            "issuers.le.directory: \"lets\": expected letsencrypt",
        ),
        both(
            "a bundle without a certificate",
            &format!("directory: 'https://ca.a.org/d', caBundle: {bad}"),
            "issuers.le: caBundle: ",
        ),
        both(
            "a bundle that is not there",
            &format!("directory: 'https://ca.a.org/d', caBundle: {bad}x"),
            "roots.pemx",
        ),
        both(
            "a key that is not there",
            &format!(
                "directory: 'https://ca.a.org/d', externalAccount: {{keyId: a, keyFile: {bad}y}}"
            ),
            "roots.pemy",
        ),
        both(
            "a provider's token that is not there",
            &format!(
                "directory: letsencrypt, agreeToTerms: true, dns: {{cloudflare: {{tokenFile: {bad}z}}}}"
            ),
            "roots.pemz",
        ),
        of_objects(
            "an unknown issuer",
            listener("letsencrpyt"),
            "gatewright.io/issuer: no issuer is called \"letsencrpyt\": there are le, internal-ca",
            "",
        ),
        of_objects(
            "parameters of a class that are not there",
            listener("le")
                + "---\napiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: other}\n\
                   spec:\n  controllerName: gatewright.io/gateway-controller\n  \
                   parametersRef: {group: gatewright.io, kind: GatewayParameters, name: paltform, namespace: infra}\n",
            "InvalidParameters",
            "InvalidParameters",
        ),
        of_objects(
            "a field of parameters",
            listener("le")
                + "---\napiVersion: gatewright.io/v1alpha1\nkind: GatewayParameters\n\
                   metadata: {name: platform, namespace: infra}\nspec: {plainHTTP: Redirect}\n",
            "plainHTTP",
            "",
        ),
        of_objects(
            "a callback that nobody answers",
            login(""),
            "oidc.redirectURL: ",
            "oidc.redirectURL: ",
        ),
        of_objects(
            "a callback at a host of nobody",
            login("redirectURL: 'https://b.org/app/back', logoutPath: /app/out, "),
            "oidc.redirectURL: ",
            "oidc.redirectURL: ",
        ),
        of_objects(
            "a logout that nobody answers",
            login("redirectURL: 'https://a.org/app/back', "),
            // The rest of the login works.
            "",
            "oidc.logoutPath: ",
        ),
        of_objects(
            "a login that works",
            login("redirectURL: 'https://a.org/app/back', logoutPath: /app/out, "),
            "",
            "",
        ),
        of_objects(
            "roots that only a provider uses",
            login("redirectURL: 'https://a.org/app/back', logoutPath: /app/out, ").replace(
                "{name: web, port: 80}}, clientID",
                "{name: id, port: 443}}, clientID",
            ) + "---\napiVersion: v1\nkind: Service\nmetadata: {name: id, namespace: infra}\nspec: {ports: [{port: 443}]}\n\
                   ---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: roots, namespace: infra}\ndata: {ca.crt: nonsense}\n\
                   ---\napiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {name: id, namespace: infra}\n\
                   spec:\n  targetRefs: [{group: '', kind: Service, name: id}]\n  \
                   validation: {hostname: id.a.org, caCertificateRefs: [{group: '', kind: ConfigMap, name: roots}]}\n",
            "NoValidCACertificate",
            "NoValidCACertificate",
        ),
        of_objects(
            "an issuer of a tenant that there is not",
            tenant("gatewright.io/issuer: magic"),
            "metadata.annotations[gatewright.io/issuer]",
            "metadata.annotations[gatewright.io/issuer]",
        ),
        Told {
            what: "a directory that tenants may not name",
            configuration: format!("{good}tenancy: {{certificates: Own}}\n"),
            manifests: tenant("gatewright.io/acme-directory: 'https://ca.b.org/d'"),
            checked: "",
            linted: "DirectoryNotAllowed",
            // Of a program for one machine, which allows all.
            status: "",
        },
        Told {
            what: "the same, which does not count with an own CA",
            configuration: format!("{good}tenancy: {{certificates: InternalCa}}\n"),
            manifests: tenant("gatewright.io/acme-directory: 'https://ca.b.org/d'"),
            checked: "",
            linted: "",
            status: "",
        },
        Told {
            what: "a hostname that is reserved",
            configuration: format!(
                "{good}tenancy: {{reservedHostnames: [{{hostname: x.a.org}}]}}\n"
            ),
            manifests: tenant("") + ROUTE_OF_TENANT,
            checked: "",
            linted: "httproute tenant-a/x",
            status: "x.a.org",
        },
    ]
}

const ROUTE_OF_TENANT: &str = "\
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: x, namespace: tenant-a}
spec:
  parentRefs: [{name: cozystack}]
  hostnames: [x.a.org]
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: tenant-a}
spec: {ports: [{port: 80}]}
";

#[test]
fn what_cannot_work_is_told_wherever_it_shows() {
    const CLASS: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: gatewright}
spec: {controllerName: gatewright.io/gateway-controller}
";
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("roots.pem"), "no certificate").expect("written");
    let file = dir.path().join("gatewright.yaml");
    let path = file.display().to_string();
    let run = |args: &[&str], input: &str| {
        let output = gatewright(args, input);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        (output.status.code(), text)
    };
    let mut wrong = Vec::new();
    for told in told(dir.path()) {
        let head = "apiVersion: config.gatewright.io/v1alpha1\nkind: Configuration\n";
        std::fs::write(&file, format!("{head}{}", told.configuration)).expect("written");
        let manifests = format!("{CLASS}{}", told.manifests);
        let (checked, checked_text) = run(&["config", "check", "--config", &path], "");
        let (linted, linted_text) = run(&["lint", "--config", &path, "-"], &manifests);
        let (_, statuses) = run(&["translate", "--config", &path, "-"], &manifests);
        let mut expect = |by: &str, text: &str, part: &str, is_good: bool| {
            if is_good != part.is_empty() || !text.contains(part) {
                wrong.push(format!("{}: {by}: {part:?} in\n{text}", told.what));
            }
        };
        expect(
            "config check",
            &checked_text,
            told.checked,
            checked == Some(0),
        );
        expect("lint", &linted_text, told.linted, linted == Some(0));
        expect("status", &statuses, told.status, told.status.is_empty());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
