//! Features of the Gateway API that we support, by their names (GEP-2162): the status of a class lists them.
//!
//! A feature is listed only if tests prove it: the conformance suite and users rely on the list.

use super::gateway_exposure::Fleet;
use crate::channel::Channel;

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

/// The features of the Gateways of a class, sorted.
pub(super) fn supported(fleet: Fleet, channel: Channel, has_trust_bundles: bool) -> Vec<&'static str> {
    let own: &[&str] = match fleet {
        Fleet::Own => &["GatewayStaticAddresses"],
        Fleet::Shared => &[],
        // The Service of each Gateway has these labels, annotations and addresses.
        Fleet::Dedicated | Fleet::Isolated => &["GatewayInfrastructure", "GatewayStaticAddresses"],
    };
    let experimental: &[&str] = match (channel, fleet) {
        (Channel::Standard, _) => &[],
        // Their addresses are what they are: none of them is a Service's within the cluster, for one Gateway alone.
        (Channel::Experimental, Fleet::Own | Fleet::Shared) => &["GatewayAddressRoutability", "GatewayListenerFilters"],
        (Channel::Experimental, Fleet::Dedicated | Fleet::Isolated) => {
            &["GatewayAddressRoutability", "GatewayAddressRoutabilityCluster", "GatewayListenerFilters"]
        }
    };
    let bundles = has_trust_bundles.then_some("ClusterTrustBundle");
    let mut all: Vec<&str> = ALWAYS.iter().chain(own).chain(experimental).copied().chain(bundles).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_sorted_and_none_stands_twice() {
        for fleet in [Fleet::Own, Fleet::Shared, Fleet::Dedicated, Fleet::Isolated] {
            let all = supported(fleet, Channel::Experimental, true);
            assert!(all.windows(2).all(|pair| pair[0] < pair[1]) && all.len() <= 64, "{fleet:?}");
        }
    }
}
