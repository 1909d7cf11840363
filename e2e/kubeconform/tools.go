//go:build tools

// Package kubeconform pins the version of kubeconform that checks manifests against the schemas of an API server.
package kubeconform

import _ "github.com/yannh/kubeconform/cmd/kubeconform"
