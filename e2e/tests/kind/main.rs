//! In a kind cluster (`make kind-e2e`): real kubelets, containerd and kube-proxy run what the chart installed. Nothing is lost
//! while Envoys and controllers are replaced and a node is drained; the CLI works in the pods; an uninstall leaves what it
//! says, and whoever installs again goes on where it was. The cluster is the one of `kind/cluster up`, with the demo's tenants.

mod cluster;
mod conformance;
mod installs;
mod nodes;
mod pages;
mod pods;
mod rollouts;
mod tokens;
mod traffic;
