module spotweave.dev/benchmarks/admission

go 1.26.0
