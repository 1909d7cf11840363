// Package network is what a kind cluster without any image registry needs of a network: addresses and routes of pods, and
// addresses for Services of type LoadBalancer. It is for trials on one machine, and does as little as that takes.
package network

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// What a step takes at most, and how long after it the next one begins.
const (
	limit = 30 * time.Second
	pause = 2 * time.Second
)

// connect gives a client with the rights of the pod. KUBERNETES_SERVER replaces the address of the Service, which leads nowhere
// before kube-proxy runs.
func connect() (*kubernetes.Clientset, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		if config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
			return nil, err
		}
	}
	if server := os.Getenv("KUBERNETES_SERVER"); server != "" {
		config.Host = server
	}
	return kubernetes.NewForConfig(config)
}

// repeat runs a step until the program is told to end. A failure is logged, and the step tried again.
func repeat(name string, step func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	last := ""
	for {
		attempt, cancel := context.WithTimeout(ctx, limit)
		err := step(attempt)
		cancel()
		if told := fmt.Sprint(err); err != nil && told != last && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			last = told
		} else if err == nil {
			last = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// run calls a program of the node, with what it gets on standard input.
func run(input, program string, arguments ...string) error {
	command := exec.Command(program, arguments...)
	command.Stdin = strings.NewReader(input)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(arguments, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
