//! States: what the engine keeps between changes. A state names rules, and no stage.

pub(crate) mod children;
pub(crate) mod claims;
pub(crate) mod derivations;
pub(crate) mod dirty;
pub(crate) mod groups;
pub(crate) mod hosts;
pub(crate) mod namespaces;
pub(crate) mod places;
pub(crate) mod provided_secrets;
pub(crate) mod record;
pub(crate) mod tenants;
pub(crate) mod work_list;
