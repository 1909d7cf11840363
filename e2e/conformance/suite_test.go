package suite

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

func TestConformance(t *testing.T) {
	conformance.RunConformanceWithOptions(t, conformance.DefaultOptions(t))
}
