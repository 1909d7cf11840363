// Package statedb has the shape of github.com/cilium/statedb, as far as Cilium's Gateway API reconcilers and what they
// import need it to be compiled. They never use it: every body that would matter panics.
//
// It is here because the module proxy does not serve that module, and none of its code is.
package statedb

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/cilium/hive/cell"
	"github.com/cilium/statedb/index"
	"github.com/cilium/stream"
)

const unused = "statedb is not to be used here"

type (
	Revision  = uint64
	TableName = string
	DB        struct{}
	ReadTxn   interface{ isReadTxn() }
	WriteTxn  interface {
		ReadTxn
		Commit() ReadTxn
		Abort()
	}
	TableMeta     interface{ Name() TableName }
	TableWritable interface {
		TableHeader() []string
		TableRow() []string
	}
	Query[Obj any]          struct{}
	Indexer[Obj any]        interface{ ObjectToKey(Obj) index.Key }
	ChangeIterator[Obj any] interface {
		Next(ReadTxn) (iter.Seq2[Change[Obj], Revision], <-chan struct{})
		Close()
	}
	Change[Obj any] struct {
		Object   Obj
		Revision Revision
		Deleted  bool
	}
)

var (
	ErrObjectNotFound = errors.New(unused)
	Cell              = cell.Module("statedb", unused)
)

func New() *DB { return &DB{} }

func (*DB) ReadTxn() ReadTxn               { panic(unused) }
func (*DB) WriteTxn(...TableMeta) WriteTxn { panic(unused) }
func (*DB) NewHandle(string) *DB           { panic(unused) }
func (*DB) Start() error                   { panic(unused) }
func (*DB) Stop() error                    { panic(unused) }

type Metrics interface {
	WriteTxnTableAcquisition(handle, tableName string, acquire time.Duration)
	WriteTxnTotalAcquisition(handle string, tables []string, acquire time.Duration)
	WriteTxnDuration(handle string, tables []string, acquire time.Duration)
	GraveyardLowWatermark(tableName string, lowWatermark uint64)
	GraveyardCleaningDuration(tableName string, duration time.Duration)
	GraveyardObjectCount(tableName string, numDeletedObjects int)
	ObjectCount(tableName string, numObjects int)
	DeleteTrackerCount(tableName string, numTrackers int)
	Revision(tableName string, revision uint64)
}

type Table[Obj any] interface {
	TableMeta
	PrimaryIndexer() Indexer[Obj]
	NumObjects(ReadTxn) int
	Initialized(ReadTxn) (bool, <-chan struct{})
	PendingInitializers(ReadTxn) []string
	Revision(ReadTxn) Revision
	All(ReadTxn) iter.Seq2[Obj, Revision]
	AllWatch(ReadTxn) (iter.Seq2[Obj, Revision], <-chan struct{})
	List(ReadTxn, Query[Obj]) iter.Seq2[Obj, Revision]
	ListWatch(ReadTxn, Query[Obj]) (iter.Seq2[Obj, Revision], <-chan struct{})
	Get(ReadTxn, Query[Obj]) (Obj, Revision, bool)
	GetWatch(ReadTxn, Query[Obj]) (Obj, Revision, <-chan struct{}, bool)
	Prefix(ReadTxn, Query[Obj]) iter.Seq2[Obj, Revision]
	PrefixWatch(ReadTxn, Query[Obj]) (iter.Seq2[Obj, Revision], <-chan struct{})
	LowerBound(ReadTxn, Query[Obj]) iter.Seq2[Obj, Revision]
	LowerBoundWatch(ReadTxn, Query[Obj]) (iter.Seq2[Obj, Revision], <-chan struct{})
	Changes(WriteTxn) (ChangeIterator[Obj], error)
}

type RWTable[Obj any] interface {
	Table[Obj]
	ToTable() Table[Obj]
	RegisterInitializer(WriteTxn, string) func(WriteTxn)
	Insert(WriteTxn, Obj) (Obj, bool, error)
	Modify(WriteTxn, Obj, func(old, new Obj) Obj) (Obj, bool, error)
	CompareAndSwap(WriteTxn, Revision, Obj) (Obj, bool, error)
	CompareAndDelete(WriteTxn, Revision, Obj) (Obj, bool, error)
	Delete(WriteTxn, Obj) (Obj, bool, error)
	DeleteAll(WriteTxn) error
}

type Index[Obj any, Key any] struct {
	Name       string
	FromObject func(Obj) index.KeySet
	FromKey    func(Key) index.Key
	FromString func(string) (index.Key, error)
	Unique     bool
}

func (Index[Obj, Key]) Query(Key) Query[Obj]              { return Query[Obj]{} }
func (Index[Obj, Key]) QueryFromKey(index.Key) Query[Obj] { return Query[Obj]{} }
func (Index[Obj, Key]) QueryFromObject(Obj) Query[Obj]    { return Query[Obj]{} }
func (Index[Obj, Key]) ObjectToKey(Obj) index.Key         { panic(unused) }

func NewTable[Obj any](*DB, TableName, Indexer[Obj], ...Indexer[Obj]) (RWTable[Obj], error) {
	panic(unused)
}

type WatchSet struct{}

func NewWatchSet() *WatchSet { panic(unused) }

func (*WatchSet) Add(...<-chan struct{}) {}
func (*WatchSet) Merge(*WatchSet)        {}
func (*WatchSet) Wait(context.Context, time.Duration) ([]<-chan struct{}, error) {
	panic(unused)
}

func Collect[Obj any](iter.Seq2[Obj, Revision]) []Obj { panic(unused) }
func ToSeq[A, B any](iter.Seq2[A, B]) iter.Seq[A]     { panic(unused) }
func Map[In, Out any](iter.Seq2[In, Revision], func(In) Out) iter.Seq2[Out, Revision] {
	panic(unused)
}
func Filter[Obj any](iter.Seq2[Obj, Revision], func(Obj) bool) iter.Seq2[Obj, Revision] {
	panic(unused)
}
func Observable[Obj any](*DB, Table[Obj]) stream.Observable[Change[Obj]] { panic(unused) }

type DeriveResult int

const (
	DeriveInsert DeriveResult = iota
	DeriveUpdate
	DeriveDelete
	DeriveSkip
)

type DeriveParams[In, Out any] struct {
	cell.In
}

func Derive[In, Out any](string, func(In, bool) (Out, DeriveResult)) func(DeriveParams[In, Out]) {
	panic(unused)
}
