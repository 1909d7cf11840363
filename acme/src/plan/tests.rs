mod fairness;
mod properties;

use super::*;
use crate::budget::Limits;
use crate::issuer::Underway;

fn at(hours: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + hours * 3600).expect("in range")
}

fn want(host: &str) -> Wanted {
    let names = Names::parse([host]).expect("a name");
    Wanted {
        id: CertificateId::of("t", &names),
        tenant: "t".to_owned(),
        issuer: "le".to_owned(),
        names,
        validity: None,
        may_share: true,
        renew_now: false,
        hold: None,
    }
}

fn have(host: &str, from: i64, to: i64) -> Held {
    let w = want(host);
    Held {
        id: w.id,
        tenant: w.tenant,
        issuer: w.issuer,
        names: w.names,
        not_before: at(from),
        not_after: at(to),
        ari_id: Some(format!("aki.{host}")),
        window: None,
        refused: false,
    }
}

fn windowed(host: &str, start: i64, end: i64, explanation: Option<&str>) -> Held {
    let mut h = have(host, 0, 2160);
    h.window = Some(Window {
        of: h.ari_id.clone().expect("set"),
        start: at(start),
        end: at(end),
        explanation: explanation.map(str::to_owned),
        selected: at(start),
        poll_at: at(end),
        untrusted: false,
    });
    h
}

fn lets_encrypt() -> Budgets {
    Budgets::from([("le".to_owned(), Budget::new(Limits::LETS_ENCRYPT))])
}

/// Formats the first step of the plan.
fn verdict(wanted: &[Wanted], held: &[Held], now: i64) -> String {
    match plan(wanted, held, &lets_encrypt(), at(now)).first() {
        Some(Step::Issue(o)) => format!(
            "issue {:?} {:?} {}",
            o.reason,
            o.exempt,
            o.replaces.is_some()
        ),
        Some(Step::Wait {
            because, served, ..
        }) => format!("wait served={} {because}", served.is_some()),
        Some(Step::Keep { .. }) => "keep".to_owned(),
        Some(Step::Retire(_)) => "retire".to_owned(),
        None => "nothing".to_owned(),
    }
}

#[test]
fn each_certificate_gets_the_step_it_needs() {
    fn a() -> Vec<Wanted> {
        vec![want("a.example.com")]
    }
    fn forced() -> Vec<Wanted> {
        vec![Wanted {
            renew_now: true,
            ..want("a.example.com")
        }]
    }
    fn held_off() -> Vec<Wanted> {
        vec![Wanted {
            hold: Some((at(50), "fix your DNS".to_owned())),
            ..want("a.example.com")
        }]
    }
    fn other() -> Vec<Wanted> {
        vec![Wanted {
            issuer: "other".to_owned(),
            ..want("a.example.com")
        }]
    }
    for (case, wanted, held, now, expected) in [
        (
            "nobody holds it",
            a(),
            vec![],
            0,
            "issue Missing Nothing false",
        ),
        (
            "fresh",
            a(),
            vec![have("a.example.com", 0, 2160)],
            10,
            "keep",
        ),
        (
            "two thirds over",
            a(),
            vec![have("a.example.com", 0, 2160)],
            1441,
            "issue Renewal Renewal true",
        ),
        (
            "about to end",
            a(),
            vec![have("a.example.com", 0, 2160)],
            2100,
            "issue Expiring Renewal true",
        ),
        (
            "ended",
            a(),
            vec![have("a.example.com", 0, 2160)],
            2200,
            "issue Expiring Renewal true",
        ),
        (
            "six days, early",
            a(),
            vec![have("a.example.com", 0, 160)],
            80,
            "keep",
        ),
        (
            "six days, two thirds",
            a(),
            vec![have("a.example.com", 0, 160)],
            108,
            "issue Renewal Renewal true",
        ),
        (
            "window ahead",
            a(),
            vec![windowed("a.example.com", 1500, 1540, None)],
            1490,
            "keep",
        ),
        (
            "window open",
            a(),
            vec![windowed("a.example.com", 1500, 1540, None)],
            1510,
            "issue Window Ari true",
        ),
        (
            "window missed",
            a(),
            vec![windowed("a.example.com", 1500, 1540, None)],
            1600,
            "issue Revoked Renewal true",
        ),
        (
            "revoked",
            a(),
            vec![windowed("a.example.com", -9, -1, Some("https://x"))],
            3,
            "issue Revoked Ari true",
        ),
        (
            "forced",
            forced(),
            vec![have("a.example.com", 0, 2160)],
            10,
            "issue Forced Renewal true",
        ),
        (
            "held off",
            held_off(),
            vec![],
            10,
            "wait served=false fix your DNS",
        ),
        (
            "held off, over",
            held_off(),
            vec![],
            60,
            "issue Missing Nothing false",
        ),
        (
            "other issuer",
            other(),
            vec![have("a.example.com", 0, 2160)],
            10,
            "issue Changed Nothing true",
        ),
        (
            "not wanted",
            vec![],
            vec![have("a.example.com", 0, 2160)],
            10,
            "retire",
        ),
        (
            "covered by a star",
            a(),
            vec![have("*.example.com", 0, 2160)],
            10,
            "issue Missing Nothing false",
        ),
    ] {
        assert_eq!(verdict(&wanted, &held, now), expected, "{case}");
    }
}

#[test]
fn a_certificate_of_one_tenant_serves_no_other_tenant() {
    let mine = Held {
        tenant: "other".to_owned(),
        ..have("a.example.com", 0, 2160)
    };
    assert_eq!(
        verdict(&[want("a.example.com")], &[mine], 10),
        "issue Missing Nothing false"
    );
}

#[test]
fn while_the_budget_lasts_each_host_has_its_own_certificate() {
    let wanted: Vec<_> = (0..200)
        .map(|i| want(&format!("h.example{i}.com")))
        .collect();
    let orders = plan(&wanted, &[], &lets_encrypt(), at(0));
    assert_eq!(
        orders
            .iter()
            .filter(|s| matches!(s, Step::Issue(o) if o.serves.len() == 1))
            .count(),
        200
    );
}

#[test]
fn hosts_of_one_domain_share_when_its_limit_demands_it() {
    let wanted: Vec<_> = (0..1000)
        .map(|i| want(&format!("h{i}.example.com")))
        .collect();
    let budgets = lets_encrypt();
    let steps = plan(&wanted, &[], &budgets, at(0));
    let orders: Vec<_> = steps
        .iter()
        .filter_map(|s| {
            if let Step::Issue(o) = s {
                Some(o)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(orders.len(), 40);
    assert!(orders.iter().all(|o| o.names.count() == 25));
    // In the next plan each finds its names in a shared certificate.
    let held: Vec<_> = orders
        .iter()
        .map(|o| Held {
            id: o.id.clone(),
            names: o.names.clone(),
            ..have("x.example.com", 0, 2160)
        })
        .collect();
    let again = plan(&wanted, &held, &budgets, at(1));
    assert_eq!(
        again
            .iter()
            .filter(|s| matches!(s, Step::Keep { .. }))
            .count(),
        1000
    );
    // They are renewed together, as a shared certificate again.
    let later = plan(&wanted, &held, &budgets, at(1450));
    let renewed: Vec<_> = later
        .iter()
        .filter_map(|s| {
            if let Step::Issue(o) = s {
                Some(o)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(renewed.len(), 40);
    assert!(
        renewed
            .iter()
            .all(|o| o.exempt == Exempt::Renewal && o.names.count() == 25)
    );
}

/// Returns the number of names of each order, in descending order.
fn sizes(steps: &[Step<'_>]) -> Vec<usize> {
    let mut sizes: Vec<_> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Issue(order) => Some(order.names.count()),
            _ => None,
        })
        .collect();
    sizes.sort_by_key(|size| Reverse(*size));
    sizes
}

fn hosts(numbers: std::ops::Range<usize>) -> Vec<Wanted> {
    numbers
        .map(|i| want(&format!("h{i}.example.com")))
        .collect()
}

#[test]
fn half_of_a_domains_budget_is_left_to_hosts_that_are_still_to_come() {
    let few = hosts(0..20);
    assert_eq!(
        sizes(&plan(&few, &[], &lets_encrypt(), at(0))),
        [1; 20],
        "half of what is left of 50, without the reserve"
    );
    let fresh = hosts(0..40);
    assert_eq!(
        sizes(&plan(&fresh, &[], &lets_encrypt(), at(0))),
        [25, 15],
        "as many as there are certificates"
    );
    let mut budgets = lets_encrypt();
    let budget = budgets.get_mut("le").expect("its budget");
    for i in 0..30 {
        let spent = Names::parse([format!("spent{i}.example.com")]).expect("a name");
        budget.spend(&spent, Exempt::Nothing, at(0));
    }
    let last = hosts(0..10);
    assert_eq!(
        sizes(&plan(&last, &[], &budgets, at(0))),
        [10],
        "the last ten certificates"
    );
}

#[test]
fn hosts_that_wait_or_may_fail_are_thought_of_before_the_last_of_a_budget_is_spent() {
    // 474 hosts wait for the end of their back-off.
    let mut wanted = hosts(0..500);
    for want in &mut wanted[..474] {
        want.hold = Some((at(1), "the CA was away".to_owned()));
    }
    let budgets = lets_encrypt();
    assert_eq!(
        sizes(&plan(&wanted, &[], &budgets, at(0))),
        [25, 1],
        "the others need certificates soon"
    );
    // 474 hosts are in orders under way.
    let wanted = hosts(0..500);
    let mut budgets = lets_encrypt();
    let budget = budgets.get_mut("le").expect("its budget");
    let mut orders = BTreeMap::new();
    for names in wanted[..474].chunks(25) {
        let names = names
            .iter()
            .skip(1)
            .fold(names[0].names.clone(), |all, want| all.union(&want.names));
        budget.spend(&names, Exempt::Nothing, at(0));
        let id = CertificateId::of("t", &names);
        let order = Underway {
            id: id.clone(),
            names,
            placed: true,
        };
        orders.insert(id, order);
    }
    let progress = Progress {
        underway: BTreeMap::from([("le".to_owned(), orders)]),
        ..Progress::default()
    };
    let steps = plan_with(&wanted, &[], &progress, &budgets, at(0));
    let sizes = sizes(&steps);
    assert_eq!(sizes.iter().sum::<usize>(), 500, "all have an order");
    assert_eq!(
        sizes.iter().filter(|size| **size == 1).count(),
        1,
        "the orders under way may fail: {sizes:?}"
    );
}

#[test]
fn an_order_that_ended_without_a_certificate_costs_its_domain_nothing() {
    let mut budget = Budget::new(Limits::LETS_ENCRYPT);
    let names = Names::parse(["a.example.com"]).expect("a name");
    let domain = Scope::Domain("example.com".to_owned());
    budget.spend(&names, Exempt::Nothing, at(0));
    assert_eq!(budget.left(&domain, at(0)), Some(49), "it is under way");
    budget.refund_certificates(&names, Exempt::Nothing);
    assert_eq!(budget.left(&domain, at(0)), Some(50), "it gave none");
    assert_eq!(
        budget.left(&Scope::Orders, at(0)),
        Some(299),
        "it was an order"
    );
}

#[test]
fn names_of_two_tenants_never_share() {
    let mut wanted: Vec<_> = (0..300)
        .map(|i| want(&format!("h{i}.example.com")))
        .collect();
    for (i, w) in wanted.iter_mut().enumerate() {
        w.tenant = format!("t{}", i % 3);
    }
    for step in plan(&wanted, &[], &lets_encrypt(), at(0)) {
        if let Step::Issue(order) = step {
            assert!(
                order
                    .serves
                    .iter()
                    .all(|w| w.tenant == order.serves[0].tenant)
            );
        }
    }
}

#[test]
fn the_urgent_goes_first_when_the_budget_is_short() {
    let mut budgets = lets_encrypt();
    let budget = budgets.get_mut("le").expect("there");
    for i in 0..299 {
        budget.spend(
            &want(&format!("s.spent{i}.com")).names,
            Exempt::Nothing,
            at(0),
        );
    }
    let wanted = [
        want("new.example.com"),
        Wanted {
            issuer: "le".to_owned(),
            ..want("old.example.org")
        },
    ];
    let held = [Held {
        issuer: "before".to_owned(),
        ..have("old.example.org", -2150, 10)
    }];
    let steps = plan(&wanted, &held, &budgets, at(0));
    assert!(matches!(&steps[0], Step::Issue(o) if o.reason == Reason::Expiring));
    assert!(
        matches!(&steps[1], Step::Wait { because, .. } if because.contains("new orders")),
        "{:?}",
        steps[1]
    );
}

/// Returns the number of names of each order that is issued, and the number of wanted certificates
/// that wait.
fn going(wanted: &[Wanted], progress: &Progress, budgets: &Budgets) -> (Vec<usize>, usize) {
    let steps = plan_with(wanted, &[], progress, budgets, at(0));
    let orders = steps.iter().filter_map(|s| {
        if let Step::Issue(o) = s {
            Some(o.names.count())
        } else {
            None
        }
    });
    (
        orders.collect(),
        steps
            .iter()
            .filter(|s| matches!(s, Step::Wait { .. }))
            .count(),
    )
}

fn shared(wanted: &[Wanted], placed: bool) -> Underway {
    let names = wanted
        .iter()
        .fold(wanted[0].names.clone(), |names, w| names.union(&w.names));
    Underway {
        id: CertificateId::of("t", &names),
        names,
        placed,
    }
}

#[test]
fn a_pending_shared_order_is_resumed_without_a_new_count() {
    let wanted: Vec<_> = (10..70)
        .map(|i| want(&format!("h{i}.example.com")))
        .collect();
    let mut budgets = lets_encrypt();
    let budget = budgets.get_mut("le").expect("there");
    for i in 0..50 {
        budget.spend(
            &Names::parse([format!("x{i}.example.com")]).expect("a name"),
            Exempt::Nothing,
            at(0),
        );
    }
    assert_eq!(
        going(&wanted, &Progress::default(), &budgets),
        (vec![], 60),
        "nothing is left"
    );
    let orders =
        [shared(&wanted[30..50], true), shared(&wanted[..25], false)].map(|o| (o.id.clone(), o));
    let orders = BTreeMap::from(orders);
    let progress = Progress {
        underway: BTreeMap::from([("le".to_owned(), orders)]),
        ..Progress::default()
    };
    assert_eq!(going(&wanted, &progress, &budgets), (vec![25, 20], 15));
    assert!(progress.unclaimed(&wanted).is_empty());
    // One of its hosts is removed, or must not share any more: the order is unclaimed.
    assert_eq!(going(&wanted[1..], &progress, &budgets), (vec![20], 39));
    assert_eq!(
        progress.unclaimed(&wanted[1..]),
        [("le", &shared(&wanted[..25], false))]
    );
    let mut alone = wanted.clone();
    alone[3].may_share = false;
    assert_eq!(progress.unclaimed(&alone).len(), 1);
    // Another tenant's hosts of the same names do not claim it.
    let others: Vec<_> = wanted
        .iter()
        .map(|w| Wanted {
            tenant: "u".to_owned(),
            ..w.clone()
        })
        .collect();
    assert_eq!(progress.unclaimed(&others).len(), 2);
    // A 429 of the CA holds up an order that the CA does not have yet.
    let budget = budgets.get_mut("le").expect("there");
    budget.refuse_until(Scope::Domain("example.com".to_owned()), at(5));
    assert_eq!(going(&wanted, &progress, &budgets), (vec![20], 40));
}

#[test]
fn hosts_that_stand_alone_count_before_the_others_get_certificates_of_their_own() {
    let mut wanted = hosts(10..30);
    wanted.iter_mut().take(10).for_each(|w| w.may_share = false);
    let (orders, waiting) = going(&wanted, &Progress::default(), &lets_encrypt());
    assert_eq!(orders.len(), 20, "half of what is left of the week's fifty");
    assert_eq!(waiting, 0, "half of what is left of the week's fifty");
    wanted.push(want("one-more.example.com"));
    let (orders, waiting) = going(&wanted, &Progress::default(), &lets_encrypt());
    assert_eq!(orders.len(), 11, "those that may share do");
    assert_eq!(orders[0], 11, "those that may share do");
    assert_eq!(waiting, 0, "those that may share do");
}

#[test]
fn a_new_certificate_is_not_renewed_for_a_reason_that_its_successor_would_share() {
    let wanted = [want("a.example.com")];
    let day = SignedDuration::from_hours(24);
    for (held, at_the_cas_request, hours, goes) in [
        // As seen by a clock that is two months ahead.
        (have("a.example.com", -1500, 660), false, 1, false),
        (have("a.example.com", -1500, 660), false, 25, true),
        (windowed("a.example.com", -9, -1, None), true, 1, false),
        (windowed("a.example.com", -9, -1, None), true, 25, true),
        // The CA moved the window after it had returned another one.
        (windowed("a.example.com", -9, -1, None), false, 1, true),
    ] {
        let obtained = HashMap::from([(
            held.id.clone(),
            Obtained {
                at: at(0),
                at_the_cas_request,
            },
        )]);
        let progress = Progress {
            obtained,
            ..Progress::default()
        };
        let held = [held];
        let step = plan_with(&wanted, &held, &progress, &Budgets::new(), at(hours)).remove(0);
        assert_eq!(matches!(step, Step::Issue(_)), goes, "{hours}: {step:?}");
        if let Step::Keep { until, .. } = step {
            assert_eq!(until, at(0) + day);
        }
    }
}
