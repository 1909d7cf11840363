//! The effect of an AccessPolicy by itself. One that cannot be carried out closes what it is
//! attached to; one that only reports never does.

use std::fmt;
use std::sync::Arc;

use crate::key::Verdict;
use crate::rule::backend_reference::Referrer;
use crate::state::attached_policies::{Effect, JudgedAttachment};
use gatewright_objects::cost::{self, TOKEN_TIME, milliseconds};
use gatewright_objects::inputs::{
    AccessRules, AttachedPolicy, BasicAuthRules, HTPASSWD_TYPE, JwksSource, Kind, LocalRef,
    LoginRules, OIDC_CLIENT_TYPE, Secret, TokenRules, credentials, jwks,
};
use gatewright_objects::model::{
    Access, BackendId, BasicAuth, ClientCredentials, Enforcement, FetchedKeys, IssuerKeys, Jwks,
    Login, ObjectName, Reason, TokenAuth, Transport,
};
use gatewright_objects::store::Store;

/// The most users of a policy on a Gateway or ListenerSet: each route there has a copy, those of
/// other namespaces as well, which is nothing that they asked for.
const USERS_OF_ALL: usize = 250;

/// An AccessPolicy by itself; `beyond` is why it is one too many, if it is.
pub(crate) fn judged(
    policy: &Arc<AttachedPolicy>,
    (enforcement, rules): (Enforcement, &Result<AccessRules, String>),
    beyond: Option<(Reason, String)>,
    store: &Store,
) -> JudgedAttachment {
    let rules = match beyond {
        Some(beyond) => Err(beyond),
        None => rules
            .as_ref()
            .map_err(|text| (Reason::Invalid, text.clone())),
    };
    let name = &policy.meta.name;
    let access = rules.and_then(|rules| {
        let credentials = rules.login.as_ref();
        let credentials = credentials.map(|login| client(name, login, store));
        let access = access((name, enforcement), rules, store)?;
        Ok((within(policy, access)?, credentials.transpose()?))
    });
    let (accepted, effect, credentials) = match access {
        Ok((access, credentials)) => (Ok(()), Effect::Admit(Arc::new(access)), credentials),
        Err((reason, text)) => {
            let (comes_of_it, effect) = match enforcement {
                Enforcement::Enforce => ("requests are answered 500", Effect::Close),
                Enforcement::Report => ("nothing is reported, and nobody refused", Effect::Nothing),
            };
            (
                Err((reason, format!("{text}; {comes_of_it}"))),
                effect,
                None,
            )
        }
    };
    JudgedAttachment {
        policy: policy.clone(),
        accepted,
        effect,
        credentials,
    }
}

/// The same, if it has no more users than its targets may have, and a token takes no more time than
/// it may.
fn within(policy: &AttachedPolicy, access: Access) -> Result<Access, (Reason, String)> {
    let time = cost::token_time(&access);
    if time > TOKEN_TIME {
        let text = format!(
            "jwt.jwks: one token may take {} of an Envoy's worker with these keys, at most {} are allowed: use fewer keys, or \
             keys of RSA or P-256",
            milliseconds(time),
            milliseconds(TOKEN_TIME)
        );
        return Err((Reason::LimitReached, text));
    }
    let count = access.users.as_ref().map_or(0, |auth| auth.users.count());
    let of_all = policy
        .targets
        .iter()
        .any(|target| matches!(target.object.kind, Kind::Gateway | Kind::ListenerSet));
    if of_all && count > USERS_OF_ALL {
        let text = format!(
            "basicAuth.users: {count} users, a policy on a Gateway or ListenerSet has at most {USERS_OF_ALL}: use policies \
             on routes"
        );
        return Err((Reason::Invalid, text));
    }
    Ok(access)
}

fn access(
    (policy, enforcement): (&ObjectName, Enforcement),
    rules: &AccessRules,
    store: &Store,
) -> Result<Access, (Reason, String)> {
    let AccessRules {
        addresses,
        users,
        login,
        tokens,
    } = rules;
    let users = users
        .as_ref()
        .map(|rules| basic_auth(policy, rules, store))
        .transpose()?;
    Ok(Access {
        policy: policy.clone(),
        enforcement,
        addresses: addresses.clone(),
        users,
        login: login
            .as_ref()
            .map(|rules| logged_in(policy, rules, store))
            .transpose()?,
        tokens: tokens
            .as_ref()
            .map(|rules| token_auth(policy, rules, store))
            .transpose()?,
    })
}

/// The login at a provider, whose token endpoint is a Service.
fn logged_in(
    policy: &ObjectName,
    rules: &LoginRules,
    store: &Store,
) -> Result<Login, (Reason, String)> {
    let LoginRules {
        issuer,
        authorization_endpoint,
        token_endpoint,
        end_session_endpoint,
        server,
        port,
        client_id,
        secret,
        redirect_host,
        redirect_path,
        logout_path,
        scopes,
        cookie_domain,
        forwards_access_token,
    } = rules;
    let at = (server, *port, "oidc.provider.backendRef");
    let server = backend(policy, at, store)?;
    Ok(Login {
        issuer: issuer.clone(),
        authorization_endpoint: authorization_endpoint.clone(),
        token_endpoint: token_endpoint.clone(),
        end_session_endpoint: end_session_endpoint.clone(),
        server,
        client_id: client_id.clone(),
        secret: secret.name.clone(),
        redirect_host: redirect_host.clone(),
        redirect_path: redirect_path.clone(),
        logout_path: logout_path.clone(),
        scopes: scopes.clone(),
        cookie_domain: cookie_domain.clone(),
        forwards_access_token: *forwards_access_token,
    })
}

/// The Service that a policy sends requests to.
fn backend(
    policy: &ObjectName,
    (server, port, field): (&LocalRef, u16, &str),
    store: &Store,
) -> Result<BackendId, (Reason, String)> {
    let referrer = Referrer {
        store,
        kind: Kind::AccessPolicy,
        name: policy,
        transport: Transport::Tcp,
    };
    let (at, spoken) = referrer.look_up(server, Some(port), field)?;
    Ok(BackendId::new(at, spoken))
}

/// The credentials of the client of a policy.
fn client(
    policy: &ObjectName,
    rules: &LoginRules,
    store: &Store,
) -> Result<ClientCredentials, (Reason, String)> {
    let secret = (&rules.secret.name, OIDC_CLIENT_TYPE);
    let field = "oidc.clientSecret";
    let text = content(policy, field, secret, store, |found| &found.client_secret)?;
    Ok(credentials(text, policy))
}

/// What is in a Secret of a type that a field of a policy refers to.
fn content<'a, T: 'a, E: fmt::Display + 'a>(
    policy: &ObjectName,
    field: &str,
    (secret, kind): (&ObjectName, &str),
    store: &'a Store,
    read: impl Fn(&'a Secret) -> &'a Result<T, E>,
) -> Result<&'a T, (Reason, String)> {
    permitted(policy, Kind::Secret, (secret, field), store)?;
    let found = store.secret(secret).ok_or_else(|| {
        format!(
            "there is no Secret {secret} of type {kind}{}",
            store.unwatched(secret)
        )
    });
    let found = found.and_then(|found| {
        let content = read(found).as_ref();
        content.map_err(|why| format!("Secret {secret} {why}"))
    });
    found.map_err(|why| (Reason::Invalid, format!("{field}: {why}")))
}

fn token_auth(
    policy: &ObjectName,
    rules: &TokenRules,
    store: &Store,
) -> Result<TokenAuth, (Reason, String)> {
    let TokenRules {
        issuer,
        audiences,
        jwks,
        required_claims,
        claims,
        forward_payload,
        forwards_credentials,
    } = rules;
    let keys = match jwks {
        JwksSource::Inline(jwks) => IssuerKeys::Given(jwks.clone()),
        JwksSource::ConfigMap { map, key } => {
            let field = "jwt.jwks.configMapRef";
            permitted(policy, Kind::ConfigMap, (&map.name, field), store)?;
            let keys = keys(&map.name, key, store)
                .map_err(|why| (Reason::Invalid, format!("{field}: {why}")))?;
            IssuerKeys::Given(keys)
        }
        JwksSource::Fetched {
            url,
            server,
            port,
            cache_seconds,
        } => {
            let at = (server, *port, "jwt.jwks.remote.backendRef");
            let server = backend(policy, at, store)?;
            let server = BackendId::new(server.port, server.protocol.of_key_sets());
            IssuerKeys::Fetched(FetchedKeys {
                url: url.clone(),
                server,
                cache_seconds: *cache_seconds,
            })
        }
    };
    Ok(TokenAuth {
        issuer: issuer.clone(),
        audiences: audiences.clone(),
        keys,
        required_claims: required_claims.clone(),
        claims: claims.clone(),
        forward_payload: forward_payload.clone(),
        forwards_credentials: *forwards_credentials,
    })
}

/// The keys of an issuer in a ConfigMap.
fn keys(map: &ObjectName, key: &str, store: &Store) -> Result<Jwks, String> {
    let found = store
        .config_map(map)
        .ok_or_else(|| format!("there is no ConfigMap {map}{}", store.unwatched(map)))?;
    let data = found.data.as_ref().map_err(Clone::clone);
    let text = data.and_then(|data| data.get(key));
    text.and_then(|text| jwks(text).map_err(|why| format!("key {key:?}: {why}")))
        .map_err(|why| format!("ConfigMap {map}: {why}"))
}

/// Ok if a policy may refer to an object. Permission is decided before existence, so that nobody
/// learns what another namespace holds.
fn permitted(
    policy: &ObjectName,
    kind: Kind,
    (name, field): (&ObjectName, &str),
    store: &Store,
) -> Verdict {
    if store.permits(Kind::AccessPolicy, &policy.namespace, kind, name) {
        return Ok(());
    }
    let kind = kind.as_str();
    let text = format!(
        "{field}: no ReferenceGrant permits AccessPolicies of namespace {} to refer to {kind} {name}{}",
        policy.namespace,
        store.unwatched(name)
    );
    Err((Reason::RefNotPermitted, text))
}

fn basic_auth(
    policy: &ObjectName,
    rules: &BasicAuthRules,
    store: &Store,
) -> Result<BasicAuth, (Reason, String)> {
    let BasicAuthRules {
        secret,
        forward_username,
        forwards_credentials,
    } = rules;
    let at = (&secret.name, HTPASSWD_TYPE);
    let users = content(policy, "basicAuth.users", at, store, |found| &found.users)?;
    Ok(BasicAuth {
        secret: secret.name.clone(),
        users: users.clone(),
        forward_username: forward_username.clone(),
        forwards_credentials: *forwards_credentials,
    })
}
