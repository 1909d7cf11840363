//! Which of a Gateway's addresses meets which of its requests (GEP-5093).
//!
//! Each request is met by an address of its own, or by none: never by one that is reachable from
//! elsewhere. A Gateway none of whose requests can be met is served nowhere, so that one that is to
//! be reached from within the cluster alone is never reached from outside.

use super::exposure;
use super::fleet;
use crate::key::Verdict;
use crate::rule::gateway_exposure::{Fleet, GatewayExposure};
use crate::rule::settings::Settings;
use crate::state::parent::Parent;
use gatewright_objects::channel::Channel;
use gatewright_objects::inputs::{Address, AddressRequest, Gateway, Service};
use gatewright_objects::model::{GatewayAddress, Reason, Routability, StatusAddress};
use gatewright_objects::store::Store;

/// An address that a Gateway has, with whether it is one within the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) address: GatewayAddress,
    pub(crate) in_cluster: bool,
}

/// The outcome of a Gateway's requests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// The addresses that meet one, in the order of the requests.
    pub(crate) assigned: Vec<StatusAddress>,
    /// The requests that nothing meets, as texts.
    pub(crate) unmet: Vec<String>,
}

impl Assignment {
    /// Ok if the addresses are those that the Gateway asks for: `AddressesAssigned`.
    pub(crate) fn verdict(&self) -> Verdict {
        let Self { assigned, unmet } = self;
        match (assigned.is_empty(), unmet.is_empty()) {
            (_, true) if !assigned.is_empty() => Ok(()),
            (true, _) if unmet.is_empty() => {
                Err((Reason::NotAssigned, "there is no address yet".to_owned()))
            }
            (true, _) => Err((Reason::NotAssigned, unmet.join("; "))),
            (false, _) => Err((Reason::PartiallyAssigned, unmet.join("; "))),
        }
    }
}

/// Gives each request an address of its own, of those that are offered. Those that leave less of a
/// choice come first. Without any request all that is offered is taken.
pub(crate) fn assign(requests: &[AddressRequest], offered: &[Offered]) -> Assignment {
    fn own(offered: &Offered) -> Routability {
        if offered.in_cluster {
            Routability::Cluster
        } else {
            Routability::Default
        }
    }
    if requests.is_empty() {
        let assigned = offered
            .iter()
            .map(|offered| taken(offered, own(offered)))
            .collect();
        return Assignment {
            assigned,
            unmet: Vec::new(),
        };
    }
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|index| {
        let AddressRequest {
            address,
            routability,
        } = &requests[*index];
        (address.ip().is_none(), *routability != Routability::Cluster)
    });
    let mut left: Vec<&Offered> = offered.iter().collect();
    // Addresses without a scope come first, so that those within the cluster are left for requests
    // for them.
    left.sort_by_key(|offered| offered.in_cluster);
    let mut met: Vec<Option<StatusAddress>> = vec![None; requests.len()];
    for index in order {
        let AddressRequest {
            address,
            routability,
        } = &requests[index];
        let fits = |offered: &&Offered| {
            let is_asked = match (address, &offered.address) {
                (Address::Ip(asked), GatewayAddress::Ip(ip)) => asked == ip,
                (Address::Any, GatewayAddress::Ip(_)) => true,
                _ => false,
            };
            is_asked
                && match routability {
                    Routability::Default | Routability::Sentinel => true,
                    Routability::Cluster => offered.in_cluster,
                    Routability::Other(_) => false,
                }
        };
        if let Some(at) = left.iter().position(fits) {
            let offered = left.remove(at);
            let said = if *routability == Routability::Sentinel {
                Routability::Sentinel
            } else {
                own(offered)
            };
            met[index] = Some(taken(offered, said));
        }
    }
    let unmet = met
        .iter()
        .zip(requests)
        .enumerate()
        .filter(|(_, (met, _))| met.is_none());
    let unmet = unmet
        .map(|(index, (_, request))| format!("spec.addresses[{index}]: {}", lacking(request)))
        .collect();
    Assignment {
        assigned: met.into_iter().flatten().collect(),
        unmet,
    }
}

fn taken(offered: &Offered, routability: Routability) -> StatusAddress {
    StatusAddress {
        address: offered.address.clone(),
        routability: Some(routability),
    }
}

fn lacking(request: &AddressRequest) -> String {
    let AddressRequest {
        address,
        routability,
    } = request;
    let what = match address {
        Address::Ip(ip) => ip.to_string(),
        Address::Any => "an IPAddress".to_owned(),
        Address::Unsupported(text) | Address::Malformed(text) => text.clone(),
    };
    match routability {
        Routability::Default | Routability::Sentinel => format!("{what} is not there"),
        Routability::Cluster => format!("{what} within the cluster is not there"),
        Routability::Other(scope) => format!("routability {scope} is not known"),
    }
}

/// True if a Gateway is to be reached from within the cluster alone.
pub(crate) fn is_internal(gateway: &Gateway) -> bool {
    let requests = &gateway.requests;
    !requests.is_empty()
        && requests
            .iter()
            .all(|request| request.routability == Routability::Cluster)
}

/// The addresses that a Gateway has. `own` is where it is bound, where it has addresses of its own.
pub(crate) fn offered(
    exposure: &GatewayExposure,
    gateway: &Gateway,
    own: impl FnOnce() -> Vec<GatewayAddress>,
    store: &Store,
    settings: &Settings,
) -> Vec<Offered> {
    match exposure.fleet {
        Fleet::Own => outside(own()),
        // The common addresses of the fleet are not those of one Gateway alone, whatever the type
        // of its Service is.
        Fleet::Shared => outside(fleet::addresses(store, settings)),
        Fleet::Dedicated | Fleet::Isolated => {
            // Beside its load balancer a Service has an address within the cluster, which whoever
            // asks for it is given.
            let both = gateway
                .requests
                .iter()
                .any(|request| request.routability == Routability::Cluster)
                && !is_internal(gateway);
            let service = exposure::service(exposure, gateway, store);
            service
                .map(|service| of_service(service, both))
                .unwrap_or_default()
        }
    }
}

fn outside(all: Vec<GatewayAddress>) -> Vec<Offered> {
    all.into_iter()
        .map(|address| Offered {
            address,
            in_cluster: false,
        })
        .collect()
}

/// The addresses of a Service; with `both` those within the cluster beside those of its load
/// balancer.
fn of_service(service: &Service, both: bool) -> Vec<Offered> {
    let reached = service.reached.iter();
    let mut all: Vec<Offered> = reached
        .map(|address| Offered {
            address: address.clone(),
            in_cluster: is_in_cluster(address, &service.cluster_ips),
        })
        .collect();
    let more = service
        .cluster_ips
        .iter()
        .map(|ip| GatewayAddress::Ip(*ip))
        .filter(|_| both);
    let more: Vec<_> = more
        .filter(|address| all.iter().all(|offered| offered.address != *address))
        .collect();
    all.extend(more.into_iter().map(|address| Offered {
        address,
        in_cluster: true,
    }));
    all
}

fn is_in_cluster(address: &GatewayAddress, service_cluster_ips: &[std::net::IpAddr]) -> bool {
    match address {
        GatewayAddress::Ip(ip) => service_cluster_ips.contains(ip),
        GatewayAddress::Hostname(_) => false,
    }
}

/// Why no request of a Gateway can ever be met, so that it is served nowhere.
pub(crate) fn unusable(
    gateway: &Gateway,
    exposure: &GatewayExposure,
    store: &Store,
    settings: &Settings,
) -> Option<(Reason, String)> {
    let first = gateway
        .requests
        .iter()
        .position(|request| scoped(&request))?;
    if settings.channel == Channel::Standard {
        let text = format!(
            "spec.addresses[{first}].routability is of the experimental channel, gatewayApi.channel is standard; \
             nothing is served, so that nothing is reached from where it is not to be"
        );
        return Some((Reason::AddressNotAssigned, text));
    }
    let can_be_met = |request: &AddressRequest| match (&request.routability, exposure.fleet) {
        (Routability::Default | Routability::Sentinel, _) => true,
        (Routability::Other(_), _) | (Routability::Cluster, Fleet::Own | Fleet::Shared) => false,
        (Routability::Cluster, Fleet::Dedicated | Fleet::Isolated)
            if exposure.service.name.is_none() =>
        {
            true
        }
        (Routability::Cluster, Fleet::Dedicated | Fleet::Isolated) => {
            offered(exposure, gateway, Vec::new, store, settings)
                .iter()
                .any(|offered| offered.in_cluster)
        }
    };
    if gateway.requests.iter().any(can_be_met) {
        return None;
    }
    let text = match exposure.fleet {
        Fleet::Own => "addresses here are none of a cluster",
        Fleet::Shared => {
            "the addresses of the shared fleet are common to all its Gateways, use fleet Dedicated"
        }
        Fleet::Dedicated | Fleet::Isolated => "use Cluster, or leave it empty",
    };
    let all: Vec<String> = gateway
        .requests
        .iter()
        .map(|request| request.routability.as_str().to_owned())
        .collect();
    let text = format!(
        "spec.addresses: no address has routability {}: {text}; nothing is served",
        all.join(", ")
    );
    Some((Reason::AddressNotAssigned, text))
}

fn scoped(request: &&AddressRequest) -> bool {
    request.routability != Routability::Default
}

/// The verdict on the addresses of a Gateway that requests scopes: addresses that meet some of its
/// requests are enough.
pub(crate) fn reached(parent: &Parent, assignment: &Assignment, reached: Verdict) -> Verdict {
    match reached {
        Err((Reason::AddressNotAssigned | Reason::AddressNotUsable, _))
            if !assignment.assigned.is_empty() =>
        {
            Ok(())
        }
        Ok(()) if assignment.assigned.is_empty() && parent.accepted.is_ok() => {
            Err((Reason::AddressNotAssigned, assignment.unmet.join("; ")))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(all: &[(&str, &str)]) -> Vec<AddressRequest> {
        all.iter()
            .map(|(value, routability)| AddressRequest {
                address: value.parse().map_or(Address::Any, Address::Ip),
                routability: Routability::parse(routability),
            })
            .collect()
    }

    fn offer(all: &[(&str, bool)]) -> Vec<Offered> {
        all.iter()
            .map(|(ip, in_cluster)| Offered {
                address: GatewayAddress::Ip(ip.parse().expect("an address")),
                in_cluster: *in_cluster,
            })
            .collect()
    }

    /// The addresses as a status has them, and how many requests are not met.
    fn check(asked: &[(&str, &str)], offered: &[(&str, bool)]) -> (Vec<String>, usize) {
        let Assignment { assigned, unmet } = assign(&requests(asked), &offer(offered));
        let said = assigned.iter().map(|at| {
            let routability = at.routability.as_ref().expect("each says it");
            format!("{} {}", at.address, routability.as_str())
                .trim()
                .to_owned()
        });
        (said.collect(), unmet.len())
    }

    const BOTH: &[(&str, bool)] = &[("10.96.0.9", true), ("192.0.2.1", false)];

    #[test]
    fn each_request_has_an_address_of_its_own_and_of_its_scope() {
        fn texts(all: &[&str]) -> Vec<String> {
            all.iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        }
        for (asked, offered, expected, unmet) in [
            (&[][..], BOTH, &["10.96.0.9 Cluster", "192.0.2.1"][..], 0),
            (&[("", "")], BOTH, &["192.0.2.1"], 0),
            (
                &[("", ""), ("", "Cluster")],
                BOTH,
                &["192.0.2.1", "10.96.0.9 Cluster"],
                0,
            ),
            (
                &[("", "Cluster"), ("", "")],
                BOTH,
                &["10.96.0.9 Cluster", "192.0.2.1"],
                0,
            ),
            (
                &[("", "Cluster"), ("", "Cluster")],
                BOTH,
                &["10.96.0.9 Cluster"],
                1,
            ),
            (&[("", "Cluster")], &[("192.0.2.1", false)], &[], 1),
            (
                &[("192.0.2.1", "Cluster"), ("", "")],
                BOTH,
                &["192.0.2.1"],
                1,
            ),
            (&[("10.96.0.9", "Cluster")], BOTH, &["10.96.0.9 Cluster"], 0),
            (
                &[("", ""), ("192.0.2.1", "")],
                BOTH,
                &["10.96.0.9 Cluster", "192.0.2.1"],
                0,
            ),
            (
                &[("", "")],
                &[("10.96.0.9", true)],
                &["10.96.0.9 Cluster"],
                0,
            ),
            (
                &[("", "testing.x-k8s.io/sentinel")],
                BOTH,
                &["192.0.2.1 testing.x-k8s.io/sentinel"],
                0,
            ),
            (
                &[("", "testing.x-k8s.io/other"), ("", "example.org/Wan")],
                BOTH,
                &[],
                2,
            ),
        ] {
            assert_eq!(check(asked, offered), (texts(expected), unmet), "{asked:?}");
        }
    }

    #[test]
    fn an_unmet_address_request_is_reported_by_its_position() {
        fn told(asked: &[(&str, &str)], offered: &[(&str, bool)]) -> Result<(), (Reason, String)> {
            assign(&requests(asked), &offer(offered)).verdict()
        }
        assert_eq!(told(&[("", "Cluster"), ("", "")], BOTH), Ok(()));
        let partly = told(&[("", ""), ("192.0.2.9", "Cluster")], BOTH);
        let text = "spec.addresses[1]: 192.0.2.9 within the cluster is not there".to_owned();
        assert_eq!(partly, Err((Reason::PartiallyAssigned, text.clone())));
        assert_eq!(
            told(&[("", "")], &[]).map_err(|(reason, _)| reason),
            Err(Reason::NotAssigned)
        );
        assert_eq!(
            told(&[], &[]),
            Err((Reason::NotAssigned, "there is no address yet".to_owned()))
        );
        assert_eq!(told(&[], BOTH), Ok(()));
    }

    #[test]
    fn a_hostname_is_no_ip_address() {
        let offered = [Offered {
            address: GatewayAddress::Hostname("lb.example.org".into()),
            in_cluster: false,
        }];
        assert_eq!(assign(&requests(&[("", "")]), &offered).unmet.len(), 1);
        assert_eq!(assign(&[], &offered).assigned.len(), 1);
    }
}
