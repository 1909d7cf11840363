//! The desk: wishes are handed in, certificates are handed out. One task keeps both sides in line, by what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use acme::bootstrap::SelfSigned;
use acme::failure::Failure;
use acme::issuer::Issuer;
use acme::keeper::{Keeper, Next, Outlook, Pass, Wishlist};
use acme::ordered::Ordered;
use acme::storage::StorageError;
use acme::{CertificateId, DnsName, Names, Storage};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::warn;

use super::answers::Answers;
use super::authority::Authority;
use super::book::{Book, Resolved, Settled, Whose};
use super::cabinet::{Cabinet, Present};
use super::door::Door;
use super::handout::Handout;
use super::issuers::{IssuerError, Opened, open};
use super::lookout::{Sockets, Where};
use super::metrics::Figures;
use super::named::{EVERY, Named};
use super::report::{Check, Report};
use super::settings::IssuerSettings;
use super::sweep::hourly;
use super::wish::{IssuerRef, Wish};
use crate::model::{Hostname, ObjectName};
use crate::translate::{INTERNAL_CA, SELF_SIGNED};

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
    /// Who knows where hosts are served: port 80 is looked at there before an order is placed. Nobody: nothing is.
    pub places: Option<mpsc::Sender<Where>>,
    /// Who puts certificates into Secrets that others write to as well; nobody: whoever takes what is handed out.
    pub cabinet: Option<Arc<dyn Cabinet>>,
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
    keeper: Arc<Keeper>,
    authority: Arc<Authority>,
    storage: Arc<dyn Storage>,
    cabinet: Option<Arc<dyn Cabinet>>,
    sockets: Arc<Sockets>,
    named: Named,
    /// Whom issuers of the installation fall back to.
    fallbacks: BTreeMap<String, Vec<String>>,
    /// Issuers of single objects, or why there is none.
    own: Mutex<BTreeMap<ObjectName, Own>>,
    book: Mutex<Book>,
    wishlist: Wishlist,
    nudge: watch::Sender<u64>,
    report: watch::Sender<Arc<Pass>>,
    /// The thumbprints of accounts as they were last handed out.
    thumbprints: Mutex<BTreeMap<Whose, Arc<str>>>,
    by_tls_alpn: bool,
}

struct Own {
    settings: Arc<IssuerSettings>,
    opened: Result<Opened, String>,
}

impl Desk {
    /// Opens issuers and reads what is stored. Nothing is sent yet.
    ///
    /// # Errors
    /// When an issuer's settings make no sense, or storage cannot be read.
    pub async fn open(config: DeskConfig) -> Result<Self, DeskError> {
        let DeskConfig { storage, authority, issuers, at_once, places, cabinet } = config;
        let fallbacks: BTreeMap<_, _> = issuers.iter().map(|(name, of)| (name.clone(), of.fallback.clone())).collect();
        let sockets = Arc::new(Sockets::new(places, fallbacks.clone()));
        let named = Named::open(&issuers, &storage, &sockets).await;
        let named = named.map_err(|(name, source)| DeskError::Issuer { name, source })?;
        for (name, others) in &fallbacks {
            if let Some(missing) = others.iter().find(|other| !issuers.contains_key(*other) && *other != INTERNAL_CA) {
                let (name, missing, known) = (name.clone(), missing.clone(), names(&named));
                return Err(DeskError::Fallback { name, missing, known });
            }
        }
        let internal: Arc<dyn Issuer> = authority.clone();
        let mut all = vec![internal, Arc::new(SelfSigned::new(SELF_SIGNED)) as Arc<dyn Issuer>];
        all.extend(lists(&named, &fallbacks, &authority));
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
            cabinet,
            sockets,
            named,
            fallbacks,
            own: Mutex::default(),
            book: Mutex::default(),
            wishlist: Wishlist::default(),
            nudge: watch::channel(0).0,
            report: watch::channel(Arc::default()).0,
            thumbprints: Mutex::default(),
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

    fn book<T>(&self, act: impl FnOnce(&mut Book) -> T) -> T {
        act(&mut self.book.lock().expect("nobody panics while holding it"))
    }

    /// Says what is wished for now, all of it.
    pub fn wish(&self, wishes: Vec<Wish>) {
        let all: BTreeSet<ObjectName> = wishes.iter().map(|wish| wish.secret.clone()).collect();
        let gone: Vec<ObjectName> = self.book(|book| book.secrets().filter(|s| !all.contains(s)).cloned().collect());
        let gone = gone.into_iter().map(|secret| (secret, None));
        self.change(wishes.into_iter().map(|wish| (wish.secret.clone(), Some(wish))).chain(gone));
    }

    /// Says what is wished for some Secrets now.
    pub fn change(&self, changes: impl IntoIterator<Item = (ObjectName, Option<Wish>)>) {
        self.book(|book| changes.into_iter().for_each(|(secret, wish)| book.change(secret, wish)));
        self.nudge.send_modify(|n| *n += 1);
    }

    /// Says what is in Secrets now, where others write to them as well: before what is wished for them.
    pub fn present(&self, secrets: impl IntoIterator<Item = (ObjectName, Option<Present>)>) {
        let put = |(secret, present): (ObjectName, _)| self.book(|book| book.present(&secret, present));
        secrets.into_iter().filter_map(put).for_each(|id| self.keeper.unlearn(&id));
        self.nudge.send_modify(|n| *n += 1);
    }

    /// Who answers HTTP-01, for those who serve it; issuers that are being set up as they did before.
    pub fn answers(&self, before: &Answers) -> Answers {
        let hosts = self.sockets.all_demanded();
        let exceptions = self.book(|book| {
            book.exceptions(hosts, &|issuer| self.resolve(issuer), &|asked, issuers| {
                self.sockets.demanded(asked, issuers)
            })
        });
        let own_lock = self.own.lock().expect("nobody panics while holding it");
        let own =
            own_lock.iter().filter_map(|(owner, own)| Some((Whose::Own(owner.clone()), own.opened.as_ref().ok()?)));
        let all_named = self.named.opened();
        let named = all_named.iter().map(|(name, opened)| (Whose::Named(name.as_str().into()), opened));
        let known = named.chain(own).map(|(whose, opened)| (whose, opened.answer()));
        let answers = Answers::new(before, known, exceptions);
        drop(own_lock);
        self.book(|book| answers.of(|whose| book.is_asked(whose)))
    }

    /// Changes whenever a certificate, or what is told of a wish, is another one.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.keeper.changes()
    }

    /// What is in place for the wishes now and was not handed out yet. Whoever calls it takes it in.
    pub fn settle(&self) -> Vec<Handout> {
        self.take_in_news();
        let settled = self.book(|book| {
            book.settle(&|issuer| self.resolve(issuer), &|asked, issuers| self.sockets.demanded(asked, issuers))
        });
        let Settled { handouts, wanted, gone, found, addressees } = settled;
        if let Some(cabinet) = &self.cabinet {
            addressees.into_iter().for_each(|(secret, addressee)| cabinet.address(&secret, addressee));
        }
        found.into_iter().for_each(|stored| self.keeper.learn(stored));
        gone.iter().for_each(|host| self.sockets.forget(host.as_str()));
        if !wanted.is_empty() {
            self.wishlist.change(wanted);
        }
        handouts
    }

    /// Brings the book in line with what is held, with who proves what, and with the time.
    fn take_in_news(&self) {
        let pass = self.report.borrow().clone();
        let reason = |id: &CertificateId| {
            let place = pass.outlook.binary_search_by(|line| line.id.cmp(id)).ok()?;
            reason(&pass.outlook[place])
        };
        for id in self.keeper.news() {
            let (held, reason) = (self.keeper.held_as(&id), reason(&id));
            self.book(|book| book.take_in(&id, held, reason));
        }
        for host in self.sockets.news() {
            if let Ok(host) = Hostname::parse(&host) {
                self.book(|book| book.touch_host(&host));
            }
        }
        for (whose, thumbprint) in self.accounts() {
            let mut known = self.thumbprints.lock().expect("nobody panics while holding it");
            if known.insert(whose.clone(), thumbprint.clone()) != Some(thumbprint) {
                drop(known);
                self.book(|book| book.touch_issuer(&whose));
            }
        }
        self.book(|book| book.expire(Timestamp::now()));
    }

    /// The accounts that answer HTTP-01, by issuer.
    fn accounts(&self) -> Vec<(Whose, Arc<str>)> {
        let own = self.own.lock().expect("nobody panics while holding it");
        let own = own.iter().filter_map(|(owner, own)| {
            Some((Whose::Own(owner.clone()), own.opened.as_ref().ok()?.issuer.thumbprint()))
        });
        let named = self.named.opened();
        named
            .iter()
            .map(|(name, opened)| (Whose::Named(name.as_str().into()), opened.issuer.thumbprint()))
            .chain(own)
            .collect()
    }

    /// Whether every wish has its certificate, or a reason why not.
    pub fn is_settled(&self) -> bool {
        self.book(|book| book.is_settled())
    }

    /// How many wishes were looked at so far: it grows by what changes, not by how many there are.
    pub fn looked(&self) -> u64 {
        self.book(|book| book.looked())
    }

    /// The account that answers for a known host.
    pub fn thumbprint_of(&self, host: &str) -> Option<Arc<str>> {
        let host = Hostname::parse(host).ok()?;
        self.book(|book| book.thumbprint_of(&host))
    }

    /// Keeps both sides in line until `stop` says so.
    pub async fn run(&self, out: mpsc::Sender<Vec<Handout>>, stop: watch::Receiver<bool>) {
        let keeping = self.keeper.run(&self.wishlist, self.report.clone(), stop.clone());
        let owners = || self.own.lock().expect("nobody panics while holding it").keys().cloned().collect();
        let swept = hourly(&*self.storage, owners, stop.clone());
        tokio::join!(keeping, self.exchange(out, stop.clone()), swept, self.watch_files(stop));
    }

    /// What an operator mends is seen within seconds: files that issuers are set up from, an account, an internal CA.
    async fn watch_files(&self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = sleep(EVERY) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let changed = self.named.reopen(&self.storage, &self.sockets).await;
            self.take_on(&changed);
            if self.authority.mend(Timestamp::now()) {
                self.keeper.employ(self.authority.clone());
            }
        }
    }

    /// Takes issuers on that were set up anew, and those that fall back to them.
    fn take_on(&self, changed: &[String]) {
        if changed.is_empty() {
            return;
        }
        for issuer in lists(&self.named, &self.fallbacks, &self.authority) {
            self.keeper.employ(issuer);
        }
        for name in changed {
            self.book(|book| book.touch_issuer(&Whose::Named(name.as_str().into())));
        }
        self.nudge.send_modify(|n| *n += 1);
    }

    async fn exchange(&self, out: mpsc::Sender<Vec<Handout>>, mut stop: watch::Receiver<bool>) {
        let mut certificates = self.keeper.changes();
        let mut report = self.report.subscribe();
        let mut demands = self.sockets.demands();
        let mut nudges = self.nudge.subscribe();
        while !*stop.borrow() {
            nudges.mark_unchanged();
            certificates.mark_unchanged();
            self.open_own().await;
            let pass = report.borrow_and_update().clone();
            self.forget_ended(&pass).await;
            let handouts = self.settle();
            if !handouts.is_empty() && out.send(handouts).await.is_err() {
                return;
            }
            tokio::select! {
                // None of the senders can be gone: `self` and the keeper hold them.
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
    async fn open_own(&self) {
        for (owner, settings) in self.book(Book::owners) {
            let known = {
                let own = self.own.lock().expect("nobody panics while holding it");
                own.get(&owner).map(|own| own.settings.clone())
            };
            if known == settings {
                continue;
            }
            let gone = self.own.lock().expect("nobody panics while holding it").remove(&owner);
            if let Some(Own { opened: Ok(opened), .. }) = gone {
                self.keeper.dismiss(&opened.id);
            }
            let whose = Whose::Own(owner.clone());
            self.thumbprints.lock().expect("nobody panics while holding it").remove(&whose);
            if let Some(settings) = settings {
                let opened = open(&owner.to_string(), &settings, &self.storage, &self.sockets).await;
                let opened = opened.map_err(|error| error.to_string());
                if let Ok(opened) = &opened {
                    self.keeper.employ(listed(opened, Vec::new()));
                }
                self.own.lock().expect("nobody panics while holding it").insert(owner, Own { settings, opened });
            }
            self.book(|book| book.touch_issuer(&whose));
        }
    }

    fn resolve(&self, issuer: &IssuerRef) -> Result<Resolved, String> {
        let of = |opened: &Opened| Resolved { id: opened.id.clone(), challenge: opened.answer() };
        match issuer {
            IssuerRef::Named(name) if [INTERNAL_CA, SELF_SIGNED].contains(&&**name) => {
                Ok(Resolved { id: name.to_string(), challenge: None })
            }
            IssuerRef::Named(name) => match self.named.get(name) {
                Some(opened) => opened.as_ref().map(of).map_err(Clone::clone),
                None => {
                    let known = names(&self.named);
                    let text = "--acme-directory makes one called \"acme\"";
                    Err(format!("no issuer is called {name:?}: there are {known}; {text}"))
                }
            },
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

    /// Certificates that nobody wants stay until they end: a name that comes back costs no order.
    async fn forget_ended(&self, pass: &Pass) {
        let now = Timestamp::now();
        for id in &pass.retired {
            if self.keeper.held_as(id).is_some_and(|stored| stored.certificate.not_after <= now)
                && let Err(error) = self.keeper.forget(id).await
            {
                warn!("{id}: {error}");
            }
        }
    }

    /// Everything there is to tell about certificates.
    pub fn tell(&self) -> Report {
        let now = Timestamp::now();
        let resolve = |wish: &Wish| self.resolve(&wish.issuer).map(|issuer| issuer.id);
        let (pass, budgets) = (self.report.borrow().clone(), self.keeper.limits());
        self.book(|book| {
            book.expire(now);
            Report::of(&book.wishes(), &pass, book.shelf(), &budgets, &resolve, now)
        })
        .with_troubles([self.named.troubles(), self.authority.troubles(), self.keeper.troubles()].concat())
    }

    /// Figures for Prometheus.
    pub fn figures(&self) -> Figures {
        // Copied, so that no two locks are held at a time.
        let own: Vec<Opened> = {
            let own = self.own.lock().expect("nobody panics while holding it");
            own.values().filter_map(|own| own.opened.as_ref().ok().cloned()).collect()
        };
        let mut requests = BTreeMap::new();
        let named = self.named.opened();
        for opened in named.iter().map(|(_, opened)| opened).chain(&own) {
            for issuer in std::iter::once(&opened.issuer).chain(&opened.trial) {
                for (key, count) in issuer.http().counts() {
                    *requests.entry(key).or_default() += count;
                }
            }
        }
        let (wishes, next_end) = self.book(|book| (book.counts(), book.shelf().next_end()));
        Figures { wishes, next_end: next_end.map(|end| end.as_second()), requests }
    }

    /// Asks for new certificates for a host, whatever is held. How many.
    ///
    /// # Errors
    /// When nobody wishes for one.
    pub fn renew(&self, host: &str) -> Result<usize, String> {
        let asked = wished_for(host, &self.book(|book| book.wishes()))?;
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
        let asked = wished_for(host, &self.book(|book| book.wishes()))?;
        let mut checks = Vec::new();
        for wish in asked {
            let opened = match &wish.issuer {
                IssuerRef::Named(name) => self.named.get(name).and_then(Result::ok),
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
        let opened = self.opened(name)?;
        let old = opened.issuer.thumbprint();
        opened.issuer.roll_over_key().await.map_err(|failure| failure.message)?;
        self.sockets.release(&old);
        // The new thumbprint is handed out.
        self.nudge.send_modify(|n| *n += 1);
        Ok(())
    }
}

impl Desk {
    fn opened(&self, name: &str) -> Result<Opened, String> {
        let unknown = || Err(format!("no ACME issuer is called {name:?}: there are {}", names(&self.named)));
        self.named.get(name).unwrap_or_else(unknown)
    }

    /// Makes another account for an issuer: for one that the CA has closed, or whose key is lost.
    ///
    /// # Errors
    /// When there is no such issuer, or the CA refuses.
    pub async fn new_account(&self, name: &str) -> Result<(), String> {
        let Some(known) = self.named.get(name) else { return self.opened(name).map(drop) };
        match known {
            Ok(opened) => {
                let old = opened.issuer.thumbprint();
                opened.issuer.replace_account().await.map_err(|failure| failure.message)?;
                self.sockets.release(&old);
            }
            Err(_) => {
                self.named.discard_damaged(name, &self.storage).await?;
                self.named.reopen(&self.storage, &self.sockets).await;
                self.opened(name)?.issuer.account_url().await.map_err(|failure| failure.message)?;
            }
        }
        // What failed for the old one is tried again.
        self.take_on(&[name.to_owned()]);
        Ok(())
    }
}

/// The issuers of the installation as the keeper has them, each with those it falls back to.
fn lists(named: &Named, fallbacks: &BTreeMap<String, Vec<String>>, authority: &Arc<Authority>) -> Vec<Arc<dyn Issuer>> {
    let other = |name: &String| match named.get(name) {
        Some(opened) => opened.ok().map(|opened| opened.issuer as Arc<dyn Issuer>),
        None => (name == INTERNAL_CA).then(|| authority.clone() as Arc<dyn Issuer>),
    };
    let list = |(name, opened): (String, Opened)| {
        let others = fallbacks.get(&name).into_iter().flatten().filter_map(other).collect();
        listed(&opened, others)
    };
    named.opened().into_iter().map(list).collect()
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

fn names(named: &Named) -> String {
    std::iter::once(INTERNAL_CA.to_owned()).chain(named.names()).collect::<Vec<_>>().join(", ")
}

fn id_of(wish: &Wish, names: &Names) -> CertificateId {
    CertificateId::of(&wish.secret.namespace, names)
}

/// Why there is no certificate yet, where there is more to say than that it is being got.
fn reason(line: &Outlook) -> Option<String> {
    match (&line.last_error, &line.next) {
        (Some(error), _) => Some(error.clone()),
        (None, Next::Wait(because)) => Some(because.clone()),
        (None, Next::Issue(_) | Next::Renew | Next::Retry(_)) => None,
    }
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
mod tests;
