# The one entry for people. .ci/run is the same for machines.

.PHONY: build run test race lint fuzz bench soak cluster ids load faults peers chaos house abuse

build: ## the binaries, static, as bin/skein and bin/skein-sim
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/skein ./cmd/skein-sim

run: ## the daemon, on the live network
	CGO_ENABLED=0 go run ./cmd/skein serve

test: ## what every change must pass
	go test ./...

race:
	go test -race -timeout 30m ./...

lint:
	go vet ./...
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...

fuzz: ## each decoder and parser of outside bytes, for a minute
	.ci/fuzz 60s

bench: ## decoding against indigo, frames from memory to committed, ids, sets, questions
	go test ./consumer/wire -run xxx -bench Decode -benchmem
	go test ./internal/app -run xxx -bench Ingest -benchtime 1x -timeout 30m
	go test ./intern -run xxx -bench .
	go test ./internal/idset -run xxx -bench .
	CGO_ENABLED=0 go test ./internal/testing/scale -run xxx -bench . -timeout 1h

soak: ## the long runs: a million operations a history, twenty kills in a minute, ten minutes of asking
	go test ./graph -run TestModel -model.ops 1000000 -timeout 2h -v
	go test ./graph -run TestComplete -complete.steps 1000000 -timeout 2h -v
	go test ./cmd/skein -run TestKill -kill.times 20 -kill.rate 35 -v
	go test ./query -run Soak -v -soak.for 10m -timeout 20m

cluster: ## where FoundationDB is installed: two writers that are killed and a cluster that goes down, twenty times
	go test -tags fdb ./cmd/skein -run TestCluster -cluster.rounds 20 -timeout 1h -v

ids: ## ways to hand out ids, compared on both engines where both are there; and a hundred million from 64 writers
	go test -tags fdb ./intern -run xxx -bench 'Schemes|Claim' -benchtime 1x -timeout 20m
	go test -tags fdb ./internal/testing/scale -run xxx -bench IndexFDB -benchtime 1x
	go test -tags fdb ./intern -run TestManyIDs -ids.count 100000000 -v -timeout 30m

load: ## the load test: a hundred times the network's peak for two minutes, relay included
	CGO_ENABLED=0 go run ./cmd/skein-sim load --rate 150000 --duration 120s

faults: ## what relays do wrong, for minutes each: killed, stalling, repeating, jumping, corrupting, bursting
	.ci/faults

peers: ## the same stream to skein and to indigo's consumer
	CGO_ENABLED=0 go test ./cmd/skein -run xxx -bench Peers -benchtime 1x -timeout 20m

abuse: ## what strangers may cost: every attack of docs/trust.md at full size, with its figures
	bash -o pipefail -c "CGO_ENABLED=0 go test $$(grep -rl --include=*_test.go testing/abuse cmd consumer graph intern internal query | xargs -n1 dirname | sort -u | sed 's|^|./|' | tr '\n' ' ') -run Abuse -abuse -v -timeout 30m | grep -E 'abuse:|^(---|FAIL|ok|PASS)'"

house: ## how large files and functions are, which know each other, what the programs link, how much is tested
	go run ./.ci/house

chaos: ## the reference PDS and indigo's relay, cut, stalled, killed and replaced, for some minutes
	.ci/peers .tools/peers
	go test ./internal/testing/peers -run TestChaos -peers $(CURDIR)/.tools/peers -v -timeout 1h
