// Package reconciler has the shape of github.com/cilium/statedb/reconciler.
package reconciler

import (
	"context"
	"iter"
	"time"

	"github.com/cilium/hive/cell"
	"github.com/cilium/statedb"
	"golang.org/x/time/rate"
)

const unused = "statedb is not to be used here"

type StatusKind string

const (
	StatusKindPending    StatusKind = "Pending"
	StatusKindRefreshing StatusKind = "Refreshing"
	StatusKindDone       StatusKind = "Done"
	StatusKindError      StatusKind = "Error"
)

func (s StatusKind) String() string { return string(s) }

type Status struct {
	Kind      StatusKind
	UpdatedAt time.Time
	ID        uint64
}

func (Status) GetError() string { panic(unused) }
func (Status) String() string   { panic(unused) }

func StatusPending() Status { panic(unused) }
func StatusDone() Status    { panic(unused) }

type Operations[Obj any] interface {
	Update(context.Context, statedb.ReadTxn, statedb.Revision, Obj) error
	Delete(context.Context, statedb.ReadTxn, statedb.Revision, Obj) error
	Prune(context.Context, statedb.ReadTxn, iter.Seq2[Obj, statedb.Revision]) error
}

type BatchEntry[Obj any] struct {
	Object   Obj
	Revision statedb.Revision
	Result   error
}

type BatchOperations[Obj any] interface {
	UpdateBatch(context.Context, statedb.ReadTxn, []BatchEntry[Obj])
	DeleteBatch(context.Context, statedb.ReadTxn, []BatchEntry[Obj])
}

type Reconciler[Obj any] interface {
	Prune()
	WaitUntilReconciled(context.Context, statedb.Revision) (statedb.Revision, statedb.Revision, error)
}

type Params struct {
	cell.In
}

type Metrics interface {
	ReconciliationDuration(cell.FullModuleID, string, string, time.Duration)
	ReconciliationErrors(cell.FullModuleID, string, int, int)
	PruneError(cell.FullModuleID, string, error)
	PruneDuration(cell.FullModuleID, string, time.Duration)
}

type Option func()

func WithoutPruning() Option                             { panic(unused) }
func WithPruning(time.Duration) Option                   { panic(unused) }
func WithRefreshing(time.Duration, *rate.Limiter) Option { panic(unused) }
func WithRoundLimits(int, *rate.Limiter) Option          { panic(unused) }

func Register[Obj any](
	Params, statedb.RWTable[Obj], func(Obj) Obj, func(Obj, Status) Obj, func(Obj) Status, Operations[Obj],
	BatchOperations[Obj], ...Option,
) (Reconciler[Obj], error) {
	panic(unused)
}
