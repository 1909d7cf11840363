//! Properties of every plan.

use proptest::prelude::*;

use super::*;

fn any_wanted() -> impl Strategy<Value = Wanted> {
    (
        0..40usize,
        0..3usize,
        any::<bool>(),
        any::<bool>(),
        prop::option::of(-10..30i64),
    )
        .prop_map(|(host, tenant, may_share, renew_now, hold)| {
            let names = Names::parse([format!("h{host}.example{}.com", host % 4)]).expect("a name");
            let tenant = format!("t{tenant}");
            Wanted {
                id: CertificateId::of(&tenant, &names),
                tenant,
                may_share,
                renew_now: renew_now && hold.is_some(),
                hold: hold.map(|h| (at(h), "held".to_owned())),
                ..want("x.example.com")
            }
            .named(names)
        })
}

impl Wanted {
    fn named(mut self, names: Names) -> Self {
        self.names = names;
        self
    }
}

proptest! {
    /// Each wanted certificate gets exactly one step; the budget is never overspent; no certificate
    /// is shared between tenants.
    #[test]
    fn every_wanted_certificate_is_answered_once_within_the_budget(
        wants in prop::collection::vec(any_wanted(), 0..60),
        ages in prop::collection::vec((0..2400i64, any::<bool>()), 60),
        spent in 0..300usize,
    ) {
        let mut wants = wants;
        wants.sort_by(|a, b| a.id.cmp(&b.id));
        wants.dedup_by(|a, b| a.id == b.id);
        let held: Vec<Held> = wants
            .iter()
            .zip(&ages)
            .filter(|(_, (_, there))| *there)
            .map(|(w, (age, _))| Held {
                id: w.id.clone(),
                tenant: w.tenant.clone(),
                issuer: w.issuer.clone(),
                names: w.names.clone(),
                not_before: at(-age),
                not_after: at(2160 - age),
                ari_id: None,
                window: None,
                refused: false,
            })
            .collect();
        let mut budgets = lets_encrypt();
        for i in 0..spent {
            let names = Names::parse([format!("s.spent{i}.com")]).expect("a name");
            budgets.get_mut("le").expect("there").spend(&names, Exempt::Nothing, at(0));
        }
        let steps = plan(&wants, &held, &budgets, at(0));
        let mut answers: HashMap<&str, usize> = HashMap::new();
        let mut ledger = budgets.get("le").expect("there").clone();
        let mut last = None;
        for step in &steps {
            match step {
                Step::Issue(order) => {
                    prop_assert!(last <= Some(order.reason), "the urgent first");
                    last = Some(order.reason);
                    prop_assert!(order.names.count() <= 25);
                    prop_assert!(ledger.admits(&order.names, order.exempt, Reserve::Emergency, at(0)).is_ok());
                    ledger.spend(&order.names, order.exempt, at(0));
                    for w in &order.serves {
                        prop_assert_eq!(&w.tenant, &order.serves[0].tenant);
                        prop_assert!(order.names.cover(&w.names));
                        prop_assert!(w.renew_now || w.hold.as_ref().is_none_or(|h| h.0 <= at(0)));
                        *answers.entry(w.id.as_str()).or_default() += 1;
                    }
                }
                Step::Wait { wanted, until, .. } => {
                    prop_assert!(*until > at(0));
                    *answers.entry(wanted.id.as_str()).or_default() += 1;
                }
                Step::Keep { wanted, held, until } => {
                    prop_assert!(*until > at(0) && held.not_after > at(0));
                    prop_assert!(held.names.cover(&wanted.names) && held.tenant == wanted.tenant);
                    *answers.entry(wanted.id.as_str()).or_default() += 1;
                }
                Step::Retire(_) => {}
            }
        }
        prop_assert!(wants.iter().all(|w| answers.get(w.id.as_str()) == Some(&1)));
        prop_assert_eq!(plan(&wants, &held, &budgets, at(0)), steps);
    }
}
