// Package xrpc has what every method of the HTTP API needs: its lexicon (Lexicons), its parameters (Query), its
// errors (Error), its page cursors (Cursors), and a slot for its work (Queues). It knows no method, and no server.
package xrpc
