//! The [`DnsView`] of a resolver, where the authoritative servers of a zone cannot be reached:
//! CNAMEs are followed as the resolver knows them, and propagation is not checked. No authoritative
//! server is asked.

use async_trait::async_trait;
use hickory_proto::rr::{Name, RecordType};

use super::authority::{
    CNAME_LIMIT, absolute, append, cname, plain, random_sibling, texts, too_long,
};
use super::resolver::Resolver;
use crate::challenge::dns::{DnsError, DnsView, Seen, TxtRecord};

/// DNS look-ups by resolvers alone.
#[derive(Clone, Debug)]
pub struct Recursive(Resolver);

impl Recursive {
    /// Queries these resolvers.
    pub fn new(resolver: Resolver) -> Self {
        Self(resolver)
    }

    /// Returns the target of the CNAME at a name. A resolver that reaches the name's servers no
    /// better than we do knows none: then the record is written at the name itself.
    async fn alias(&self, at: &Name) -> Option<Name> {
        match self.0.look_up(at, RecordType::CNAME).await {
            Ok(answer) => cname(&answer, at),
            Err(error) => {
                tracing::info!(name = %plain(at), %error, "whether there is a CNAME is not known; none is followed");
                None
            }
        }
    }
}

#[async_trait]
impl DnsView for Recursive {
    async fn challenge_target(&self, name: &str) -> Result<String, DnsError> {
        let mut chain = vec![absolute(name)?];
        while chain.len() <= CNAME_LIMIT {
            let at = chain
                .last()
                .expect("the chain begins with the name")
                .clone();
            let Some(target) = self.alias(&at).await else {
                return Ok(plain(&at));
            };
            // A wildcard's CNAME is everywhere, and does not count.
            if let Some(sibling) = random_sibling(&at)?
                && self.alias(&sibling).await.as_ref() == Some(&target)
            {
                return Ok(plain(&at));
            }
            append(name, &mut chain, target)?;
        }
        Err(too_long(name, &chain))
    }

    async fn seen(&self, _: &TxtRecord) -> Result<Seen, DnsError> {
        Ok(Seen::Everywhere { silent: Vec::new() })
    }

    /// A record that the resolver does not find is written again, which changes nothing where it
    /// stands.
    async fn values(&self, name: &str) -> Result<Vec<String>, DnsError> {
        let at = absolute(name)?;
        let answer = self.0.look_up(&at, RecordType::TXT).await.ok();
        let found = answer.iter().flat_map(|answer| texts(answer, &at));
        Ok(found
            .filter_map(|text| String::from_utf8(text).ok())
            .collect())
    }
}
