// ingress2gateway: its own reading of ingress-nginx and its own writing of the Gateway API, behind the command line of
// `ingress2gateway print`. Its other providers would take most of the build, and nothing here is converted by them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/kubernetes-sigs/ingress2gateway/pkg/i2gw"
	_ "github.com/kubernetes-sigs/ingress2gateway/pkg/i2gw/emitters/standard"
	"github.com/kubernetes-sigs/ingress2gateway/pkg/i2gw/providers/ingressnginx"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ingress2gateway:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || args[0] != "print" {
		return fmt.Errorf("usage: ingress2gateway print --providers ingress-nginx --input-file FILE")
	}
	flags := flag.NewFlagSet("print", flag.ContinueOnError)
	provider := flags.String("providers", "", "what is read")
	input := flags.String("input-file", "", "where it is")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	file, err := os.Open(*input)
	if err != nil {
		return err
	}
	defer file.Close()
	if *provider != string(ingressnginx.Name) {
		return fmt.Errorf("--providers: expected %s", ingressnginx.Name)
	}
	classes := map[string]map[string]string{*provider: {ingressnginx.NginxIngressClassFlag: ingressnginx.NginxIngressClass}}
	all, _, err := i2gw.ToGatewayAPIResources(context.Background(), "", file, []string{*provider}, "standard", classes, false, true)
	if err != nil {
		return err
	}
	for _, of := range all {
		for _, gateway := range of.Gateways {
			if err := show(gateway); err != nil {
				return err
			}
		}
		for _, route := range of.HTTPRoutes {
			if err := show(route); err != nil {
				return err
			}
		}
		for _, route := range of.GRPCRoutes {
			if err := show(route); err != nil {
				return err
			}
		}
	}
	return nil
}

func show(object any) error {
	text, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("---\n%s", text)
	return err
}
