// Command oidc-provider is a provider of OpenID Connect for tests: the certified library
// zitadel/oidc, with the storage and the login pages of its example. Access tokens are JSON Web
// Tokens that are valid for LIFETIME. After a logout, browsers may come back to the root of each
// host of a redirect URL.
//
//	oidc-provider ADDRESS ISSUER CERTIFICATE KEY CLIENT-SECRET LIFETIME REDIRECT-URL...
package main

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// tokens is a storage whose access tokens have this lifetime.
type tokens struct {
	*storage.Storage
	lifetime time.Duration
	roots    []string
}

func (t tokens) CreateAccessToken(ctx context.Context, request op.TokenRequest) (string, time.Time, error) {
	id, _, err := t.Storage.CreateAccessToken(ctx, request)
	return id, time.Now().Add(t.lifetime), err
}

func (t tokens) CreateAccessAndRefreshTokens(ctx context.Context, request op.TokenRequest, current string) (string, string, time.Time, error) {
	id, refresh, _, err := t.Storage.CreateAccessAndRefreshTokens(ctx, request, current)
	return id, refresh, time.Now().Add(t.lifetime), err
}

func (t tokens) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	found, err := t.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return client{found, t.roots}, nil
}

type client struct {
	op.Client
	roots []string
}

func (c client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }

func (c client) PostLogoutRedirectURIs() []string { return c.roots }

func main() {
	if len(os.Args) < 8 {
		log.Fatal("oidc-provider ADDRESS ISSUER CERTIFICATE KEY CLIENT-SECRET LIFETIME REDIRECT-URL...")
	}
	address, issuer, certificate, key, secret := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	lifetime, err := time.ParseDuration(os.Args[6])
	if err != nil {
		log.Fatal(err)
	}
	redirects := os.Args[7:]
	var roots []string
	for _, redirect := range redirects {
		parsed, err := url.Parse(redirect)
		if err != nil {
			log.Fatal(err)
		}
		roots = append(roots, "https://"+parsed.Host+"/")
	}
	storage.RegisterClients(storage.WebClient("shop", secret, redirects...))
	users := storage.NewUserStore(issuer)
	stored := tokens{storage.NewStorage(users), lifetime, roots}
	router := exampleop.SetupServer(issuer, stored, slog.Default(), false)
	log.Fatal(http.ListenAndServeTLS(address, certificate, key, router))
}
