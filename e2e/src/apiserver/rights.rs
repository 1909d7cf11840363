//! Rights of users, by the server's own access review.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use tokio::time::{Instant, sleep};

use super::ApiServer;

const LIMIT: Duration = Duration::from_secs(180);

impl ApiServer {
    /// Waits until a user may do something, or may not any more: a role takes effect some time
    /// after it was written. `(verb, group, resource, namespace)`.
    ///
    /// # Errors
    /// When it does not within the time limit.
    pub async fn until_may(
        &self,
        user: &str,
        what: (&str, &str, &str, &str),
        may: bool,
    ) -> Result<()> {
        let (verb, group, resource, namespace) = what;
        let some = |text: &str| Some(text.to_owned());
        let attributes = ResourceAttributes {
            verb: some(verb),
            group: some(group),
            resource: some(resource),
            namespace: some(namespace),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: some(user),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let question = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client());
        let deadline = Instant::now() + LIMIT;
        loop {
            let told = api.create(&PostParams::default(), &question).await?;
            if told.status.is_some_and(|status| status.allowed) == may {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{user} and {what:?}: that it may is still {}",
                !may
            );
            sleep(Duration::from_millis(50)).await;
        }
    }
}
