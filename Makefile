# The one entry for people. .ci/run is the same for machines.

.PHONY: build run test race lint fuzz bench soak

build: ## the binary, static, as bin/skein
	CGO_ENABLED=0 go build -trimpath -o bin/skein ./cmd/skein

run: ## the daemon, on the live network
	go run ./cmd/skein serve

test: ## what every change must pass
	go test ./...

race:
	go test -race -timeout 30m ./...

lint:
	go vet ./...
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...

fuzz: ## each decoder and parser of outside bytes, for a minute
	go test ./consumer/wire -run xxx -fuzz FuzzDecode -fuzztime 60s
	go test ./graph -run xxx -fuzz FuzzFold -fuzztime 60s
	go test ./intern -run xxx -fuzz FuzzSyntax -fuzztime 60s
	go test ./query -run xxx -fuzz FuzzParse -fuzztime 60s

bench: ## decoding against indigo, and frames from memory to committed
	go test ./consumer/wire -run xxx -bench Decode -benchmem
	go test ./internal/app -run xxx -bench Ingest -benchtime 1x -timeout 30m
	go test ./intern -run xxx -bench .

soak: ## the long runs: a million operations a history, twenty kills in a minute
	go test ./graph -run TestModel -model.ops 1000000 -timeout 2h -v
	go test ./cmd/skein -run TestKill -kill.times 20 -kill.rate 35 -v
