//! Rules: judgements of objects by themselves, and the types of what they find. A rule names no
//! state and no stage.

pub(crate) mod access_logs;
pub(crate) mod allowance;
pub(crate) mod backend_reference;
pub(crate) mod ca_bundles;
pub(crate) mod certificate;
pub(crate) mod certificate_warning;
pub(crate) mod chain_class;
pub(crate) mod client_certificate;
pub(crate) mod client_validation;
pub(crate) mod dedicated_envoys;
pub(crate) mod denied;
pub(crate) mod document;
pub(crate) mod experimental;
pub(crate) mod features;
pub(crate) mod gateway_exposure;
pub(crate) mod gateway_parameters;
pub(crate) mod host_option;
pub(crate) mod internal_ports;
pub(crate) mod limits;
pub(crate) mod listener_filters;
pub(crate) mod ownership;
pub(crate) mod policy;
pub(crate) mod precedence;
pub(crate) mod protocol;
pub(crate) mod route_notes;
pub(crate) mod settings;
pub(crate) mod surroundings;
pub(crate) mod tls_options;
pub(crate) mod xbackends;
