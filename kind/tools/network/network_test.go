package network

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func service(name string, kind corev1.ServiceType, wanted string, has ...string) corev1.Service {
	service := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	service.Spec.Type, service.Spec.LoadBalancerIP = kind, wanted
	for _, ip := range has {
		service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	return service
}

func TestAssign(t *testing.T) {
	balancer, cluster := corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP
	class := service("of-a-class", balancer, "")
	class.Spec.LoadBalancerClass = new(string)
	services := []corev1.Service{
		service("has", balancer, "", "10.0.0.1"), service("new", balancer, ""), service("asks", balancer, "10.0.0.4"),
		service("asks-for-one-of-others", balancer, "10.0.0.9"),
		service("asks-for-a-taken-one", balancer, "10.0.0.1"), service("no-more", cluster, "", "10.0.0.3"), class,
		service("one-too-many", balancer, ""),
	}
	given := map[string]string{}
	for _, each := range assign(services, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.4")) {
		given[each.name] = ""
		if len(each.ingress) > 0 {
			given[each.name] = each.ingress[0].IP
		}
	}
	want := map[string]string{"new": "10.0.0.2", "asks": "10.0.0.4", "no-more": ""}
	if len(given) != len(want) {
		t.Fatalf("given %v, want %v", given, want)
	}
	for name, ip := range want {
		if given[name] != ip {
			t.Errorf("%s has %q, want %q", name, given[name], ip)
		}
	}
}

func TestMine(t *testing.T) {
	no, a, b := false, "a", "b"
	slice := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns",
		Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}}
	slice.Endpoints = []discoveryv1.Endpoint{
		{NodeName: &a, Conditions: discoveryv1.EndpointConditions{Ready: &no}}, {NodeName: &b},
	}
	services := []corev1.Service{service("web", corev1.ServiceTypeLoadBalancer, "", "10.0.0.1")}
	if len(mine("a", "c", services, []discoveryv1.EndpointSlice{slice})) != 0 {
		t.Error("a node without a ready endpoint answers")
	}
	if !mine("b", "c", services, []discoveryv1.EndpointSlice{slice})["10.0.0.1"] {
		t.Error("the node with the endpoint does not answer")
	}
	slice.Endpoints[1].NodeName = nil
	if !mine("c", "c", services, []discoveryv1.EndpointSlice{slice})["10.0.0.1"] {
		t.Error("the writer does not answer for an endpoint without a node")
	}
}
