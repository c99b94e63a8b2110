package harness_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A Client sends requests to a PDS.
type Client struct {
	Base string // http://127.0.0.1:port
	http http.Client
}

// NewClient returns a client of the PDS on a port of loopback.
func NewClient(port int) *Client {
	return &Client{Base: fmt.Sprintf("http://127.0.0.1:%d", port), http: http.Client{Timeout: 30 * time.Second}}
}

// An Account is a user of a PDS.
type Account struct {
	DID string `json:"did"`
	JWT string `json:"accessJwt"`
}

// do sends a request. auth is a token, "admin" for the administrator, or empty.
func (c *Client) do(ctx context.Context, method, path, contentType, auth string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+"/xrpc/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	switch auth {
	case "":
	case "admin":
		req.SetBasicAuth("admin", "admin")
	default:
		req.Header.Set("Authorization", "Bearer "+auth)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("peers: %s: %w", path, err)
	}
	b, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("peers: %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("peers: %s: %s: %.300s", path, resp.Status, b)
	}
	return b, nil
}

// PutRecord puts a record. The PDS must know its lexicon, and finds it valid.
func (c *Client) PutRecord(ctx context.Context, a Account, collection, rkey string, record json.RawMessage) error {
	return c.call(ctx, "com.atproto.repo.putRecord", a.JWT, map[string]any{"repo": a.DID, "collection": collection, "rkey": rkey, "record": record, "validate": true}, nil)
}

// Proxied sends a query to another service through the PDS, as a client does: service
// is DID#ENTRY (https://atproto.com/specs/xrpc#service-proxying).
func (c *Client) Proxied(ctx context.Context, a Account, service, method string, q url.Values) (status int, body []byte, err error) {
	return c.Get(ctx, "/xrpc/"+method+"?"+q.Encode(), map[string]string{"Authorization": "Bearer " + a.JWT, "atproto-proxy": service})
}

// Get requests a path with headers.
func (c *Client) Get(ctx context.Context, path string, headers map[string]string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Base+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("peers: %w", err)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("peers: %s: %w", path, err)
	}
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, errors.Join(err, resp.Body.Close())
}

// ServiceAuth requests a token for a method of a service, which the PDS signs for an
// account.
func (c *Client) ServiceAuth(ctx context.Context, a Account, aud, lxm string) (string, error) {
	b, err := c.do(ctx, http.MethodGet, "com.atproto.server.getServiceAuth?"+url.Values{"aud": {aud}, "lxm": {lxm}}.Encode(), "", a.JWT, nil)
	if err != nil {
		return "", err
	}
	var out struct{ Token string }
	err = json.Unmarshal(b, &out)
	return out.Token, err
}

// call calls a procedure with JSON, and parses its answer into out unless that is nil.
func (c *Client) call(ctx context.Context, method, auth string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	b, err := c.do(ctx, http.MethodPost, method, "application/json", auth, body)
	if err == nil && out != nil {
		err = json.Unmarshal(b, out)
	}
	return err
}

// CreateAccount creates an account.
func (c *Client) CreateAccount(ctx context.Context, name string) (a Account, err error) {
	err = c.call(ctx, "com.atproto.server.createAccount", "", map[string]string{
		"handle": name + ".test", "email": name + "@example.com", "password": "pw",
	}, &a)
	return a, err
}

// A Write is one write of ApplyWrites. With Value nil it is a delete.
type Write struct {
	Collection, Rkey string
	Value            map[string]any
	Update           bool
}

// ApplyWrites makes one commit.
func (c *Client) ApplyWrites(ctx context.Context, a Account, writes ...Write) error {
	var list []map[string]any
	for _, w := range writes {
		m := map[string]any{"collection": w.Collection, "rkey": w.Rkey, "$type": "com.atproto.repo.applyWrites#delete"}
		if w.Value != nil {
			w.Value["$type"], w.Value["createdAt"] = w.Collection, "2026-01-01T00:00:00.000Z"
			m["value"], m["$type"] = w.Value, "com.atproto.repo.applyWrites#create"
			if w.Update {
				m["$type"] = "com.atproto.repo.applyWrites#update"
			}
		}
		list = append(list, m)
	}
	return c.call(ctx, "com.atproto.repo.applyWrites", a.JWT, map[string]any{"repo": a.DID, "writes": list, "validate": false}, nil)
}

// Deactivate hides an account; Activate shows it again.
func (c *Client) Deactivate(ctx context.Context, a Account) error {
	return c.call(ctx, "com.atproto.server.deactivateAccount", a.JWT, struct{}{}, nil)
}

// Activate shows a deactivated account again.
func (c *Client) Activate(ctx context.Context, a Account) error {
	_, err := c.do(ctx, http.MethodPost, "com.atproto.server.activateAccount", "", a.JWT, nil)
	return err
}

// Takedown takes an account down, or restores it.
func (c *Client) Takedown(ctx context.Context, a Account, down bool) error {
	return c.call(ctx, "com.atproto.admin.updateSubjectStatus", "admin", map[string]any{
		"subject":  map[string]string{"$type": "com.atproto.admin.defs#repoRef", "did": a.DID},
		"takedown": map[string]any{"applied": down, "ref": "test"},
	}, nil)
}

// DeleteAccount deletes an account permanently.
func (c *Client) DeleteAccount(ctx context.Context, a Account) error {
	return c.call(ctx, "com.atproto.admin.deleteAccount", "admin", map[string]string{"did": a.DID}, nil)
}

// GetRepo returns a repo as a CAR.
func (c *Client) GetRepo(ctx context.Context, did string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, "com.atproto.sync.getRepo?did="+url.QueryEscape(did), "", "", nil)
}

// ImportRepo replaces an account's repo with a CAR.
func (c *Client) ImportRepo(ctx context.Context, a Account, car []byte) error {
	_, err := c.do(ctx, http.MethodPost, "com.atproto.repo.importRepo", "application/vnd.ipld.car", a.JWT, car)
	return err
}

// A Record is a record of a repo.
type Record struct {
	Rkey  string
	Value json.RawMessage
}

// ListRecords returns all records of a collection.
func (c *Client) ListRecords(ctx context.Context, did, collection string) (all []Record, err error) {
	for cursor := ""; ; {
		q := url.Values{"repo": {did}, "collection": {collection}, "limit": {"100"}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		b, err := c.do(ctx, http.MethodGet, "com.atproto.repo.listRecords?"+q.Encode(), "", "", nil)
		if err != nil {
			return nil, err
		}
		var page struct {
			Cursor  string
			Records []struct {
				URI   string
				Value json.RawMessage
			}
		}
		if err := json.Unmarshal(b, &page); err != nil {
			return nil, fmt.Errorf("peers: listRecords: %w", err)
		}
		for _, r := range page.Records {
			all = append(all, Record{r.URI[strings.LastIndexByte(r.URI, '/')+1:], r.Value})
		}
		if cursor = page.Cursor; cursor == "" || len(page.Records) == 0 {
			return all, nil
		}
	}
}
