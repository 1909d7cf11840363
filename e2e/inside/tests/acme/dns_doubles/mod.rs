//! DNS providers with simulated services, for answers that a real service cannot be made to give.

mod aws_credentials;
mod cloudflare;
mod digitalocean;
mod double;
mod exec;
mod route53;
mod webhook;

use acme::challenge::dns::{DnsError, TxtRecord};

const SECRET: &str = "t0ken-that-nobody-may-see";
const NAME: &str = "_acme-challenge.www.example.com";

fn record(value: &str) -> TxtRecord {
    TxtRecord {
        name: NAME.to_owned(),
        value: value.to_owned(),
        ttl: 60,
    }
}

/// Returns the error of a call, after checking that it contains no secret.
fn error<T>(result: Result<T, DnsError>) -> DnsError {
    let error = result.err().expect("the call was to fail");
    assert!(
        !format!("{error} {error:?}").contains(SECRET),
        "a secret in {error:?}"
    );
    error
}
