package harness_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestChaosGuarded runs an index as it would run in public: behind Caddy, which speaks TLS; with
// rates and tokens; with every signature verified; with a copy of the PLC directory, and with
// audits. Meanwhile the PDS, the relay and the index are killed, and connections are cut. At the
// end the index must match the PDS, no signature may have been refuted, no audit may have found a
// difference, and each client must have been told apart by the address that Caddy saw.
//
//	.ci/peers DIR && go test ./internal/sim/harness -run TestChaosGuarded -peers DIR -v
func TestChaosGuarded(t *testing.T) {
	if _, err := exec.LookPath("caddy"); err != nil {
		t.Skip("needs Caddy: .ci/peers says how to install it")
	}
	kit := peers(t)
	n, _ := seededNetwork(t, kit)
	ports, err := FreePorts(2)
	must(t, err)
	token, tokens := makeToken(n)
	n.flags = []string{
		"--listen", fmt.Sprintf("127.0.0.1:%d", ports[0]),
		"--verify", "full", "--plc", fmt.Sprintf("http://127.0.0.1:%d", n.plcPort), "--allow-private-hosts",
		"--audit", "7200", "--rate", "1", "--tokens", tokens, "--trusted-proxies", "X-Forwarded-For=127.0.0.1/32",
	}
	public, client := startCaddy(n, ports[1], ports[0])

	n.follow("--relay", "ws://"+n.relayProxy.Addr, "--cursor", "0")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asking sync.WaitGroup
	var named, anonymous answers
	asking.Go(func() { named.ask(ctx, client, public, "Authorization", "Bearer "+token) })
	asking.Go(func() { anonymous.ask(ctx, client, public, "X-Forwarded-For", "192.0.2.7") })
	n.rough(*chaosFor/2, false, n.killIndex, n.killPDS, n.killRelay)
	stop()
	asking.Wait()
	want := n.truth()
	n.awaitRepaired(token, 40)
	var st struct {
		Audited struct{ Repos, Records, Differences int64 }
	}
	must(t, json.Unmarshal([]byte(n.ask(token)), &st))
	metrics := n.get(n.index.admin + "/metrics")
	shown := regexp.MustCompile(`(?m)^skein_(consumer_dropped_total|consumer_gaps_total)\S* \S+$`).FindAllString(metrics, -1)
	n.stopIndex()
	n.compareAll("guarded", want)
	t.Logf("%d writes; killed: %v; with the token %v, without %v; audited: %+v\n%s", n.writes.Load(), n.kills, &named, &anonymous, st.Audited, strings.Join(shown, "\n"))
	if st.Audited.Repos == 0 || st.Audited.Differences > 0 {
		t.Errorf("audits: %+v", st.Audited)
	}
	if regexp.MustCompile(`(?m)^skein_consumer_dropped_total\{reason="signature"\} [1-9]`).MatchString(metrics) {
		t.Error("valid signatures were refuted")
	}
	if named.refused > 0 || named.ok < 20 || anonymous.refused == 0 {
		t.Error("rates: the client with a token must not be refused, and the other one must")
	}
}

// makeToken makes a token for a client without limits, and a file with its line.
func makeToken(n *network) (token, file string) {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), n.binary, "token", "app", "rate=0", "bytes=0")
	var line, secret bytes.Buffer
	cmd.Stdout, cmd.Stderr = &line, &secret
	file = filepath.Join(n.dir, "tokens")
	err := cmd.Run()
	if err == nil {
		err = os.WriteFile(file, line.Bytes(), 0o600)
	}
	must(n.t, err)
	return strings.TrimSpace(secret.String()), file
}

// startCaddy starts Caddy in front of the index, with a certificate of its own authority, and
// returns its address and a client that trusts it.
func startCaddy(n *network, port, upstream int) (address string, client *http.Client) {
	n.t.Helper()
	data := filepath.Join(n.dir, "caddy")
	file := filepath.Join(n.dir, "Caddyfile")
	config := fmt.Sprintf("{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n\thttp_port 0\n}\nhttps://127.0.0.1:%d {\n\tbind 127.0.0.1\n\ttls internal\n\treverse_proxy 127.0.0.1:%d\n}\n", port, upstream)
	must(n.t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.CommandContext(context.Background(), "caddy", "run", "--adapter", "caddyfile", "--config", file)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+data, "XDG_CONFIG_HOME="+data, "HOME="+data)
	cmd.Stdout, cmd.Stderr = n.log, n.log
	must(n.t, cmd.Start())
	n.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address = fmt.Sprintf("https://127.0.0.1:%d", port)
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		root, err := os.ReadFile(filepath.Join(data, "caddy", "pki", "authorities", "local", "root.crt"))
		if err == nil {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(root)
			client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
			resp, err := client.Get(address)
			if err == nil && resp.Body.Close() == nil {
				return address, client // which answers 502 as yet
			}
		}
		if time.Since(began) > time.Minute {
			n.t.Fatalf("Caddy does not serve: %v", err)
		}
	}
}

// answers counts the answers that a client received.
type answers struct{ ok, refused, gone int }

func (a *answers) String() string {
	return fmt.Sprintf("%d answers, %d refused, %d while the index was down", a.ok, a.refused, a.gone)
}

// ask sends ten queries a second with a header.
func (a *answers) ask(ctx context.Context, client *http.Client, address, header, value string) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/xrpc/blue.skein.graph.query?set=follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)", nil)
		if err != nil {
			return
		}
		req.Header.Set(header, value)
		resp, err := client.Do(req)
		switch {
		case err != nil:
			a.gone++
		case resp.StatusCode == http.StatusOK:
			a.ok++
		case resp.StatusCode == http.StatusTooManyRequests:
			a.refused++
		default:
			a.gone++
		}
		if err == nil {
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// ask asks the index itself for its statistics, as a client with a token or, if that is "", without.
func (n *network) ask(token string) string {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, n.index.api+"/xrpc/blue.skein.graph.getStats", nil)
	must(n.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	must(n.t, err)
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		n.t.Fatalf("getStats: %s, %v: %s", resp.Status, err, &b)
	}
	return b.String()
}

// awaitRepaired waits until the index has applied everything that the relay or the PDS has sent, and has nothing
// left to fetch, for that many fifths of a second.
func (n *network) awaitRepaired(token string, long int) {
	n.t.Helper()
	quiet, last := 0, int64(0)
	for began := time.Now(); quiet < long; time.Sleep(200 * time.Millisecond) {
		var st struct {
			Busy, Hole bool
			Waiting    int64
		}
		var s stats
		must(n.t, json.Unmarshal([]byte(n.get(n.index.admin+"/backfill")), &st))
		must(n.t, json.Unmarshal([]byte(n.ask(token)), &s))
		if quiet++; st.Busy || st.Hole || st.Waiting > 0 || s.Cursor != last {
			quiet = 0
		}
		last = s.Cursor
		if time.Since(began) > 4*time.Minute {
			queue := n.get(n.index.admin + "/resyncs")
			for _, m := range regexp.MustCompile(`"did":"([^"]+)"`).FindAllStringSubmatch(queue, 5) {
				for _, address := range []string{n.client.Base, fmt.Sprintf("http://127.0.0.1:%d", n.relayPort)} {
					n.t.Logf("%s: %s", address, n.get(address+"/xrpc/com.atproto.sync.getLatestCommit?did="+m[1]))
				}
				for line := range strings.Lines(n.get(n.index.admin + "/deadletters")) {
					if strings.Contains(line, m[1]) {
						n.t.Log(line)
					}
				}
			}
			n.t.Fatalf("still busy: %+v %+v: %s", st, s, queue)
		}
	}
}
