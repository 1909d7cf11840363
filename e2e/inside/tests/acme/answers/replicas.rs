//! Replicas of a CA that lag.

use super::*;

#[test]
fn a_replica_that_lags_costs_seconds_and_no_order() -> Result<()> {
    run(async {
        for resource in [
            Resource::Order,
            Resource::Authorization,
            Resource::Finalize,
            Resource::Certificate,
        ] {
            for lag in [1, 4] {
                let rig = Rig::start().await?;
                let mut left = lag;
                rig.ca.mangle(Box::new(move |path, answer| {
                    let is_it = Resource::of(path) == resource && left > 0;
                    left -= i32::from(is_it);
                    if is_it { unknown(answer) } else { answer }
                }));
                // Another program takes the order up each time.
                let wanted = [want(HOST)?];
                let mut now = Timestamp::now();
                let began = now;
                loop {
                    let pass = rig.keeper().await?.pass(&wanted, now).await;
                    if pass.failed.is_empty() {
                        break;
                    }
                    ensure!(
                        now < began + SignedDuration::from_secs(30),
                        "{resource:?}: {pass:?}"
                    );
                    now = pass.next.context("something is due")?;
                }
                let counts = rig.ca.counts();
                ensure!(
                    counts.asked == 1 && rig.certificates() == 1,
                    "{resource:?}: {counts:?}"
                );
            }
        }
        Ok(())
    })
}

#[test]
fn an_order_that_stays_lost_is_given_up_after_minutes_and_a_finalized_one_after_an_hour()
-> Result<()> {
    run(async {
        for (resource, minutes) in [(Resource::Authorization, 10), (Resource::Certificate, 60)] {
            let rig = Rig::start().await?;
            rig.ca.mangle(Box::new(move |path, answer| {
                if Resource::of(path) == resource && path.contains("/0") {
                    unknown(answer)
                } else {
                    answer
                }
            }));
            let keeper = rig.keeper().await?;
            let wanted = [want(HOST)?];
            let began = Timestamp::now();
            let mut now = began;
            while rig.ca.counts().asked < 2 {
                ensure!(
                    now < began + SignedDuration::from_hours(2),
                    "{resource:?}: it is not given up"
                );
                let pass = keeper.pass(&wanted, now).await;
                now = pass.next.context("something is due")?;
                let given_up = rig.ca.counts().asked == 2;
                let age = now.duration_since(began);
                ensure!(
                    !given_up || age >= SignedDuration::from_mins(minutes),
                    "{resource:?}: after {age}"
                );
            }
        }
        Ok(())
    })
}

#[test]
fn an_account_that_a_replica_does_not_know_yet_is_not_replaced() -> Result<()> {
    run(async {
        let rig = Rig::start().await?;
        let mut left = 2;
        rig.ca.mangle(Box::new(move |path, answer| {
            if Resource::of(path) != Resource::NewOrder || left == 0 {
                return answer;
            }
            left -= 1;
            let problem =
                json!({ "type": "urn:ietf:params:acme:error:accountDoesNotExist", "detail": "who?", "status": 400 });
            let mut answer = answer.map(|_| problem.to_string().into());
            *answer.status_mut() = StatusCode::BAD_REQUEST;
            answer.headers_mut().remove("location");
            answer
        }));
        let failures = until_issued(&rig.keeper().await?, &[want(HOST)?]).await?;
        ensure!(
            failures.len() == 2
                && failures
                    .iter()
                    .all(|told| told.contains("registered a moment ago")),
            "{failures:?}"
        );
        ensure!(
            rig.ca.counts().accounts == 1 && rig.certificates() == 1,
            "{:?}",
            rig.ca.counts()
        );
        Ok(())
    })
}

#[test]
fn an_order_that_the_ca_does_not_show_is_no_fault_of_the_host() -> Result<()> {
    run(async {
        for resource in [Resource::Order, Resource::Authorization] {
            let rig = Rig::start().await?;
            let mut left = 1;
            rig.ca.mangle(Box::new(move |path, answer| {
                if Resource::of(path) != resource || left == 0 {
                    return answer;
                }
                left -= 1;
                let problem = json!({"type": "urn:ietf:params:acme:error:unauthorized", "detail": "not yours"});
                let mut answer = answer.map(|_| problem.to_string().into());
                *answer.status_mut() = StatusCode::FORBIDDEN;
                answer
            }));
            let keeper = rig.keeper().await?;
            let wanted = [want(HOST)?];
            let pass = keeper.pass(&wanted, Timestamp::now()).await;
            let failure = &pass.failed[0].1;
            ensure!(
                failure.class == Class::Transient && failure.culprits.is_empty(),
                "{resource:?}: {failure:?}"
            );
            ensure!(
                failure
                    .message
                    .contains("does not let our account read its own"),
                "{resource:?}: {failure}"
            );
            let pass = keeper
                .pass(&wanted, pass.next.context("something is due")?)
                .await;
            ensure!(
                pass.failed.is_empty() && rig.orders() == 1,
                "{resource:?}: the same order: {pass:?}"
            );
        }
        Ok(())
    })
}
