// Command oidc-provider is a provider of OpenID Connect for tests: the certified library
// zitadel/oidc, with the storage and the login pages of its example.
//
//	oidc-provider ADDRESS ISSUER CERTIFICATE KEY CLIENT-SECRET REDIRECT-URL...
package main

import (
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

func main() {
	if len(os.Args) < 7 {
		log.Fatal("oidc-provider ADDRESS ISSUER CERTIFICATE KEY CLIENT-SECRET REDIRECT-URL...")
	}
	address, issuer, certificate, key, secret := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	storage.RegisterClients(storage.WebClient("shop", secret, os.Args[6:]...))
	users := storage.NewUserStore(issuer)
	router := exampleop.SetupServer(issuer, storage.NewStorage(users), slog.Default(), false)
	log.Fatal(http.ListenAndServeTLS(address, certificate, key, router))
}
