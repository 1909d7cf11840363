// Command tools is what a kind cluster for trials needs beside Kubernetes, in one image: addresses for Services of type
// LoadBalancer, a backend that says what it was asked, and, where the node image was built here, the network of pods.
package main

import (
	"fmt"
	"os"

	"gatewright.io/kind/tools/echo"
	"gatewright.io/kind/tools/network"
)

func main() {
	programs := map[string]func() error{
		"echo": echo.Run, "load-balancer": network.RunLoadBalancer, "pod-network": network.RunPodNetwork,
	}
	if len(os.Args) != 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: tools echo | load-balancer | pod-network")
		os.Exit(2)
	}
	if err := programs[os.Args[1]](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
