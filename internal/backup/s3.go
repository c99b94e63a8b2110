package backup

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"skein.blue/internal/outward"
)

// bucket is a target in a bucket of an S3-compatible service. Where and as whom it connects comes
// from the usual environment variables: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL (Amazon's service
// without either), AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or
// the credentials file of AWS's own tools.
type bucket struct {
	client *minio.Client
	name   string
	prefix string
}

func openS3(name, prefix string) (Target, error) {
	endpoint := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com")
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("AWS_ENDPOINT_URL %q: expected a URL such as https://s3.example.com", endpoint)
	}
	transport, err := minio.DefaultTransport(u.Scheme == "https")
	if err != nil {
		return nil, fmt.Errorf("s3://%s: %w", name, err)
	}
	c, err := minio.New(u.Host, &minio.Options{
		Transport:  outward.Paced(transport, pace),
		MaxRetries: 3, // the caller tries again, too
		Creds:      credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}),
		Secure:     u.Scheme == "https",
		Region:     cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
	})
	if err != nil {
		return nil, fmt.Errorf("s3://%s: %w", name, err)
	}
	c.SetAppInfo("skein", "(+"+outward.Page+")")
	return &bucket{client: c, name: name, prefix: prefix}, nil
}

// String implements Target.
func (t *bucket) String() string { return "s3://" + path.Join(t.name, t.prefix) }

func (t *bucket) key(name string) string { return path.Join(t.prefix, name) }

// fail wraps an error of the service.
func (t *bucket) fail(doing, name string, err error) error {
	switch answer := minio.ToErrorResponse(err); {
	case answer.Code == "NoSuchKey":
		return fmt.Errorf("%s/%s: %w", t, name, ErrNotFound)
	case answer.StatusCode == http.StatusPreconditionFailed || answer.StatusCode == http.StatusConflict:
		return fmt.Errorf("%s/%s: %w", t, name, ErrExists)
	}
	return fmt.Errorf("%s %s/%s: %w", doing, t, name, err)
}

// List implements Target.
func (t *bucket) List(ctx context.Context, folder string) (map[string]int64, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	below := ""
	if t.prefix != "" {
		below = t.prefix + "/"
	}
	sizes := map[string]int64{}
	for o := range t.client.ListObjects(ctx, t.name, minio.ListObjectsOptions{Prefix: below + folder + "/", Recursive: true}) {
		if o.Err != nil {
			return nil, t.fail("listing", folder, o.Err)
		}
		sizes[strings.TrimPrefix(o.Key, below)] = o.Size
	}
	return sizes, ctx.Err()
}

// Get implements Target.
func (t *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	r, _, _, err := (minio.Core{Client: t.client}).GetObject(ctx, t.name, t.key(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, t.fail("reading", name, err)
	}
	return r, nil
}

// Put implements Target. Its parts are sent one after another, from the reader, so that memory does not grow with the
// object. onlyNew relies on a conditional write (If-None-Match: *). A service without them overwrites.
func (t *bucket) Put(ctx context.Context, name string, size int64, r io.Reader, onlyNew bool) error {
	var o minio.PutObjectOptions
	if onlyNew {
		o.SetMatchETagExcept("*")
	}
	o.ContentType = "application/octet-stream"
	o.PartSize = 64 << 20
	o.NumThreads = 1
	info, err := t.client.PutObject(ctx, t.name, t.key(name), r, size, o)
	if err == nil && info.Size != size {
		err = fmt.Errorf("%d bytes of %d: %w", info.Size, size, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return t.fail("writing", name, err)
	}
	return nil
}

// Delete implements Target.
func (t *bucket) Delete(ctx context.Context, name string) error {
	if err := t.client.RemoveObject(ctx, t.name, t.key(name), minio.RemoveObjectOptions{}); err != nil {
		return t.fail("deleting", name, err)
	}
	return nil
}
