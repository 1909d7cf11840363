//go:build tools

// Package pebble pins the commands that e2e/tools builds.
package pebble

import (
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble"
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv"
)
