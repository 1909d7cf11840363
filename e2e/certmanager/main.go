// Command cert-manager is cert-manager's controllers, and its HTTP-01 solver when it is called as acmesolver.
//
// The program of the project itself is in no module; its controllers are. What its webhook would default or refuse is
// missing: only the schemas of the definitions are there.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	_ "github.com/cert-manager/cert-manager/pkg/controller/acmechallenges"
	_ "github.com/cert-manager/cert-manager/pkg/controller/acmeorders"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/acme"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/acme"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/issuer/acme/http/solver"
)

func main() {
	run := controllers
	if filepath.Base(os.Args[0]) == "acmesolver" {
		run = solve
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// solve answers one challenge. Its arguments are those that cert-manager gives its solver pods.
func solve() error {
	var all solver.HTTP01Solver
	flag.IntVar(&all.ListenPort, "listen-port", 8089, "port")
	flag.StringVar(&all.Domain, "domain", "", "hostname")
	flag.StringVar(&all.Token, "token", "", "token")
	flag.StringVar(&all.Key, "key", "", "answer")
	flag.Parse()
	return all.Listen(klog.Background())
}

func controllers() error {
	kubeconfig := flag.String("kubeconfig", "", "file")
	nameservers := flag.String("nameservers", "", "of self checks, host:port, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig: *kubeconfig,
		IssuerOptions: controller.IssuerOptions{
			ClusterResourceNamespace: "cert-manager",
		},
		ACMEOptions: controller.ACMEOptions{
			HTTP01SolverImage:                 "acmesolver",
			HTTP01SolverResourceRequestCPU:    resource.MustParse("10m"),
			HTTP01SolverResourceRequestMemory: resource.MustParse("64Mi"),
			HTTP01SolverResourceLimitsCPU:     resource.MustParse("100m"),
			HTTP01SolverResourceLimitsMemory:  resource.MustParse("64Mi"),
			ACMEHTTP01SolverRunAsNonRoot:      true,
			HTTP01SolverNameservers:           strings.Split(*nameservers, ","),
			DNS01CheckRetryPeriod:             time.Second,
		},
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes:                 []string{"*"},
			CertificateRequestMinimumBackoffDuration: time.Second,
			CertificateRequestMaximumBackoffDuration: time.Minute,
		},
		SchedulerOptions: controller.SchedulerOptions{MaxConcurrentChallenges: 60},
		ConfigOptions:    controller.ConfigOptions{EnableGatewayAPI: true},
	})
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	failed := make(chan error, len(controller.Known()))
	for name, construct := range controller.Known() {
		one, err := construct(factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all.Go(func() {
			if err := one.Run(5, ctx); err != nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	// After the controllers said what they want to see.
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	shared.GWShared.Start(ctx.Done())
	fmt.Println("cert-manager runs")
	select {
	case err = <-failed:
		stop()
	case <-ctx.Done():
	}
	all.Wait()
	return err
}
