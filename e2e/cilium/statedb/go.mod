module github.com/cilium/statedb

go 1.26.0

require github.com/cilium/hive v1.0.4
