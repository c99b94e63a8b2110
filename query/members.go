package query

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// membersAtOnce is how many strings are read at a time.
var membersAtOnce = 8192

// ServeMembers serves all members of the set in the parameter set, of one state of the index except on FoundationDB
// (graph.Store.ViewAcross): an object {"member":…} a line. It has no time limit and holds up a slot of no queue, so it is for
// operators only. The connection is cut if it fails after it has begun.
func (s *Server) ServeMembers(w http.ResponseWriter, r *http.Request) {
	WithoutDeadline(w, r)
	out := bufio.NewWriterSize(w, 256<<10)
	err := s.members(w, r, out)
	if err == nil {
		err = out.Flush()
	}
	switch {
	case err == nil || r.Context().Err() != nil:
	case w.Header().Get("Skein-Total") == "": // it has not begun
		answer := s.errorOf("members", err)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer.Status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": answer.Error()})
	default:
		s.o.Logger.Error("sending the members of a set failed", "set", r.URL.Query().Get("set"), "error", err)
		panic(http.ErrAbortHandler) // the client must see that the list is cut short
	}
}

// members evaluates a set, and writes its members as lines of JSON.
func (s *Server) members(w http.ResponseWriter, r *http.Request, out io.Writer) error {
	ctx := r.Context()
	q := &call{Query: &xrpc.Query{Values: r.URL.Query(), MaxExpr: language.MaxExpr}, server: s}
	s.prepare(ctx, q.Query, w, r, new(xrpc.Method))
	defer q.Work.Leave()
	e, err := q.Set()
	if err != nil {
		return err
	}
	q.Work.Leave() // which resolving handles takes
	_, err = s.store.ViewAcross(ctx, func(sn *ask.View) error {
		v, err := algebra.NewEvaluation(ctx, sn, e, (*xrpc.Work)(nil)) // it has no limit
		if err != nil {
			return err
		}
		v.Exact = true
		var c caveats
		if err := q.rests(sn, &c, func(cl *claim) error { return cl.on(v, evidence.Of(&e.Root)) }); err != nil {
			return err
		}
		all, total, err := v.Result()
		if err != nil {
			return err
		}
		h := w.Header()
		h.Set("Content-Type", "application/x-ndjson")
		h.Set("Skein-Type", e.Type().String())
		h.Set("Skein-Total", strconv.FormatUint(total, 10))
		if c.Reason != "" {
			h.Set("Skein-Incomplete", c.Reason)
		}
		lines := json.NewEncoder(out)
		var line struct {
			Member string `json:"member"`
		}
		for after := dict.None; ; {
			ids, names, last, err := v.Page(all, after, membersAtOnce)
			if err != nil {
				return err
			}
			for _, line.Member = range names {
				if err := lines.Encode(&line); err != nil {
					return err
				}
			}
			if last == dict.None || len(ids) == 0 {
				return nil
			}
			after = last
		}
	})
	return err
}
