//! Garbage collection: removes state of unwanted certificates 30 days after its last use, so that a
//! host that comes back within that time finds it. A certificate that has not expired is never
//! removed, so that none has to be issued again.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::table::Row;
use super::{Keeper, readable};
use crate::failure::Attempts;
use crate::issuer::CertificateId;
use crate::renewal::Window;
use crate::storage::{Key, Kind, StorageError};

/// Age at which unused state is removed. State that is in use is renewed far more often: a window
/// twice a day, failed attempts daily.
const RETENTION: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Most entries that are removed at a time; the others follow an hour later.
const MAX_REMOVALS: usize = 500;

impl Keeper {
    /// Removes unneeded state; returns the number of removed entries.
    pub(super) async fn collect_garbage(
        &self,
        wanted: &BTreeSet<CertificateId>,
        now: Timestamp,
    ) -> usize {
        let needed: BTreeSet<CertificateId> = self.read(|table| {
            let rows = table.rows();
            let used = rows.filter(|(_, row)| row.held.is_some() || row.forced.is_some());
            let used = used.map(|(id, _)| id);
            wanted.iter().chain(used).cloned().collect()
        });
        let names: BTreeSet<String> = needed
            .iter()
            .map(|id| Key::new(Kind::Renewal, id.as_str()).name().to_owned())
            .collect();
        let ended = self.read(|table| {
            let all = table
                .certificates()
                .filter(|s| !wanted.contains(&s.id) && s.certificate.not_after <= now - RETENTION);
            all.map(|stored| stored.id.clone())
                .take(MAX_REMOVALS)
                .collect::<Vec<_>>()
        });
        let mut removed = 0;
        for id in ended {
            match self.forget(&id).await {
                Ok(()) => removed += 1,
                Err(failure) => {
                    tracing::debug!(%id, %failure, "cannot remove an old certificate now")
                }
            }
        }
        for kind in [Kind::Renewal, Kind::Attempts] {
            let listed = self.storage.list(kind).await.unwrap_or_default();
            for key in listed.into_iter().filter(|key| !names.contains(key.name())) {
                if removed >= MAX_REMOVALS {
                    return removed;
                }
                match self.collect_entry(&key, now).await {
                    Ok(went) => removed += usize::from(went),
                    // The entry was changed concurrently, or is tried again in the next run.
                    Err(error) => tracing::debug!(%key, %error, "cannot remove an old record now"),
                }
            }
        }
        removed
    }

    async fn collect_entry(&self, key: &Key, now: Timestamp) -> Result<bool, StorageError> {
        let (last, id) = match key.kind() {
            Kind::Renewal => (
                readable::<Window>(&*self.storage, key)
                    .await?
                    .map(|window| window.poll_at),
                None,
            ),
            _ => match readable::<(CertificateId, Attempts)>(&*self.storage, key).await? {
                Some((id, attempts)) => (Some(attempts.at.max(attempts.not_before)), Some(id)),
                None => (None, None),
            },
        };
        // An unreadable entry is left to the operator, to whom it is reported.
        if last.is_none_or(|last| now < last + RETENTION) {
            return Ok(false);
        }
        self.storage.remove(key).await?;
        self.write(|table| match id {
            Some(id) => table.change(&id, Row::forget_failures),
            None => {
                table.unclaimed.remove(key.name());
            }
        });
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;

    use super::super::Stored;
    use super::*;
    use crate::certificate::IssuedCertificate;
    use crate::failure::{Class, Failure};
    use crate::issuer::{IssueRequest, Issuer};
    use crate::names::Names;
    use crate::plan::Wanted;
    use crate::self_signed::self_signed;
    use crate::storage::Storage;
    use crate::storage::dir::Directory;

    /// A CA that issues certificates of ninety days, but not for hosts whose name contains `bad`,
    /// and that offers renewal windows.
    #[derive(Default)]
    struct Ca(AtomicUsize);

    #[async_trait]
    impl Issuer for Ca {
        fn name(&self) -> &str {
            "ca"
        }

        async fn issue(&self, request: &IssueRequest) -> Result<IssuedCertificate, Failure> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let name = request.names.first();
            if name.as_str().starts_with("bad") {
                return Err(Failure::new(Class::Config, "it is bad"));
            }
            let made = self_signed(name, request.now).expect("made");
            let from = request.now;
            let days = SignedDuration::from_hours(24 * 90);
            let ari_id = Some(format!("ari.{}", made.serial));
            Ok(IssuedCertificate {
                issuer: "ca".to_owned(),
                not_before: from,
                not_after: from + days,
                ari_id,
                ..made
            })
        }

        async fn renewal_window(
            &self,
            held: &IssuedCertificate,
            previous: Option<&Window>,
            now: Timestamp,
        ) -> Result<Option<Window>, Failure> {
            let window = (
                held.not_after - SignedDuration::from_hours(24 * 30),
                held.not_after,
            );
            let of = held.ari_id.as_deref().unwrap_or_default();
            let life = (held.not_before, held.not_after);
            Ok(Some(
                Window::answered(previous, of, window, None, life, None, now)
                    .expect("it makes sense"),
            ))
        }
    }

    fn wanted(names: &[String]) -> Vec<Wanted> {
        fn want(name: &String) -> Wanted {
            let names = Names::parse([name]).expect("a name");
            Wanted {
                id: CertificateId::of("t", &names),
                tenant: "t".to_owned(),
                issuer: "ca".to_owned(),
                names,
                validity: None,
                may_share: false,
                renew_now: false,
                hold: None,
            }
        }
        names.iter().map(want).collect()
    }

    async fn count(storage: &dyn Storage) -> [usize; 3] {
        let mut all = [0; 3];
        for (kind, count) in [Kind::Certificate, Kind::Renewal, Kind::Attempts]
            .into_iter()
            .zip(&mut all)
        {
            *count = storage.list(kind).await.expect("listed").len();
        }
        all
    }

    /// A plan covers all certificates, so that a plan for each of their requests would be work that
    /// grows with their square.
    #[tokio::test]
    async fn requests_for_renewal_windows_make_one_plan_a_minute_at_most() {
        let dir = tempfile::tempdir().expect("a directory");
        let storage: Arc<dyn Storage> =
            Arc::new(Directory::open(dir.path().join("acme")).expect("opened"));
        let keeper = Keeper::open(storage, [Arc::new(Ca::default()) as Arc<dyn Issuer>], 8)
            .await
            .expect("opened");
        let hosts: Vec<String> = (0..30).map(|i| format!("h{i}.example.org")).collect();
        let start: Timestamp = "2026-11-22T00:00:00Z".parse().expect("a time");
        keeper.pass(&wanted(&hosts), start).await;
        keeper.pass(&wanted(&hosts), start).await;
        let later = start + SignedDuration::from_hours(13);
        let soon = later + SignedDuration::from_mins(1);
        assert_eq!(keeper.next(&[], later), Some(soon), "all are due");
        let half = later + SignedDuration::from_mins(30);
        keeper.write(|table| table.rows_mut().for_each(|row| row.ask_again = Some(half)));
        assert_eq!(
            keeper.next(&[], later),
            Some(half),
            "the CA did not answer, and is asked again later"
        );
        for want in wanted(&hosts) {
            keeper.drop_adopted(&want.id);
        }
        assert_eq!(
            keeper.next(&[], later),
            None,
            "no certificate is left to ask for"
        );
    }

    #[tokio::test]
    async fn state_of_removed_hosts_is_collected_and_state_of_wanted_ones_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let storage: Arc<dyn Storage> =
            Arc::new(Directory::open(dir.path().join("acme")).expect("opened"));
        let ca = Arc::new(Ca::default());
        let keeper = Keeper::open(storage.clone(), [ca.clone() as Arc<dyn Issuer>], 8)
            .await
            .expect("opened");
        let hosts: Vec<String> = (0..30)
            .map(|i| format!("h{i}.example.org"))
            .chain((0..10).map(|i| format!("bad{i}.example.org")))
            .collect();
        let start: Timestamp = "2026-11-22T00:00:00Z".parse().expect("a time");
        fn day(n: i64, start: &Timestamp) -> Timestamp {
            *start + SignedDuration::from_hours(24 * n)
        }
        keeper.pass(&wanted(&hosts), day(0, &start)).await;
        keeper.pass(&wanted(&hosts), day(0, &start)).await;
        assert_eq!(count(&*storage).await, [30, 30, 10]);

        // Five of each stay. Ten of the others are deleted with their Secrets, as in a cluster.
        let stay: Vec<String> = hosts[..5].iter().chain(&hosts[30..35]).cloned().collect();
        for want in wanted(&hosts[10..20]) {
            keeper.drop_adopted(&want.id);
        }
        for n in 1..=28 {
            keeper.pass(&wanted(&stay), day(n, &start)).await;
            assert_eq!(
                count(&*storage).await,
                [30, 30, 10],
                "day {n}: whoever comes back finds it"
            );
        }
        let issued = ca.0.load(Ordering::Relaxed);
        keeper.pass(&wanted(&stay), day(32, &start)).await;
        assert_eq!(
            count(&*storage).await,
            [30, 20, 5],
            "what is held is looked after, wanted or not"
        );
        assert_eq!(
            ca.0.load(Ordering::Relaxed),
            issued + 5,
            "those alone that fail are tried, as every day"
        );

        // Long-expired certificates are removed altogether; a host that comes back would need a new
        // one in any case.
        for n in 33..=125 {
            keeper.pass(&wanted(&stay), day(n, &start)).await;
        }
        // The last pass may have renewed one, whose window is requested in the next.
        keeper.pass(&wanted(&stay), day(125, &start)).await;
        // Ten of the thirty certificates are not held by the keeper any more; their entries are not
        // ours to remove.
        assert_eq!(count(&*storage).await, [15, 5, 5]);
        for host in &stay[..5] {
            let id = &wanted(std::slice::from_ref(host))[0].id;
            assert!(
                keeper
                    .held_as(id)
                    .is_some_and(|held| held.certificate.not_after > day(125, &start)),
                "{host}"
            );
        }
    }

    #[tokio::test]
    async fn the_stored_window_of_an_adopted_certificate_is_used_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let storage: Arc<dyn Storage> =
            Arc::new(Directory::open(dir.path().join("acme")).expect("opened"));
        let host = wanted(&["a.example.org".to_owned()]);
        let now: Timestamp = "2026-11-22T00:00:00Z".parse().expect("a time");
        let open = || async {
            let ca: Arc<dyn Issuer> = Arc::new(Ca::default());
            Keeper::open(storage.clone(), [ca], 8)
                .await
                .expect("opened")
        };
        let first = open().await;
        first.pass(&host, now).await;
        first.pass(&host, now).await;
        let stored = first.held_as(&host[0].id).expect("held");
        let window = first.held()[0].window.clone().expect("there is one");
        storage
            .remove(&Key::new(Kind::Certificate, host[0].id.as_str()))
            .await
            .expect("removed");
        // As in a cluster, where certificates are stored elsewhere.
        let second = open().await;
        assert!(second.held().is_empty());
        second.adopt(Stored::clone(&stored));
        assert_eq!(second.held()[0].window, Some(window));
    }
}
