package clients

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"skein.blue/internal/sim/harness"
)

// slowPool is a Pool as its documentation says, with a list of holds.
type slowPool struct {
	most  int64
	holds []*slowHold // in the order of their numbers
	ended []int
}

type slowHold struct {
	n      int
	client string
	units  int64
	idle   bool
	since  int // when it was taken, or became idle or busy
}

func (p *slowPool) held(name string) (sum int64) {
	for _, h := range p.holds {
		if slices.Contains(append(pathOf(h.client), ""), name) {
			sum += h.units
		}
	}
	return sum
}

// largest descends to the largest client, of those with a wanted hold.
func (p *slowPool) largest(wanted func(*slowHold) bool) (path []string) {
	for depth := 0; ; depth++ {
		best, most := "", int64(-1)
		for _, h := range p.holds {
			hp := pathOf(h.client)
			if !wanted(h) || len(hp) <= depth || !slices.Equal(hp[:depth], path) {
				continue
			}
			if n := p.held(hp[depth]); n > most || n == most && hp[depth] < best {
				best, most = hp[depth], n
			}
		}
		if most < 0 {
			return path
		}
		path = append(path, best)
	}
}

func (p *slowPool) grow(h *slowHold, n int64) bool {
	for p.held("")+n > p.most {
		var victim *slowHold
		idle := func(o *slowHold) bool { return o.idle }
		if path := p.largest(idle); len(path) > 0 {
			for _, o := range p.holds {
				if o.idle && o.client == path[len(path)-1] && (victim == nil || o.since < victim.since) {
					victim = o
				}
			}
		}
		if victim == nil || victim == h {
			victim = nil
			path, own := p.largest(func(*slowHold) bool { return true }), pathOf(h.client)
			for depth := range path {
				if depth >= len(own) || own[depth] != path[depth] {
					mine := int64(0)
					if depth < len(own) {
						mine = p.held(own[depth])
					}
					if p.held(path[depth]) > mine+n {
						for _, o := range p.holds {
							if o.client == path[len(path)-1] && (victim == nil || o.since > victim.since) {
								victim = o
							}
						}
					}
					break
				}
			}
		}
		if victim == nil {
			return false
		}
		p.end(victim)
	}
	h.units += n
	return true
}

func (p *slowPool) end(h *slowHold) {
	p.ended = append(p.ended, h.n)
	p.holds = slices.DeleteFunc(p.holds, func(o *slowHold) bool { return o == h })
}

// TestPool compares a Pool with a list, in random histories: who is refused, whose holds end, and what is held.
func TestPool(t *testing.T) {
	names := []string{"a", "b"}
	for i := range 12 {
		names = append(names, fmt.Sprintf("192.0.%d.%d/32", i%3, i), fmt.Sprintf("2001:db8:%d:%x::/64", i%2, i%3*256+i))
	}
	ends, refused := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 24))
		p := NewPool(1 + rng.Int64N(40))
		slow := &slowPool{most: p.most}
		var mu sync.Mutex
		var wait sync.WaitGroup
		var ended []int
		type pair struct {
			h *Hold
			s *slowHold
		}
		var all []pair
		clock := 0
		for n := range 400 {
			clock++
			switch what := rng.IntN(10); {
			case what < 5 || len(all) == 0:
				client, units := names[rng.IntN(1+rng.IntN(len(names)))], 1+rng.Int64N(1+rng.Int64N(6))
				s := &slowHold{n: n, client: client, since: clock}
				want := slow.grow(s, units)
				for range len(slow.ended) - ends {
					wait.Add(1)
				}
				ends = len(slow.ended)
				h, ok := p.Take(client, units, func() { mu.Lock(); ended = append(ended, n); mu.Unlock(); wait.Done() })
				if ok != want {
					t.Fatalf("seed %d: %d for %s: %v, want %v", seed, units, client, ok, want)
				}
				if ok {
					slow.holds = append(slow.holds, s)
					all = append(all, pair{h, s})
				} else {
					refused++
				}
			case what < 7:
				one := all[rng.IntN(len(all))]
				live, units := slices.Contains(slow.holds, one.s), 1+rng.Int64N(4)
				want := live && slow.grow(one.s, units)
				for range len(slow.ended) - ends {
					wait.Add(1)
				}
				ends = len(slow.ended)
				if ok := one.h.Add(units); ok != want {
					t.Fatalf("seed %d: %d more for %s: %v, want %v", seed, units, one.s.client, ok, want)
				}
			case what < 9:
				one, idle := all[rng.IntN(len(all))], rng.IntN(2) == 0
				if one.s.idle != idle && slices.Contains(slow.holds, one.s) {
					one.s.idle, one.s.since = idle, clock
				}
				one.h.SetIdle(idle)
			default:
				one := all[rng.IntN(len(all))]
				slow.holds = slices.DeleteFunc(slow.holds, func(o *slowHold) bool { return o == one.s })
				one.h.Give()
			}
			if got, want := p.Held(), slow.held(""); got != want || got > p.most {
				t.Fatalf("seed %d: %d of %d are held, want %d", seed, got, p.most, want)
			}
		}
		wait.Wait()
		slices.Sort(ended)
		slices.Sort(slow.ended)
		if !slices.Equal(ended, slow.ended) {
			t.Fatalf("seed %d: %v ended, want %v", seed, ended, slow.ended)
		}
		for _, one := range all {
			one.h.Give()
		}
		if p.Held() != 0 || len(p.shares) != 0 || len(p.holds) != 0 {
			t.Fatalf("seed %d: %d are held at the end, %d networks, %d holds", seed, p.Held(), len(p.shares), len(p.holds))
		}
		ends = 0
	}
	if refused < 500 {
		t.Errorf("only %d refused", refused)
	}
}

// Two addresses cannot hold everything, nor can all addresses of one network: a newcomer gets its share, and keeps
// what others hold no more than.
func TestAbuseOfPools(t *testing.T) {
	for what, address := range map[string]func(i int) string{
		"two addresses":                  func(i int) string { return fmt.Sprintf("192.0.2.%d/32", i%2) },
		"2,058 addresses, two times":     func(i int) string { return fmt.Sprintf("10.%d.%d.7/32", i%2058/256, i%256) },
		"a /24":                          func(i int) string { return fmt.Sprintf("192.0.2.%d/32", i%256) },
		"all networks of 64 bits of /48": func(i int) string { return fmt.Sprintf("2001:db8:0:%x::/64", i%65536) },
	} {
		most := 4000
		if what == "a /24" {
			most = 256
		}
		p := NewPool(int64(most))
		held := 0
		for i := range harness.Size(3*most, 50*most) {
			if _, ok := p.Take(address(i), 1, func() {}); ok {
				held++
			}
		}
		got := 0
		for i := range 100 { // a hundred others want one each
			h, ok := p.Take(fmt.Sprintf("198.51.%d.1/32", i), 1, func() { t.Errorf("%s: a client with one lost it", what) })
			if ok {
				got++
				defer h.Give()
			}
			for j := range 10 {
				p.Take(address(j*i), 1, func() {})
			}
		}
		harness.Figure(t, "newcomers beside "+what, "%d units, all taken %d times: %d of 100 newcomers have one", most, held/most, got)
		if got != 100 {
			t.Errorf("%s: %d of 100 newcomers have one", what, got)
		}
	}
}
