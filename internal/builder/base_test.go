package builder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

func TestBases_EveryVersionOnOfferHasAnImageAndEveryImageIsOnOffer(t *testing.T) {
	var offered, there []string
	for _, d := range runtimes.All() {
		for _, v := range d.Versions {
			offered = append(offered, d.Name+"@"+v)
		}
	}
	for _, image := range images.All() {
		there = append(there, fmt.Sprintf("%s@%s", image.Name, image.Version))
	}
	if !slices.Equal(offered, there) {
		t.Errorf("on offer: %s; images: %s", offered, there)
	}
}

// A base image carries the label by which an operator who prunes spares it.
func TestBases_CarryTheLabelThatPruningSpares(t *testing.T) {
	labels := map[string]string{}
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/build"):
			if err := json.Unmarshal([]byte(r.URL.Query().Get("labels")), &labels); err != nil {
				t.Error(err)
			}
		case strings.Contains(r.URL.Path, "/images/berth/base-"):
			w.WriteHeader(http.StatusNotFound)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		}
	}))
	defer engine.Close()
	t.Setenv("DOCKER_HOST", "tcp://"+engine.Listener.Addr().String())
	opened, err := docker.Open(t.Context(), docker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	b := New(Config{Engine: docker.NewDriver(opened, docker.Info{}, docker.DriverOptions{}), Slots: 1})
	if _, err := b.EnsureBase(t.Context(), stack.Runtime{Name: "node", Version: "22"}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if labels["berth.instance"] != "shared" {
		t.Errorf("the labels are %v", labels)
	}
}

// A tenant reads the log that EnsureBase writes; what the engine says is for the operator.
func TestEnsureBase_KeepsTheEnginesOutputFromTenants(t *testing.T) {
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/build"):
			_, _ = io.WriteString(w, `{"stream": "Step 1: mirror.internal\n"}{"error": "exit code 100"}`)
		case strings.Contains(r.URL.Path, "/images/berth/base-"):
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = io.WriteString(w, `{"Size": 1}`)
		}
	}))
	defer engine.Close()
	t.Setenv("DOCKER_HOST", "tcp://"+engine.Listener.Addr().String())
	opened, err := docker.Open(t.Context(), docker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	b := New(Config{Engine: docker.NewDriver(opened, docker.Info{}, docker.DriverOptions{})})
	for name, ensure := range map[string]func(context.Context, stack.Runtime, io.Writer) (string, error){"EnsureBase": b.EnsureBase, "BuildBase": b.BuildBase} {
		var out strings.Builder
		_, err := ensure(t.Context(), stack.Runtime{Name: "node", Version: "22"}, &out)
		if !errors.Is(err, ErrNoBase) || !strings.Contains(err.Error(), "exit code 100; the end of its output:\nStep 1: mirror.internal") {
			t.Errorf("%s: the error is %v", name, err)
		}
		if !strings.HasPrefix(out.String(), "preparing node@22: ") || strings.Contains(out.String(), "mirror.internal") != (name == "BuildBase") {
			t.Errorf("%s wrote %q", name, out.String())
		}
	}
}

// A script that fails leaves no image, of which every later build would be made.
func TestEnsureDebian_MakesNoImageIfTheScriptFails(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(sh, filepath.Join(bin, "sh")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin) // nothing else that the script needs is there
	driver := enginetest.New(nil).Driver(enginetest.Options{})
	b := New(Config{Engine: driver})
	if _, err := b.EnsureDebian(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "; the end of its output:\n") {
		t.Errorf("the error is %v", err)
	}
	if there, err := driver.HasImage(t.Context(), images.Debian); err != nil || there {
		t.Errorf("there is an image: %v, %v", there, err)
	}
}
