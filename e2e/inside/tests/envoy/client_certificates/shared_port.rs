//! Gateways and hosts that share a port.

use super::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn gateways_that_share_a_port_never_share_a_check() -> Result<()> {
    let echo = Echo::start("web").await?;
    let one = ClientCa::new("one")?;
    let two = ClientCa::new("two")?;
    let port = free_port()?;
    let strict = |map: &str| Some(json!({"default": validation(map, "AllowValidOnly")}));
    let all = ["one", "two", "closed", "open"];
    let mut changes = shared_class();
    changes.extend([
        gateway(
            "one",
            json!([
                https("a", port, "a.example.org"),
                https("w", port, "*.one.example.org")
            ]),
            strict("one"),
        ),
        gateway(
            "two",
            json!([
                https("b", port, "b.example.org"),
                https("w", port, "*.two.example.org")
            ]),
            strict("two"),
        ),
        gateway(
            "closed",
            json!([https("c", port, "c.example.org")]),
            strict("nowhere"),
        ),
        gateway(
            "open",
            json!([
                https("w", port, "*.example.org"),
                https("d", port, "d.example.org")
            ]),
            None,
        ),
        // The route matches all hosts, so that only the validation keeps clients out.
        route("web", &all, &[]),
        route(
            "exact",
            &all,
            &[
                "a.example.org",
                "b.example.org",
                "c.example.org",
                "d.example.org",
                "e.example.org",
            ],
        ),
        bundle("one", &one.pem),
        bundle("two", &two.pem),
        secret("server", "a.example.org")?,
    ]);
    changes.extend(service("web", echo.address()));
    let world = World::start(changes).await?;
    let [by_one, by_two, nobody] = [
        Client::any(Some(one.client()?))?,
        Client::any(Some(two.client()?))?,
        Client::any(None)?,
    ];
    by_one
        .until(port, "a.example.org", Some(200))
        .await
        .with_context(|| world.envoy.log())?;
    by_two.until(port, "b.example.org", Some(200)).await?;
    let cases = [
        ("a.example.org", [true, false, false]),
        ("x.one.example.org", [true, false, false]),
        ("b.example.org", [false, true, false]),
        ("x.two.example.org", [false, true, false]),
        // Its listener takes precedence over the wildcard, which requires no certificate.
        ("c.example.org", [false, false, false]),
        ("d.example.org", [true, true, true]),
        ("e.example.org", [true, true, true]),
    ];
    for (host, let_in) in cases {
        for (client, expected) in [&by_one, &by_two, &nobody].into_iter().zip(let_in) {
            let found = client.ask(port, host).await;
            assert_eq!(
                found.as_ref().ok() == Some(&200),
                expected,
                "{host}: {found:?}"
            );
        }
    }
    // A connection for one host must not carry requests for a host with another validation
    // (GEP-3567).
    for (connection, let_in) in cases {
        let client = match let_in {
            [false, false, false] => continue,
            [_, _, true] => &nobody,
            [true, ..] => &by_one,
            _ => &by_two,
        };
        for (authority, wanted) in cases
            .into_iter()
            .filter(|(authority, wanted)| *authority != connection && *wanted != let_in)
        {
            let (_, status) = client.ask_as(port, connection, authority).await?;
            assert!(
                matches!(status, 404 | 421),
                "{authority} ({wanted:?}) over {connection}: {status}"
            );
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Envoy"]
async fn a_session_of_one_host_opens_no_other() -> Result<()> {
    let echo = Echo::start("web").await?;
    let one = ClientCa::new("one")?;
    let two = ClientCa::new("two")?;
    let port = free_port()?;
    let strict = |map: &str| Some(json!({"default": validation(map, "AllowValidOnly")}));
    let all = ["one", "two", "open", "lax"];
    let mut changes = shared_class();
    changes.extend([
        gateway(
            "one",
            json!([
                https("w", port, "*.one.example.org"),
                https("a", port, "a.example.org")
            ]),
            strict("one"),
        ),
        gateway(
            "two",
            json!([
                https("w", port, "*.two.example.org"),
                https("b", port, "b.example.org")
            ]),
            strict("two"),
        ),
        gateway(
            "open",
            json!([https("w", port, "*.open.example.org")]),
            None,
        ),
        gateway(
            "lax",
            json!([https("w", port, "*.lax.example.org")]),
            Some(json!({"default": validation("two", "AllowInsecureFallback")})),
        ),
        route("web", &all, &[]),
        bundle("one", &one.pem),
        bundle("two", &two.pem),
        secret("server", "a.example.org")?,
    ]);
    changes.extend(service("web", echo.address()));
    let world = World::start(changes).await?;
    let mine = Some(one.client()?);
    for version in VERSIONS {
        for opened in [
            "x.one.example.org",
            "x.open.example.org",
            "x.lax.example.org",
        ] {
            let client = Client::new(mine.clone(), &[version])?;
            client
                .until(port, opened, Some(200))
                .await
                .with_context(|| world.envoy.log())?;
            // Sessions can be resumed here, so that the failures below are by the validation.
            let (kind, status) = client.ask_as(port, opened, opened).await?;
            assert_eq!(kind, HandshakeKind::Resumed, "{opened} with {version:?}");
            assert_eq!(status, 200, "{opened} with {version:?}");
            for other in ["x.two.example.org", "b.example.org"] {
                let offered = client.sessions.counts().1;
                let found = client.ask_as(port, other, other).await;
                assert!(
                    client.sessions.counts().1 > offered,
                    "no session was offered to {other}"
                );
                assert!(
                    found.is_err(),
                    "{other} after {opened} with {version:?}: {found:?}"
                );
                client.until(port, opened, Some(200)).await?;
            }
        }
    }
    Ok(())
}
