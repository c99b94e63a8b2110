package page

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The preview of a shared address has the query and a picture. A stranger's text in the address
// or the Host header stays text.
func TestHead(t *testing.T) {
	h := Handler(http.NotFoundHandler(), NewLive(samples(), 1), Options{})
	get := func(target string, change func(*http.Request)) (string, http.Header) {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Header.Set("Accept", "text/html")
		r.Host = "skein.example.com"
		if change != nil {
			change(r)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Body.String(), w.Header()
	}
	long := strings.Repeat("é", 500)
	for _, test := range []struct {
		target  string
		change  func(*http.Request)
		has     []string
		without string
	}{
		{"/", nil, []string{"<title>skein</title>", `<meta property="og:title" content="skein">`, `<meta property="og:url" content="http://skein.example.com/">`, `<meta property="og:image" content="http://skein.example.com/page/icon.png">`, `<meta property="og:description" content="Query follows`}, "<!--head-->"},
		{"/?q=follows(@alice.example.com)", nil, []string{"<title>follows(@alice.example.com) – skein</title>", `content="follows(@alice.example.com) – skein"`, `content="http://skein.example.com/?q=follows(@alice.example.com)"`}, ""},
		{"/", func(r *http.Request) { r.TLS = &tls.ConnectionState{} }, []string{`content="https://skein.example.com/page/icon.png"`}, "http://skein"},
		{"/", func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "https") }, []string{`content="https://skein.example.com/"`}, "http://skein"},
		{"/?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E", nil, []string{"&#34;&gt;&lt;script&gt;alert(1)"}, "<script>alert"},
		{"/?q=x&y=%22&z='", nil, []string{"<title>x – skein</title>", "z=&#39;"}, "z='"},
		{"/", func(r *http.Request) { r.Host = `x"><script>` }, []string{"og:title"}, "og:url"},
		{"/?q=" + long, nil, []string{"<title>" + strings.Repeat("é", 100) + "… – skein</title>"}, ""},
		{"/?q=%ff", nil, []string{"<title>skein</title>"}, "\xff"},
	} {
		body, header := get(test.target, test.change)
		for _, has := range test.has {
			if !strings.Contains(body, has) {
				t.Errorf("%.60s lacks %s", test.target, has)
			}
		}
		if test.without != "" && strings.Contains(body, test.without) {
			t.Errorf("%.60s has %.60q", test.target, test.without)
		}
		if header.Get("Content-Security-Policy") != policy || header.Get("ETag") == "" {
			t.Errorf("%.60s: %v", test.target, header)
		}
	}
	_, plain := get("/", nil)
	_, asked := get("/?q=x", nil)
	if plain.Get("ETag") == asked.Get("ETag") {
		t.Error("two queries have the same ETag")
	}
}
