// Command cosign is cosign's own command line, without the key services of clouds, which its main function adds. Packages that
// tests have no use for are replaced by those in `without`, which leaves half of it to compile: e2e/tools install cosign.
package main

import (
	"log"

	"github.com/sigstore/cosign/v3/cmd/cosign/cli"
)

func main() {
	log.SetFlags(0)
	if err := cli.New().Execute(); err != nil {
		log.Fatal("Error: ", err)
	}
}
