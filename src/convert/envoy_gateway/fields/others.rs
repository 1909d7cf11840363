//! The fields of Backend, EnvoyExtensionPolicy, EnvoyPatchPolicy and HTTPRouteFilter.

use crate::convert::row::{Row, carried, closes, differs, gone, gone_unless, nothing};

const TLS: &str = "BackendTLSPolicy of the Service";
const CODE: &str = "the targets are closed, as it may decide who is admitted: delete the policy that closes them if it does not";
const RULE: &str = "the rule is answered 500 until the filter is removed";

pub(super) const BACKEND: &[Row] = &[
    differs(
        "appProtocols",
        "appProtocol of the Service's port: kubernetes.io/h2c, ws or wss",
    ),
    differs(
        "endpoints[].fqdn",
        "Service of type ExternalName, with backends.externalNames of the configuration; with several endpoints the rules are answered 500: give each a backendRef",
    ),
    gone("endpoints[].hostname", "the host is that of the client"),
    differs(
        "endpoints[].ip",
        "Service without a selector, and an EndpointSlice; the addresses have to be permitted (docs/endpoints.md)",
    ),
    gone(
        "endpoints[].unix",
        "the rules are answered 500: give the server a port",
    ),
    carried("endpoints[].zone", "zone of the EndpointSlice"),
    gone_unless(
        "fallback",
        &["false"],
        "it gets requests as the others, by weight: remove it, or have an active health check",
    ),
    gone("tls.alpnProtocols", "appProtocol of the Service's port"),
    gone("tls.autoSNIFromEndpointHostname", TLS),
    carried(
        "tls.caCertificateRefs",
        "BackendTLSPolicy of the Service; a Secret as a ConfigMap of ca.crt",
    ),
    gone("tls.ciphers", "Envoy's own for TLS 1.2 and 1.3"),
    gone(
        "tls.clientCertificateRef",
        "a client certificate belongs to the Gateway: tls.backend.clientCertificateRef",
    ),
    gone("tls.ecdhCurves", "Envoy's own"),
    nothing("tls.fingerprints", "of clients"),
    gone_unless(
        "tls.insecureSkipVerify",
        &["false"],
        "a backend is always verified: BackendTLSPolicy with the certificates of the system, in place of them name a ConfigMap with its own",
    ),
    gone("tls.maxVersion", "TLS 1.2 and 1.3"),
    gone("tls.minVersion", "TLS 1.2 and 1.3"),
    gone("tls.signatureAlgorithms", "Envoy's own"),
    carried(
        "tls.sni",
        "BackendTLSPolicy of the Service, validation.hostname",
    ),
    carried("tls.wellKnownCACertificates", TLS),
    gone_unless(
        "type",
        &["Endpoints"],
        "the rules are answered 500: name the hosts, each by a Service of type ExternalName",
    ),
];

pub(super) const EXTENSION: &[Row] = &[
    closes("dynamicModule", CODE),
    closes("extProc", CODE),
    closes("lua", CODE),
    nothing("mergeType", "of what is not carried over"),
    closes("wasm", CODE),
];

pub(super) const PATCH: &[Row] = &[
    closes("jsonPatches", CODE),
    nothing("priority", "of what is not carried over"),
    carried("targetRef", "target of the policy that closes it"),
    nothing("type", "of what is not carried over"),
];

pub(super) const FILTER: &[Row] = &[
    gone("credentialInjection", RULE),
    carried("directResponse.body", "DirectResponse, body"),
    carried("directResponse.contentType", "DirectResponse, contentType"),
    carried("directResponse.header.add", "DirectResponse, headers"),
    nothing(
        "directResponse.header.remove",
        "a response has no other headers",
    ),
    carried("directResponse.header.set", "DirectResponse, headers"),
    carried("directResponse.statusCode", "DirectResponse, statusCode"),
    gone("matches", RULE),
    gone_unless(
        "urlRewrite.appendXForwardedHost",
        &["false"],
        "backends get no X-Forwarded-Host: TrafficPolicy, headers.request, with Host",
    ),
    differs(
        "urlRewrite.hostname",
        "Backend: TrafficPolicy of the rule, rewrite.hostname. With Header and PathRegex the rule is answered 500",
    ),
    differs(
        "urlRewrite.path",
        "TrafficPolicy of the rule, rewrite.path, if the pattern has its place by ^; otherwise the rule is answered 500",
    ),
];
