//! The header `Authorization` of the request of a question. Passwords and signatures are not checked,
//! and no part of them is printed.

use super::explained::{Denial, ExplainedAccess};
use gatewright_objects::request_outcome::UNAUTHENTICATED;

impl ExplainedAccess<'_> {
    /// Adds what is found in the credentials of a scheme (RFC 9110, 11.6.2), if the headers of the
    /// request are known.
    pub(super) fn find_credentials(
        &mut self,
        scheme: &str,
        judge: impl Fn(&str) -> Result<&'static str, &'static str>,
    ) {
        if self.question.headers.is_none() {
            return;
        }
        let credentials = self.question.header("authorization").and_then(|value| {
            let (given, credentials) = value.split_once(' ')?;
            given
                .eq_ignore_ascii_case(scheme)
                .then(|| credentials.trim())
        });
        let finding = match credentials {
            Some(credentials) => judge(credentials).map(str::to_owned).map_err(str::to_owned),
            None => Err(format!("no header \"Authorization: {scheme}\" is given")),
        };
        self.findings.push(finding.map_err(|why| Denial {
            why,
            status: 401,
            cause: UNAUTHENTICATED[0],
        }));
    }
}
