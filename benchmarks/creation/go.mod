module spotweave.dev/benchmarks/creation

go 1.26.0
