//! Conditions of Gateways and classes about their access logs.

use super::frontend_logs;
use super::report::Report;
use crate::rule::gateway_exposure::Fleet;
use crate::rule::gateway_parameters::class_parameters;
use crate::state::log_collectors::Collectors;
use crate::state::parent::Parent;
use gatewright_objects::inputs::GatewayClass;
use gatewright_objects::model::Condition;

impl<'a> Report<'a> {
    /// The condition of a class whose access log loses lines.
    pub(crate) fn log_of_class(self, class: &GatewayClass) -> Option<Condition> {
        let parameters = class_parameters(class, self.store).ok()??;
        let log = frontend_logs::of_class(class, &parameters, self.settings)?;
        self.collectors().condition(log.as_deref())
    }

    /// The condition of a Gateway whose access log loses lines. The log of the shared fleet is an
    /// affair of its class.
    pub(crate) fn log_of_gateway(self, parent: &Parent) -> Option<Condition> {
        let exposure = &parent.placement.exposure;
        if exposure.fleet == Fleet::Shared {
            return None;
        }
        self.collectors().condition(exposure.access_log.as_deref())
    }

    /// The states that show whether collectors are reached.
    pub(crate) fn collectors(self) -> Collectors<'a> {
        Collectors {
            store: self.store,
            policies: self.policies,
            service_endpoints: self.service_endpoints,
        }
    }
}
