use super::*;
use acme::storage::dir::Directory;

fn wish(host: &str, issuer: &str) -> Wish {
    Wish {
        secret: ObjectName::new("alice", format!("{host}-tls").replace('*', "wildcard")),
        hostnames: BTreeSet::from([Hostname::parse(host).expect("a hostname")]),
        issuer: IssuerRef::Named(Arc::from(issuer)),
    }
}

async fn desk(dir: &std::path::Path) -> Desk {
    let authority = Authority::open(dir.join("ca"), Timestamp::now()).expect("opens");
    let storage = Arc::new(Directory::open(dir.join("acme")).expect("opens"));
    let (authority, issuers) = (Arc::new(authority), BTreeMap::new());
    let config = DeskConfig { storage, authority, issuers, at_once: 4, places: None, cabinet: None };
    Desk::open(config).await.expect("opens")
}

/// Hands out until nothing is missing; `None` where a certificate is taken back.
async fn until_settled(desk: &Desk, wishes: Vec<Wish>) -> Vec<Handout> {
    desk.wish(wishes);
    let (out, mut handouts) = mpsc::channel(64);
    let (stopper, stop) = watch::channel(false);
    let mut all = Vec::new();
    let take = async {
        while !desk.is_settled() || all.is_empty() {
            all.extend(handouts.recv().await.expect("the desk goes on"));
        }
        stopper.send_replace(true);
    };
    tokio::join!(desk.run(out, stop), take);
    all
}

#[tokio::test]
async fn certificates_are_handed_out_once_survive_a_restart_and_are_taken_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = desk(dir.path()).await;
    let wishes = vec![wish("a.example.org", INTERNAL_CA), wish("*.b.example.org", INTERNAL_CA)];
    let all = until_settled(&first, wishes.clone()).await;
    let given = all.iter().filter(|h| matches!(h, Handout::Certificate(_, Some(_)))).count();
    assert_eq!((given, first.settle().len()), (2, 0), "{all:?}");
    drop(first);

    let again = desk(dir.path()).await;
    again.wish(wishes.clone());
    assert_eq!(again.settle().len(), 2, "what is there is handed out before anything runs");
    again.wish(wishes[..1].to_vec());
    let back = again.settle();
    assert!(matches!(&back[..], [Handout::Certificate(secret, None)] if *secret == wishes[1].secret), "{back:?}");
}

#[tokio::test]
async fn what_cannot_be_got_is_a_trouble_and_hurts_nobody_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let desk = desk(dir.path()).await;
    let wishes = vec![wish("a.example.org", INTERNAL_CA), wish("b.example.org", "nobody"), wish("co.uk", INTERNAL_CA)];
    let all = until_settled(&desk, wishes).await;
    let given = all.iter().filter(|h| matches!(h, Handout::Certificate(_, Some(_)))).count();
    assert_eq!(given, 1, "{all:?}");
    let told = desk.tell();
    let error = |host: &str| {
        let row = told.certificates.iter().find(|row| row.hosts == [host]).expect("each wish has a row");
        row.last_error.clone().unwrap_or_default()
    };
    assert_eq!(error("a.example.org"), "");
    assert!(error("b.example.org").contains("there are internal-ca"), "{}", error("b.example.org"));
    assert!(error("co.uk").contains("public suffix"), "{}", error("co.uk"));
    assert!(desk.renew("x.example.net").is_err_and(|text| text.contains("no listener wishes")));
}
