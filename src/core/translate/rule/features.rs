//! Features of the Gateway API that we support, by their names (GEP-2162): the status of a class
//! lists them.
//!
//! A feature is listed only if tests prove it: the conformance suite and users rely on the list.

use super::gateway_exposure::Fleet;
use gatewright_objects::channel::Channel;
use gatewright_objects::definitions::Definitions;
use gatewright_objects::inputs::Kind;

/// Features of every class, sorted.
const ALWAYS: [&str; 48] = [
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "GRPCRouteRequestHeaderModifier",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayPort8080",
    "GatewayRouteHostnameIntersectionPrecedence",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteBackendURLRewrite",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetryCodes",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// The kinds that a cluster may lack, in the order of their features' names.
const KINDS: [Kind; 6] = [
    Kind::BackendTLSPolicy,
    Kind::GRPCRoute,
    Kind::ListenerSet,
    Kind::TCPRoute,
    Kind::TLSRoute,
    Kind::UDPRoute,
];

/// The features of the Gateways of a class, sorted. Features of kinds and fields that the cluster
/// has no definitions for are left out.
pub(crate) fn supported(
    fleet: Fleet,
    channel: Channel,
    has_trust_bundles: bool,
    definitions: &Definitions,
) -> Vec<&'static str> {
    let own: &[&str] = match fleet {
        Fleet::Own => &["GatewayStaticAddresses"],
        Fleet::Shared => &[],
        // The Service of each Gateway has these labels, annotations and addresses.
        Fleet::Dedicated | Fleet::Isolated => &["GatewayInfrastructure", "GatewayStaticAddresses"],
    };
    let is_experimental = channel == Channel::Experimental;
    let routability = is_experimental && definitions.fields.routability;
    // Of other fleets the addresses are what they are: none of them is a Service's within the
    // cluster, for one Gateway alone.
    let is_cluster = routability && fleet.has_services();
    let experimental = [
        ("ClusterTrustBundle", has_trust_bundles),
        ("GatewayAddressRoutability", routability),
        ("GatewayAddressRoutabilityCluster", is_cluster),
        (
            "GatewayListenerFilters",
            is_experimental && definitions.fields.listener_filters,
        ),
    ];
    let experimental = experimental
        .into_iter()
        .filter(|(_, is_supported)| *is_supported)
        .map(|(name, _)| name);
    // The name of a feature begins with that of its kind.
    let missing: Vec<Kind> = KINDS
        .into_iter()
        .filter(|kind| definitions.missing.contains(kind))
        .collect();
    let mut all: Vec<&str> = ALWAYS
        .iter()
        .chain(own)
        .copied()
        .filter(|name| !missing.iter().any(|kind| name.starts_with(kind.as_str())))
        .chain(experimental)
        .collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_sorted_and_none_stands_twice() {
        for fleet in [Fleet::Own, Fleet::Shared, Fleet::Dedicated, Fleet::Isolated] {
            let all = supported(fleet, Channel::Experimental, true, &Definitions::default());
            assert!(
                all.windows(2).all(|pair| pair[0] < pair[1]) && all.len() <= 64,
                "{fleet:?}"
            );
        }
    }
    #[test]
    fn those_without_definitions_are_left_out() {
        fn of(definitions: Definitions) -> Vec<&'static str> {
            supported(Fleet::Dedicated, Channel::Experimental, false, &definitions)
        }
        let all = of(Definitions::default());
        assert!(
            all.contains(&"GatewayListenerFilters")
                && all.contains(&"GatewayAddressRoutabilityCluster")
        );
        let standard = of(Definitions::unknown());
        let lost: Vec<&str> = all
            .iter()
            .filter(|name| !standard.contains(name))
            .copied()
            .collect();
        assert_eq!(
            lost,
            [
                "GatewayAddressRoutability",
                "GatewayAddressRoutabilityCluster",
                "GatewayListenerFilters"
            ]
        );
        let missing = [Kind::TLSRoute, Kind::ListenerSet].into();
        let older = of(Definitions {
            missing,
            ..Definitions::default()
        });
        let lost: Vec<&str> = all
            .iter()
            .filter(|name| !older.contains(name))
            .copied()
            .collect();
        assert_eq!(
            lost,
            [
                "ListenerSet",
                "TLSRoute",
                "TLSRouteModeMixed",
                "TLSRouteModeTerminate"
            ]
        );
    }
}
