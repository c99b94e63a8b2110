package app_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer"
	"skein.blue/internal/sim/oracle"
)

// raw sends bytes and returns the first line of the answer, "" if the server closed the
// connection without an answer.
func raw(t *testing.T, base, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	must(t, err)
	defer func() { _ = conn.Close() }() // fails if the server closed it
	must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, _ = io.WriteString(conn, request) // the server need not read it all
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line)
}

// Wrong or malicious requests get a 4xx or a closed connection, and do not disturb other clients.
func TestAbuse(t *testing.T) {
	x, closeIt := open(t, t.TempDir(), nil)
	defer closeIt()
	replay(t, x, consumer.Options{Frames: plainPDS})
	before := runtime.NumGoroutine()
	base, _, stop := serve(t, x, nil)
	defer stop()
	const did = "did:plc:6tnmqzyj3aj56cfk2uw7mi5e"
	ask := "/xrpc/blue.skein.graph.query?set=" + url.QueryEscape("followers("+did+")")
	get := func(path, headers string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n"
	}
	for name, c := range map[string]struct{ request, want string }{
		"fine":                  {get(ask, "Connection: close\r\n"), "HTTP/1.1 200 OK"},
		"a huge header":         {get(ask, "X-Junk: "+strings.Repeat("a", 2<<20)+"\r\n"), "HTTP/1.1 431 Request Header Fields Too Large"},
		"a million headers":     {get(ask, strings.Repeat("A: b\r\n", 1<<20)), "HTTP/1.1 431 Request Header Fields Too Large"},
		"a huge URL":            {get("/xrpc/blue.skein.graph.query?set="+strings.Repeat("a", 2<<20), ""), "HTTP/1.1 431 Request Header Fields Too Large"},
		"a long expression":     {get("/xrpc/blue.skein.graph.query?set="+strings.Repeat("a", 17<<10), "Connection: close\r\n"), "HTTP/1.1 400 Bad Request"},
		"a long method":         {get("/xrpc/"+strings.Repeat("a", 10<<10), "Connection: close\r\n"), "HTTP/1.1 501 Not Implemented"},
		"a broken escape":       {get(ask+"%zz", "Connection: close\r\n"), "HTTP/1.1 400 Bad Request"},
		"POST":                  {"POST " + ask + " HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", "HTTP/1.1 415 Unsupported Media Type"},
		"POST to a GET method":  {"POST /xrpc/blue.skein.graph.getStats HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", "HTTP/1.1 405 Method Not Allowed"},
		"a body without an end": {"POST " + ask + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000000000000\r\nConnection: close\r\n\r\nabc", "HTTP/1.1 413 Request Entity Too Large"},
		"not HTTP":              {"\x16\x03\x01 hello\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		"no host":               {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		"a range":               {get(ask, "Range: bytes=0-1\r\nConnection: close\r\n"), "HTTP/1.1 200 OK"},
	} {
		if got := raw(t, base, c.request); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	// Clients that send or read next to nothing hold no slot, so others are served.
	var slow []net.Conn
	for i := range 200 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		must(t, err)
		slow = append(slow, conn)
		request := get(ask, "")
		if i%2 == 0 {
			request = request[:20] // the rest never comes
		} else {
			request = strings.Repeat(request, 50) // the answers are never read
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	for range 100 {
		if _, total, err := oracle.Members(t.Context(), base, fmt.Sprintf("followers(%s)", did), 100); err != nil || total != 9 {
			t.Fatalf("beside slow clients: %d, %v", total, err)
		}
	}
	if took := time.Since(start); took > time.Minute { // if one waited for a slow client, 100 would take 1,000 s
		t.Errorf("beside slow clients, 100 queries took %v", took)
	}
	for _, c := range slow {
		_ = c.Close() // the server has cut off half of them
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	eventually(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}
