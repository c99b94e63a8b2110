# The entry point for people. CI uses .ci/run.

.PHONY: build run test race lint pictures nightly fuzz bench soak cluster deps ids load faults relayfaults chaos house abuse mutants

build: ## build static binaries, bin/skein and bin/skein-sim
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/skein ./cmd/skein-sim

run: ## run the daemon on the live network
	CGO_ENABLED=0 go run ./cmd/skein serve

test: ## run the tests that every change must pass
	go test ./...

race: ## run the race detector
	.ci/run race

lint: ## run linters, and measure the budget
	.ci/run lint

pictures: build ## test the page in a browser, and make the README's pictures
	.ci/page/run bin .tools/page
	cp .tools/page/page.png .tools/page/page-dark.png docs/

deps: ## update deps.txt, the packages of others that the daemon links
	.ci/deps -update

nightly: ## run what takes hours: all mutants, fuzzing, soak, attacks, faulty relays, load, peers
	.ci/nightly

fuzz: ## fuzz each decoder and parser of outside bytes for a minute
	.ci/fuzz 60s

bench: ## run benchmarks: decoding compared with indigo, ids, sets, queries
	go test ./consumer/wire -run xxx -bench Decode -benchmem
	go test ./intern -run xxx -bench .
	go test ./internal/sets -run xxx -bench .
	CGO_ENABLED=0 go test ./internal/sim/scale -run xxx -bench . -timeout 1h

soak: ## run the long tests: histories of a million operations, ten minutes of queries, every fault for a minute each, the relay gone for an hour
	go test ./graph -run TestModel -model.ops 1000000 -timeout 2h -v
	go test ./graph -run TestComplete -complete.steps 1000000 -timeout 2h -v
	go test ./graph -run 'TestMoves$$' -moves.seeds 5000 -timeout 2h -v
	go test ./graph -run TestManySubjects -many.seeds 100 -timeout 2h -v
	go test ./query -run Soak -v -soak.for 10m -timeout 20m
	.ci/faults 10 1m
	go test ./cmd/skein -run TestFaultRelayGone -faults.times 1 -faults.pause 1h -timeout 2h -v

cluster: ## kill two writers and stop their cluster, twenty times; needs FoundationDB
	go test -tags fdb ./cmd/skein -run TestCluster -cluster.rounds 20 -timeout 1h -v

ids: ## compare ways to allocate ids on both engines, and allocate a hundred million from 64 writers; needs FoundationDB
	go test -tags fdb ./intern -run xxx -bench 'Schemes|Claim' -benchtime 1x -timeout 20m
	go test -tags fdb ./internal/sim/scale -run xxx -bench IndexFDB -benchtime 1x
	go test -tags fdb ./intern -run TestManyIDs -ids.count 100000000 -v -timeout 30m

load: ## run the load test: a hundred times the network's peak for two minutes, relay included
	CGO_ENABLED=0 go run ./cmd/skein-sim load --rate 150000 --duration 120s

faults: ## inject every fault of docs/reliability.md, and print its table; twenty minutes
	.ci/faults

relayfaults: ## test faulty relays, minutes each: killed, stalling, repeating, jumping, corrupting, bursting
	.ci/relayfaults

abuse: ## run every attack of docs/trust.md at full size, and print its figures
	bash -o pipefail -c "CGO_ENABLED=0 go test $$(grep -rl --include=*_test.go 'func TestAbuse' cmd consumer graph intern internal query | xargs -n1 dirname | sort -u | sed 's|^|./|' | tr '\n' ' ') -run Abuse -abuse -v -timeout 30m | grep -E 'abuse:|^(---|FAIL|ok|PASS)'"

mutants: ## break the code in a thousand small ways; the tests must notice each
	go run ./.ci/mutants

house: ## measure the code against its budget
	go run ./.ci/house

chaos: ## follow the reference PDS and indigo's relay while they are cut, stalled, killed and replaced; takes minutes
	.ci/peers .tools/peers
	go test ./internal/sim/harness -run TestChaos -peers $(CURDIR)/.tools/peers -v -timeout 1h
