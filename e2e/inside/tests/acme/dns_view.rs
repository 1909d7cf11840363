//! Answers of authoritative servers, and the findings of a pre-flight check, with BIND.

use std::net::{IpAddr, SocketAddr};

use acme::DeniedNetworks;
use acme::challenge::ChallengeKind;
use acme::challenge::dns::{DnsError, DnsProvider, DnsView, Seen, TxtRecord};
use acme::dns::preflight::{Expected, Facts, Lookup, examine};
use acme::dns::{Authorities, Resolver, Rfc2136, Rfc2136Config, Secret, TsigHash};
use anyhow::Result;
use e2e::bind::{Bind, BindKey, BindZone};
use e2e::port::free_port;
use futures::FutureExt;
use tokio::net::{TcpListener, UdpSocket};

const SECRET: &str = "Zm9yIHRlc3RzIG9ubHk6IGZvcnR5LWVpZ2h0IGJ5dGVzIG9mIGEga2V5IQ==";

fn key() -> BindKey {
    BindKey {
        name: "k".to_owned(),
        algorithm: "hmac-sha256".to_owned(),
        secret: SECRET.to_owned(),
    }
}

fn view(bind: &Bind) -> Result<Authorities> {
    Ok(Authorities::new(Resolver::new(vec![bind.address()])?).with_port(bind.address().port()))
}

fn record(name: &str) -> TxtRecord {
    TxtRecord {
        name: name.to_owned(),
        value: "value".to_owned(),
        ttl: 60,
    }
}

async fn present(bind: &Bind, record: &TxtRecord) -> Result<()> {
    let provider = Rfc2136::new(Rfc2136Config {
        nameserver: bind.address().to_string(),
        key_name: "k".to_owned(),
        algorithm: TsigHash::Sha256,
        secret: Secret::new(SECRET),
        zone: None,
    })?;
    Ok(provider.present(record).await?)
}

#[tokio::test]
#[ignore = "needs BIND"]
async fn a_value_is_everywhere_once_every_server_has_it() -> Result<()> {
    // Three name servers: two BINDs that do not know of each other, and one that does not run.
    let port = free_port()?;
    let servers = "@ NS ns1\n@ NS ns2\n@ NS ns3\nns1 A 127.0.0.1\nns2 A 127.0.0.2\nns3 A 127.0.0.3";
    let zone = BindZone::new("example.test").open_to("k").records(servers);
    let at = |last| SocketAddr::new(IpAddr::from([127, 0, 0, last]), port);
    let one = Bind::start_behind(at(1), &[key()], std::slice::from_ref(&zone)).await?;
    let two = Bind::start_behind(at(2), &[key()], &[zone]).await?;
    let view = view(&one)?;
    let record = record("_acme-challenge.example.test");
    let both = Seen::NotYet {
        missing: vec![
            "ns1.example.test (127.0.0.1)".into(),
            "ns2.example.test (127.0.0.2)".into(),
        ],
    };
    assert_eq!(view.seen(&record).await?, both);
    present(&one, &record).await?;
    assert_eq!(
        view.seen(&record).await?,
        Seen::NotYet {
            missing: vec!["ns2.example.test (127.0.0.2)".into()]
        }
    );
    present(&two, &record).await?;
    let Seen::Everywhere { silent } = view.seen(&record).await? else {
        panic!("both servers have it")
    };
    assert!(
        silent.len() == 1 && silent[0].starts_with("ns3.example.test (127.0.0.3): "),
        "{silent:?}"
    );
    drop(two);
    drop(one);
    assert!(matches!(
        view.seen(&record).await,
        Err(DnsError::Unavailable { .. })
    ));
    Ok(())
}

#[tokio::test]
#[ignore = "needs BIND"]
async fn a_challenge_is_written_where_its_cname_leads() -> Result<()> {
    let zone = BindZone::new("example.test").records(
        "_acme-challenge CNAME one.delegate.test.\n\
         _acme-challenge.loop CNAME _acme-challenge.pool\n\
         _acme-challenge.pool CNAME _acme-challenge.loop\n\
         *.wild CNAME somewhere.else.test.\n\
         _acme-challenge.meant.wild CNAME two.delegate.test.\n\
         www CNAME host.delegate.test.",
    );
    let chain: String = (0..12)
        .map(|i| format!("c{i} CNAME c{}\n", i + 1))
        .collect();
    let delegate = BindZone::new("delegate.test")
        .open_to("k")
        .records("one CNAME end\nhost A 127.0.0.1")
        .records(&chain);
    let bind = Bind::start(&[key()], &[zone, delegate]).await?;
    let view = view(&bind)?;
    let target = async |name: &str| view.challenge_target(name).await;
    // Through two zones to the end of the chain.
    assert_eq!(
        target("_acme-challenge.example.test").await?,
        "end.delegate.test"
    );
    // No CNAME, or the CNAME is at the parent: the name itself.
    assert_eq!(
        target("_acme-challenge.a.example.test").await?,
        "_acme-challenge.a.example.test"
    );
    assert_eq!(
        target("_acme-challenge.www.example.test").await?,
        "_acme-challenge.www.example.test"
    );
    // A CNAME synthesised from a wildcard is no delegation; an explicit one below the wildcard is.
    assert_eq!(
        target("_acme-challenge.wild.example.test").await?,
        "_acme-challenge.wild.example.test"
    );
    assert_eq!(
        target("_acme-challenge.meant.wild.example.test").await?,
        "two.delegate.test"
    );
    let error = target("_acme-challenge.loop.example.test")
        .await
        .expect_err("a loop")
        .to_string();
    assert!(
        error.contains(
            "its CNAMEs form a loop, _acme-challenge.loop.example.test → _acme-challenge.pool"
        ),
        "{error}"
    );
    let error = target("c0.delegate.test")
        .await
        .expect_err("a long chain")
        .to_string();
    assert!(
        error.contains("more than 8 CNAMEs follow each other"),
        "{error}"
    );

    let record = record("end.delegate.test");
    present(&bind, &record).await?;
    assert!(matches!(view.seen(&record).await?, Seen::Everywhere { .. }));
    Ok(())
}

#[tokio::test]
#[ignore = "needs BIND"]
async fn a_delegation_that_only_its_parent_knows_is_followed() -> Result<()> {
    // The resolver is queried for example.test only; the child zone is on another server.
    let port = free_port()?;
    let at = |last| SocketAddr::new(IpAddr::from([127, 0, 0, last]), port);
    let parent = BindZone::new("example.test")
        .records("@ NS ns1\nns1 A 127.0.0.1\n_acme-challenge NS ns2\nns2 A 127.0.0.2");
    let child = BindZone::new("_acme-challenge.example.test")
        .open_to("k")
        .records("@ NS ns2.example.test.");
    let parent = Bind::start_behind(at(1), &[], &[parent]).await?;
    let child = Bind::start_behind(at(2), &[key()], &[child]).await?;
    let record = record("_acme-challenge.example.test");
    let view = view(&parent)?;
    assert!(matches!(view.seen(&record).await?, Seen::NotYet { .. }));
    present(&child, &record).await?;
    assert_eq!(
        view.seen(&record).await?,
        Seen::Everywhere { silent: vec![] }
    );
    Ok(())
}

/// The owner of a zone decides the addresses of its name servers.
#[tokio::test]
#[ignore = "needs BIND"]
async fn no_packet_goes_to_a_name_server_in_a_private_network() -> Result<()> {
    let port = free_port()?;
    let at = |last| SocketAddr::new(IpAddr::from([127, 0, 0, last]), port);
    let zone = "@ NS ns1\nns1 A 127.0.0.1\n_acme-challenge NS ns9\nns9 A 127.0.0.9\nns9 AAAA ::ffff:127.0.0.9";
    let bind =
        Bind::start_behind(at(1), &[], &[BindZone::new("example.test").records(zone)]).await?;
    let packets = UdpSocket::bind(at(9)).await?;
    let connections = TcpListener::bind(at(9)).await?;
    let record = record("_acme-challenge.example.test");
    // The name server of the test itself is on loopback.
    let own = DeniedNetworks::private().allowing(["127.0.0.1/32".parse()?]);
    let error = view(&bind)?
        .denying(own)
        .seen(&record)
        .await
        .expect_err("it is not asked")
        .to_string();
    assert!(
        error.contains(
            "are in private networks alone, which are asked only if the issuer's allowedNetworks"
        ),
        "{error}"
    );
    let mut bytes = [0; 512];
    assert!(packets.try_recv_from(&mut bytes).is_err(), "a packet came");
    assert!(
        connections.accept().now_or_never().is_none(),
        "a connection came"
    );
    // The query would have come here.
    let view = view(&bind)?;
    let (asked, came) = tokio::join!(view.seen(&record), packets.recv_from(&mut bytes));
    assert!(asked.is_err() && came.is_ok(), "{asked:?}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs BIND"]
async fn a_preflight_names_cause_and_fix() -> Result<()> {
    let zone = BindZone::new("example.test").records(
        "good A 192.0.2.1\ngood AAAA 2001:db8::1\n\
         six A 192.0.2.1\nsix AAAA 2001:db8::dead\n\
         far A 198.51.100.7\n\
         alias CNAME good\n\
         gone CNAME nowhere\n\
         l1 CNAME l2\nl2 CNAME l1\n\
         empty TXT \"x\"\n\
         caa A 192.0.2.1\ncaa CAA 0 issue \"other.test\"\n\
         sub.caa A 192.0.2.1\n\
         acct A 192.0.2.1\nacct CAA 0 issue \"ca.test; accounturi=https://ca.test/acct/1\"\n\
         method A 192.0.2.1\nmethod CAA 0 issue \"ca.test; validationmethods=dns-01\"\n\
         crit A 192.0.2.1\ncrit CAA 128 tbs \"x\"\n\
         wild CAA 0 issue \"ca.test\"\nwild CAA 0 issuewild \";\"",
    );
    let bind = Bind::start(&[], &[zone]).await?;
    let lookup = Lookup::new(Resolver::new(vec![bind.address()])?);
    let ours: Vec<IpAddr> = vec!["192.0.2.1".parse()?, "2001:db8::1".parse()?];
    let identities = ["ca.test".to_owned()];
    let said = async |host: &str, method: ChallengeKind| -> Result<Vec<String>> {
        // BIND has no zone test. above its zone and refuses the further look-ups, so that CAA is
        // evaluated up to there.
        let facts: Facts = lookup.facts(host, method).await?;
        let account_uri = Some("https://ca.test/acct/2");
        let expected = Expected {
            host,
            method,
            addresses: &ours,
            identities: &identities,
            account_uri,
        };
        Ok(examine(&facts, &expected)
            .iter()
            .map(ToString::to_string)
            .filter(|said| !said.starts_with("the CAA records of test cannot be looked up"))
            .collect())
    };
    for clean in ["good.example.test", "alias.example.test"] {
        assert_eq!(
            said(clean, ChallengeKind::Http01).await?,
            Vec::<String>::new(),
            "{clean}"
        );
    }
    for (host, method, wanted) in [
        (
            "six",
            ChallengeKind::Http01,
            "the AAAA record of six.example.test points to 2001:db8::dead",
        ),
        (
            "far",
            ChallengeKind::Http01,
            "far.example.test points to 198.51.100.7, not to 192.0.2.1, 2001:db8::1",
        ),
        (
            "gone",
            ChallengeKind::Http01,
            "gone.example.test is a CNAME to nowhere.example.test, which has no address",
        ),
        (
            "l1",
            ChallengeKind::Http01,
            "the CNAMEs of l1.example.test form a loop, l1.example.test → l2.example.test → l1",
        ),
        (
            "empty",
            ChallengeKind::TlsAlpn01,
            "empty.example.test has no A or AAAA record",
        ),
        (
            "nothing",
            ChallengeKind::Http01,
            "nothing.example.test does not exist in DNS",
        ),
        (
            "caa",
            ChallengeKind::Http01,
            "CAA records at caa.example.test allow only other.test to issue",
        ),
        (
            "sub.caa",
            ChallengeKind::Dns01,
            "CAA records at caa.example.test allow only other.test to issue for sub.caa",
        ),
        (
            "acct",
            ChallengeKind::Http01,
            "CAA records at acct.example.test bind acct.example.test to the account https://ca.test/acct/1",
        ),
        (
            "method",
            ChallengeKind::Http01,
            "CAA records at method.example.test allow the methods dns-01",
        ),
        (
            "crit",
            ChallengeKind::Http01,
            "a CAA record at crit.example.test has the critical property tbs",
        ),
        (
            "*.wild",
            ChallengeKind::Dns01,
            "CAA records at wild.example.test allow nobody to issue for *.wild.example.test",
        ),
    ] {
        let said = said(&format!("{host}.example.test"), method).await?;
        assert!(
            said.iter().any(|said| said.starts_with(wanted)),
            "{host}: {said:?}"
        );
    }
    for allowed in [
        ("method.example.test", ChallengeKind::Dns01),
        ("wild.example.test", ChallengeKind::Dns01),
    ] {
        assert_eq!(
            said(allowed.0, allowed.1).await?,
            Vec::<String>::new(),
            "{allowed:?}"
        );
    }
    // BIND answers REFUSED outside of its zones, which is no permission to issue.
    let unknown = said("elsewhere.example", ChallengeKind::Http01).await?;
    assert_eq!(
        unknown,
        [
            "the addresses of elsewhere.example cannot be looked up: the resolver answers REFUSED; \
             check the name servers of the domain and its DNSSEC",
            "the CAA records of elsewhere.example cannot be looked up: the resolver answers REFUSED; \
             a CA refuses to issue then: check the name servers of the domain and its DNSSEC"
        ]
    );
    Ok(())
}
