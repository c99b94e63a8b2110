package graph_test

import "testing"

// TestCompleteArchives is TestComplete in many small networks that each begin with an archive, which may lack the last rows of
// some accounts. Most accounts are then judged by how archive and stream meet.
func TestCompleteArchives(t *testing.T) {
	const steps = 60
	total := map[string]int{}
	for seed := range uint64(*completeSteps / steps) {
		n := newNet(t, 1000+seed)
		n.beginArchive()
		for range steps {
			n.step()
			n.check()
		}
		if t.Failed() {
			t.Fatalf("seed %d: the last steps were %v", seed, n.said)
		}
		n.rest()
		for what, times := range n.did {
			total[what] += times
		}
	}
	t.Log(total)
	for _, what := range []string{"complete", "lacking", "archive ended", "doubtful", "hole", "kill"} {
		if total[what] == 0 {
			t.Errorf("%q never happened: the test shows nothing of it", what)
		}
	}
}
