// Package cue has no CUE.
package cue

import "errors"

func ValidateJSON([]byte, []string) error { return errors.New("CUE is not in this cosign") }
