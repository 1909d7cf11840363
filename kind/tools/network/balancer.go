package network

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sort"
	"strings"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RunLoadBalancer gives Services of type LoadBalancer addresses of a range on the network of the nodes (LOAD_BALANCER_RANGE,
// as 172.18.255.1-172.18.255.250). The node that has an address answers for it on that network (ARP), and kube-proxy leads
// on from there: the first node, by name, with a ready endpoint of the Service. It runs on every node; the one that is called
// LOAD_BALANCER_WRITER writes statuses, and answers where endpoints name no node.
func RunLoadBalancer() error {
	client, err := connect()
	if err != nil {
		return err
	}
	first, last, err := addressRange(os.Getenv("LOAD_BALANCER_RANGE"))
	if err != nil {
		return err
	}
	name, writer := os.Getenv("NODE_NAME"), os.Getenv("LOAD_BALANCER_WRITER")
	return repeat("load-balancer", func(ctx context.Context) error {
		services, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if name == writer {
			for _, each := range assign(services.Items, first, last) {
				status := map[string]any{"status": map[string]any{"loadBalancer": corev1.LoadBalancerStatus{Ingress: each.ingress}}}
				patch, err := json.Marshal(status)
				if err != nil {
					return err
				}
				_, err = client.CoreV1().Services(each.namespace).Patch(ctx, each.name, types.MergePatchType, patch,
					metav1.PatchOptions{FieldManager: "load-balancer"}, "status")
				if err != nil {
					return err
				}
				fmt.Printf("load-balancer: %s/%s has %v\n", each.namespace, each.name, each.ingress)
			}
		}
		slices, err := client.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		return hold(mine(name, writer, services.Items, slices.Items), first, last)
	})
}

func addressRange(text string) (first, last netip.Addr, err error) {
	from, to, _ := strings.Cut(text, "-")
	if first, err = netip.ParseAddr(from); err != nil {
		return first, last, fmt.Errorf("LOAD_BALANCER_RANGE: %w", err)
	}
	last, err = netip.ParseAddr(to)
	return first, last, err
}

// assignment is the status that a Service is to have.
type assignment struct {
	namespace, name string
	ingress         []corev1.LoadBalancerIngress
}

// assign finds which Services are to have another status: an address for those without one, the one that is asked for
// (spec.loadBalancerIP) where it is in the range and free, and none for Services that are load balancers no more.
func assign(services []corev1.Service, first, last netip.Addr) []assignment {
	taken := map[string]bool{}
	sort.Slice(services, func(a, b int) bool {
		return services[a].CreationTimestamp.Before(&services[b].CreationTimestamp)
	})
	for _, service := range services {
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			taken[ingress.IP] = true
		}
	}
	var all []assignment
	for _, service := range services {
		ours := service.Spec.Type == corev1.ServiceTypeLoadBalancer && service.Spec.LoadBalancerClass == nil
		has := len(service.Status.LoadBalancer.Ingress) > 0
		switch {
		case !ours && has && service.Spec.Type != corev1.ServiceTypeLoadBalancer:
			all = append(all, assignment{service.Namespace, service.Name, nil})
		case ours && !has:
			wanted := service.Spec.LoadBalancerIP
			for address := first; wanted == "" && address.Compare(last) <= 0; address = address.Next() {
				if !taken[address.String()] {
					wanted = address.String()
				}
			}
			address, err := netip.ParseAddr(wanted)
			if err == nil && address.Compare(first) >= 0 && address.Compare(last) <= 0 && !taken[wanted] {
				taken[wanted] = true
				ingress := []corev1.LoadBalancerIngress{{IP: wanted}}
				all = append(all, assignment{service.Namespace, service.Name, ingress})
			}
		}
	}
	return all
}

// mine lists the addresses for which this node is to answer; the writer answers for endpoints without a node.
func mine(name, writer string, services []corev1.Service, slices []discoveryv1.EndpointSlice) map[string]bool {
	first := map[string]string{}
	for _, slice := range slices {
		key := slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			node := writer
			if endpoint.NodeName != nil {
				node = *endpoint.NodeName
			}
			if ready && (first[key] == "" || node < first[key]) {
				first[key] = node
			}
		}
	}
	all := map[string]bool{}
	for _, service := range services {
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			if ingress.IP != "" && first[service.Namespace+"/"+service.Name] == name {
				all[ingress.IP] = true
			}
		}
	}
	return all
}

// hold has this node answer for these addresses of the range, and for no other.
func hold(wanted map[string]bool, first, last netip.Addr) error {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	there, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, address := range there {
		ip, ok := netip.AddrFromSlice(address.IP.To4())
		if !ok || ip.Compare(first) < 0 || ip.Compare(last) > 0 {
			continue
		}
		if wanted[ip.String()] {
			delete(wanted, ip.String())
			continue
		}
		if err := netlink.AddrDel(link, &address); err != nil {
			return fmt.Errorf("address %s: %w", ip, err)
		}
	}
	for address := range wanted {
		ip := net.ParseIP(address)
		given := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)}}
		if err := netlink.AddrAdd(link, given); err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
		if err := announce(link, ip.To4()); err != nil {
			return fmt.Errorf("announcing %s: %w", address, err)
		}
	}
	return nil
}
