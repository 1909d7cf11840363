// Package part has the shape of github.com/cilium/statedb/part.
package part

import "iter"

const unused = "statedb is not to be used here"

type Map[K, V any] struct{}

func (Map[K, V]) Get(K) (V, bool)      { panic(unused) }
func (Map[K, V]) Set(K, V) Map[K, V]   { panic(unused) }
func (Map[K, V]) Delete(K) Map[K, V]   { panic(unused) }
func (Map[K, V]) All() iter.Seq2[K, V] { panic(unused) }
func (Map[K, V]) Len() int             { panic(unused) }
func (Map[K, V]) Txn() MapTxn[K, V]    { panic(unused) }

type MapTxn[K, V any] struct{}

func (MapTxn[K, V]) Get(K) (V, bool)      { panic(unused) }
func (MapTxn[K, V]) Set(K, V)             { panic(unused) }
func (MapTxn[K, V]) Delete(K) bool        { panic(unused) }
func (MapTxn[K, V]) All() iter.Seq2[K, V] { panic(unused) }
func (MapTxn[K, V]) Len() int             { panic(unused) }
func (MapTxn[K, V]) Commit() Map[K, V]    { panic(unused) }

type Set[T any] struct{}

func NewSet[T any](...T) Set[T]  { panic(unused) }
func (Set[T]) Set(T) Set[T]      { panic(unused) }
func (Set[T]) Delete(T) Set[T]   { panic(unused) }
func (Set[T]) Has(T) bool        { panic(unused) }
func (Set[T]) All() iter.Seq[T]  { panic(unused) }
func (Set[T]) Len() int          { panic(unused) }
func (Set[T]) Equal(Set[T]) bool { panic(unused) }

// RegisterKeyType is called when packages are initialised.
func RegisterKeyType[K any](func(K) []byte) {}
