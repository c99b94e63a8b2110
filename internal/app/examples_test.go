package app_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer"
)

// The page proposes queries about accounts and posts of this store, and all of them have
// answers. An empty store proposes none.
func TestExamplesHaveAnswers(t *testing.T) {
	examples := func(base string) (all []struct{ Title, Q string }) {
		var config struct{ Examples []struct{ Title, Q string } }
		if err := json.Unmarshal([]byte(body(t, base+"/page/config.json")), &config); err != nil {
			t.Fatal(err)
		}
		return config.Examples
	}
	x, _ := open(t, t.TempDir(), nil)
	base, _, _ := serve(t, x, nil)
	if got := examples(base); len(got) > 0 {
		t.Errorf("an empty store proposes %v", got)
	}
	x, _ = open(t, t.TempDir(), nil)
	replay(t, x, consumer.Options{Frames: plainPDS})
	base, _, _ = serve(t, x, nil)
	all := examples(base)
	for began := time.Now(); len(all) == 0 && time.Since(began) < 10*time.Second; all = examples(base) { // they are found after the start
		time.Sleep(time.Millisecond)
	}
	proposed := map[string]bool{}
	for _, e := range all {
		method, p := "query", url.Values{"set": {e.Q}}
		if inside, ok := strings.CutPrefix(e.Q, "rank("); ok {
			method, p = "rank", url.Values{}
			for part := range strings.SplitSeq(strings.TrimSuffix(inside, ")"), ", ") {
				name, value, _ := strings.Cut(part, "=")
				p.Set(name, value)
			}
		} else if !strings.Contains(e.Q, "(") {
			p.Set("set", "members("+e.Q+")")
			if strings.HasPrefix(e.Q, "at:") {
				p.Set("set", "likers("+e.Q+")")
			}
		}
		var answer struct {
			Members, Items []any
			Error          string
		}
		if err := json.Unmarshal([]byte(body(t, base+"/xrpc/blue.skein.graph."+method+"?"+p.Encode())), &answer); err != nil {
			t.Fatal(err)
		}
		if len(answer.Members)+len(answer.Items) == 0 {
			t.Errorf("%s (%s) has no answer: %s", e.Title, e.Q, answer.Error)
		}
		proposed[strings.SplitN(e.Q, "(", 2)[0][:4]] = true
	}
	for _, kind := range []string{"inte", "rank", "did:", "at:/"} {
		if !proposed[kind] {
			t.Errorf("no example starts with %s: %v", kind, all)
		}
	}
}
