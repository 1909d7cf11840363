// Package rego has no Rego.
package rego

import "errors"

func ValidateJSON([]byte, []string) []error {
	return []error{errors.New("Rego is not in this cosign")}
}
