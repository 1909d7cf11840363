//! The TLS layout: SNI matcher, filter chains, certificates and routes by host.

use anyhow::{Context, Result};
use e2e::probe::{Answer, Failure, Probe};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use gatewright_core::model::{
    Action, AppProtocol, CertificateSource, FrontendKind, Handler, IdentityRemoval, OtherListeners,
    Requests, Scope, SecretName, Table, TableId, TlsParams, TlsVersion, VirtualHost,
};
use gatewright_envoy::ResourceName;
use serde_json::json;

use super::site::{Site, all_to, frontend, frontend_id, host, route, rule, scopes, terminate, to};

/// Content type of the TLS record that contains a ServerHello (RFC 8446, 5.1).
const SERVER_HANDSHAKE: u8 = 22;

fn served_by(answer: &Answer) -> Result<String> {
    let body: serde_json::Value =
        serde_json::from_slice(&answer.body).context("the echo's JSON")?;
    Ok(body["name"].as_str().context("a name")?.to_owned())
}

/// Returns true if the connection was refused: neither an answer nor a time-out.
fn refused(result: Result<Answer, Failure>) -> bool {
    !matches!(result, Ok(_) | Err(Failure::Timeout(_)))
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn certificate_and_routes_come_by_sni() -> Result<()> {
    let mut site = Site::new()?;
    let _a = site.echo("a").await?;
    let _b = site.echo("b").await?;
    site.serve("a.example.org", all_to("a"))?;
    site.serve("b.example.org", all_to("b"))?;
    site.serve("unused.example.org", all_to("a"))?;
    let _envoy = site.envoy().await?;
    for name in ["a", "b"] {
        let hostname = format!("{name}.example.org");
        let answer = Probe::https(site.tls_address(), &hostname).send().await?;
        assert_eq!(answer.status, 200, "the host is served");
        assert_eq!(served_by(&answer)?, name.to_owned(), "by its own backend");
        assert_eq!(answer.peer.context("TLS")?.dns_names, [hostname.as_str()]);
    }
    assert!(site.ads.was_asked::<Secret>("a.example.org"));
    assert!(
        !site.ads.was_asked::<Secret>("unused.example.org"),
        "certificates are fetched at the first handshake"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn spellings_of_host_and_a_forged_scope_header() -> Result<()> {
    let mut site = Site::new()?;
    let _a = site.echo("a").await?;
    let _b = site.echo("b").await?;
    site.serve("a.example.org", all_to("a"))?;
    site.serve("b.example.org", all_to("b"))?;
    site.serve(
        "little.example.org",
        vec![route("/only", rule(Action::Forward(vec![to("a", 1)])))],
    )?;
    let _envoy = site.envoy().await?;
    let a = Probe::https(site.tls_address(), "a.example.org");
    for alpn in ["h2", "http/1.1"] {
        for authority in [
            "a.example.org",
            "A.Example.ORG",
            "a.example.org:8443",
            "A.example.org:8443",
            "a.example.org.",
        ] {
            let answer = a.clone().alpn(&[alpn]).authority(authority).send().await?;
            assert_eq!(answer.status, 200, "{authority} over {alpn}");
            assert_eq!(served_by(&answer)?.as_str(), "a", "{authority} over {alpn}");
        }
        let answer = a
            .clone()
            .alpn(&[alpn])
            .authority("a.example.org:8443")
            .send()
            .await?;
        assert!(
            String::from_utf8_lossy(&answer.body).contains("a.example.org:8443"),
            "backends see the port"
        );
        let mut held = a.clone().alpn(&[alpn]).connect().await?;
        for (other, status) in [
            ("b.example.org", 421),
            ("B.example.org", 421),
            ("b.example.org:8443", 421),
            ("b.example.org.", 421),
            ("nobody.example.org", 404),
            ("a.example.org.example.org", 404),
            ("a.example.org", 200),
        ] {
            let answer = held.ask(&a.clone().authority(other)).await?;
            assert_eq!(answer.status, status, "{other} over {alpn}");
        }
        for invalid in [
            "a.example.org:x",
            "a.example.org:80x",
            "a.example.org:99999999",
            "b.example.org:x",
        ] {
            // Over HTTP/1.1 Envoy closes the connection.
            let answer = a.clone().alpn(&[alpn]).authority(invalid).send().await?;
            assert_eq!(answer.status, 400, "{invalid} over {alpn}");
            assert_eq!(answer.body, "Bad Request", "{invalid} over {alpn}");
        }
        let scope = format!("{}|b.example.org", site.tls.id);
        let forged = a
            .clone()
            .alpn(&[alpn])
            .header("x-gw-scope", &scope)
            .header("x-gw-host", "own")
            .header("x-real-ip", "203.0.113.9")
            .header("x-forwarded-host", "evil.example")
            .header("x-mine", "kept");
        let answer = forged.send().await?;
        assert_eq!(served_by(&answer)?, "a");
        assert!(
            !String::from_utf8_lossy(&answer.body).contains("x-gw-"),
            "the headers stay inside"
        );
        let headers = answer.echoed("headers")?;
        assert_eq!(headers["x-mine"], json!(["kept"]), "{headers}");
        for removed in ["x-real-ip", "x-forwarded-host"] {
            assert!(headers.get(removed).is_none(), "{removed} over {alpn}");
        }
        let answer = forged.clone().authority("b.example.org").send().await?;
        assert_eq!(
            answer.status, 421,
            "a client's own headers do not choose the scope"
        );
        let little = Probe::https(site.tls_address(), "little.example.org").alpn(&[alpn]);
        assert_eq!(little.clone().path("/only").send().await?.status, 200);
        assert_eq!(
            little.send().await?.status,
            404,
            "a path that no route takes is not misdirected"
        );
        for leak in ["server", "via", "x-envoy-upstream-service-time"] {
            assert!(!answer.headers.contains_key(leak), "{leak}");
        }
    }
    // Envoy's codec of HTTP/2 accepts no userinfo.
    for invalid in ["a.example.org:80@b.example.org", "user@a.example.org"] {
        let answer = a
            .clone()
            .alpn(&["http/1.1"])
            .authority(invalid)
            .send()
            .await?;
        assert_eq!(answer.status, 400, "{invalid}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn names_that_are_not_ours_are_refused_without_asking_for_a_certificate() -> Result<()> {
    let mut site = Site::new()?;
    let _a = site.echo("a").await?;
    site.serve("a.example.org", all_to("a"))?;
    let _envoy = site.envoy().await?;
    let a = Probe::https(site.tls_address(), "a.example.org");
    for name in ["nobody.example.org", "example.org", "x.a.example.org"] {
        assert!(refused(a.clone().sni(name).send().await), "{name}");
        assert!(!site.ads.was_asked::<Secret>(name), "{name}");
    }
    assert!(refused(a.clone().no_sni().send().await), "no SNI");
    assert_eq!(a.send().await?.status, 200);
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_name_of_ours_without_a_certificate_is_refused_at_once() -> Result<()> {
    let mut site = Site::new()?;
    let _a = site.echo("a").await?;
    site.serve("a.example.org", all_to("a"))?;
    site.lead("pending.example.org", "https");
    let _envoy = site.envoy().await?;
    assert!(refused(
        Probe::https(site.tls_address(), "pending.example.org")
            .send()
            .await
    ));
    assert!(site.ads.was_asked::<Secret>("pending.example.org"));
    site.secret(
        SecretName::Sni(host("pending.example.org")),
        "pending.example.org",
        TlsParams::default(),
    )?;
    site.scope(&site.tls.id, "pending.example.org", all_to("a"));
    site.ads.push().await?;
    assert_eq!(
        Probe::https(site.tls_address(), "pending.example.org")
            .send()
            .await?
            .status,
        200
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn an_oddly_spelled_sni_is_another_name_to_whoever_answers_for_certificates() -> Result<()> {
    let mut site = Site::new()?;
    let _a = site.echo("a").await?;
    site.serve("a.example.org", all_to("a"))?;
    let _envoy = site.envoy().await?;
    // Envoy's SNI matcher ignores case; its certificate selector requests the name in its original
    // spelling.
    let odd = site.client_hello("A.Example.Org").await?;
    assert!(site.ads.was_asked::<Secret>("A.Example.Org"));
    assert_ne!(
        odd.first(),
        Some(&SERVER_HANDSHAKE),
        "no ServerHello without a certificate"
    );
    assert_eq!(
        site.client_hello("a.example.org").await?.first(),
        Some(&SERVER_HANDSHAKE)
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn each_host_has_its_own_tls_parameters_on_one_chain() -> Result<()> {
    let mut site = Site::new()?;
    let _a = site.echo("a").await?;
    site.serve("new.example.org", all_to("a"))?;
    site.serve("old.example.org", all_to("a"))?;
    let old = TlsParams {
        max: Some(TlsVersion::V1_2),
        ..TlsParams::default()
    };
    site.secret(
        SecretName::Sni(host("old.example.org")),
        "old.example.org",
        old,
    )?;
    let _envoy = site.envoy().await?;
    for (name, expected) in [("new", "TLSv1_3"), ("old", "TLSv1_2")] {
        let answer = Probe::https(site.tls_address(), &format!("{name}.example.org"))
            .send()
            .await?;
        let version = answer.peer.context("TLS")?.version.context("a version")?;
        assert_eq!(format!("{version:?}"), expected, "{name}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn wildcard_and_catch_all_listeners_have_chains_of_their_own() -> Result<()> {
    let mut site = Site::new()?;
    let _a = site.echo("a").await?;
    let _wild = site.echo("wild").await?;
    let _any = site.echo("any").await?;
    site.serve("a.example.org", all_to("a"))?;
    site.chain(
        "https",
        "a.example.org",
        terminate(CertificateSource::BySni, scopes(&["", "*.example.org"])),
    );
    for (name, listener, misdirected) in [
        ("wild", "*.example.org", vec!["", "a.example.org"]),
        ("any", "", vec!["*.example.org", "a.example.org"]),
    ] {
        let id = TableId {
            frontend: site.tls.id.clone(),
            listener: host(listener),
        };
        site.table(&Table {
            id: id.clone(),
            virtual_hosts: vec![VirtualHost::new(host(listener), all_to(name))],
            elsewhere: OtherListeners::Listed(misdirected.into_iter().map(host).collect()),
        });
        let secret = SecretName::Fixed(id.frontend.clone(), id.resource_name().into());
        let certificate_name = if listener.is_empty() {
            "any.invalid"
        } else {
            listener
        };
        site.secret(secret.clone(), certificate_name, TlsParams::default())?;
        site.chain(
            name,
            listener,
            terminate(CertificateSource::Fixed(secret), Handler::Table(id)),
        );
    }
    let _envoy = site.envoy().await?;
    let probe = |name: &str| Probe::https(site.tls_address(), name);
    for (name, expected) in [
        ("a.example.org", "a"),
        ("x.example.org", "wild"),
        ("x.y.example.org", "wild"),
        ("example.org", "any"),
        ("else.test", "any"),
    ] {
        let answer = probe(name).send().await?;
        assert_eq!(answer.status, 200, "{name}");
        assert_eq!(served_by(&answer)?.as_str(), expected, "{name}");
    }
    assert_eq!(
        served_by(&probe("else.test").no_sni().send().await?)?,
        "any",
        "no SNI goes to the catch-all"
    );
    for (connection, authority) in [
        ("x.example.org", "a.example.org"),
        ("x.example.org", "else.test"),
        ("else.test", "x.example.org"),
        ("else.test", "a.example.org"),
        ("a.example.org", "x.example.org"),
    ] {
        let answer = probe(connection).authority(authority).send().await?;
        assert_eq!(
            answer.status, 421,
            "{authority} on a connection for {connection}"
        );
    }
    Ok(())
}

/// Hosts of one wildcard listener have scopes, other names below it have its table, and there are
/// too many neighbours to list.
#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_wildcard_listener_with_many_hosts() -> Result<()> {
    let mut site = Site::new()?;
    let _a = site.echo("a").await?;
    let _one = site.echo("one").await?;
    let _two = site.echo("two").await?;
    let _wild = site.echo("wild").await?;
    site.serve("a.example.org", all_to("a"))?;
    site.chain(
        "https",
        "a.example.org",
        terminate(CertificateSource::BySni, scopes(&["*.example.org"])),
    );
    let wild = host("*.example.org");
    let id = TableId {
        frontend: site.tls.id.clone(),
        listener: wild.clone(),
    };
    site.table(&Table {
        id: id.clone(),
        virtual_hosts: vec![VirtualHost::new(wild.clone(), all_to("wild"))],
        elsewhere: OtherListeners::Many,
    });
    let secret = SecretName::Fixed(id.frontend.clone(), id.resource_name().into());
    site.secret(secret.clone(), "*.example.org", TlsParams::default())?;
    let hosts = Handler::Scopes {
        listener: Some(wild.clone()),
        elsewhere: OtherListeners::Listed(vec![wild.clone()]),
        identity_headers: IdentityRemoval::Late,
    };
    for name in ["one", "two"] {
        let hostname = format!("{name}.example.org");
        site.chain(
            "hosts",
            &hostname,
            terminate(CertificateSource::Fixed(secret.clone()), hosts.clone()),
        );
        let virtual_host = VirtualHost::new(host(&hostname), all_to(name));
        site.ads.set(
            &format!("{}|{hostname}", site.tls.id),
            &gatewright_envoy::scope(&Scope {
                frontend: site.tls.id.clone(),
                requests: Requests::OfListener(wild.clone()),
                virtual_host,
            }),
        );
    }
    site.chain(
        "table",
        "*.example.org",
        terminate(CertificateSource::Fixed(secret), Handler::Table(id)),
    );
    let _envoy = site.envoy().await?;
    let on = |sni: &str| Probe::https(site.tls_address(), sni);
    for (sni, authority, name) in [
        ("one.example.org", "one.example.org", "one"),
        ("one.example.org", "two.example.org", "two"),
        ("two.example.org", "one.example.org", "one"),
        ("x.example.org", "x.example.org", "wild"),
        ("x.example.org", "X.example.org", "wild"),
        ("x.example.org", "x.example.org:8443", "wild"),
        ("a.example.org", "a.example.org", "a"),
    ] {
        let answer = on(sni).authority(authority).send().await?;
        assert_eq!(answer.status, 200, "{authority} on {sni}");
        assert_eq!(served_by(&answer)?.as_str(), name, "{authority} on {sni}");
    }
    for (sni, authority, status) in [
        ("one.example.org", "x.example.org", 421),
        ("one.example.org", "a.example.org", 421),
        ("one.example.org", "nobody.test", 404),
        ("a.example.org", "one.example.org", 421),
        ("a.example.org", "x.example.org", 421),
        ("a.example.org", "nobody.test", 404),
        ("x.example.org", "one.example.org", 421),
        ("x.example.org", "a.example.org", 421),
        ("x.example.org", "y.example.org", 421),
        ("x.example.org", "nobody.test", 421),
    ] {
        let answer = on(sni)
            .header("x-gw-host", "own")
            .authority(authority)
            .send()
            .await?;
        assert_eq!(answer.status, status, "{authority} on {sni}");
    }
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_new_host_drains_nothing() -> Result<()> {
    let mut site = Site::new()?;
    let _a = site.echo("a").await?;
    site.serve("a.example.org", all_to("a"))?;
    let envoy = site.envoy().await?;
    let a = Probe::https(site.tls_address(), "a.example.org");
    let mut held = a.connect().await?;
    assert_eq!(held.ask(&a).await?.status, 200);
    site.serve("b.example.org", all_to("a"))?;
    site.listeners();
    site.ads.push().await?;
    assert_eq!(
        Probe::https(site.tls_address(), "b.example.org")
            .send()
            .await?
            .status,
        200
    );
    assert_eq!(
        envoy
            .stat("listener_manager.listener_in_place_updated")
            .await?,
        1
    );
    assert_eq!(
        envoy
            .stat("listener_manager.total_filter_chains_draining")
            .await?,
        0
    );
    assert_eq!(held.ask(&a).await?.status, 200);
    assert!(!held.is_closed());
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn one_hostname_on_two_frontends_has_two_scopes() -> Result<()> {
    let mut site = Site::new()?;
    let _a = site.echo("a").await?;
    let _b = site.echo("b").await?;
    site.serve("a.example.org", all_to("a"))?;
    let second = frontend(frontend_id()?, site.tls.kind.clone());
    assert!(matches!(second.kind, FrontendKind::Tls { .. }));
    site.scope(&second.id, "a.example.org", all_to("b"));
    site.ads.set(
        &second.resource_name(),
        &gatewright_envoy::listener(&second),
    );
    let _envoy = site.envoy().await?;
    let address = ([127, 0, 0, 1], second.id.port).into();
    assert_eq!(
        served_by(
            &Probe::https(site.tls_address(), "a.example.org")
                .send()
                .await?
        )?,
        "a"
    );
    assert_eq!(
        served_by(&Probe::https(address, "a.example.org").send().await?)?,
        "b"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn a_backend_without_endpoints_is_503() -> Result<()> {
    let mut site = Site::new()?;
    site.backend("empty", AppProtocol::Http1, None);
    site.serve("a.example.org", all_to("empty"))?;
    let _envoy = site.envoy().await?;
    assert_eq!(
        Probe::https(site.tls_address(), "a.example.org")
            .send()
            .await?
            .status,
        503
    );
    Ok(())
}

#[tokio::test]
#[ignore = "needs Envoy"]
async fn statistics_do_not_grow_with_hosts_or_certificates() -> Result<()> {
    let mut site = Site::new()?;
    let _a = site.echo("a").await?;
    site.serve("a.example.org", all_to("a"))?;
    let envoy = site.envoy().await?;
    assert_eq!(
        Probe::https(site.tls_address(), "a.example.org")
            .send()
            .await?
            .status,
        200
    );
    let stats = envoy.admin("/stats").await?;
    let named: Vec<_> = stats
        .lines()
        .filter(|line| line.contains("example"))
        .collect();
    assert!(named.is_empty(), "{named:?}");
    assert!(
        stats.contains(".on_demand_secret.cert_active: 1"),
        "what an operator wants to know is still there"
    );
    Ok(())
}
