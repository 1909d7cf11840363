//! Tests of the order in which tenants have their turn.

use super::*;

/// The certificate that a tenant wants for a host.
fn of(tenant: &str, host: &str) -> Wanted {
    let names = Names::parse([host]).expect("a name");
    let id = CertificateId::of(tenant, &names);
    Wanted {
        id,
        tenant: tenant.to_owned(),
        names,
        may_share: false,
        ..want("x.example")
    }
}

#[test]
fn tenants_are_served_in_turn_and_budgets_are_spent_in_turn() {
    let mut wanted: Vec<Wanted> = (0..1_000)
        .map(|i| of("mallory", &format!("a{i}.mallory.example")))
        .collect();
    wanted.extend([of("zoe", "z.zoe.example"), of("alice", "www.alice.example")]);
    wanted.sort_by(|a, b| a.id.cmp(&b.id));
    fn orders(budgets: &Budgets, wanted: &[Wanted]) -> Vec<String> {
        let steps = plan(wanted, &[], budgets, at(0));
        steps
            .iter()
            .filter_map(|step| match step {
                Step::Issue(order) => Some(order.serves[0].tenant.clone()),
                _ => None,
            })
            .collect()
    }
    let all = orders(&Budgets::new(), &wanted);
    let mut first = all[..3].to_vec();
    first.sort();
    assert_eq!(
        first,
        ["alice", "mallory", "zoe"].map(str::to_owned).to_vec(),
        "each tenant has its turn"
    );
    assert_eq!(all.len(), 1_002, "the budget is spent");
    let scarce = orders(&lets_encrypt(), &wanted);
    assert!(
        scarce.len() < 1_000
            && scarce.contains(&"alice".to_owned())
            && scarce.contains(&"zoe".to_owned())
    );
}

#[test]
fn a_single_slot_goes_to_the_tenant_with_the_fewest_orders_and_no_failures() {
    let mut budgets = lets_encrypt();
    let budget = budgets.get_mut("le").expect("its budget");
    for i in 0..239 {
        budget.spend(
            &Names::parse([format!("h{i}.spent{i}.example")]).expect("a name"),
            Exempt::Nothing,
            at(0),
        );
    }
    fn winner(
        wanted: &[Wanted],
        failed: &[&Wanted],
        budgets: &BTreeMap<String, Budget>,
    ) -> Vec<String> {
        let progress = Progress {
            failed: failed.iter().map(|w| w.id.clone()).collect(),
            ..Progress::default()
        };
        let steps = plan_with(wanted, &[], &progress, budgets, at(0));
        let orders = steps.iter().filter_map(|step| match step {
            Step::Issue(order) => Some(order.serves[0].tenant.clone()),
            _ => None,
        });
        orders.collect::<Vec<_>>()
    }
    // Her names come first in the alphabet.
    let hers: Vec<Wanted> = (0..3)
        .map(|i| of("mallory", &format!("a.mallory{i}.example")))
        .collect();
    let alices = of("alice", "z.alice.example");
    let all: Vec<Wanted> = hers.iter().cloned().chain([alices.clone()]).collect();
    assert_eq!(winner(&all, &[], &budgets), ["alice"]);
    let two = [hers[0].clone(), alices.clone()];
    assert_eq!(winner(&two, &[], &budgets), ["mallory"]);
    assert_eq!(winner(&two, &[&hers[0]], &budgets), ["alice"]);
    assert_eq!(winner(&two, &[&hers[0], &alices], &budgets), ["mallory"]);
}
