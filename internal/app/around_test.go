package app_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"skein.blue/internal/app"
	"skein.blue/internal/identities"
)

// handlesOf resolves handles of example.com.
type handlesOf map[string]string

func (h handlesOf) Kept(string) (did string, known bool, err error) { return "", false, nil }

func (h handlesOf) Resolve(_ context.Context, handle string) (string, error) {
	if did := h[handle]; did != "" {
		return did, nil
	}
	return "", fmt.Errorf("%w: %s", identities.ErrNotFound, handle)
}

func (h handlesOf) HandleOf(context.Context, string) (string, error) { return "", identities.ErrOff }

// The centers of a part are named as in queries, and lists by their address or AT URI.
func TestAroundNames(t *testing.T) {
	const alice, bob = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb"
	handles := handlesOf{"alice.example.com": alice, "bob.example.com": bob}
	list := "at://" + bob + "/app.bsky.graph.list/3jzfcijpj2z2a"
	for names, want := range map[string]string{
		"@Alice.example.com": "[" + alice + "] []",
		"alice.example.com":  "[" + alice + "] []",
		alice + ",https://bsky.app/profile/alice.example.com,@bob.example.com": "[" + alice + " " + bob + "] []",
		"https://bsky.app/profile/bob.example.com/lists/3jzfcijpj2z2a," + list: "[] [" + list + "]",
		"at://bob.example.com/app.bsky.graph.list/3jzfcijpj2z2a":               "[] [" + list + "]",
		"at://bob.example.com/app.bsky.feed.post/3jzfcijpj2z2a":                "neither an account",
		"$viewer":            "neither an account",
		"alice":              "neither an account",
		"@carol.example.com": "unknown handle: carol.example.com",
	} {
		a, err := new(app.Network).Around(t.Context(), strings.Split(names, ","), 2, handles)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(a.Centers, a.Lists)
			for _, did := range append(a.Centers, bob) {
				if isMember := did != bob || len(a.Lists) > 0 || len(a.Centers) > 1; a.Part.Has([]byte(did)) != isMember || a.Hops != 2 {
					t.Errorf("%s: %s is a member: %t; %d hops", names, did, !isMember, a.Hops)
				}
			}
		}
		if !strings.Contains(got, want) || err != nil && errors.Is(err, app.ErrUsage) != strings.HasPrefix(want, "neither") {
			t.Errorf("%s: %s, want %s", names, got, want)
		}
	}
}
