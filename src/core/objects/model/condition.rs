//! Conditions of an object's status, with the reasons of the Gateway API v1.7.0.

use std::borrow::Cow;
use std::fmt;

use crate::printable::printable;
use crate::status_maxima::MESSAGE;

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// Not known yet.
    Unknown,
}

macro_rules! condition_types {
    ($($name:ident: $text:literal),* $(,)?) => {
        /// Types of conditions of Gateway API objects, named as in the specification (v1.7.0,
        /// `apis/v1/*_types.go`), and with our domain where it has none.
        #[allow(missing_docs, reason = "the names are the specification's")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ConditionType { $($name),* }

        impl ConditionType {
            /// All of them.
            pub const ALL: &[ConditionType] = &[$(ConditionType::$name),*];

            /// As written in a status.
            pub fn as_str(self) -> &'static str {
                match self { $(ConditionType::$name => $text),* }
            }
        }
    };
}

condition_types! {
    Accepted: "Accepted",
    Programmed: "Programmed",
    ResolvedRefs: "ResolvedRefs",
    Conflicted: "Conflicted",
    PartiallyInvalid: "PartiallyInvalid",
    OverlappingTLSConfig: "OverlappingTLSConfig",
    InsecureFrontendValidationMode: "InsecureFrontendValidationMode",
    DefaultGateway: "DefaultGateway",
    AddressesAssigned: "AddressesAssigned",
    SupportedVersion: "SupportedVersion",
    CertificateWarning: "gatewright.io/CertificateWarning",
    AccessLogWarning: "gatewright.io/AccessLogWarning",
    HostnameWarning: "gatewright.io/HostnameWarning",
    PolicyAffected: "gatewright.io/PolicyAffected",
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One condition of an object, without `lastTransitionTime`: the writer of the status sets it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// The type.
    pub kind: ConditionType,
    /// The status of the condition.
    pub status: Status,
    /// The reason.
    pub reason: Reason,
    /// For people: what was expected, what was found, and where. Stable for equal inputs.
    pub message: String,
}

impl Condition {
    /// True if the condition has the desired status: True, or not True for the types that name a
    /// fault. Overlapping TLS settings are no fault (GEP-3567); neither are clients that are
    /// accepted without a valid certificate, as the Gateway requests.
    pub fn is_healthy(&self) -> bool {
        Self::is_desired(self.kind, self.status == Status::True)
    }

    /// True if a condition of this type is as desired, by whether its status is True.
    pub fn is_desired(kind: ConditionType, is_true: bool) -> bool {
        match kind {
            ConditionType::Accepted
            | ConditionType::Programmed
            | ConditionType::ResolvedRefs
            | ConditionType::DefaultGateway
            | ConditionType::AddressesAssigned
            | ConditionType::SupportedVersion => is_true,
            ConditionType::Conflicted
            | ConditionType::PartiallyInvalid
            | ConditionType::CertificateWarning
            | ConditionType::HostnameWarning
            | ConditionType::AccessLogWarning => !is_true,
            ConditionType::OverlappingTLSConfig
            | ConditionType::InsecureFrontendValidationMode
            | ConditionType::PolicyAffected => true,
        }
    }
}

/// The longest message in bytes, with which there is room for what is added to it.
const MAX_MESSAGE: usize = MESSAGE / 8;

/// Makes the message of a condition fit for a status, which names what others wrote: on one line,
/// without characters that a terminal obeys, and shortened if it is too long.
pub fn clipped(message: String) -> String {
    let mut message = match printable(&message) {
        Cow::Borrowed(_) => message,
        Cow::Owned(escaped) => escaped,
    };
    if message.len() > MAX_MESSAGE {
        let whole = message.len();
        let mut end = MAX_MESSAGE - 64;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str(&format!("... (shortened: {whole} bytes)"));
    }
    message
}

macro_rules! reasons {
    ($($name:ident: $meaning:literal, $remedy:literal;)*) => {
        /// Reasons, named as in the specification (Gateway API v1.7.0, `apis/v1/*_types.go`), and
        /// those of tenancy, which it leaves to implementations: EndpointNotPermitted,
        /// ForeignObject, HostnameNotAllowed, HostnameRequired, InvalidHostname, LimitReached,
        /// ListenerLimitReached, ListenerSetParentRequired, NameCollision and WildcardNotIssuable;
        /// NoEndpoints of collectors, and NameNotResolved of names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $(#[doc = $meaning] $name),* }

        impl Reason {
            /// All of them, by name.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// As written in a status.
            pub fn as_str(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name)),* }
            }

            /// The meaning, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Reason::$name => $meaning),* }
            }

            /// The remedy for the object's author; empty if there is nothing to do.
            pub fn remedy(self) -> &'static str {
                match self { $(Reason::$name => $remedy),* }
            }
        }
    };
}

reasons! {
    Accepted: "The object is accepted.", "";
    AddressNotAssigned: "The Gateway has no address yet.",
        "Wait for the load balancer; see the events of the Gateway's Service, or create the one that it names.";
    AddressNotUsable: "An address of `spec.addresses` is none of those at which Envoys listen, or the Gateway cannot stand on the Service that it names.",
        "Take an address of the fleet, or leave `spec.addresses` out; change the Service as the message says.";
    AddressesAssigned: "Each address of `spec.addresses` is assigned, or without any those of the class are.", "";
    BackendNotFound: "A backend does not exist, or has no such port.",
        "Create the Service, or correct name and port of the `backendRef`.";
    CertificateExpired: "A certificate has expired and is served all the same; clients that check it refuse it.",
        "Put a new certificate, and the key that belongs to it, into the Secret that the message names.";
    CertificateExpiring: "A certificate that no issuer of Gatewright renews expires within 14 days, or within 3 days.",
        "Put a new certificate, and the key that belongs to it, into the Secret that the message names.";
    CertificateLimitReached: "The owner has as many certificates as it may have.",
        "Remove hosts, or ask the operator for a higher limit.";
    CertificateNotForHostname: "A certificate does not name a hostname that it is served for; a wildcard in it stands for one label.",
        "Give the hostname a listener and a certificate of its own, or put one that names it into the Secret.";
    CertificateNotRenewed: "The renewals of a certificate fail; it is served while it is valid.",
        "Do what the message says; `gatewright certs` shows the next attempt, `gatewright certs check HOST` what is in the way.";
    CertificateNotValid: "Clients refuse a certificate that is served.",
        "Put a certificate without the fault that the message names into the Secret.";
    CertificateUnused: "Of several `certificateRefs` of a listener one is served.",
        "Remove the others, or give their hostnames listeners of their own.";
    Conflicted: "Another policy is about the same target, and comes first.",
        "Remove one of the two policies.";
    ConfigurationChanged: "Clients are let in without a valid certificate (`AllowInsecureFallback`).",
        "Set `mode: AllowValidOnly` in `spec.tls.frontend` once every client has a certificate.";
    DefaultGateway: "Routes come to the Gateway that want default Gateways.", "";
    EndpointNotPermitted: "Endpoints of a Service may not be used: they are no pods of its namespace, or addresses that are reserved.",
        "Have the endpoints made by the Service's selector; see docs/endpoints.md.";
    ForeignObject: "An object of somebody else has the name of one that is to be made.",
        "Rename or remove the object that the message names.";
    HostnameConflict: "Another namespace or object owns the hostname.",
        "Take another hostname; `gatewright claims` says who owns it.";
    HostnameNotAllowed: "The namespace may not have the hostname.",
        "Take a name below the namespace's apex, or ask the operator (`allowedHostnames`, host label).";
    HostnameRequired: "A route of a tenant names no hostname.", "Name at least one in `spec.hostnames`.";
    IncompatibleFilters: "Filters of one rule exclude each other.", "Keep one of the filters that the message names.";
    Invalid: "The object is not served, or has no effect, because of what the message says.", "Mend what the message names.";
    InvalidCACertificateKind: "A `caCertificateRef` leads to a kind that holds no CA certificates.",
        "Refer to a ConfigMap with the certificates under the key `ca.crt`.";
    InvalidCACertificateRef: "A `caCertificateRef` leads to no usable certificates of a CA.",
        "Create the ConfigMap with certificates in PEM under `ca.crt`, or correct what the message names.";
    InvalidCertificateRef: "A `certificateRef` leads to no usable certificate.",
        "Create the Secret of type `kubernetes.io/tls`, or see why its certificate is not issued: `gatewright certs`.";
    InvalidClientCertificateRef: "The `clientCertificateRef` of a Gateway leads to no usable certificate.",
        "Create the Secret of type `kubernetes.io/tls`; until then backends are shown no certificate.";
    InvalidFilter: "A filter of a rule refers to what is not there, or cannot be used; the rule answers 500.",
        "Create what the message names, or correct the reference.";
    InvalidHostname: "A hostname is none, or a public suffix.", "Correct the hostname.";
    InvalidKind: "A reference leads to a kind that cannot be used there.", "Refer to a kind that the message names.";
    InvalidListenerFilter: "A filter of the listener cannot be carried out; nobody passes.",
        "Correct the filter that the message names.";
    InvalidListenerFilterRef: "A filter of the listener refers to what is not there, or cannot be used; nobody passes.",
        "Create what the message names, or correct the reference.";
    InvalidParameters: "The parameters that a class or Gateway refers to are missing or wrong.",
        "Correct the `parametersRef` or the GatewayParameters.";
    InvalidRouteKinds: "`allowedRoutes.kinds` has kinds that cannot attach to the protocol.",
        "Leave out the kinds that the message names.";
    InvalidTLSConfig: "The TLS settings of a listener cannot be used.",
        "Correct `tls.mode`, `tls.options` or `certificateRefs` as the message says.";
    LimitReached: "The namespace has reached a limit; what is beyond is not served.",
        "Ask for less, or have the operator raise the limit that the message names.";
    ListenerLimitReached: "The Gateway has as many listeners as it may have.",
        "Remove hosts, or let overflow ListenerSets be used.";
    ListenerSetParentRequired: "A route of a tenant refers to a ListenerSet that does not belong to its TenantGateway.",
        "Refer to the TenantGateway's Gateway.";
    ListenersNotValid: "Some listeners are not valid; the others are served.",
        "See the conditions of the listeners that the message names.";
    NameCollision: "Two hostnames lead to one name of a derived object.", "Rename one of them.";
    NameNotResolved: "The name of a Service of type ExternalName has no addresses.",
        "Correct `spec.externalName`, or the records of the name; the message says what the resolver answers.";
    NarrowerHostnames: "Listeners that the Gateway admits from other namespaces have hostnames below a wildcard of the route, or of a route without hostnames.",
        "Nothing, if it is meant: `allowedListeners` and `allowedHostnames` restrict it; a route with the exact hostname keeps it.";
    NoEndpoints: "The Service to which an access log or traces go has no ready endpoint: they are lost.",
        "See the pods of the Service that the message names.";
    NoMatchingListenerHostname: "No hostname of the route matches a listener.",
        "Compare `spec.hostnames` with the listeners' `hostname`.";
    NoMatchingParent: "The parent has no listener of that name and port.",
        "Correct `sectionName` and `port` of the `parentRef`.";
    NoResources: "The Gateway cannot be given what it needs, a free port for example.", "See the message; ask the operator.";
    NoValidCACertificate: "No `caCertificateRef` leads to CA certificates: nothing is sent to the Services of a policy, and no client of a listener is let in.",
        "Correct what the message of `ResolvedRefs` names.";
    NotAllowed: "The Gateway admits no ListenerSets of the namespace, or may not be a default Gateway; or its class does not allow what a policy asks for.",
        "Ask the owner of the Gateway (`allowedListeners`), leave `spec.defaultScope` out, or ask for what the message says is allowed.";
    NotAllowedByListeners: "No listener admits routes of the namespace or kind.",
        "Ask the owner of the Gateway (`allowedRoutes`).";
    NotAssigned: "No address that the Gateway asks for is assigned.",
        "Wait for the load balancer, or ask for addresses that the fleet has: `routability` empty or `Cluster`.";
    OverlappingCertificates: "Certificates of several listeners of a port cover the same name: clients may reuse HTTP/2 connections.",
        "Nothing has to be done: such requests are answered 421.";
    OverlappingHostnames: "Hostnames of several listeners of a port overlap: clients may reuse HTTP/2 connections.",
        "Nothing has to be done: such requests are answered 421.";
    ParentNotAccepted: "The Gateway of the ListenerSet is not accepted.", "See the conditions of the Gateway.";
    ParentNotProgrammed: "The Gateway of the ListenerSet is not programmed.", "See the conditions of the Gateway.";
    PartiallyAssigned: "Some addresses that the Gateway asks for are assigned; it is served on those.",
        "Correct the entries of `spec.addresses` that the message names.";
    Pending: "It is not decided or not served yet.", "Wait; the message says for what.";
    PolicyAffected: "Policies have an effect on the object as their target; the message names them.", "";
    PortUnavailable: "Another Gateway has the port at this address, or nothing leads to it.",
        "Take another port or address, or another `targetPort` of the Service that the Gateway names.";
    Programmed: "Every connected Envoy has acknowledged it.", "";
    ProtocolConflict: "Another listener has the port with another protocol.",
        "Take another port, or the protocol that the message names.";
    RefNotPermitted: "A reference into another namespace has no ReferenceGrant.",
        "Create a ReferenceGrant in the namespace that is referred to.";
    ResolvedRefs: "All references lead to what can be used.", "";
    ServedElsewhere: "Something else answers for hostnames of the route, which it has at a listener: a listener with a narrower or the same hostname, or an older route that gets all connections.",
        "Attach the route to the listener that the message names (`parentRefs`), or take another hostname; `gatewright explain URL` says who answers.";
    SharedHostname: "Routes of another namespace answer for a hostname as well.",
        "Nothing, if it is meant (`routeHostnames: Shared` of GatewayParameters says so); else take another hostname, or ask the owner of the Gateway for `routeHostnames: Owned`.";
    SupportedVersion: "The definitions of the Gateway API are of a version that is known.", "";
    TargetNotFound: "What a policy is about does not exist, or has no port, listener or rule of that name.",
        "Create it, or correct `targetRefs`.";
    TooManyListeners: "The Gateway and its ListenerSets have more listeners than can be served.",
        "Remove listeners, or take a second Gateway.";
    Unsupported: "Something in the object is not served; the message names the field.",
        "Leave the field out; docs/supported.md lists what is supported.";
    UnsupportedAddress: "The type of an address is not supported.", "Use the type `IPAddress`.";
    UnsupportedProtocol: "The protocol of a listener is not served.", "Use HTTP, HTTPS, TLS, TCP or UDP.";
    UnsupportedValue: "A value of a field is not served.", "Use a value that the message names.";
    UnsupportedVersion: "The definitions of the Gateway API are of a version that is not known; Gateways are served all the same.",
        "Install the definitions of Gateway API v1.7, or a newer Gatewright.";
    WildcardNotIssuable: "No certificate can be issued for a wildcard by HTTP-01.",
        "Use DNS-01 or the internal CA, or name each host.";
}

impl Reason {
    /// True if an object with this reason does not serve what it asks for, or not alone, because
    /// another one has it.
    pub fn is_loss(self) -> bool {
        matches!(
            self,
            Self::Conflicted
                | Self::HostnameConflict
                | Self::PortUnavailable
                | Self::ProtocolConflict
                | Self::ServedElsewhere
                | Self::SharedHostname
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_shortened_at_a_character() {
        assert_eq!(clipped("short".to_owned()), "short");
        let forged = "Service a/\u{202e}x\ny does not exist".to_owned();
        assert_eq!(clipped(forged), "Service a/\\u{202e}x\\ny does not exist");
        let long = clipped("ä".repeat(20_000));
        assert!(long.len() <= MAX_MESSAGE && long.ends_with("... (shortened: 40000 bytes)"));
        assert_eq!(clipped(long.clone()), long);
    }
}
