package page

import (
	"bytes"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"unicode/utf8"
)

// titled limits the bytes of a query in the title that a link's preview shows.
const titled = 200

// hostName matches the Host headers that the page may repeat.
var hostName = regexp.MustCompile(`^([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?$`)

// index returns the page with a head for its query, which services show as the preview of a
// shared link (https://ogp.me).
func index(r *http.Request) *file {
	f := files["index.html"]
	return newFile(f.contentType, bytes.Replace(f.plain, []byte("<!--head-->"), head(r), 1), nil)
}

func head(r *http.Request) []byte {
	title := "skein"
	if q := r.URL.Query().Get("q"); q != "" && utf8.ValidString(q) {
		if len(q) > titled {
			end := titled
			for !utf8.RuneStart(q[end]) {
				end--
			}
			q = q[:end] + "…"
		}
		title = html.EscapeString(q) + " – skein"
	}
	b := fmt.Appendf(nil, "<title>%s</title>", title)
	property := func(name, value string) { b = fmt.Appendf(b, "\n<meta property=%q content=\"%s\">", name, value) }
	property("og:type", "website")
	property("og:site_name", "skein")
	property("og:title", title)
	property("og:description", "Query follows, likes and other links on the AT Protocol network as sets.")
	if hostName.MatchString(r.Host) {
		base := "http://" + r.Host
		if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
			base = "https://" + r.Host
		}
		property("og:url", base+html.EscapeString(r.URL.RequestURI()))
		property("og:image", base+"/page/icon.png")
		property("og:image:alt", "Three crossing strands")
	}
	return b
}
