//! Credentials of a request: what AccessPolicies find in its header `Authorization`. Passwords and
//! signatures are not checked, and no part of them is printed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Question;
use gatewright_objects::model::{Access, BasicAuth};
use gatewright_objects::request_outcome::UNAUTHENTICATED;

/// The refusal of a request.
pub(super) struct Refusal {
    /// The reason in words.
    pub(super) why: String,
    /// The status of the answer.
    pub(super) status: u16,
    /// The cause that the request has.
    pub(super) cause: &'static str,
}

/// The findings of a policy about the credentials of a request, where its headers are known.
pub(super) fn judged(
    access: &Access,
    question: &Question,
) -> impl Iterator<Item = Result<String, Refusal>> {
    let known = question.headers.is_some();
    let users = access.users.as_ref().map(|users| by_users(users, question));
    let tokens = access.tokens.as_ref().map(|_| by_tokens(question));
    users.into_iter().chain(tokens).filter(move |_| known)
}

fn by_users(of_policy: &BasicAuth, question: &Question) -> Result<String, Refusal> {
    let Some(credentials) = authorization(question, "basic") else {
        return Err(refusal("no header \"Authorization: Basic\" is given"));
    };
    let name = STANDARD
        .decode(credentials)
        .ok()
        .and_then(|decoded| String::from_utf8(decoded).ok())
        .and_then(|text| Some(text.split_once(':')?.0.to_owned()));
    match name {
        None => Err(refusal("the credentials are not base64 of NAME:PASSWORD")),
        Some(name) if of_policy.users.has(&name) => {
            Ok("the user exists, the password is not checked here".to_owned())
        }
        Some(_) => Err(refusal("there is no such user")),
    }
}

fn by_tokens(question: &Question) -> Result<String, Refusal> {
    match authorization(question, "bearer") {
        None => Err(refusal("no header \"Authorization: Bearer\" is given")),
        Some(_) => Ok("the token is not checked here".to_owned()),
    }
}

/// The credentials of a scheme (RFC 9110, 11.6.2).
fn authorization(question: &Question, scheme: &str) -> Option<String> {
    let value = question.header("authorization")?;
    let (given, credentials) = value.split_once(' ')?;
    given
        .eq_ignore_ascii_case(scheme)
        .then(|| credentials.trim().to_owned())
}

fn refusal(why: &str) -> Refusal {
    Refusal {
        why: why.to_owned(),
        status: 401,
        cause: UNAUTHENTICATED[0],
    }
}
