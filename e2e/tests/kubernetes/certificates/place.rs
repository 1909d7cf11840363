//! The fixture of these tests: a cluster with a CA, one TenantGateway of our class, and the
//! controller that issues its certificates.

use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use e2e::apiserver::Request;
use e2e::cluster::{ACCOUNT, BACKEND, Cluster, NAMESPACE, is_true, service};
use e2e::echo::Echo;
use e2e::envoy::Envoy;
use e2e::gatewright::Gatewright;
use e2e::pebble::{Options, Pebble};
use e2e::port::own_address;
use e2e::probe::{Answer, Probe, roots_of};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};

use e2e::tenants::{GATEWAY, cluster, namespace, route, tenant, until};

pub(crate) const SPACE: &str = "tenant-cert";
pub(crate) const APEX: &str = "cert.example.org";
pub(crate) const HOST: &str = "web.cert.example.org";

/// The cluster and the CA.
pub(crate) struct Place {
    pub(crate) cluster: Cluster,
    pub(crate) pebble: Pebble,
    pub(crate) address: IpAddr,
    bundle: NamedTempFile,
    _echo: Echo,
}

impl Place {
    /// Starts it at a loopback address of its own: all clients use the well-known ports.
    pub(crate) async fn start() -> Result<Self> {
        Self::with(Options::default()).await
    }

    /// Starts it with these options of Pebble.
    pub(crate) async fn with(options: Options) -> Result<Self> {
        Self::over(cluster().await?, options).await
    }

    /// Starts it in an existing cluster.
    pub(crate) async fn over(cluster: Cluster, options: Options) -> Result<Self> {
        let address: IpAddr = own_address().into();
        let pebble = Pebble::start(&Options {
            http_port: Some(80),
            hosts: Some(address),
            ..options
        })
        .await?;
        let ca = pebble.ca_pem();
        let bundle = NamedTempFile::new()?;
        std::fs::write(bundle.path(), ca)?;
        let cluster = cluster.reached_at(address);
        let server = &cluster.server;
        let echo = Echo::start_on("web", BACKEND).await?;
        server
            .apply(include_str!("../../../../deploy/gatewayclass.yaml"))
            .await?;
        namespace(server, SPACE, APEX).await?;
        for object in service(SPACE, "web", echo.address().port()) {
            server.put(object).await?;
        }
        Ok(Self {
            cluster,
            pebble,
            address,
            bundle,
            _echo: echo,
        })
    }

    /// Returns the path of Pebble's own root.
    pub(crate) fn bundle(&self) -> &std::path::Path {
        self.bundle.path()
    }

    /// Returns the arguments of a controller that gets certificates from Pebble.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let bundle = self.bundle.path().display().to_string();
        let directory = self.pebble.directory();
        [
            "--set",
            "tenancy.certificates=Own",
            "--set",
            &format!("issuers.acme.directory={directory}"),
            "--set",
            &format!("issuers.acme.caBundle={bundle}"),
            "--set",
            "issuers.acme.agreeToTerms=true",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// Starts the controller as deployed by default: cert-manager issues. TenantGateways may name
    /// Pebble.
    pub(crate) async fn beside_cert_manager(&self, identity: &str) -> Result<Gatewright> {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().skip(2).map(String::as_str).collect();
        let mut controller = self.cluster.controller_with(identity, &arguments)?;
        controller.line("xDS at").await?;
        Ok(controller)
    }

    /// Starts the controller.
    pub(crate) async fn controller(&self, identity: &str) -> Result<Gatewright> {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut controller = self.cluster.controller_with(identity, &arguments)?;
        controller.line("xDS at").await?;
        Ok(controller)
    }

    /// Starts an Envoy, and waits until it is ready.
    pub(crate) async fn envoy(&self) -> Result<(Envoy, TempDir)> {
        let (mut envoy, tls) = self.cluster.envoy("envoy-a").await?;
        envoy.ready().await?;
        Ok((envoy, tls))
    }

    /// A TenantGateway of our class, with annotations.
    pub(crate) async fn tenant(&self, annotations: Value) -> Result<()> {
        let mut object = tenant(
            SPACE,
            json!({"apex": APEX, "gatewayClassName": "gatewright"}),
        );
        object["metadata"]["annotations"] = annotations;
        self.cluster.server.put(object).await?;
        Ok(())
    }

    /// A TenantGateway whose certificates come from Pebble.
    pub(crate) async fn by_acme(&self) -> Result<()> {
        self.tenant(json!({"gatewright.io/acme-directory": self.pebble.directory()}))
            .await
    }

    /// A route for a host.
    pub(crate) async fn route(&self, name: &str, host: &str) -> Result<()> {
        self.cluster
            .server
            .put(route(SPACE, name, SPACE, &[host]))
            .await
            .map(drop)
    }

    /// Waits until a host is served with a certificate that chains to these roots.
    pub(crate) async fn until_served(&self, host: &str, roots: &str) -> Result<()> {
        let store = roots_of(roots)?;
        let https = SocketAddr::new(self.address, 443);
        until("the host is served with its certificate", async || {
            let answer = Probe::https(https, host).roots(store.clone()).send().await;
            Ok(answer.is_ok_and(|answer: Answer| answer.status == 200))
        })
        .await
    }

    /// Waits until the Gateway is programmed.
    pub(crate) async fn until_programmed(&self) -> Result<()> {
        self.cluster
            .until(GATEWAY, "Gateway", SPACE, "cozystack", |o| {
                is_true(&o["status"], "Programmed")
            })
            .await
            .map(drop)
    }

    /// Returns the Secrets with certificates in the tenant's namespace.
    pub(crate) async fn secrets(&self) -> Result<Vec<Secret>> {
        let api: Api<Secret> = Api::namespaced(self.cluster.server.client(), SPACE);
        let all = api.list(&Default::default()).await?.items;
        Ok(all
            .into_iter()
            .filter(|secret| secret.type_.as_deref() == Some("kubernetes.io/tls"))
            .collect())
    }

    /// Returns the number of storage entries of a kind.
    pub(crate) async fn entries(&self, kind: &str) -> Result<usize> {
        let params =
            kube::api::ListParams::default().labels(&format!("gatewright.io/keeps={kind}"));
        let secrets: Api<Secret> = Api::namespaced(self.cluster.server.client(), NAMESPACE);
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster.server.client(), NAMESPACE);
        Ok(secrets.list(&params).await?.items.len() + maps.list(&params).await?.items.len())
    }

    /// Returns the controller's writes of certificates.
    pub(crate) fn installs(&self) -> Result<Vec<Request>> {
        let mut all = self.cluster.writes()?;
        all.retain(|w| {
            w.user == ACCOUNT
                && w.resource == "secrets"
                && w.object.starts_with(SPACE)
                && w.code < 400
        });
        Ok(all)
    }
}
