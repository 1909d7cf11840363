//go:build tools

// Package kind pins the version of kind that makes clusters.
package kind

import _ "sigs.k8s.io/kind"
