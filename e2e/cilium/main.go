// Command cilium runs Cilium's own Gateway API controllers, unchanged, against the API server of a kubeconfig: what they say
// of our Gateways, and which CiliumEnvoyConfigs they make of them.
//
// The whole operator cannot be built from public modules; its packages operator/pkg/gateway-api and operator/pkg/secretsync
// can, with statedb/ and mcsapi/ in the place of two modules that are not served and that they never call.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	operator "github.com/cilium/cilium/operator/option"
	"github.com/cilium/cilium/operator/pkg/ciliumenvoyconfig"
	gatewayapi "github.com/cilium/cilium/operator/pkg/gateway-api"
	"github.com/cilium/cilium/operator/pkg/secretsync"
	mcsapi "github.com/cilium/cilium/pkg/clustermesh/mcsapi/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/k8s/client"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/hive"
	"github.com/cilium/hive/cell"
	"github.com/go-logr/logr"
	"google.golang.org/protobuf/proto"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// clientset is what the precondition of Cilium's cell asks a client for.
type clientset struct {
	client.Clientset
	definitions apiextensions.Interface
}

func (*clientset) IsEnabled() bool { return true }

func (c *clientset) ApiextensionsV1() apiextensionsv1.ApiextensionsV1Interface {
	return c.definitions.ApiextensionsV1()
}

func newClientset(config *rest.Config) (client.Clientset, error) {
	definitions, err := apiextensions.NewForConfig(config)
	return &clientset{definitions: definitions}, err
}

func newScheme() (*runtime.Scheme, error) {
	return scheme.Scheme, ciliumv2.AddToScheme(scheme.Scheme)
}

func newManager(config *rest.Config, scheme *runtime.Scheme, logger *slog.Logger) (ctrl.Manager, error) {
	// As the operator does: resources of Envoy are compared as messages.
	err := equality.Semantic.AddFunc(func(a, b ciliumv2.XDSResource) bool { return proto.Equal(a.Any, b.Any) })
	if err != nil {
		return nil, err
	}
	ctrl.SetLogger(logr.FromSlogHandler(logger.Handler()))
	return ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	operator.Config.EnableGatewayAPI = true
	var manager ctrl.Manager
	controllers := hive.NewWithOptions(
		hive.Options{},
		cell.SimpleHealthCell,
		cell.Provide(
			func() *rest.Config { return config },
			newScheme,
			newManager,
			newClientset,
			func() *option.DaemonConfig { return &option.DaemonConfig{EnableIPv4: true} },
			func() *operator.OperatorConfig {
				return &operator.OperatorConfig{EnableGatewayAPI: true, KubeProxyReplacement: true}
			},
			func() mcsapi.MCSAPIConfig { return mcsapi.MCSAPIConfig{} },
			func() ciliumenvoyconfig.EnvoyProxyTimeouts {
				return ciliumenvoyconfig.EnvoyProxyTimeouts{ProxyIdleTimeoutSeconds: 60, ProxyStreamIdleTimeoutSeconds: 300}
			},
		),
		gatewayapi.Cell,
		secretsync.Cell,
		cell.Invoke(func(given ctrl.Manager) { manager = given }),
	)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := controllers.Start(log, ctx); err != nil {
		return err
	}
	// The test waits for this line.
	fmt.Println("started")
	return manager.Start(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cilium KUBECONFIG")
		os.Exit(2)
	}
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "cilium:", err)
		os.Exit(1)
	}
}
