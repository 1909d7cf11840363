// Package all has no providers of identities.
package all

import "github.com/sigstore/cosign/v3/pkg/providers"

var (
	Enabled     = providers.Enabled
	Provide     = providers.Provide
	ProvideFrom = providers.ProvideFrom
)
