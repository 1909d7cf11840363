//! The fields of SecurityPolicy.

use crate::convert::row::{
    Row, carried, closes, closes_unless, differs, gone, gone_unless, nothing,
};

const OFF: &[&str] = &["false"];
const NO_CONDITION: &str = "the routes are closed: no condition of an AccessPolicy says that";
const CORS: &str = "filter CORS of the rules";
const SERVICE: &str = "backendRef; without one a Service of type ExternalName and a BackendTLSPolicy for the host of the URL, with backends.externalNames of the configuration";

pub(super) const ROWS: &[Row] = &[
    closes(
        "apiKeyAuth",
        "the routes are closed: AccessPolicy has basicAuth, jwt and oidc",
    ),
    carried(
        "authorization.defaultAction",
        "AccessPolicy, with the rules",
    ),
    carried(
        "authorization.rules[].action",
        "Deny, then one Allow: clientAddress.deny, and clientAddress.allow or jwt.requiredClaims; the routes are closed where rules say more",
    ),
    closes("authorization.rules[].cel", NO_CONDITION),
    nothing("authorization.rules[].name", "a name"),
    closes(
        "authorization.rules[].operation",
        "the routes are closed: write a rule of the route with a match of method and path, and an AccessPolicy with its sectionName",
    ),
    carried(
        "authorization.rules[].principal.clientCIDRs",
        "AccessPolicy, clientAddress",
    ),
    closes(
        "authorization.rules[].principal.clientIPGeoLocations",
        NO_CONDITION,
    ),
    closes("authorization.rules[].principal.headers", NO_CONDITION),
    carried(
        "authorization.rules[].principal.jwt.claims",
        "AccessPolicy, jwt.requiredClaims",
    ),
    carried("authorization.rules[].principal.jwt.provider", "jwt"),
    carried(
        "authorization.rules[].principal.jwt.scopes",
        "AccessPolicy, jwt.requiredClaims with the claim scope; scp is not read",
    ),
    carried(
        "basicAuth.forwardUsernameHeader",
        "AccessPolicy, basicAuth.forwardUsernameHeader",
    ),
    differs(
        "basicAuth.users",
        "AccessPolicy, basicAuth.users, with a Secret of type gatewright.io/htpasswd",
    ),
    carried("cors.allowCredentials", CORS),
    carried("cors.allowHeaders", CORS),
    carried("cors.allowMethods", CORS),
    carried("cors.allowOrigins", CORS),
    carried("cors.exposeHeaders", CORS),
    carried("cors.maxAge", CORS),
    closes(
        "csrf",
        "the routes are closed: let the application compare Origin, and delete the policy that closes them",
    ),
    // The one row of external authorization, with security/mod.rs that reads the others.
    closes(
        "extAuth",
        "the routes are closed: write externalAuth of an AccessPolicy, and delete the policy that closes them",
    ),
    closes_unless(
        "jwt.failOpen",
        OFF,
        "the routes are closed: a token is always needed",
    ),
    closes_unless(
        "jwt.optional",
        OFF,
        "the routes are closed: a token is always needed",
    ),
    carried("jwt.providers[].audiences", "AccessPolicy, jwt.audiences"),
    differs(
        "jwt.providers[].claimToHeaders",
        "AccessPolicy, jwt.claimToHeaders; lists are JSON in Base64",
    ),
    closes(
        "jwt.providers[].extractFrom",
        "the routes are closed: a token is in Authorization, with Bearer",
    ),
    carried("jwt.providers[].issuer", "AccessPolicy, jwt.issuer"),
    carried(
        "jwt.providers[].localJWKS.inline",
        "AccessPolicy, jwt.jwks.inline",
    ),
    carried("jwt.providers[].localJWKS.type", "AccessPolicy, jwt.jwks"),
    carried(
        "jwt.providers[].localJWKS.valueRef",
        "AccessPolicy, jwt.jwks.configMapRef",
    ),
    differs(
        "jwt.providers[].name",
        "the one provider of a policy: with several the routes are closed, and a token in the parameter access_token is not read",
    ),
    closes_unless(
        "jwt.providers[].recomputeRoute",
        OFF,
        "the routes are closed: a rule is chosen before the token is read",
    ),
    carried("jwt.providers[].remoteJWKS.backendRef", SERVICE),
    carried("jwt.providers[].remoteJWKS.backendRefs", SERVICE),
    gone(
        "jwt.providers[].remoteJWKS.backendSettings",
        "a TrafficPolicy of the Service that answers for the URL",
    ),
    carried(
        "jwt.providers[].remoteJWKS.cacheDuration",
        "AccessPolicy, jwt.jwks.remote.cacheDuration, 10s to 24h",
    ),
    gone(
        "jwt.providers[].remoteJWKS.failedRefetchDuration",
        "keys are fetched when a token comes",
    ),
    differs(
        "jwt.providers[].remoteJWKS.uri",
        "AccessPolicy, jwt.jwks.remote.uri. Without a backendRef: a Service of type ExternalName and a BackendTLSPolicy for its host, with backends.externalNames of the configuration",
    ),
    differs(
        "mergeType",
        "AccessPolicies add up: a request passes those of the Gateway and those of the route",
    ),
    carried("oidc.clientID", "AccessPolicy, oidc.clientID"),
    carried(
        "oidc.clientIDRef",
        "AccessPolicy, oidc.clientID, of the Secret if it is in the input",
    ),
    differs(
        "oidc.clientSecret",
        "AccessPolicy, oidc.clientSecret, with a Secret of type gatewright.io/oidc-client",
    ),
    gone("oidc.cookieConfig", "SameSite is Lax"),
    carried("oidc.cookieDomain", "AccessPolicy, oidc.cookieDomain"),
    gone(
        "oidc.cookieNames",
        "cookies have names of their own: sessions begin anew",
    ),
    nothing("oidc.csrfTokenTTL", "a login has ten minutes"),
    nothing("oidc.defaultRefreshTokenTTL", "the provider ends sessions"),
    gone(
        "oidc.defaultTokenTTL",
        "an hour where the provider says nothing",
    ),
    gone(
        "oidc.denyRedirect",
        "requests other than GET, and those without text/html in Accept, are answered 401",
    ),
    gone_unless("oidc.disableTokenEncryption", OFF, "tokens are encrypted"),
    carried(
        "oidc.forwardAccessToken",
        "AccessPolicy, oidc.forwardAccessToken",
    ),
    gone(
        "oidc.forwardIDToken",
        "backends get the ID token in no header",
    ),
    carried("oidc.logoutPath", "AccessPolicy, oidc.logoutPath"),
    closes_unless(
        "oidc.passThroughAuthHeader",
        OFF,
        "the routes are closed: a login is always needed; give clients with tokens a rule with jwt",
    ),
    carried(
        "oidc.provider.authorizationEndpoint",
        "AccessPolicy, oidc.provider; without it the routes are closed, as nobody asks the issuer for it",
    ),
    carried("oidc.provider.backendRef", SERVICE),
    carried("oidc.provider.backendRefs", SERVICE),
    gone(
        "oidc.provider.backendSettings",
        "a TrafficPolicy of the Service of the provider",
    ),
    carried(
        "oidc.provider.endSessionEndpoint",
        "AccessPolicy, oidc.provider",
    ),
    carried("oidc.provider.issuer", "AccessPolicy, oidc.provider"),
    differs(
        "oidc.provider.tokenEndpoint",
        "AccessPolicy, oidc.provider. Without a backendRef: a Service of type ExternalName and a BackendTLSPolicy for its host, with backends.externalNames of the configuration. Without it the routes are closed",
    ),
    carried("oidc.redirectURL", "AccessPolicy, oidc.redirectURL"),
    differs(
        "oidc.refreshToken",
        "a session is renewed if the scopes give a refresh token",
    ),
    gone(
        "oidc.resources",
        "requests to the provider name no resource",
    ),
    carried("oidc.scopes", "AccessPolicy, oidc.scopes"),
];
