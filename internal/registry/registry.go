// Package registry keeps in an OCI registry what a stack needs to begin on another node:
// where an engine pushes its images, and its snapshots, sources and sites, which are sealed
// with a key of the stack's own. Each stack has one repository.
//
// Code in this package speaks to the registry and seals. It reads the files of credentials
// and certificates, and knows no row, no engine and no stack's status.
package registry

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/stream"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stackid"
)

// Options configure a Registry.
type Options struct {
	Address  Address
	AuthFile string // like Docker's config.json; "" for none
	CAFile   string // PEM bundle in place of the public authorities; "" for those
}

// Registry is a connection to one registry. Many goroutines may use it at the same time. Its
// errors say what the operator has to do, and never have a credential in them.
type Registry struct {
	address Address
	login   engine.Login
	options []remote.Option
	close   func()
}

// The classes of failure that callers act on; test with errors.Is.
var (
	ErrNotFound = errors.New("the registry does not have it")
	ErrAway     = errors.New("the registry does not answer")
)

// Open reads the files that the options name. It does not speak to the registry.
func Open(opts Options) (*Registry, error) {
	login, err := loginOf(opts.AuthFile, opts.Address.Host)
	if err != nil {
		return nil, err
	}
	trip, err := newTransport(opts.Address, opts.CAFile)
	if err != nil {
		return nil, err
	}
	r := &Registry{address: opts.Address, login: login, close: trip.base.CloseIdleConnections}
	r.options = []remote.Option{
		remote.WithTransport(trip),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: login.User, Password: login.Password, IdentityToken: login.Token})),
		remote.WithRetryBackoff(remote.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 2}),
		remote.WithUserAgent("berth"),
	}
	return r, nil
}

// Close closes the connections that are idle.
func (r *Registry) Close() { r.close() }

// Login returns what the engine needs to push and pull.
func (r *Registry) Login() engine.Login { return r.login }

// Address returns where the registry is.
func (r *Registry) Address() Address { return r.address }

// checkTime is how long Check waits.
const checkTime = 10 * time.Second

// Check returns an error of one line unless the registry answers and takes the credentials.
func (r *Registry) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	repository, err := r.repository("berth")
	if err != nil {
		return err
	}
	_, err = remote.List(repository, r.with(ctx)...)
	if err = r.wrap(err, "ask the registry"); errors.Is(err, ErrNotFound) {
		return nil // the repository does not exist yet
	}
	return err
}

// SharedImage returns the reference in the registry of an image that all stacks share, as
// in berth/base-node:22-0123456789ab.
func (r *Registry) SharedImage(ref string) string {
	repository, tag, _ := strings.Cut(ref, ":")
	return r.address.image(repository, tag)
}

// StackImage returns the reference in the registry of an image of a stack, as a tag of its
// repository.
func (r *Registry) StackImage(stackID, tag string) string {
	return r.address.image(repositoryOf(stackID), tag)
}

func repositoryOf(stackID string) string { return "stacks/" + stackid.Hex(stackID) }

// Put seals what write writes with the key and keeps it as a tag of the stack's repository,
// in place of what had that tag. When there is an error, the tag is what it was.
func (r *Registry) Put(ctx context.Context, stackID, tag string, key []byte, write func(context.Context, io.Writer) error) error {
	at, err := r.tag(stackID, tag)
	if err != nil {
		return err
	}
	err = engine.Stream(ctx, func(ctx context.Context, w io.Writer) error {
		sealing, err := seal(w, key, stackID+"/"+tag)
		if err != nil {
			return err
		}
		if err := write(ctx, sealing); err != nil {
			return err
		}
		return sealing.Close()
	}, func(sealed io.Reader) error {
		layer := stream.NewLayer(io.NopCloser(sealed), stream.WithCompressionLevel(gzip.NoCompression))
		image, err := mutate.AppendLayers(empty.Image, layer)
		if err != nil {
			return err
		}
		return remote.Write(at, image, append(r.with(ctx), once)...) // the caller has the stream
	})
	return r.wrap(err, "put %s of %s into the registry", tag, stackID)
}

// once makes a request that fails not be made again.
var once = remote.WithRetryPredicate(func(error) bool { return false })

// Get calls read with what Put sealed with the key under a tag. Read must read to io.EOF:
// before that, it does not know whether it has all. ErrNotFound means that the registry
// does not have the tag.
func (r *Registry) Get(ctx context.Context, stackID, tag string, key []byte, read func(io.Reader) error) error {
	layer, err := r.layer(ctx, stackID, tag)
	if err != nil {
		return r.wrap(err, "get %s of %s from the registry", tag, stackID)
	}
	sealed, err := layer.Uncompressed()
	if err != nil {
		return r.wrap(err, "get %s of %s from the registry", tag, stackID)
	}
	defer sealed.Close() // only read
	return r.wrap(read(open(sealed, key, stackID+"/"+tag)), "get %s of %s from the registry", tag, stackID)
}

// layer returns the layer of what Put made.
func (r *Registry) layer(ctx context.Context, stackID, tag string) (v1.Layer, error) {
	at, err := r.tag(stackID, tag)
	if err != nil {
		return nil, err
	}
	image, err := remote.Image(at, r.with(ctx)...)
	if err != nil {
		return nil, err
	}
	layers, err := image.Layers()
	if err == nil && len(layers) != 1 {
		err = fmt.Errorf("it has %d layers", len(layers))
	}
	if err != nil {
		return nil, err
	}
	return layers[0], nil
}

// HasShared reports whether the registry has an image that all stacks share.
func (r *Registry) HasShared(ctx context.Context, ref string) (bool, error) {
	at, err := name.NewTag(r.SharedImage(ref))
	if err != nil {
		return false, err
	}
	_, err = remote.Head(at, r.with(ctx)...)
	err = r.wrap(err, "look for %s in the registry", ref)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Tags returns the tags of a stack's repository, sorted; none for a missing repository.
func (r *Registry) Tags(ctx context.Context, stackID string) ([]string, error) {
	repository, err := r.repository(repositoryOf(stackID))
	if err != nil {
		return nil, err
	}
	tags, err := remote.List(repository, r.with(ctx)...)
	err = r.wrap(err, "list what the registry has of %s", stackID)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	slices.Sort(tags)
	return tags, err
}

// Forget removes the manifests of all tags of a stack except those that keeps reports. A manifest
// that has a kept tag, too, stays. The operator's collection removes the blobs.
func (r *Registry) Forget(ctx context.Context, stackID string, keep func(tag string) bool) error {
	return r.ForgetThen(ctx, stackID, func() (func(string) bool, error) { return keep, nil })
}

// ForgetThen is Forget for a caller that can say only once the tags have been listed which of
// them to keep. Those that come later stay.
func (r *Registry) ForgetThen(ctx context.Context, stackID string, which func() (keep func(tag string) bool, err error)) error {
	tags, err := r.Tags(ctx, stackID)
	if err != nil || len(tags) == 0 {
		return err
	}
	keep, err := which()
	if err != nil || !slices.ContainsFunc(tags, func(tag string) bool { return !keep(tag) }) {
		return err
	}
	kept, gone := map[string]bool{}, map[string]bool{}
	for _, tag := range tags {
		digest, err := r.digest(ctx, stackID, tag)
		switch {
		case errors.Is(err, ErrNotFound): // a tag of a manifest that was removed
		case err != nil:
			return err
		case keep(tag):
			kept[digest] = true
		default:
			gone[digest] = true
		}
	}
	for digest := range gone {
		if kept[digest] {
			continue
		}
		if err := r.remove(ctx, stackID, digest); err != nil {
			return err
		}
	}
	for _, tag := range tags {
		if !keep(tag) {
			r.untag(ctx, stackID, tag)
		}
	}
	return nil
}

// untag removes a tag that outlasts its manifest, or shares it with a kept one. Not every
// registry can do that, and in most the tags go with the manifest.
func (r *Registry) untag(ctx context.Context, stackID, tag string) {
	if _, err := r.digest(ctx, stackID, tag); err != nil {
		return
	}
	if at, err := r.tag(stackID, tag); err == nil {
		_ = remote.Delete(at, r.with(ctx)...)
	}
}

func (r *Registry) digest(ctx context.Context, stackID, tag string) (string, error) {
	at, err := r.tag(stackID, tag)
	if err != nil {
		return "", err
	}
	found, err := remote.Head(at, r.with(ctx)...)
	if err != nil {
		return "", r.wrap(err, "look for %s of %s in the registry", tag, stackID)
	}
	return found.Digest.String(), nil
}

func (r *Registry) remove(ctx context.Context, stackID, digest string) error {
	repository, err := r.repository(repositoryOf(stackID))
	if err != nil {
		return err
	}
	err = r.wrap(remote.Delete(repository.Digest(digest), r.with(ctx)...), "remove %s of %s from the registry", digest, stackID)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (r *Registry) repository(path string) (name.Repository, error) {
	return name.NewRepository(r.address.Host+"/"+r.address.Prefix+path, name.StrictValidation)
}

func (r *Registry) tag(stackID, tag string) (name.Tag, error) {
	return name.NewTag(r.StackImage(stackID, tag), name.StrictValidation)
}

func (r *Registry) with(ctx context.Context) []remote.Option {
	return append(slices.Clone(r.options), remote.WithContext(ctx))
}

// wrap adds the operation to an error, and what the operator has to do, where that is known.
func (r *Registry) wrap(err error, op string, args ...any) error {
	if err == nil {
		return nil
	}
	op = fmt.Sprintf(op, args...)
	answer, ok := errors.AsType[*transport.Error](err)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrAway):
		return err
	case !ok && isAway(err):
		return fmt.Errorf("%s at %s: %w: %w", op, r.address.Host, ErrAway, err)
	case !ok:
		return fmt.Errorf("%s at %s: %w", op, r.address.Host, err)
	case answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s at %s: %w", op, r.address.Host, ErrNotFound)
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s at %s: it refuses the credentials (%d); set BERTH_REGISTRY_AUTH_FILE to a file with some that may pull, push and delete", op, r.address.Host, answer.StatusCode)
	case answer.StatusCode == http.StatusMethodNotAllowed:
		return fmt.Errorf("%s at %s: it does not allow that (405); let it delete manifests, as in REGISTRY_STORAGE_DELETE_ENABLED=true", op, r.address.Host)
	}
	if answer.StatusCode >= http.StatusInternalServerError || answer.StatusCode == http.StatusTooManyRequests {
		return fmt.Errorf("%s at %s: %w: %d", op, r.address.Host, ErrAway, answer.StatusCode)
	}
	return fmt.Errorf("%s at %s: it answers %d", op, r.address.Host, answer.StatusCode)
}

// isAway reports whether an error comes from a connection.
func isAway(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	_, isRequest := errors.AsType[*url.Error](err)
	_, isNetwork := errors.AsType[net.Error](err)
	return isRequest || isNetwork || errors.Is(err, io.ErrUnexpectedEOF)
}
