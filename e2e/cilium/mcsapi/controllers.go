// Package controllers has the one constant that Cilium's Gateway API reconcilers take from sigs.k8s.io/mcs-api/controllers,
// which the module proxy does not serve.
package controllers

// DerivedServiceAnnotation is the annotation of a ServiceImport with the name of the Service that stands for it.
const DerivedServiceAnnotation = "multicluster.kubernetes.io/derived-service"
