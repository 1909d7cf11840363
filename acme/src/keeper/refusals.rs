//! Certificates that Envoys refuse to load: the previous one is served again, and another is
//! ordered after a back-off.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::{Duration, timeout};

use super::attempts::about;
use super::table::{Row, Table};
use super::{Keeper, Stored};
use crate::engine::of_storage;
use crate::failure::{Attempts, Class, Failure};
use crate::issuer::CertificateId;
use crate::plan::{Obtained, Wanted};
use crate::renewal::uniform;
use crate::storage::{Expect, Key, Kind, write_json};

/// The longest wait for the lock of a certificate.
const LOCK_WAIT: Duration = Duration::from_secs(1);

impl Row {
    /// Returns whether Envoys refuse the certificate that was issued last for a wanted one.
    pub(super) fn is_refused(&self) -> bool {
        self.failed
            .as_ref()
            .is_some_and(|failed| failed.refused.is_some())
    }

    /// Returns whether it is known that Envoys refuse a certificate, by its serial number.
    fn knows(&self, serial: &str) -> bool {
        let mut records = self.failed.iter().chain(&self.refusals);
        records.any(|record| record.is_about(serial))
    }

    /// Forgets failed attempts, and the certificate before.
    pub(super) fn forget_failures(&mut self) {
        self.failed = None;
        self.refusals = None;
        self.replaced = None;
    }
}

impl Table {
    /// Returns the serial numbers of the certificates that Envoys refuse.
    pub(super) fn refused_serials(&self) -> BTreeSet<&str> {
        self.rows()
            .filter_map(|(_, row)| row.failed.as_ref()?.refused.as_deref())
            .collect()
    }

    /// Holds a new certificate. The one before is remembered, unless Envoys refuse it.
    pub(super) fn replace(&mut self, made: Stored, obtained: Obtained) {
        let id = made.id.clone();
        let before = self.change(&id, |row| {
            row.window = None;
            row.obtained = Some(obtained);
            row.held.replace(Arc::new(made))
        });
        let before = before.filter(|before| {
            let serial = &before.certificate.serial;
            !self.rows().any(|(_, row)| row.knows(serial))
        });
        if before.is_some() {
            self.change(&id, |row| row.replaced = before);
        }
    }

    /// Returns whether it is known that Envoys refuse a certificate of a wanted one.
    fn knows(&self, id: &CertificateId, serial: &str) -> bool {
        self.row(id).is_some_and(|row| row.knows(serial))
    }
}

impl Keeper {
    /// Returns whether it is known that Envoys refuse a certificate, by its serial number, of a
    /// wanted one.
    pub fn knows_refused(&self, id: &CertificateId, serial: &str) -> bool {
        self.read(|table| table.knows(id, serial))
    }

    /// Takes in that Envoys refuse a certificate, by its serial number, which is served for a
    /// wanted one. The previous certificate takes its place if it is still valid.
    ///
    /// Each refusal is one failed attempt: the next order waits longer, since a CA that issues one
    /// such certificate most likely issues more of them.
    pub async fn refuse(
        &self,
        want: &Wanted,
        serial: &str,
        text: &str,
        now: Timestamp,
    ) -> Result<(), Failure> {
        if self.read(|table| table.knows(&want.id, serial)) {
            return Ok(());
        }
        let is_it =
            |held: &&Arc<Stored>| held.tenant == want.tenant && held.certificate.serial == serial;
        match self.read(|table| table.certificates().find(is_it).cloned()) {
            Some(refused) => self.restore(&refused, now).await?,
            // Another one was issued meanwhile.
            None if self.held_as(&want.id).is_some() => return Ok(()),
            // It was put back for another wanted certificate that shares it.
            None => {}
        }
        let served = self.read(|table| {
            let mut others = table
                .certificates()
                .filter(|held| {
                    held.tenant == want.tenant && held.certificate.names.cover(&want.names)
                })
                .map(|held| &held.certificate);
            others
                .find(|held| held.serial != serial && held.not_after > now)
                .map(|held| held.not_after)
        });
        let meanwhile = match served {
            Some(end) => format!("the certificate before it is served, which ends at {end}"),
            None => "there is no other one that is valid".to_owned(),
        };
        let message = format!(
            "Envoy refuses the certificate that {} issued: {text}; {meanwhile}",
            want.issuer
        );
        tracing::warn!(id = %want.id, serial, "{message}");
        let known = self.read(|table| {
            let row = table.row(&want.id)?;
            row.failed.as_deref().or(row.refusals.as_deref()).cloned()
        });
        let count = known.as_ref().map_or(0, Attempts::total);
        let spread = uniform(&format!("{}{count}", want.id), 2);
        let failure = Failure::new(Class::Bug, message);
        let attempts =
            Attempts::after(known.as_ref(), failure, &about(want), now, spread).of_refused(serial);
        self.write_attempts(&want.id, &attempts).await;
        self.write(|table| {
            table.change(&want.id, |row| {
                row.refusals = None;
                row.failed = Some(Box::new(attempts));
            })
        });
        self.notify([want.id.clone()]);
        self.replan.send_modify(|n| *n += 1);
        Ok(())
    }

    /// Puts the certificate that a refused one replaced back, if it is still valid.
    async fn restore(&self, refused: &Stored, now: Timestamp) -> Result<(), Failure> {
        let key = Key::new(Kind::Certificate, refused.id.as_str());
        // An order holds the lock as long as it takes, and may replace the refused certificate.
        let Ok(lock) = timeout(LOCK_WAIT, self.storage.lock(&key)).await else {
            return Err(Failure::new(
                Class::Transient,
                format!("an order for {} is under way", refused.id),
            ));
        };
        let _lock = lock.map_err(|error| of_storage(&error))?;
        let is_good = |before: &&Arc<Stored>| {
            before.certificate.not_after > now
                && before.certificate.names.cover(&refused.certificate.names)
        };
        let Some(before) = self.read(|table| {
            let replaced = table.row(&refused.id)?.replaced.as_ref();
            replaced.filter(is_good).cloned()
        }) else {
            return Ok(());
        };
        write_json(&*self.storage, &key, &*before, &Expect::Anything)
            .await
            .map_err(|error| of_storage(&error))?;
        self.change(&refused.id, |table| {
            table.change(&refused.id, |row| {
                row.replaced = None;
                row.obtained = None;
                row.held = Some(before);
            });
            true
        });
        Ok(())
    }

    /// Ends the record of failed attempts after a success. That of a refused certificate counts on
    /// if Envoys refuse the next one too.
    pub(super) async fn end_failures(&self, id: &CertificateId) {
        let (ended, before) =
            self.write(|table| table.change(id, |row| (row.failed.take(), row.refusals.take())));
        match ended {
            Some(ended) if ended.refused.is_some() => {
                let over = Attempts {
                    is_over: true,
                    ..*ended
                };
                self.write_attempts(id, &over).await;
                self.write(|table| table.change(id, |row| row.refusals = Some(Box::new(over))));
            }
            ended if ended.is_some() || before.is_some() => {
                self.remove_quietly(Kind::Attempts, id).await
            }
            _ => {}
        }
    }

    /// Writes a record of failed attempts.
    pub(super) async fn write_attempts(&self, id: &CertificateId, attempts: &Attempts) {
        let entry = (id, attempts);
        if let Err(error) = write_json(
            &*self.storage,
            &Key::new(Kind::Attempts, id.as_str()),
            &entry,
            &Expect::Anything,
        )
        .await
        {
            tracing::warn!(%id, %error, "a failed attempt could not be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use jiff::SignedDuration;

    use super::super::Next;
    use super::*;
    use crate::certificate::IssuedCertificate;
    use crate::issuer::{IssueRequest, Issuer};
    use crate::names::Names;
    use crate::self_signed::self_signed;
    use crate::storage::Storage;
    use crate::storage::dir::Directory;

    /// A CA that issues certificates of ninety days, and counts them.
    #[derive(Default)]
    struct Ca(AtomicUsize);

    #[async_trait]
    impl Issuer for Ca {
        fn name(&self) -> &str {
            "ca"
        }

        async fn issue(&self, request: &IssueRequest) -> Result<IssuedCertificate, Failure> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let made = self_signed(request.names.first(), request.now).expect("made");
            let from = request.now;
            let days = SignedDuration::from_hours(24 * 90);
            Ok(IssuedCertificate {
                issuer: "ca".to_owned(),
                not_before: from,
                not_after: from + days,
                ..made
            })
        }
    }

    fn want() -> Wanted {
        let names = Names::parse(["a.example"]).expect("a name");
        let id = CertificateId::of("t", &names);
        let tenant = "t".to_owned();
        let issuer = "ca".to_owned();
        Wanted {
            id,
            tenant,
            issuer,
            names,
            validity: None,
            may_share: true,
            renew_now: false,
            hold: None,
        }
    }

    /// A CA and the storage of its keepers.
    struct Site {
        ca: Arc<Ca>,
        storage: Arc<dyn Storage>,
        _dir: tempfile::TempDir,
    }

    impl Site {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let storage = Arc::new(Directory::open(dir.path().join("acme")).expect("opened"));
            Self {
                ca: Arc::default(),
                storage,
                _dir: dir,
            }
        }

        async fn keeper(&self) -> Arc<Keeper> {
            Keeper::open(
                self.storage.clone(),
                [self.ca.clone() as Arc<dyn Issuer>],
                8,
            )
            .await
            .expect("opened")
        }

        fn issued(&self) -> usize {
            self.ca.0.load(Ordering::Relaxed)
        }
    }

    fn serial(keeper: &Keeper) -> String {
        keeper
            .held_as(&want().id)
            .expect("it is held")
            .certificate
            .serial
            .clone()
    }

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000).expect("in range") + SignedDuration::from_hours(hours)
    }

    /// Due by two thirds of its validity.
    const DUE: i64 = 24 * 61;

    #[tokio::test]
    async fn the_certificate_before_a_refused_renewal_is_held_again_also_after_a_restart() {
        let site = Site::new();
        let keeper = site.keeper().await;
        keeper.pass(&[want()], at(0)).await;
        let first = serial(&keeper);
        keeper.pass(&[want()], at(DUE)).await;
        let second = serial(&keeper);
        assert_ne!(first, second, "it was due");
        for _ in 0..2 {
            keeper
                .refuse(&want(), &second, "no", at(DUE))
                .await
                .expect("taken in");
            assert_eq!(serial(&keeper), first, "a repeated report changes nothing");
        }
        for keeper in [keeper, site.keeper().await] {
            assert_eq!(serial(&keeper), first, "the refused one is not taken again");
            let pass = keeper.pass(&[want()], at(DUE)).await;
            let line = &pass.outlook[0];
            assert!(
                line.last_error
                    .as_ref()
                    .is_some_and(|text| text.contains("refuses") && text.contains("no"))
            );
            assert_eq!(line.next, Next::Retry(Class::Bug), "it is tried again");
            assert_eq!(line.refused.as_ref(), Some(&second), "the refusal is kept");
            assert_eq!(
                line.expires.map(|end| end > at(DUE)),
                Some(true),
                "that of the first"
            );
            assert_eq!(site.issued(), 2, "no order at once");
        }
    }

    #[tokio::test]
    async fn certificates_that_are_refused_again_and_again_are_ordered_ever_more_rarely() {
        let site = Site::new();
        let mut keeper = site.keeper().await;
        let mut now = at(0);
        let mut waits = Vec::new();
        for _ in 0..5 {
            keeper.pass(&[want()], now).await;
            keeper
                .refuse(&want(), &serial(&keeper), "no", now)
                .await
                .expect("taken in");
            // A restart forgets nothing.
            keeper = site.keeper().await;
            let next = keeper.pass(&[want()], now).await.outlook[0].at;
            waits.push(next.duration_since(now).as_secs() / 60);
            now = next;
        }
        assert_eq!(site.issued(), 5);
        for (wait, least) in waits.iter().zip([1, 10, 100, 1440, 1440]) {
            assert!((least..=least * 11 / 10).contains(wait), "{waits:?}");
        }
        // One that Envoys take ends it, and a later refusal begins anew.
        let pass = keeper.pass(&[want()], now).await;
        assert_eq!(pass.issued.len(), 1, "it is ordered again");
        assert_eq!(pass.outlook[0].last_error.as_ref(), None, "nothing failed");
        let good = serial(&keeper);
        now += SignedDuration::from_hours(DUE);
        keeper.pass(&[want()], now).await;
        keeper
            .refuse(&want(), &serial(&keeper), "no", now)
            .await
            .expect("taken in");
        assert_eq!(serial(&keeper), good, "the good one is back");
        let next = keeper.pass(&[want()], now).await.outlook[0].at;
        assert_eq!(next.duration_since(now).as_secs() / 60, 1, "the first wait");
    }

    #[tokio::test]
    async fn a_refused_first_certificate_is_replaced_though_it_is_not_due() {
        let site = Site::new();
        let keeper = site.keeper().await;
        keeper.pass(&[want()], at(0)).await;
        let first = serial(&keeper);
        keeper
            .refuse(&want(), &first, "no", at(0))
            .await
            .expect("taken in");
        assert_eq!(serial(&keeper), first, "there is no other one");
        keeper.pass(&[want()], at(0)).await;
        assert_eq!(site.issued(), 1, "not at once");
        let pass = keeper.pass(&[want()], at(1)).await;
        assert_eq!(pass.issued.len(), 1, "{:?}", pass.outlook);
        assert_eq!(site.issued(), 2, "{:?}", pass.outlook);
        // The next one is refused too: the first one is no better.
        let second = serial(&keeper);
        keeper
            .refuse(&want(), &second, "no", at(1))
            .await
            .expect("taken in");
        assert_eq!(serial(&keeper), second, "a refused one is not put back");
    }

    #[tokio::test]
    async fn a_certificate_that_has_ended_is_not_put_back() {
        let site = Site::new();
        let keeper = site.keeper().await;
        keeper.pass(&[want()], at(0)).await;
        keeper.pass(&[want()], at(DUE)).await;
        let second = serial(&keeper);
        keeper
            .refuse(&want(), &second, "no", at(24 * 91))
            .await
            .expect("taken in");
        assert_eq!(serial(&keeper), second);
    }
}
