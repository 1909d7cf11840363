//! The kinds of objects, and the keys that identify objects.

use std::fmt;

use super::ChangeKind;
use crate::channel::Channel;
use crate::kinds;
use crate::model::ObjectName;

/// What there is to know of a kind: a row of the list.
#[derive(Clone, Copy, Debug)]
struct KindRow {
    /// The API group; empty for the core group.
    group: &'static str,
    /// The versions we understand, the newest first.
    versions: &'static [&'static str],
    /// True if objects live in a namespace.
    namespaced: bool,
    /// The channel of the Gateway API with which the kind is watched.
    channel: Channel,
    /// True if it is watched only where TenantGateways are implemented, and read by tenancy alone.
    is_of_tenancy: bool,
    /// The part of a watched object that is read.
    content: Content,
    /// True if a text of it may be a credential, which no message shows.
    has_credentials: bool,
    /// The list of the status that we write, if any.
    status: Option<StatusList>,
    /// The kind of a change of one.
    change: ChangeKind,
}

/// The part of a watched object that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The whole object.
    Whole,
    /// The metadata: the rest is fetched when it is referred to, or not needed.
    Metadata,
    /// The addresses, as of pods and nodes.
    Addresses,
    /// The fields that we applied: the rest is for others.
    Applied,
}

/// The list of a status in which our entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusList {
    /// The conditions of the object itself.
    Conditions,
    /// `parents`, with conditions for each.
    Parents,
    /// `ancestors`, with conditions for each.
    Ancestors,
}

impl KindRow {
    /// The row of a policy.
    const fn policy(self) -> Self {
        Self {
            status: Some(StatusList::Ancestors),
            change: ChangeKind::Policy,
            ..self
        }
    }
}

const V1_BETA: &[&str] = &["v1", "v1beta1"];

const CORE: KindRow = KindRow {
    group: "",
    versions: &["v1"],
    namespaced: true,
    channel: Channel::Standard,
    is_of_tenancy: false,
    content: Content::Whole,
    has_credentials: false,
    status: None,
    change: ChangeKind::Service,
};

const GATEWAY_API: KindRow = KindRow {
    group: GATEWAY_GROUP,
    change: ChangeKind::Gateway,
    ..CORE
};

const ROUTE: KindRow = KindRow {
    status: Some(StatusList::Parents),
    change: ChangeKind::Route,
    ..GATEWAY_API
};

/// Kinds that are in the experimental channel only.
const EXPERIMENTAL: KindRow = KindRow {
    group: "gateway.networking.x-k8s.io",
    versions: &["v1alpha1"],
    channel: Channel::Experimental,
    ..GATEWAY_API
};

const OWN: KindRow = KindRow {
    group: OWN_GROUP,
    versions: &["v1alpha1"],
    ..GATEWAY_API
};

const CERT_MANAGER: KindRow = KindRow {
    group: "cert-manager.io",
    is_of_tenancy: true,
    content: Content::Applied,
    change: ChangeKind::Certificate,
    ..CORE
};

macro_rules! first {
    ($first:expr, $($rest:tt)*) => {
        $first
    };
}

macro_rules! enum_of_kinds {
    (
        $($type:ident($($of:tt)*) |$o:ident| $key:tt $(in $table:ident by $by:ty $(as $get:ident)?)? {
            $($(#[$doc:meta])* $kind:ident $(: $how:ident($read:path) $(else $salvage:path)?)?, $row:expr;)*
        })*
        _ { $($(#[$other_doc:meta])* $other_kind:ident, $other_row:expr;)* }
    ) => {
        /// The kinds we read.
        #[allow(missing_docs, reason = "the names are the kinds'")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $($($(#[$doc])* $kind,)*)*
            $($(#[$other_doc])* $other_kind,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Kind] = &[$($(Kind::$kind,)*)* $(Kind::$other_kind,)*];

            /// The kinds that are read from manifests, in the order in which they should be read.
            pub const READ: &[Kind] = &[$($($(first!(Kind::$kind, $read),)?)*)*];

            /// The kind as written in manifests.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($(Kind::$kind => stringify!($kind),)*)*
                    $(Kind::$other_kind => stringify!($other_kind),)*
                }
            }

        }

        static ROWS: [KindRow; Kind::ALL.len()] = [$($($row,)*)* $($other_row,)*];
    };
}

kinds!(enum_of_kinds);

impl Kind {
    fn row(self) -> &'static KindRow {
        &ROWS[self as usize]
    }

    /// The kind of this name among those that are read from manifests.
    pub(super) fn read_as(name: &str) -> Option<Self> {
        Self::READ
            .iter()
            .copied()
            .find(|kind| kind.as_str() == name)
    }

    /// The API group as written before the slash of `apiVersion`; empty for the core group.
    pub fn group(self) -> &'static str {
        self.row().group
    }

    /// The `apiVersion` to write: the newest version we understand.
    pub fn api_version(self) -> String {
        match self.group() {
            "" => self.versions()[0].to_owned(),
            group => format!("{group}/{}", self.versions()[0]),
        }
    }

    /// The versions we understand, the newest first.
    pub fn versions(self) -> &'static [&'static str] {
        self.row().versions
    }

    /// The kinds to watch in a cluster, by whether TenantGateways are implemented here and by the
    /// release channel of the Gateway API.
    pub fn watched(tenants: bool, channel: Channel) -> impl Iterator<Item = Self> {
        let all = Self::ALL.iter().copied();
        all.filter(move |kind| {
            (tenants || !kind.is_of_tenancy())
                && (channel == Channel::Experimental || !kind.is_experimental())
        })
    }

    /// True for kinds of the experimental channel, which only add to what is served.
    pub fn is_experimental(self) -> bool {
        self.row().channel == Channel::Experimental
    }

    /// True for kinds that tenancy alone reads.
    pub fn is_of_tenancy(self) -> bool {
        self.row().is_of_tenancy
    }

    /// The part of a watched object that is read.
    pub fn content(self) -> Content {
        self.row().content
    }

    /// True if a text of an object may be a credential, which no message shows.
    pub(super) fn has_credentials(self) -> bool {
        self.row().has_credentials
    }

    /// The list of the status that we write, if any.
    pub fn status(self) -> Option<StatusList> {
        self.row().status
    }

    /// The kind of a change of an object.
    pub fn change(self) -> ChangeKind {
        self.row().change
    }

    /// True for policies, which have statuses for ancestors. An XBackend is one on the Service as
    /// which it is served.
    pub fn is_policy(self) -> bool {
        self.status() == Some(StatusList::Ancestors)
    }

    /// True if objects of this kind live in a namespace.
    pub fn namespaced(self) -> bool {
        self.row().namespaced
    }
}

/// The API group of the Gateway API.
pub(super) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The API group of TenantGateways.
const TENANCY_GROUP: &str = "gateway.cozystack.io";

/// Kind and name: what identifies an object. Printed as `httproute default/web`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The kind.
    pub kind: Kind,
    /// The name.
    pub name: ObjectName,
}

impl ObjectKey {
    /// Joins a kind and a name.
    pub fn new(kind: Kind, name: ObjectName) -> Self {
        Self { kind, name }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str().to_lowercase(), self.name)
    }
}

/// The group of our own kinds.
pub const OWN_GROUP: &str = "gatewright.io";
