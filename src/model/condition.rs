//! Conditions: what an object's status says, with the reasons of the Gateway API v1.7.0.

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not known yet.
    Unknown,
}

/// One condition of an object, without the time of its last change: who writes it knows that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// The type, e.g. `Accepted`.
    pub kind: &'static str,
    /// Whether it holds.
    pub status: Status,
    /// Why.
    pub reason: Reason,
    /// For people: what was expected, what was found, and where. Stable for equal inputs.
    pub message: String,
}

/// A message is no longer than this: the API server refuses a status whose message has more than 32,768 characters, and
/// would refuse it for ever.
const LONGEST: usize = 4096;

/// A message for a condition, shortened where it is too long.
pub fn clipped(mut message: String) -> String {
    if message.len() > LONGEST {
        let whole = message.len();
        let mut end = LONGEST - 64;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str(&format!("... (shortened: {whole} bytes)"));
    }
    message
}

macro_rules! reasons {
    ($($name:ident),* $(,)?) => {
        /// Reasons, named as in the specification (Gateway API v1.7.0, `apis/v1/*_types.go`), and those of tenancy, which
        /// it leaves to implementations: EndpointNotPermitted, ForeignObject, HostnameNotAllowed, HostnameRequired,
        /// InvalidHostname, LimitReached, ListenerLimitReached, ListenerSetParentRequired, NameCollision and
        /// WildcardNotIssuable.
        #[allow(missing_docs, reason = "the names are the specification's")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $($name),* }

        impl Reason {
            /// As written in a status.
            pub fn as_str(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name)),* }
            }
        }
    };
}

reasons!(
    Accepted,
    AddressNotAssigned,
    AddressNotUsable,
    BackendNotFound,
    CertificateLimitReached,
    EndpointNotPermitted,
    ForeignObject,
    HostnameConflict,
    HostnameNotAllowed,
    HostnameRequired,
    IncompatibleFilters,
    Invalid,
    InvalidCertificateRef,
    InvalidHostname,
    InvalidKind,
    InvalidParameters,
    InvalidRouteKinds,
    InvalidTLSConfig,
    LimitReached,
    ListenerLimitReached,
    ListenerSetParentRequired,
    ListenersNotValid,
    NameCollision,
    NoMatchingListenerHostname,
    NoMatchingParent,
    NoResources,
    NotAllowed,
    NotAllowedByListeners,
    OverlappingCertificates,
    OverlappingHostnames,
    ParentNotAccepted,
    ParentNotProgrammed,
    Pending,
    PortUnavailable,
    Programmed,
    ProtocolConflict,
    RefNotPermitted,
    ResolvedRefs,
    TooManyListeners,
    Unsupported,
    UnsupportedAddress,
    UnsupportedProtocol,
    UnsupportedValue,
    WildcardNotIssuable,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_shortened_at_a_character() {
        assert_eq!(clipped("short".to_owned()), "short");
        let long = clipped("ä".repeat(20_000));
        assert!(long.len() <= LONGEST && long.ends_with("... (shortened: 40000 bytes)"));
        assert_eq!(clipped(long.clone()), long);
    }
}
