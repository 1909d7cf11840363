//! The desk: wishes are handed in, certificates are handed out. One task keeps both sides in line.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acme::failure::Failure;
use acme::issuer::Issuer;
use acme::keeper::{Keeper, Next, Pass};
use acme::ordered::Ordered;
use acme::storage::StorageError;
use acme::{CertificateId, DnsName, Names, Storage, Wanted};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::warn;

use super::authority::Authority;
use super::door::Door;
use super::handout::{Handout, Shelf, Supply};
use super::issuers::{IssuerError, Opened, open};
use super::lookout::Sockets;
use super::report::{Check, Report};
use super::settings::IssuerSettings;
use super::wish::{IssuerRef, Wish};
use crate::model::{Hostname, ObjectName};
use crate::translate::{ChallengeAnswer, INTERNAL_CA};

/// What comes in together is taken together.
const SETTLE: Duration = Duration::from_millis(20);

/// How the desk is set up.
pub struct DeskConfig {
    /// Where certificates, accounts and orders are kept.
    pub storage: Arc<dyn Storage>,
    /// The internal CA.
    pub authority: Arc<Authority>,
    /// The ACME issuers of the installation, by name.
    pub issuers: BTreeMap<String, IssuerSettings>,
    /// How many orders may be on their way at a time.
    pub at_once: usize,
}

/// Why there is no desk.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    /// An issuer.
    #[error("issuer {name}: {source}")]
    Issuer {
        /// Which.
        name: String,
        /// Why.
        source: IssuerError,
    },
    /// A list of issuers names one that is not there.
    #[error("issuer {name}: fallback {missing:?} is not known: there are {known}")]
    Fallback {
        /// Whose list.
        name: String,
        /// The one that is not there.
        missing: String,
        /// Those that are.
        known: String,
    },
    /// Storage.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Takes wishes and hands certificates out.
pub struct Desk {
    keeper: Keeper,
    authority: Arc<Authority>,
    storage: Arc<dyn Storage>,
    sockets: Arc<Sockets>,
    named: BTreeMap<String, Opened>,
    /// Issuers of single objects, or why there is none.
    own: Mutex<BTreeMap<ObjectName, Own>>,
    wishes: watch::Sender<Arc<Vec<Wish>>>,
    nudge: watch::Sender<u64>,
    report: watch::Sender<Arc<Pass>>,
    given: Mutex<Supply>,
    by_tls_alpn: bool,
}

struct Own {
    settings: Arc<IssuerSettings>,
    opened: Result<Opened, String>,
}

/// The issuer of a wish, as far as planning needs it.
struct Resolved {
    id: String,
    challenge: Option<ChallengeAnswer>,
}

impl Desk {
    /// Opens issuers and reads what is stored. Nothing is sent yet.
    ///
    /// # Errors
    /// When an issuer's settings make no sense, or storage cannot be read.
    pub async fn open(config: DeskConfig) -> Result<Self, DeskError> {
        let DeskConfig { storage, authority, issuers, at_once } = config;
        let sockets = Arc::new(Sockets::default());
        let mut named = BTreeMap::new();
        for (name, settings) in &issuers {
            let opened = open(name, settings, &storage, &sockets).await;
            named.insert(name.clone(), opened.map_err(|source| DeskError::Issuer { name: name.clone(), source })?);
        }
        let internal: Arc<dyn Issuer> = authority.clone();
        let mut all = vec![internal.clone()];
        for (name, settings) in &issuers {
            let others = settings.fallback.iter().map(|other| match named.get(other) {
                Some(opened) => Ok(opened.issuer.clone() as Arc<dyn Issuer>),
                None if other == INTERNAL_CA => Ok(internal.clone()),
                None => {
                    let known = names(&named);
                    Err(DeskError::Fallback { name: name.clone(), missing: other.clone(), known })
                }
            });
            all.push(listed(&named[name], others.collect::<Result<_, _>>()?));
        }
        let keeper = Keeper::open(storage.clone(), all, at_once).await?;
        // What a CA signed that was made anew since, nobody trusts any more.
        for stored in keeper.certificates() {
            let is_orphan = stored.certificate.issuer == INTERNAL_CA && !authority.has_ca_of(&stored.certificate.names);
            if is_orphan && let Err(error) = keeper.forget(&stored.id).await {
                warn!("{}: {error}", stored.id);
            }
        }
        let by_tls_alpn = issuers.values().any(|settings| settings.tls_alpn_port.is_some());
        Ok(Self {
            by_tls_alpn,
            keeper,
            authority,
            storage,
            sockets,
            named,
            own: Mutex::default(),
            wishes: watch::channel(Arc::default()).0,
            nudge: watch::channel(0).0,
            report: watch::channel(Arc::default()).0,
            given: Mutex::default(),
        })
    }

    /// The internal CA.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Who answers TLS-ALPN-01, where an issuer proves names by it.
    pub fn door(&self) -> Option<Arc<Door>> {
        self.by_tls_alpn.then(|| self.sockets.door.clone())
    }

    /// Says what is wished for now, all of it.
    pub fn wish(&self, wishes: Vec<Wish>) {
        self.wishes.send_if_modified(|known| {
            let other = **known != wishes;
            if other {
                *known = Arc::new(wishes);
            }
            other
        });
    }

    /// What is in place for the wishes now and was not handed out yet. Whoever calls it takes it in.
    pub fn settle(&self) -> Vec<Handout> {
        let supply = self.supply(Timestamp::now());
        let mut given = self.given.lock().expect("nobody panics while holding it");
        let all = given.difference(&supply);
        *given = supply;
        all
    }

    /// Whether every wish has its certificate, or a reason why not.
    pub fn is_settled(&self) -> bool {
        let supply = self.supply(Timestamp::now());
        supply.certificates.iter().all(|(secret, held)| held.is_some() || supply.troubles.contains_key(secret))
    }

    /// The account that answers for a known host.
    pub fn thumbprint_of(&self, host: &str) -> Option<Arc<str>> {
        let host = Hostname::parse(host).ok()?;
        let given = self.given.lock().expect("nobody panics while holding it");
        given.challenges.get(&host).map(|answer| answer.thumbprint.clone())
    }

    /// Keeps both sides in line until `stop` says so.
    pub async fn run(&self, out: mpsc::Sender<Vec<Handout>>, stop: watch::Receiver<bool>) {
        let (wanted, wants) = watch::channel(Arc::default());
        tokio::join!(self.keeper.run(wants, self.report.clone(), stop.clone()), self.exchange(wanted, out, stop));
    }

    async fn exchange(
        &self,
        wanted: watch::Sender<Arc<Vec<Wanted>>>,
        out: mpsc::Sender<Vec<Handout>>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut wishes = self.wishes.subscribe();
        let mut certificates = self.keeper.changes();
        let mut report = self.report.subscribe();
        let mut demands = self.sockets.demands();
        let mut nudges = self.nudge.subscribe();
        while !*stop.borrow() {
            let wished = wishes.borrow_and_update().clone();
            certificates.mark_unchanged();
            self.open_own(&wished).await;
            let all = self.wanted(&wished);
            wanted.send_if_modified(|known| {
                let other = **known != all;
                if other {
                    *known = Arc::new(all);
                }
                other
            });
            let pass = report.borrow_and_update().clone();
            self.forget_ended(&pass).await;
            let handouts = self.settle();
            if !handouts.is_empty() && out.send(handouts).await.is_err() {
                return;
            }
            tokio::select! {
                // None of the senders can be gone: `self` and the keeper hold them.
                _ = wishes.changed() => {}
                _ = certificates.changed() => {}
                _ = report.changed() => {}
                _ = demands.changed() => {}
                _ = nudges.changed() => {}
                _ = stop.changed() => return,
            }
            tokio::select! {
                () = sleep(SETTLE) => {}
                _ = stop.changed() => return,
            }
        }
    }

    /// Opens the issuers that objects describe, and closes those that no object describes any more.
    async fn open_own(&self, wishes: &[Wish]) {
        let mut described: BTreeMap<&ObjectName, &Arc<IssuerSettings>> = BTreeMap::new();
        for wish in wishes {
            if let IssuerRef::Own { owner, settings } = &wish.issuer {
                described.insert(owner, settings);
            }
        }
        let (stale, missing) = {
            let own = self.own.lock().expect("nobody panics while holding it");
            let is_current =
                |(owner, own): &(&ObjectName, &Own)| described.get(owner).is_some_and(|s| **s == own.settings);
            let stale: Vec<ObjectName> =
                own.iter().filter(|entry| !is_current(entry)).map(|(o, _)| o.clone()).collect();
            let has = |owner: &ObjectName| own.contains_key(owner) && !stale.contains(owner);
            let missing = described.iter().filter(|(owner, _)| !has(owner));
            let missing: Vec<_> = missing.map(|(owner, settings)| ((*owner).clone(), (*settings).clone())).collect();
            (stale, missing)
        };
        for owner in stale {
            let gone = self.own.lock().expect("nobody panics while holding it").remove(&owner);
            if let Some(Own { opened: Ok(opened), .. }) = gone {
                self.keeper.dismiss(&opened.id);
            }
        }
        for (owner, settings) in missing {
            let opened = open(&owner.to_string(), &settings, &self.storage, &self.sockets).await;
            let opened = opened.map_err(|error| error.to_string());
            if let Ok(opened) = &opened {
                self.keeper.employ(listed(opened, Vec::new()));
            }
            self.own.lock().expect("nobody panics while holding it").insert(owner, Own { settings, opened });
        }
    }

    fn resolve(&self, issuer: &IssuerRef) -> Result<Resolved, String> {
        let of = |opened: &Opened| Resolved {
            id: opened.id.clone(),
            challenge: opened.http_port.map(|port| ChallengeAnswer { port, thumbprint: opened.issuer.thumbprint() }),
        };
        match issuer {
            IssuerRef::Named(name) if **name == *INTERNAL_CA => {
                Ok(Resolved { id: INTERNAL_CA.to_owned(), challenge: None })
            }
            IssuerRef::Named(name) => self.named.get(&**name).map(of).ok_or_else(|| {
                let known = names(&self.named);
                format!("no issuer is called {name:?}: there are {known}; --acme-directory makes one called \"acme\"")
            }),
            IssuerRef::Own { owner, .. } => {
                let own = self.own.lock().expect("nobody panics while holding it");
                match own.get(owner).map(|own| &own.opened) {
                    Some(Ok(opened)) => Ok(of(opened)),
                    Some(Err(text)) => Err(format!("issuer of {owner}: {text}")),
                    None => Err(format!("the issuer of {owner} is being set up")),
                }
            }
        }
    }

    /// What the keeper is to get.
    fn wanted(&self, wishes: &[Wish]) -> Vec<Wanted> {
        self.sockets.learn(wishes);
        let mut seen = BTreeSet::new();
        let mut all = Vec::with_capacity(wishes.len());
        for wish in wishes {
            let (Ok(names), Ok(issuer)) = (wish.names(), self.resolve(&wish.issuer)) else { continue };
            let id = id_of(wish, &names);
            if seen.insert(id.clone()) {
                all.push(Wanted {
                    renew_now: false,
                    id,
                    tenant: wish.secret.namespace.to_string(),
                    issuer: issuer.id,
                    names,
                    validity: None,
                    may_share: wish.hostnames.len() == 1,
                    hold: None,
                });
            }
        }
        all
    }

    fn supply(&self, now: Timestamp) -> Supply {
        let wishes = self.wishes.borrow().clone();
        let shelf = Shelf::of(self.keeper.certificates(), now);
        let pass = self.report.borrow().clone();
        let reasons: BTreeMap<&CertificateId, String> = pass.outlook.iter().filter_map(reason).collect();
        let mut supply = Supply::default();
        for wish in wishes.iter() {
            let secret = wish.secret.clone();
            let names = match wish.names() {
                Ok(names) => names,
                Err(error) => {
                    supply.troubles.insert(secret.clone(), error.to_string());
                    supply.certificates.insert(secret, None);
                    continue;
                }
            };
            let held = shelf.find(&wish.secret.namespace, &names).cloned();
            match self.resolve(&wish.issuer) {
                Ok(Resolved { challenge: Some(answer), .. }) => {
                    for host in wish.hostnames.iter().filter(|host| host.is_exact()) {
                        let thumbprint = self.sockets.demanded(host.as_str());
                        let thumbprint = thumbprint.unwrap_or_else(|| answer.thumbprint.clone());
                        supply.challenges.insert(host.clone(), ChallengeAnswer { thumbprint, ..answer });
                    }
                }
                Ok(_) => {}
                Err(text) => drop(supply.troubles.insert(secret.clone(), text)),
            }
            if held.is_none()
                && let Some(text) = reasons.get(&id_of(wish, &names))
            {
                supply.troubles.entry(secret.clone()).or_insert_with(|| text.clone());
            }
            supply.certificates.insert(secret, held);
        }
        supply
    }

    /// Certificates that nobody wants stay until they end: a name that comes back costs no order.
    async fn forget_ended(&self, pass: &Pass) {
        let now = Timestamp::now();
        for stored in self.keeper.certificates() {
            if stored.certificate.not_after <= now
                && pass.retired.contains(&stored.id)
                && let Err(error) = self.keeper.forget(&stored.id).await
            {
                warn!("{}: {error}", stored.id);
            }
        }
    }

    /// Everything there is to tell about certificates.
    pub fn tell(&self) -> Report {
        let wishes = self.wishes.borrow().clone();
        let now = Timestamp::now();
        let resolve = |wish: &Wish| self.resolve(&wish.issuer).map(|issuer| issuer.id);
        let shelf = Shelf::of(self.keeper.certificates(), now);
        Report::of(&wishes, &self.report.borrow(), &shelf, &self.keeper.budgets(), &resolve, now)
    }

    /// Asks for new certificates for a host, whatever is held. How many.
    ///
    /// # Errors
    /// When nobody wishes for one.
    pub fn renew(&self, host: &str) -> Result<usize, String> {
        let asked = wished_for(host, &self.wishes.borrow())?;
        for wish in &asked {
            let names = wish.names().map_err(|error| error.to_string())?;
            self.keeper.renew(&id_of(wish, &names));
        }
        Ok(asked.len())
    }

    /// The pre-flight alone: what is in the way of a certificate for a host. Costs nothing at the CA.
    ///
    /// # Errors
    /// When nobody wishes for one.
    pub async fn check(&self, host: &str) -> Result<Vec<Check>, String> {
        let asked = wished_for(host, &self.wishes.borrow())?;
        let mut checks = Vec::new();
        for wish in asked {
            let opened = match &wish.issuer {
                IssuerRef::Named(name) => self.named.get(&**name).cloned(),
                IssuerRef::Own { owner, .. } => {
                    let own = self.own.lock().expect("nobody panics while holding it");
                    own.get(owner).and_then(|own| own.opened.as_ref().ok().cloned())
                }
            };
            let (issuer, findings) = match (self.resolve(&wish.issuer), opened) {
                (Err(text), _) => (String::new(), vec![text]),
                (Ok(resolved), None) => (resolved.id, Vec::new()),
                (Ok(resolved), Some(opened)) => {
                    let mut found = Vec::new();
                    for name in wish.hostnames.iter() {
                        found.extend(look(&opened, name).await.unwrap_or_else(|failure| vec![failure.message]));
                    }
                    (resolved.id, found)
                }
            };
            checks.push(Check { hosts: wish.hostnames.iter().map(ToString::to_string).collect(), issuer, findings });
        }
        Ok(checks)
    }

    /// Changes the key of an issuer's account. Orders wait meanwhile, and go on once Envoys answer with the new key.
    ///
    /// # Errors
    /// When there is no such issuer, or the CA refuses.
    pub async fn change_key(&self, name: &str) -> Result<(), String> {
        let Some(opened) = self.named.get(name).cloned() else {
            return Err(format!("no ACME issuer is called {name:?}: there are {}", names(&self.named)));
        };
        let old = opened.issuer.thumbprint();
        opened.issuer.roll_over_key().await.map_err(|failure| failure.message)?;
        self.sockets.release(&old);
        self.nudge.send_modify(|n| *n += 1);
        Ok(())
    }
}

async fn look(opened: &Opened, name: &Hostname) -> Result<Vec<String>, Failure> {
    let name = DnsName::parse(name.as_str()).map_err(|error| Failure::new(acme::Class::Config, error.to_string()))?;
    opened.issuer.findings(&name).await
}

fn listed(opened: &Opened, others: Vec<Arc<dyn Issuer>>) -> Arc<dyn Issuer> {
    if others.is_empty() && opened.trial.is_none() {
        return opened.issuer.clone();
    }
    let list = Ordered::new(&opened.id, opened.issuer.clone(), others);
    match &opened.trial {
        Some(trial) => Arc::new(list.with_trial(trial.clone())),
        None => Arc::new(list),
    }
}

fn names(named: &BTreeMap<String, Opened>) -> String {
    std::iter::once(INTERNAL_CA).chain(named.keys().map(String::as_str)).collect::<Vec<_>>().join(", ")
}

fn id_of(wish: &Wish, names: &Names) -> CertificateId {
    CertificateId::of(&wish.secret.namespace, names)
}

/// Why there is no certificate yet, where there is more to say than that it is being got.
fn reason(line: &acme::keeper::Outlook) -> Option<(&CertificateId, String)> {
    let text = match (&line.last_error, &line.next) {
        (Some(error), _) => error.clone(),
        (None, Next::Wait(because)) => because.clone(),
        (None, Next::Issue(_) | Next::Renew) => return None,
    };
    Some((&line.id, text))
}

fn wished_for(host: &str, wishes: &[Wish]) -> Result<Vec<Wish>, String> {
    let name = DnsName::parse(host).map_err(|error| error.to_string())?;
    let own = |wish: &&Wish| wish.names().is_ok_and(|names| names.contains(&name));
    let mut asked: Vec<Wish> = wishes.iter().filter(own).cloned().collect();
    if asked.is_empty() {
        asked = wishes.iter().filter(|wish| wish.covers(&name)).cloned().collect();
    }
    match asked.is_empty() {
        true => Err(format!("no listener wishes for a certificate for {name}: see `gatewright certs`")),
        false => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use acme::storage::dir::Directory;

    fn wish(host: &str, issuer: &str) -> Wish {
        Wish {
            secret: ObjectName::new("alice", format!("{host}-tls").replace('*', "wildcard")),
            hostnames: BTreeSet::from([Hostname::parse(host).expect("a hostname")]),
            issuer: IssuerRef::Named(Arc::from(issuer)),
            addresses: BTreeSet::new(),
        }
    }

    async fn desk(dir: &std::path::Path) -> Desk {
        let authority = Authority::open(dir.join("ca"), Timestamp::now()).expect("opens");
        let storage = Arc::new(Directory::open(dir.join("acme")).expect("opens"));
        let config = DeskConfig { storage, authority: Arc::new(authority), issuers: BTreeMap::new(), at_once: 4 };
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
        let wishes =
            vec![wish("a.example.org", INTERNAL_CA), wish("b.example.org", "nobody"), wish("co.uk", INTERNAL_CA)];
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
}
