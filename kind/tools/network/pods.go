package network

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Where containerd looks for the configuration, and the route protocol by which our routes are known.
const (
	configuration = "/etc/cni/net.d/10-pods.conflist"
	protocol      = netlink.RouteProtocol(77)
)

// RunPodNetwork gives pods of this node addresses of the node's range, and leads to the pods of the other nodes by a route over
// each node. Traffic that leaves the cluster has the node's address.
func RunPodNetwork() error {
	client, err := connect()
	if err != nil {
		return err
	}
	name := os.Getenv("NODE_NAME")
	written := ""
	return repeat("pod-network", func(ctx context.Context) error {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, node := range nodes.Items {
			if node.Spec.PodCIDR == "" {
				return fmt.Errorf("node %s has no podCIDR yet", node.Name)
			}
			if node.Name == name && written != node.Spec.PodCIDR {
				if err := configure(node.Spec.PodCIDR); err != nil {
					return err
				}
				if err := masquerade(ctx, client); err != nil {
					return err
				}
				written = node.Spec.PodCIDR
			}
		}
		return routes(name, nodes.Items)
	})
}

// configure writes the configuration for the plugins, in one step: containerd reads whatever is there.
func configure(podCIDR string) error {
	text := fmt.Sprintf(`{"cniVersion": "0.3.1", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500,
   "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam-state", "routes": [{"dst": "0.0.0.0/0"}],
            "ranges": [[{"subnet": "%s"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, podCIDR)
	if err := os.MkdirAll("/etc/cni/net.d", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(configuration+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(configuration+".new", configuration)
}

// masquerade has what leaves the cluster's pods for elsewhere leave with the node's address.
func masquerade(ctx context.Context, client *kubernetes.Clientset) error {
	cluster := os.Getenv("POD_SUBNET")
	if _, _, err := net.ParseCIDR(cluster); err != nil {
		return fmt.Errorf("POD_SUBNET: %w", err)
	}
	return run(fmt.Sprintf(`table ip pod-network
delete table ip pod-network
table ip pod-network {
  chain postrouting {
    type nat hook postrouting priority srcnat - 5; policy accept;
    ip saddr %[1]s ip daddr != %[1]s fib daddr type != local oifname != "lo" masquerade
  }
}
`, cluster), "nft", "-f", "-")
}

// routes leads to the pods of the other nodes, and removes what leads to nodes that are gone.
func routes(name string, nodes []corev1.Node) error {
	wanted := map[string]net.IP{}
	for _, node := range nodes {
		if node.Name == name {
			continue
		}
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP && net.ParseIP(address.Address).To4() != nil {
				wanted[node.Spec.PodCIDR] = net.ParseIP(address.Address)
			}
		}
	}
	there, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: protocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return err
	}
	for _, route := range there {
		if route.Dst == nil {
			continue
		}
		if gateway, ok := wanted[route.Dst.String()]; ok && gateway.Equal(route.Gw) {
			delete(wanted, route.Dst.String())
			continue
		}
		if err := netlink.RouteDel(&route); err != nil {
			return fmt.Errorf("route %s: %w", route.Dst, err)
		}
	}
	for cidr, gateway := range wanted {
		_, to, err := net.ParseCIDR(cidr)
		if err != nil {
			return err
		}
		if err := netlink.RouteReplace(&netlink.Route{Dst: to, Gw: gateway, Protocol: protocol}); err != nil {
			return fmt.Errorf("route %s over %s: %w", cidr, gateway, err)
		}
	}
	return nil
}
