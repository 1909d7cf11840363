// Package index has the shape of github.com/cilium/statedb/index.
package index

import (
	"fmt"
	"net/netip"
)

const unused = "statedb is not to be used here"

type Key []byte

type KeySet struct{}

func NewKeySet(...Key) KeySet  { return KeySet{} }
func (KeySet) Exists(Key) bool { panic(unused) }
func (KeySet) First() Key      { panic(unused) }

func String(string) Key                        { panic(unused) }
func FromString(string) (Key, error)           { panic(unused) }
func Int(int) Key                              { panic(unused) }
func IntString(string) (Key, error)            { panic(unused) }
func Uint16(uint16) Key                        { panic(unused) }
func Uint32(uint32) Key                        { panic(unused) }
func Uint32String(string) (Key, error)         { panic(unused) }
func Uint64(uint64) Key                        { panic(unused) }
func Bool(bool) Key                            { panic(unused) }
func BoolString(string) (Key, error)           { panic(unused) }
func NetIPAddr(netip.Addr) Key                 { panic(unused) }
func NetIPAddrString(string) (Key, error)      { panic(unused) }
func Stringer[T fmt.Stringer](T) Key           { panic(unused) }
func StringerSlice[T fmt.Stringer]([]T) KeySet { panic(unused) }
