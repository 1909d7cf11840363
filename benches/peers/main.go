// Peers serves the workload of benches/xds.rs by go-control-plane, whose two caches stand for how control planes in Go
// are written: `snapshot`, rebuilt as a whole at each change, and `linear`, updated in place.
//
//	peers (snapshot|linear) SOCKET RESOURCES
//
// It answers `ready E` with the kilobytes it grew by since it was filled, once E streams have acknowledged everything,
// and `change` with the microseconds from a change to its last ACK, those of CPU time, and the bytes sent.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// The value has as many bytes as a scope with three routes.
func scope(i, value int) *route.ScopedRouteConfiguration {
	return &route.ScopedRouteConfiguration{Name: fmt.Sprintf("s%d", i), RouteConfigurationName: fmt.Sprintf("%0480d", value)}
}

type everybody struct{}

func (everybody) ID(*core.Node) string { return "all" }

// A cache that can be filled and changed.
type peer interface {
	cache.Cache
	change(i, value int)
}

type snapshots struct {
	cache.SnapshotCache
	resources []types.Resource
	version   int
}

func (s *snapshots) change(i, value int) {
	if value > 0 {
		s.resources[i] = scope(i, value)
	}
	s.version++
	all := map[resource.Type][]types.Resource{resource.ScopedRouteType: s.resources}
	snapshot, err := cache.NewSnapshot(strconv.Itoa(s.version), all)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.SetSnapshot(context.Background(), "all", snapshot); err != nil {
		log.Fatal(err)
	}
}

type linear struct{ *cache.LinearCache }

func (l linear) change(i, value int) {
	if err := l.UpdateResource(fmt.Sprintf("s%d", i), scope(i, value)); err != nil {
		log.Fatal(err)
	}
}

func fill(kind string, count int) peer {
	if kind == "linear" {
		all := make(map[string]types.Resource, count)
		for i := range count {
			all[fmt.Sprintf("s%d", i)] = scope(i, 0)
		}
		return linear{cache.NewLinearCache(resource.ScopedRouteType, cache.WithInitialResources(all))}
	}
	s := &snapshots{SnapshotCache: cache.NewSnapshotCache(true, everybody{}, nil), resources: make([]types.Resource, count)}
	for i := range count {
		s.resources[i] = scope(i, 0)
	}
	s.change(0, 0)
	return s
}

func resident() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				log.Fatal(err)
			}
			return kb
		}
	}
	log.Fatal("no VmRSS")
	return 0
}

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: peers (snapshot|linear) SOCKET RESOURCES")
	}
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	served := fill(os.Args[1], count)
	var acks, sent, streams atomic.Int64
	callbacks := server.CallbackFuncs{
		StreamDeltaRequestFunc: func(_ int64, request *discovery.DeltaDiscoveryRequest) error {
			if request.ResponseNonce != "" {
				acks.Add(1)
			} else {
				streams.Add(1)
			}
			return nil
		},
		StreamDeltaResponseFunc: func(_ int64, _ *discovery.DeltaDiscoveryRequest, response *discovery.DeltaDiscoveryResponse) {
			for _, r := range response.Resources {
				sent.Add(int64(len(r.Resource.GetValue())))
			}
		},
	}
	listener, err := net.Listen("unix", os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	serving := grpc.NewServer(grpc.MaxConcurrentStreams(100_000))
	discovery.RegisterAggregatedDiscoveryServiceServer(serving, server.NewServer(context.Background(), served, callbacks))
	go func() {
		if err := serving.Serve(listener); err != nil {
			log.Fatal(err)
		}
	}()
	base := resident()
	fmt.Println("listening")
	value := 0
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		if wanted, found := strings.CutPrefix(input.Text(), "ready "); found {
			n, err := strconv.ParseInt(wanted, 10, 64)
			if err != nil {
				log.Fatal(err)
			}
			for acks.Load() < n || streams.Load() < n {
				time.Sleep(time.Millisecond)
			}
			fmt.Println(resident() - base)
			continue
		}
		value++
		before, used, bytes, start := acks.Load(), cpu(), sent.Load(), time.Now()
		served.change(17, value)
		for acks.Load() < before+streams.Load() {
			time.Sleep(time.Millisecond)
		}
		fmt.Println(time.Since(start).Microseconds(), (cpu() - used).Microseconds(), sent.Load()-bytes)
	}
}
