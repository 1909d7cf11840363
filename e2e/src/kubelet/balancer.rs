//! A load balancer: every Service of type LoadBalancer gets an address of this machine, whose ports
//! forward to ready endpoints. It writes the Service's status, as a cloud or MetalLB would.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams, Patch};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::network::Network;
use super::services::{Port, Transport, target};

/// The Services of type LoadBalancer.
#[derive(Default)]
pub(super) struct Balancer {
    services: BTreeMap<(String, String), Balanced>,
    /// The number of the next address. None is reused for another Service, so that it never gets
    /// connections of old clients.
    next: u8,
}

struct Balanced {
    uid: String,
    address: Ipv4Addr,
    ports: BTreeMap<(i32, Transport), Port>,
}

impl Balancer {
    /// Reconciles with the current Services.
    pub(super) async fn look(&mut self, client: &Client, network: &Network) -> Result<()> {
        let all: Api<Service> = Api::all(client.clone());
        let slices: Api<EndpointSlice> = Api::all(client.clone());
        let slices = slices.list(&ListParams::default()).await?.items;
        let mut seen = BTreeSet::new();
        for service in all.list(&ListParams::default()).await? {
            let Some(spec) = service
                .spec
                .as_ref()
                .filter(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
            else {
                continue;
            };
            let key = (service.namespace().unwrap_or_default(), service.name_any());
            let uid = service.uid().unwrap_or_default();
            seen.insert(key.clone());
            let asked = spec
                .load_balancer_ip
                .as_deref()
                .and_then(|text| text.parse::<Ipv4Addr>().ok());
            let stale = |held: &Balanced| {
                held.uid != uid || asked.is_some_and(|asked| asked != held.address)
            };
            if let Some(held) = self.services.get(&key).filter(|held| stale(held)) {
                network.release(held.address)?;
                self.services.remove(&key);
            }
            if !self.services.contains_key(&key) {
                let Some(address) = self.address(network, asked)? else {
                    give(client, &service, None).await?;
                    continue;
                };
                self.services.insert(
                    key.clone(),
                    Balanced {
                        uid,
                        address,
                        ports: BTreeMap::new(),
                    },
                );
            }
            let balanced = self
                .services
                .get_mut(&key)
                .expect("it was there, or just made");
            give(client, &service, Some(balanced.address)).await?;
            let ports = spec.ports.as_deref().unwrap_or_default();
            balanced.ports.retain(|at, _| {
                ports
                    .iter()
                    .any(|port| (port.port, Transport::of(port)) == *at)
            });
            for port in ports {
                let number = port.port;
                let transport = Transport::of(port);
                let own = slices.iter().filter(|slice| {
                    slice.labels().get("kubernetes.io/service-name") == Some(&key.1)
                        && slice.namespace().as_ref() == Some(&key.0)
                });
                let found = own
                    .into_iter()
                    .find_map(|slice| target(slice, port.name.as_deref()));
                if !balanced.ports.contains_key(&(number, transport)) {
                    let at = SocketAddr::from((balanced.address, u16::try_from(number)?));
                    balanced
                        .ports
                        .insert((number, transport), Port::open(at, transport).await?);
                }
                balanced.ports[&(number, transport)].lead_to(found);
            }
        }
        let gone: Vec<_> = self
            .services
            .keys()
            .filter(|key| !seen.contains(*key))
            .cloned()
            .collect();
        for key in gone {
            let held = self.services.remove(&key).expect("just seen");
            network.release(held.address)?;
        }
        Ok(())
    }

    /// Returns the requested address, or a new one; None if the requested one is not ours or is
    /// taken.
    fn address(&mut self, network: &Network, asked: Option<Ipv4Addr>) -> Result<Option<Ipv4Addr>> {
        if let Some(asked) = asked {
            let free = self.services.values().all(|held| held.address != asked);
            let ours = free && network.is_balanced(asked);
            if ours {
                network.add(asked)?;
            }
            return Ok(ours.then_some(asked));
        }
        self.next += 1;
        ensure!(self.next < 250, "no address is left for a load balancer");
        let address = network.balanced(self.next);
        network.add(address)?;
        Ok(Some(address))
    }
}

/// Writes the address into the status of a Service, if it changed.
async fn give(client: &Client, service: &Service, address: Option<Ipv4Addr>) -> Result<()> {
    let held = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    let held = held.and_then(|held| held.ingress.as_ref()?.first()?.ip.clone());
    if held == address.map(|address| address.to_string()) {
        return Ok(());
    }
    let ingress = address.map(|address| json!([{"ip": address.to_string()}]));
    let status = json!({"status": {"loadBalancer": {"ingress": ingress}}});
    let api: Api<Service> =
        Api::namespaced(client.clone(), &service.namespace().unwrap_or_default());
    match api
        .patch_status(
            &service.name_any(),
            &Default::default(),
            &Patch::Merge(&status),
        )
        .await
    {
        // The Service was deleted meanwhile.
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
        done => Ok(done.map(drop)?),
    }
}
