//! Routes that tenancy refuses are not served by Cilium: a route for each reason of the table in
//! `docs/hostnames.md`, and the clusters of the CiliumEnvoyConfig, in every certificate mode.

use super::*;

/// Makes a namespace with one Service `web`, attached to the Gateway; an empty host allows any name
/// below the apex.
async fn namespace(site: &mut Site, name: &str, host: &str) -> Result<()> {
    let mut labels = json!({"namespace.cozystack.io/gateway": "tenant-a"});
    if !host.is_empty() {
        labels["namespace.cozystack.io/host"] = json!(host);
    }
    site.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})).await?;
    site.put(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": name},
        "spec": {"ports": [{"name": "http", "port": 80}]}}))
        .await
}

/// Makes a site of three: `tenant-a`, the owner of the Gateway, `tenant-b` with an apex below, and
/// the platform's `cozy-x`, which needs no label.
async fn start(spec: Value, settings: tenancy::Settings, annotations: Value) -> Result<Site> {
    let mut site = Site::start_with(
        spec,
        tenancy::Settings {
            unlabelled: true,
            ..settings
        },
    )
    .await?;
    let tenant = site
        .objects
        .iter_mut()
        .find(|object| object["kind"] == "TenantGateway")
        .context("it has one")?;
    tenant["metadata"]["annotations"] = annotations;
    namespace(&mut site, "tenant-b", "b.a.org").await?;
    namespace(&mut site, "cozy-x", "").await?;
    Ok(site)
}

/// A route that is refused.
struct Refused {
    kind: &'static str,
    namespace: &'static str,
    name: &'static str,
    /// The fields of its parentRef beside the Gateway's name.
    parent: Value,
    hostnames: Vec<String>,
    reason: &'static str,
}

fn refused(
    namespace: &'static str,
    name: &'static str,
    hostnames: &[&str],
    reason: &'static str,
) -> Refused {
    let hostnames = hostnames
        .iter()
        .map(|hostname| (*hostname).to_owned())
        .collect();
    Refused {
        kind: "HTTPRoute",
        namespace,
        name,
        parent: json!({}),
        hostnames,
        reason,
    }
}

impl Refused {
    fn object(&self) -> Value {
        let mut parent = json!({"name": "cozystack", "namespace": "tenant-a"});
        for (field, value) in self.parent.as_object().into_iter().flatten() {
            parent[field] = value.clone();
        }
        let mut spec = json!({"parentRefs": [parent], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]});
        if !self.hostnames.is_empty() {
            spec["hostnames"] = json!(self.hostnames);
        }
        json!({"apiVersion": GATEWAY, "kind": self.kind, "spec": spec,
            "metadata": {"namespace": self.namespace, "name": self.name}})
    }
}

/// Returns routes for every reason of hostnames and parentRefs: of a tenant, and of a namespace of
/// the platform.
fn all(per_host: bool, wildcards: bool) -> Vec<Refused> {
    let long = format!("{}.bad.a.org", "l".repeat(64));
    let mut all = vec![
        refused("tenant-bad", "all", &[], "HostnameRequired"),
        refused("tenant-bad", "exact", &["shop.a.org"], "HostnameNotAllowed"),
        refused(
            "tenant-bad",
            "neighbour",
            &["own.b.a.org"],
            "HostnameNotAllowed",
        ),
        refused("tenant-bad", "free", &["free.a.org"], "HostnameNotAllowed"),
        refused("tenant-bad", "apex", &["a.org"], "HostnameNotAllowed"),
        refused("tenant-bad", "wide", &["*.a.org"], "HostnameNotAllowed"),
        refused(
            "tenant-bad",
            "wide-neighbour",
            &["*.b.a.org"],
            "HostnameNotAllowed",
        ),
        refused(
            "tenant-bad",
            "passthrough",
            &["api.a.org"],
            "HostnameNotAllowed",
        ),
        refused("tenant-bad", "spelling", &[&long], "InvalidHostname"),
        refused(
            "tenant-bad",
            "lost",
            &["taken.bad.a.org"],
            "HostnameConflict",
        ),
        Refused {
            parent: json!({"sectionName": "http"}),
            ..refused(
                "tenant-bad",
                "plain",
                &["p.bad.a.org"],
                "NotAllowedByListeners",
            )
        },
        Refused {
            parent: json!({"sectionName": "nowhere"}),
            ..refused(
                "tenant-bad",
                "astray",
                &["shop.a.org"],
                "HostnameNotAllowed",
            )
        },
        Refused {
            kind: "TLSRoute",
            ..refused("tenant-bad", "tls", &["api.a.org"], "HostnameNotAllowed")
        },
        Refused {
            kind: "TLSRoute",
            ..refused(
                "tenant-bad",
                "tls-own",
                &["t.bad.a.org"],
                "NoMatchingListenerHostname",
            )
        },
        Refused {
            kind: "GRPCRoute",
            ..refused(
                "tenant-bad",
                "rpc",
                &["g.bad.a.org"],
                "NotAllowedByListeners",
            )
        },
        refused("cozy-bad", "all", &[], "HostnameRequired"),
        refused(
            "cozy-bad",
            "outside",
            &["x.other.org"],
            "HostnameNotAllowed",
        ),
        refused("cozy-bad", "spelling", &[&long], "InvalidHostname"),
        Refused {
            kind: "TLSRoute",
            ..refused(
                "cozy-bad",
                "tls",
                &["x.a.org"],
                "NoMatchingListenerHostname",
            )
        },
    ];
    if per_host {
        all.push(refused(
            "cozy-bad",
            "passthrough",
            &["api.a.org"],
            "HostnameConflict",
        ));
    }
    if per_host && !wildcards {
        all.push(refused(
            "tenant-bad",
            "wide-own",
            &["*.bad.a.org"],
            "WildcardNotIssuable",
        ));
        all.push(refused(
            "cozy-bad",
            "wide",
            &["*.a.org"],
            "WildcardNotIssuable",
        ));
    }
    all
}

/// Returns the domains that forward to a namespace, and `passthrough` for those by passthrough.
fn domains(config: &Value, namespace: &str) -> BTreeSet<String> {
    let to = |value: &Value| value.to_string().contains(&format!("\"{namespace}:"));
    let mut found = BTreeSet::new();
    for resource in config["spec"]["resources"].as_array().into_iter().flatten() {
        for host in resource["virtualHosts"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|host| to(host))
        {
            let domains = host["domains"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            found.extend(
                domains.map(|domain| domain.split(':').next().unwrap_or_default().to_owned()),
            );
        }
        if resource["filterChains"]
            .as_array()
            .into_iter()
            .flatten()
            .any(to)
        {
            found.insert("passthrough".to_owned());
        }
    }
    found
}

/// Returns our verdict on a route, by the last statuses.
fn told(site: &Site, route: &Refused) -> Result<BTreeSet<String>> {
    let status = site
        .statuses
        .iter()
        .find(|object| {
            object["kind"] == route.kind
                && object["metadata"]["name"] == route.name
                && object["metadata"]["namespace"] == route.namespace
        })
        .with_context(|| format!("no status of {}", route.name))?;
    let parents = status["status"]["parents"].as_array().into_iter().flatten();
    let reasons = parents.filter_map(|parent| {
        condition(parent, "Accepted")?["reason"]
            .as_str()
            .map(str::to_owned)
    });
    Ok(reasons.collect())
}

/// Checks that Cilium wrote a status of a route.
async fn is_seen(site: &Site, route: &Refused) -> Result<()> {
    site.until(
        (GATEWAY, route.kind, route.namespace),
        route.name,
        |object| {
            let parents = object["status"]["parents"].as_array().into_iter().flatten();
            parents.into_iter().any(|parent| {
                parent["controllerName"] == CONTROLLER && condition(parent, "Accepted").is_some()
            })
        },
    )
    .await
    .map(drop)
}

struct Mode {
    name: &'static str,
    spec: Value,
    annotations: Value,
    per_host: bool,
    wildcards: bool,
}

async fn in_mode(mode: Mode) -> Result<()> {
    let mut spec = mode.spec;
    spec["apex"] = json!("a.org");
    if mode.per_host {
        // Cilium accepts none of them under a wildcard listener: ProtocolConflict.
        spec["tlsPassthroughServices"] = json!(["api"]);
    }
    let mut site = start(spec, tenancy::Settings::default(), mode.annotations).await?;
    namespace(&mut site, "tenant-bad", "bad.a.org").await?;
    namespace(&mut site, "cozy-bad", "").await?;
    site.route("tenant-a", "shop", gateway(), &["shop.a.org"])
        .await?;
    site.route("tenant-b", "own", gateway(), &["own.b.a.org", "b.a.org"])
        .await?;
    site.route(
        "cozy-x",
        "dash",
        gateway(),
        &["dash.a.org", "taken.bad.a.org"],
    )
    .await?;
    if mode.wildcards {
        site.route("tenant-a", "wide", gateway(), &["*.w.a.org"])
            .await?;
    }
    let bad = all(mode.per_host, mode.wildcards);
    for route in &bad {
        site.put(route.object()).await?;
    }
    site.settle().await?;
    for route in &bad {
        let told = told(&site, route)?;
        assert_eq!(
            told,
            BTreeSet::from([route.reason.to_owned()]),
            "{}: {}",
            mode.name,
            route.name
        );
    }
    site.cilium
        .give_address(&site.server, "tenant-a", "cozystack")
        .await?;
    site.until((GATEWAY, "Gateway", "tenant-a"), "cozystack", is_served)
        .await?;
    for route in &bad {
        is_seen(&site, route).await?;
    }
    // A later route is processed: so the others were processed, too.
    site.route("tenant-a", "late", gateway(), &["late.a.org"])
        .await?;
    site.settle().await?;
    let good = |config: &Value| {
        let leads = |host: &str, namespace: &str| backends(config, host) == web(namespace);
        leads("late.a.org", "tenant-a")
            && leads("shop.a.org", "tenant-a")
            && leads("own.b.a.org", "tenant-b")
            && leads("b.a.org", "tenant-b")
            && leads("dash.a.org", "cozy-x")
            && leads("taken.bad.a.org", "cozy-x")
            && (!mode.wildcards || leads("any.w.a.org", "tenant-a"))
    };
    let config = site.config(good).await?;
    // Only below an apex with a wildcard listener of its own: names that nobody else has.
    let home = |domain: &String| {
        !mode.per_host && domain.ends_with(".bad.a.org") && domain != "taken.bad.a.org"
    };
    let beyond: Vec<String> = domains(&config, "tenant-bad")
        .into_iter()
        .filter(|domain| !home(domain))
        .collect();
    assert!(
        beyond.is_empty(),
        "{}: {beyond:?} lead to a tenant that was refused: {config:#}",
        mode.name
    );
    assert_eq!(
        domains(&config, "cozy-bad"),
        BTreeSet::new(),
        "{}: {config:#}",
        mode.name
    );

    // The same from a namespace that owns hostnames: apart from those, and a wildcard that it may
    // have, nothing forwards to it.
    for mut route in all(mode.per_host, mode.wildcards) {
        route.namespace = if route.namespace == "cozy-bad" {
            "cozy-x"
        } else {
            "tenant-b"
        };
        site.put(route.object()).await?;
    }
    let other = json!([{"name": "cozystack", "namespace": "tenant-a", "sectionName": "https"}]);
    site.route("cozy-x", "section", other, &["section.a.org"])
        .await?;
    site.route("tenant-a", "later", gateway(), &["later.a.org"])
        .await?;
    site.settle().await?;
    site.until((GATEWAY, "Gateway", "tenant-a"), "cozystack", is_served)
        .await?;
    let config = site
        .config(|config| backends(config, "later.a.org") == web("tenant-a") && good(config))
        .await?;
    let own = |domain: &String| {
        domain == "b.a.org"
            || domain == "own.b.a.org"
            || mode.wildcards && domain.ends_with(".b.a.org")
    };
    let beyond: Vec<String> = domains(&config, "tenant-b")
        .into_iter()
        .filter(|domain| !own(domain))
        .collect();
    assert!(
        beyond.is_empty(),
        "{}: {beyond:?} lead to a tenant that was refused: {config:#}",
        mode.name
    );
    let of_platform = domains(&config, "cozy-x");
    assert!(
        of_platform
            .iter()
            .all(|domain| ["dash.a.org", "taken.bad.a.org", "section.a.org"].contains(&&**domain)),
        "{of_platform:?}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Kubernetes and Cilium's controllers: e2e/tools install"]
async fn a_refused_hostname_is_not_served_with_a_certificate_for_each_host() -> Result<()> {
    let spec = json!({});
    let annotations = json!({});
    in_mode(Mode {
        name: "http01",
        spec,
        annotations,
        per_host: true,
        wildcards: false,
    })
    .await
}

#[tokio::test]
#[ignore = "needs Kubernetes and Cilium's controllers: e2e/tools install"]
async fn a_refused_hostname_is_not_served_with_certificates_of_the_internal_ca() -> Result<()> {
    let spec = json!({});
    let annotations = json!({"gatewright.io/issuer": "internal-ca"});
    in_mode(Mode {
        name: "internal-ca",
        spec,
        annotations,
        per_host: true,
        wildcards: true,
    })
    .await
}

#[tokio::test]
#[ignore = "needs Kubernetes and Cilium's controllers: e2e/tools install"]
async fn a_refused_hostname_is_not_served_under_a_wildcard_certificate_by_dns01() -> Result<()> {
    let dns01 = json!({"provider": "cloudflare", "cloudflare": {"apiTokenSecretRef": {"name": "t", "key": "k"}}});
    let spec = json!({"certMode": "dns01", "dns01": dns01});
    let annotations = json!({});
    in_mode(Mode {
        name: "dns01",
        spec,
        annotations,
        per_host: false,
        wildcards: true,
    })
    .await
}

#[tokio::test]
#[ignore = "needs Kubernetes and Cilium's controllers: e2e/tools install"]
async fn a_refused_hostname_is_not_served_under_a_wildcard_certificate_of_the_user() -> Result<()> {
    let spec = json!({"certMode": "existingSecret", "wildcardSecretRef": {"name": "wildcard"}});
    in_mode(Mode {
        name: "existingSecret",
        spec,
        annotations: json!({}),
        per_host: false,
        wildcards: true,
    })
    .await
}

/// The reasons that need many hosts, or hostnames with equal hashes.
#[tokio::test]
#[ignore = "needs Kubernetes and Cilium's controllers: e2e/tools install"]
async fn a_hostname_without_a_listener_is_not_served() -> Result<()> {
    let shared = json!({"apex": "a.org", "certMode": "existingSecret", "wildcardSecretRef": {"name": "wildcard"}});
    for (spec, listener_sets, reason) in [
        (json!({"apex": "a.org"}), false, "ListenerLimitReached"),
        (json!({"apex": "a.org"}), true, "ListenerSetParentRequired"),
        (shared, false, "ListenerLimitReached"),
    ] {
        let settings = tenancy::Settings {
            listener_sets,
            ..tenancy::Settings::default()
        };
        let mut site = start(spec, settings, json!({})).await?;
        let hosts: Vec<String> = (10..73).map(|n| format!("h{n}.a.org")).collect();
        for (n, chunk) in hosts.chunks(16).enumerate() {
            let chunk: Vec<&str> = chunk.iter().map(String::as_str).collect();
            site.route("cozy-x", &format!("r{n}"), gateway(), &chunk)
                .await?;
        }
        namespace(&mut site, "cozy-z", "").await?;
        let bad = refused("cozy-z", "z", &["z.a.org"], reason);
        site.put(bad.object()).await?;
        site.settle().await?;
        assert_eq!(told(&site, &bad)?, BTreeSet::from([reason.to_owned()]));
        site.cilium
            .give_address(&site.server, "tenant-a", "cozystack")
            .await?;
        is_seen(&site, &bad).await?;
        let config = site
            .config(|config| backends(config, "h10.a.org") == web("cozy-x"))
            .await?;
        assert_eq!(
            domains(&config, "cozy-z"),
            BTreeSet::new(),
            "{reason}: {config:#}"
        );
    }
    let alice = "alice.example.org";
    let mut site = start(
        json!({"apex": alice}),
        tenancy::Settings::default(),
        json!({}),
    )
    .await?;
    for name in ["tenant-a", "tenant-b"] {
        namespace(&mut site, name, alice).await?;
    }
    site.route(
        "tenant-a",
        "first",
        gateway(),
        &[&format!("app.154363.{alice}")],
    )
    .await?;
    let bad = refused(
        "tenant-b",
        "second",
        &[&format!("app.134599.{alice}")],
        "NameCollision",
    );
    site.put(bad.object()).await?;
    site.settle().await?;
    assert_eq!(
        told(&site, &bad)?,
        BTreeSet::from(["NameCollision".to_owned()])
    );
    site.cilium
        .give_address(&site.server, "tenant-a", "cozystack")
        .await?;
    is_seen(&site, &bad).await?;
    let config = site
        .config(|config| backends(config, &format!("app.154363.{alice}")) == web("tenant-a"))
        .await?;
    assert_eq!(domains(&config, "tenant-b"), BTreeSet::new(), "{config:#}");
    Ok(())
}

/// A child apex that exceeds the names of the one certificate.
#[tokio::test]
#[ignore = "needs Kubernetes and Cilium's controllers: e2e/tools install"]
async fn a_child_beyond_the_certificate_is_not_served() -> Result<()> {
    let dns01 = json!({"provider": "cloudflare", "cloudflare": {"apiTokenSecretRef": {"name": "t", "key": "k"}}});
    let spec = json!({"apex": "a.org", "certMode": "dns01", "dns01": dns01});
    let mut site = start(spec, tenancy::Settings::default(), json!({})).await?;
    for n in 10..58 {
        namespace(&mut site, &format!("tenant-c{n}"), &format!("c{n}.a.org")).await?;
    }
    namespace(&mut site, "tenant-z", "z.a.org").await?;
    site.route("tenant-c10", "r", gateway(), &["x.c10.a.org"])
        .await?;
    let bad = refused("tenant-z", "r", &["x.z.a.org"], "CertificateLimitReached");
    site.put(bad.object()).await?;
    site.settle().await?;
    assert_eq!(
        told(&site, &bad)?,
        BTreeSet::from(["CertificateLimitReached".to_owned()])
    );
    site.cilium
        .give_address(&site.server, "tenant-a", "cozystack")
        .await?;
    is_seen(&site, &bad).await?;
    let config = site
        .config(|config| backends(config, "x.c10.a.org") == web("tenant-c10"))
        .await?;
    assert_eq!(domains(&config, "tenant-z"), BTreeSet::new(), "{config:#}");
    Ok(())
}
