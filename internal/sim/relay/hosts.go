package relay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/sim/network"
	"skein.blue/internal/sim/synth"
)

// Hosts are the PDSes of a Simulated network with Options.Past: they list and export
// its repos, which are divided among them. With faults, the second is sometimes rate
// limited, the third sometimes does not answer, and the fourth sends wrong repos:
// with wrong hashes, of other accounts, or truncated.
type Hosts struct {
	Addresses []string // host:port of each

	r        *Simulated
	faults   bool
	requests atomic.Int64
}

// NewHosts returns hosts at these addresses.
func NewHosts(r *Simulated, addresses []string, faults bool) *Hosts {
	return &Hosts{Addresses: addresses, r: r, faults: faults}
}

// Of returns the address of the host of an account.
func (h *Hosts) Of(account int) string { return h.Addresses[account%len(h.Addresses)] }

// ListHosts serves com.atproto.sync.listHosts for the relay.
func (h *Hosts) ListHosts(w http.ResponseWriter, _ *http.Request) {
	var all []any
	for i, a := range h.Addresses {
		all = append(all, map[string]any{"hostname": a, "status": "active", "seq": 1 + i})
	}
	reply(w, http.StatusOK, map[string]any{"hosts": all})
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, name string) {
	reply(w, http.StatusBadRequest, map[string]string{"error": name, "message": name})
}

// Handler serves the n-th host; -1 is the relay, which lists all repos.
func (h *Hosts) Handler(n int) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /xrpc/com.atproto.sync.listRepos", func(w http.ResponseWriter, r *http.Request) { h.list(w, r, n) })
	mux.HandleFunc("GET /xrpc/com.atproto.sync.getRepo", func(w http.ResponseWriter, r *http.Request) { h.export(w, r, n) })
	return mux
}

// list serves listRepos, in the order of the accounts.
func (h *Hosts) list(w http.ResponseWriter, req *http.Request, host int) {
	from, err := strconv.Atoi("0" + req.URL.Query().Get("cursor"))
	limit, err2 := strconv.Atoi("0" + req.URL.Query().Get("limit"))
	if err != nil || err2 != nil || limit > 1000 {
		refuse(w, "InvalidRequest")
		return
	}
	if limit == 0 {
		limit = 500
	}
	repos := []any{}
	cursor := ""
	h.r.mu.Lock()
	f := h.r.full
	for account := from; account < h.r.net.Accounts(); account++ {
		r, status := f.repos[int32(account)], f.status[int32(account)]
		if r == nil {
			r = &fullRepo{}
		}
		if r.rev == 0 && status == network.Active || host >= 0 && account%len(h.Addresses) != host {
			continue
		}
		if len(repos) == limit {
			cursor = strconv.Itoa(account)
			break
		}
		one := map[string]any{
			"did": string(h.r.net.AppendDID(nil, account)), "rev": string(dict.AppendTID(nil, r.rev)), "active": status == network.Active,
			"head": fmt.Sprintf("%x", r.commit.CID[:8]),
		}
		if name := statusName(status); name != "" {
			one["status"] = name
		}
		repos = append(repos, one)
	}
	h.r.mu.Unlock()
	out := map[string]any{"repos": repos}
	if cursor != "" {
		out["cursor"] = cursor
	}
	reply(w, http.StatusOK, out)
}

func statusName(s network.Status) string {
	return [...]string{network.Deactivated: "deactivated", network.TakenDown: "takendown", network.Suspended: "suspended", network.Deleted: "deleted"}[s]
}

// repo exports an account's repo, nil if there is none.
func (r *Simulated) repo(account int) (car []byte, status network.Status) {
	r.mu.Lock()
	one := r.full.repos[int32(account)]
	status = r.full.status[int32(account)]
	if one == nil || one.rev == 0 || status != network.Active {
		r.mu.Unlock()
		return nil, status
	}
	records := r.full.finish(int32(account), one)
	commit := one.commit
	r.mu.Unlock()
	var builder synth.Repo
	builder.Root(records)
	return builder.AppendCAR(nil, &commit, records), status
}

// export serves getRepo.
func (h *Hosts) export(w http.ResponseWriter, req *http.Request, host int) {
	account, ok := h.r.account(req.URL.Query().Get("did"))
	if !ok || host >= 0 && account%len(h.Addresses) != host {
		refuse(w, "RepoNotFound")
		return
	}
	car, status := h.r.repo(account)
	if car == nil {
		refuse(w, cmp.Or(map[network.Status]string{
			network.TakenDown: "RepoTakendown", network.Suspended: "RepoSuspended", network.Deactivated: "RepoDeactivated", network.Away: "RepoDeactivated",
		}[status], "RepoNotFound"))
		return
	}
	if n := h.requests.Add(1); h.faults && h.wrong(w, req, host, n, car) {
		return
	}
	w.Header().Set("Content-Type", "application/vnd.ipld.car")
	_, _ = w.Write(car)
}

// hangTime is how long a host is silent before it breaks off.
const hangTime = 2 * time.Second

// wrong serves a fault of a host at its n-th request, and reports whether it did.
func (h *Hosts) wrong(w http.ResponseWriter, req *http.Request, host int, n int64, car []byte) bool {
	switch {
	case host == 1 && n%100 < 2:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	case host == 2 && n%100 == 0:
		select {
		case <-req.Context().Done():
		case <-time.After(hangTime):
		}
		panic(http.ErrAbortHandler)
	case host == 3 && n%10 == 0:
		switch n / 10 % 3 {
		case 0:
			car[len(car)-1] ^= 1
		case 1:
			h.r.mu.Lock()
			others := slices.Sorted(maps.Keys(h.r.full.repos))
			h.r.mu.Unlock()
			if other, _ := h.r.repo(int(others[int(n)%len(others)])); other != nil {
				car = other
			}
		default:
			car = car[:len(car)-1]
		}
		_, _ = w.Write(car)
		return true
	}
	return false
}
