package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"

	"skein.blue/internal/identities"
)

// The identities of the made-up people: handles, which a daemon resolves, and the methods of
// Bluesky's own service that a page calls for names, pictures and the texts of posts.

var firstNames = strings.Fields(`Ada Aiko Alba Amara Anouk Arun Astrid Beatriz Bela Bruno Carlo Chidi Clara Dalia Daniel
	Divya Edda Elif Emeka Esra Farah Felix Freya Gael Goran Hana Hugo Ida Idris Ines Ivo Jana Jonas Kaito Kira Lan
	Leila Liam Luca Maja Malik Mateo Mina Nadia Nils Noor Olga Omar Paula Petra Priya Rafael Rosa Sami Selma Tariq Tomas
	Uma Vera Yusuf`)

var familyNames = strings.Fields(`Abbas Adeyemi Almeida Andersen Bauer Berg Blanc Castro Chen Costa Dahl Diaz Dubois Eriksen
	Farkas Fischer Garcia Haddad Hansen Horvat Ivanova Jensen Kaya Keller Khan Kim Klein Kovacs Laine Larsen Lopez
	Mancini Mbeki Mori Moreau Nakamura Novak Okafor Okoye Olsen Park Patel Ricci Rossi Santos Sato Silva Tanaka Virtanen
	Weber`)

var words = []string{
	"The heron is back at the pond.", "Rye bread, day three. The crust is getting there.", "Anybody else up for the eclipse?",
	"I finally understood monads, and now I cannot explain them.", "Night train to Lisbon. Window seat.",
	"New zine is at the printer’s. I can smell the ink from here.", "The library has a seed drawer now. Take two, bring two.",
	"Hot take: the second album is the good one.", "First snow. The dog does not know what to do with it.",
	"Our paper on peat bogs is out.", "Looking for a bass player, any level.", "Reminder: water is a meal’s best friend.",
	"Found my grandmother’s recipe for plum dumplings.", "The bridge is closed again, take the ferry.",
	"I drew every bird that I saw today. All four of them.", "What is your favourite map, and why is it of an island?",
	"The tomatoes have opinions about the weather.", "Chess in the park at five, boards are there.",
	"This bug was a missing comma. It was always a missing comma.", "A good question is half of the answer.",
	"Choir tonight. I am the loud one.", "The moon is very close, says my daughter, and she is right.",
	"Repaired the radio. It only speaks of football.", "A cat has moved in. We were not asked.",
}

var endings = []string{"", "", " More tomorrow.", " Thoughts?", " That is all.", " Pictures soon.", " Who is in?", " I regret nothing.", " Ten out of ten.", " #cats"}

// handleOf returns the handle of one of the people.
func handleOf(i int) string {
	g, f := names(i)
	return strings.ToLower(g + "-" + f + ".test")
}

// names returns a unique name for each of the people.
func names(i int) (string, string) {
	i = i * 1009 % people // avoids alphabetical order
	return firstNames[i%len(firstNames)], familyNames[i/len(firstNames)]
}

// Kept returns the DID of a handle. All handles are known.
func (n *Network) Kept(handle string) (did string, known bool, err error) {
	if i, ok := n.handles[strings.ToLower(handle)]; ok {
		return n.dids[i], true, nil
	}
	return "", true, fmt.Errorf("%w: no such handle in this made-up network", identities.ErrNotFound)
}

// Resolve is the same as Kept.
func (n *Network) Resolve(_ context.Context, handle string) (string, error) {
	did, _, err := n.Kept(handle)
	return did, err
}

// Handle returns the handle of an account, "" if the account does not exist.
func (n *Network) Handle(did string) string {
	if i, ok := n.index[did]; ok {
		return handleOf(i)
	}
	return ""
}

// HandleOf is Handle.
func (n *Network) HandleOf(_ context.Context, did string) (string, error) { return n.Handle(did), nil }

// profile is what a page shows of an account, a part of app.bsky.actor.defs#profileViewDetailed.
type profile struct {
	DID         string `json:"did"`
	Handle      string `json:"handle"`
	DisplayName string `json:"displayName"`
	Avatar      string `json:"avatar"`
}

// profile returns the profile of an account, or nothing.
func (n *Network) profile(did string) []any {
	i, ok := n.index[did]
	if !ok {
		return nil
	}
	g, f := names(i)
	return []any{profile{did, handleOf(i), g + " " + f, "/page/faces/" + did}}
}

// People serves app.bsky.actor.getProfiles, app.bsky.actor.searchActorsTypeahead and app.bsky.feed.getPosts, as
// Bluesky's own service does for real accounts, and the accounts' pictures. The text of a post is derived from its
// URI, since posts have no records.
func (n *Network) People() http.Handler {
	mux := http.NewServeMux()
	serve := func(method, parameter, field string, find func(value string) []any) {
		mux.HandleFunc("GET /xrpc/app.bsky."+method, func(w http.ResponseWriter, r *http.Request) {
			found := []any{}
			for _, value := range r.URL.Query()[parameter] {
				found = append(found, find(value)...)
			}
			answerJSON(w, map[string]any{field: found})
		})
	}
	serve("actor.getProfiles", "actors", "profiles", func(actor string) []any {
		if i, ok := n.handles[actor]; ok {
			actor = n.dids[i]
		}
		return n.profile(actor)
	})
	serve("actor.searchActorsTypeahead", "q", "actors", func(q string) (found []any) {
		for i, did := range n.dids {
			if len(found) < 8 && strings.HasPrefix(handleOf(i), strings.ToLower(q)) {
				found = append(found, n.profile(did)...)
			}
		}
		return found
	})
	serve("feed.getPosts", "uris", "posts", func(uri string) (found []any) {
		did, _, _ := strings.Cut(strings.TrimPrefix(uri, "at://"), "/")
		for _, author := range n.profile(did) {
			found = append(found, map[string]any{"uri": uri, "author": author, "record": map[string]string{"text": text(uri)}})
		}
		return found
	})
	mux.HandleFunc("GET /page/faces/{did}", func(w http.ResponseWriter, r *http.Request) {
		i, ok := n.index[r.PathValue("did")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		g, f := names(i)
		w.Header().Set("Content-Type", "image/svg+xml")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		w.Header().Set("Cache-Control", "max-age=3600")
		fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64"><rect width="64" height="64" fill="hsl(%d 45%% 40%%)"/>`+
			`<text x="32" y="41" text-anchor="middle" font-family="sans-serif" font-size="26" fill="#fff">%c%c</text></svg>`, hash(n.dids[i])%360, g[0], f[0])
	})
	return mux
}

// text returns the text of a post.
func text(uri string) string {
	h := hash(uri)
	return words[h%uint32(len(words))] + endings[h>>16%uint32(len(endings))]
}

func hash(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return h.Sum32()
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
