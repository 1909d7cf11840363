//! Tests in a kind cluster (`make kind-e2e`): real kubelets, containerd and kube-proxy run the
//! chart's installation. No request fails while Envoys and controllers are replaced and a node is
//! drained; the CLI works in the pods; an uninstall leaves what it lists, and a new installation
//! continues from that. The cluster is that of `kind/cluster up`, with the demo's tenants.

mod cert_manager;
mod cluster;
mod conformance;
mod installs;
mod nodes;
mod pages;
mod pods;
mod rollouts;
mod tokens;
mod traffic;
