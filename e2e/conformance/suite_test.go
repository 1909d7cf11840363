package suite

import (
	"fmt"
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/pkg/features"
)

func TestConformance(t *testing.T) {
	conformance.RunConformanceWithOptions(t, conformance.DefaultOptions(t))
}

// TestFeatures prints each feature of gateways that the suite knows, and how many of its tests need it.
func TestFeatures(t *testing.T) {
	needed := map[features.FeatureName]int{}
	for _, test := range tests.ConformanceTests {
		for _, feature := range test.Features {
			needed[feature]++
		}
	}
	mesh := features.MeshCoreFeatures.Union(features.MeshExtendedFeatures)
	for feature := range features.AllFeatures.Difference(mesh) {
		fmt.Printf("feature %s %d\n", feature.Name, needed[feature.Name])
	}
}
