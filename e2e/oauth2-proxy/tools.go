//go:build tools

// Package oauth2proxy pins the command that e2e/tools builds.
package oauth2proxy

import _ "github.com/oauth2-proxy/oauth2-proxy/v7"
