package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skein.blue/internal/kv/fdbkv"
)

func withoutFDB(without, with string) string {
	if fdbkv.Built {
		return with
	}
	return without
}

// Each command line ends with its exit code and a message. A command that cannot do what it should creates no store.
func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"broken": "\x00\x00\x00\x09\x01", "packed": "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "exported": `{"export":2,"kinds":[]}`,
		"empty": "\n", "two": "two words", "feeds": "mine = likes($viewer)\n",
	} {
		write(t, filepath.Join(dir, name), content)
	}
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>hello") }))
	defer stranger.Close()
	const lost = "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb"
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asked, _ := io.ReadAll(r.Body); r.URL.Path {
		case "/resync":
			fmt.Fprint(w, strings.ReplaceAll(string(asked), "@lost.example.com", lost))
		case "/backfill":
			fmt.Fprint(w, `{"waiting":5,"later":5}`)
		case "/resyncs":
			fmt.Fprint(w, `{"did":"did:plc:cccccccccccccccccccccccc"}`+"\n"+`{"did":"`+lost+`","state":"failed"}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer daemon.Close()
	t.Setenv("SKEIN_RELAY", "ws://127.0.0.1:1") // --frames must ignore it
	names := strings.NewReplacer("STORE", filepath.Join(dir, "store"), "DIR", dir, "FRAMES", plainPDS, "NOBODY", "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "STRANGER", stranger.URL, "DAEMON", daemon.URL, "TRUST", "RWQ"+strings.Repeat("A", 53))
	for _, c := range []struct {
		code int
		want string
		line string
	}{
		{0, "", "help"},
		{0, "engines: pebble", "version"},
		{64, "unknown command", "frob"},
		{64, "did you mean serve?", "serv"},
		{64, "skein serve has no flag --bogus", "serve --bogus"},
		{64, "did you mean --listen?", "serve --lisen x"},
		{64, "takes no arguments", "serve frob"},
		{64, "set expression", "query"},
		{64, "--memory", "serve --store STORE --memory lots"},
		{64, "--cursor", "serve --store STORE --cursor -1"},
		{64, "did you mean ws://relay.example.com", "serve --store STORE --relay relay.example.com"},
		{64, "did you mean ws://127.0.0.1:2583", "serve --store STORE --relay 127.0.0.1:2583"},
		{64, "--log-level", "serve --store STORE --log-level loud"},
		{1, "no such file", "replay --store STORE --frames nothing.frames"},
		{1, "ends within a message", "replay --store STORE --frames DIR/broken"},
		{1, "FutureCursor", "replay --store STORE --frames ../../testdata/pds/error-futurecursor.frames"},
		{64, "--cursor N (0: the oldest", "replay --store DIR/never"},
		{64, "--cursor N (0: the oldest", "replay --store STORE"},
		{1, "no store found", "serve --store DIR/never --consume=false"},
		{0, "2082 of 2082 repo events were new", "replay --store STORE --frames FRAMES"},
		{0, "read 2115 messages", "replay --store STORE --frames FRAMES --cursor 0"},
		{0, "0 of 2082 repo", "replay --store STORE --frames FRAMES --cursor 0"},
		{64, "would be skipped", "replay --store STORE --frames FRAMES --cursor 99999"},
		{0, "0 of 0 repo", "replay --store STORE --frames FRAMES"},
		{0, "", "replay --store STORE --frames FRAMES --cursor 2116"},
		{1, "has no events after seq 99999", "replay --store DIR/far --frames FRAMES --cursor 99999"},
		{64, "--rate needs --frames", "replay --store STORE --rate 5 --cursor 0"},
		{64, "must not be negative", "replay --store STORE --frames FRAMES --rate NaN"},
		{64, "or --idle", "replay --store STORE --frames FRAMES --idle 1m"},
		{64, "--force-cursor needs --cursor", "replay --store STORE --frames FRAMES --force-cursor"},
		{64, "is available to this process", "serve --store STORE --memory 1000TiB"},
		{64, "expected HOST:PORT", "serve --store STORE --admin-listen="},
		{64, "expected HOST:PORT", "serve --store STORE --listen 3210"},
		{64, "needs its own address", "serve --store STORE --listen :3210 --admin-listen :3210"},
		{64, "indexes nothing", "serve --store STORE --consume=false --cursor 5"},
		{64, "indexes nothing", "serve --store STORE --consume=false --audit 1"},
		{64, "indexes nothing", "serve --store STORE --consume=false --verify full"},
		{64, "--at has no effect", "restore --list --at 24h DIR"},
		{64, "indexes nothing", "serve --store STORE --consume=false --labelers NOBODY"},
		{64, "--force-cursor needs --cursor", "serve --store STORE --force-cursor"},
		{64, "--store is empty", "serve --store="},
		{64, "write the whole path", "serve --store ~/skein"},
		{64, "expected a folder", "check --store http://example.com"},
		{64, "24 base32 characters", "resync did:plc:short"},
		{64, "--host is empty", "backfill --host="},
		{1, "not answer as skein", "resync --admin STRANGER NOBODY"},
		{1, "not an answer from skein", "health --admin STRANGER"},
		{64, "expected HOST:PORT", "health --admin 3211"},
		{64, "must be more than 0", "health --max-lag -1s"},
		{64, "neither a network", "serve --store STORE --trusted-proxies X-Forwarded-For=proxy"},
		{64, "does not begin with the header", "serve --store STORE --trusted-proxies 127.0.0.1"},
		{64, "no such file", "serve --store STORE --tokens /none"},
		{64, "must not be negative", "serve --store STORE --rate -1"},
		{64, "--min-free", "serve --store STORE --min-free much"},
		{64, "the engine needs 76 MiB", "serve --store STORE --memory 32MiB --min-free 6MiB"},
		{1, "something other than a store", "serve --store DIR"},
		{1, "the disk is full", "serve --store DIR/full --min-free 1000TiB"}, // there is nothing to answer from
		{64, "token needs a NAME", "token"},
		{64, "rte=1", "token app rte=1"},
		{64, "--count does not work with rank", "query --count rank(of=follows(NOBODY),via=likes)"},
		{0, "cursor 1000", "replay --store DIR/until --frames FRAMES --until 1000"},
		{0, "no problems found", "check --store STORE"},
		{1, "no store", "check --store DIR/none"},
		{1, "no store", "check --store DIR"},
		{1, "not a folder", "check --store DIR/broken"},
		{1, withoutFDB("-tags fdb", "reading the cluster file"), "check --store fdb:///nowhere/fdb.cluster"},
		{64, "a store on FoundationDB has no write-ahead logs", "serve --store fdb:///nowhere/fdb.cluster --accept-loss 000001.log"},
		{64, "three slashes", "check --store fdb://nowhere"},
		{64, "prefix", "serve --store fdb:///nowhere/fdb.cluster?prefix=a/b"},
		{64, "skein serve has no flag --partition", "serve --store STORE --partition 0/2"},
		{0, "follow records", "stats --store STORE"},
		{0, `"records": 874`, "stats --store STORE --json"},
		{0, "complete", "completion bash"},
		{0, `{"end":{"accounts":30,"records":874,"sha256":"`, "export --store STORE"},
		{1, "no such file", "import --store DIR/new nothing.export"},
		{1, "not an export of skein", "import --store DIR/new DIR/broken"},
		{1, "compressed", "import --store DIR/new DIR/packed"},
		{1, "import into an empty store", "import --store STORE DIR/exported"},
		{64, "import needs a file", "import --store STORE"},
		{1, "skein serve", "query --server http://127.0.0.1:1 followers(did:plc:a)"},
		{64, "unknown port 99999", "serve --store DIR/never --listen :99999"},
		{64, "unknown port -1", "serve --store DIR/never --admin-listen 127.0.0.1:-1"},
		{64, "expected HOST:PORT", "serve --store DIR/never --listen 127.0.0.1:"},
		{64, "is empty", "serve --store DIR/never --admin-token-file DIR/empty"},
		{64, "no such file", "serve --store DIR/never --admin-token-file DIR/none"},
		{64, "openssl rand", "serve --store DIR/never --admin-token-file DIR/two"},
		{64, "is not an address", "backfill --archive no"},
		{64, "cannot be combined", "backfill --archive https://a.example.com --host a"},
		{64, "is not a DID", "backfill --did me"},
		{1, "no such file", "backfill --car DIR/none.car"},
		{64, "remove --format", "query --count --format csv followers(NOBODY)"},
		{64, "remove --format", "query --count --limit 5 followers(NOBODY)"},
		{64, "text, csv or jsonl", "query --format xml followers(NOBODY)"},
		{64, "--plc", "serve --store DIR/never --plc directory"},
		{64, "needs the DIDs", "resync"},
		{64, "is not a DID", "resync me"},
		{1, "is skein serve running", "resync --admin http://127.0.0.1:1 @alice.example.com"},
		{1, "is skein serve running", "resync --admin http://127.0.0.1:1 NOBODY"},
		{1, "no answer from a daemon at 127.0.0.1:1", "backfill --admin 127.0.0.1:1 --did @alice.example.com"},
		{1, "not answer as skein", "backfill --admin STRANGER"},
		{0, "done: ", "backfill --admin DAEMON --did NOBODY"},
		{1, "1 of 2 repos", "backfill --admin DAEMON --did NOBODY --did @lost.example.com"},
		{64, "--server", "watch --server http://[ followers(NOBODY)"},
		{1, "not an answer from skein", "watch --server STRANGER followers(NOBODY)"},
		{1, "not an answer from skein", "watch --server DAEMON followers(NOBODY)"},
		{64, "off, repos or archive=URL", "serve --store DIR/never --backfill all"},
		{64, "off, repos or archive=URL", "serve --store DIR/never --backfill archive"},
		{64, "remove --repair=false", "serve --store DIR/never --backfill repos --repair=false"},
		{64, "remove --repair=false", "serve --store DIR/never --audit 1 --repair=false"},
		{64, "at most 100000/h", "serve --store DIR/never --audit -1"},
		{64, "--drain -1s", "serve --store DIR/never --drain -1s"},
		{64, "need --backup-to", "serve --store DIR/never --backup-keep 7"},
		{64, "need --backup-to", "serve --store DIR/never --backup-every 5m"},
		{64, "--trust needs --from", "serve --store DIR/never --trust TRUST"},
		{64, "--backup-to https://example.com/x is a web server", "serve --store DIR/never --backup-to https://example.com/x"},
		{64, "--backup-to", "serve --store DIR/never --backup-to ftp://x"},
		{64, "--backup-every 1s", "serve --store DIR/never --backup-to DIR/to --backup-every 1s"},
		{64, "--backup-keep", "serve --store DIR/never --backup-to DIR/to --backup-keep -1"},
		{64, "--backup-to", "serve --store fdb:///x?prefix=y --backup-to DIR/to"},
		{64, "--trust", "serve --store DIR/never --from https://example.com/x"},
		{64, "--trust", "serve --store DIR/never --from https://example.com/x --trust RWx"},
		{64, "which indexes nothing", "serve --store DIR/never --from DIR/to --consume=false"},
		{64, "is not one", "serve --store fdb:///x?prefix=y --from DIR/to"},
		{64, "needs --feeds FILE", "serve --store DIR/never --feed-publisher did:web:x"},
		{64, "needs --service-host", "serve --store DIR/never --feeds DIR/feeds"},
		{64, "needs one argument", "backup"},
		{64, "restored into a folder", "restore --store fdb:///x?prefix=y DIR/to"},
		{1, "no backup", "restore --store DIR/never DIR/to"},
		{64, "--at", "restore --store DIR/never --at noon DIR/to"},
		{64, "folder to write to", "export --store STORE --format parquet"},
		{64, "expected jsonl or parquet", "export --store STORE --format xml"},
		{64, "need --format parquet", "export --store STORE --kinds like"},
		{64, "hug", "export --store STORE --format parquet --kinds hug DIR/tables"},
		{0, " edges and ", "export --store STORE --format parquet DIR/tables"},
		{64, "DIR/tables", "export --store STORE --format parquet DIR/tables"},
		{64, "store in a folder", "export --store fdb:///x?prefix=y --format parquet DIR/more"},
	} {
		run(t, c.code, names.Replace(c.want), strings.Fields(names.Replace(c.line))...)
	}
	if _, err := os.Stat(filepath.Join(dir, "never")); !os.IsNotExist(err) {
		t.Errorf("a command that only reads created a store: %v", err)
	}
}

// The help shows one default for each flag.
func TestHelpShowsOneDefault(t *testing.T) {
	for _, command := range []string{"serve", "replay", "import"} {
		for line := range strings.Lines(run(t, 0, "", command, "--help")) {
			if strings.Count(line, "(default:") > 1 {
				t.Errorf("%s: %s", command, line)
			}
		}
	}
}

// An environment variable is a usage error like its flag.
func TestBadVariables(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	for _, c := range [][3]string{
		{"SKEIN_BACKUP_EVERY", "soon", "soon"},
		{"SKEIN_FEED_PUBLISHER", "did:web:x", "needs --feeds FILE"},
		{"SKEIN_ADMIN_TOKEN", "two words", "openssl rand"},
	} {
		t.Run(c[0], func(t *testing.T) {
			t.Setenv(c[0], c[1])
			run(t, 64, c[2], "serve", "--store", store)
		})
	}
}

// A failed start is reported in one line.
func TestFailedStartIsOneLine(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = taken.Close() }()
	store := filepath.Join(t.TempDir(), "store")
	for what, args := range map[string][]string{
		"address in use":       {"--listen", taken.Addr().String()},
		"admin address in use": {"--admin-listen", taken.Addr().String()},
		"full disk":            {"--min-free", "1000TiB", "--store", store + "-full"},
		"no store":             {"--consume=false", "--store", store + "-none"},
		"no feeds":             {"--service-host", "x.example.com", "--feeds", store + "-none"},
	} {
		args = append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--relay", "ws://127.0.0.1:1", "--store", store}, args...)
		out, err := program(t, args...).CombinedOutput()
		if exitCode(err) == 0 || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%s: %v, in %d lines:\n%s", what, err, strings.Count(string(out), "\n"), out)
		}
	}
}
