package builder

import (
	"maps"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/source/sourcetest"
	"github.com/berth-host/berth/internal/stack"
)

func TestIsThere_LooksForTheFolderOfASite(t *testing.T) {
	b, job := &Builder{}, Job{Spec: &stack.Spec{Runtime: stack.Runtime{Name: stack.Static}}, PreviousSite: t.TempDir()}
	if there, err := b.isThere(t.Context(), job); err != nil || !there {
		t.Errorf("isThere = %v, %v for a folder", there, err)
	}
	job.PreviousSite += "-gone"
	if there, err := b.isThere(t.Context(), job); err != nil || there {
		t.Errorf("isThere = %v, %v for none", there, err)
	}
}

func TestFingerprint_ChangesWithWhatTheBuildDependsOn(t *testing.T) {
	files := map[string]string{"api/main.js": "1", "web/index.html": "1", "shared/lib.js": "1"}
	st := &stack.Stack{ID: "stk_3f2a9c1b7d4e", Seq: 1}
	b := &Builder{}
	make := func(change func(files map[string]string, job *Job) (base string)) string {
		files := maps.Clone(files)
		spec := stack.Spec{Name: "api", Root: "api", Build: "make"}
		job := Job{Stack: st, Spec: &spec, Others: []string{"web", "."}, Env: map[string]string{"A": "1", "GENERATION": "1"}}
		base := change(files, &job)
		src := sourcetest.Make(t, t.TempDir(), files)
		job.Source, job.Digest = src.Dir(), src.Digest()
		got, err := b.fingerprint(job, base)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	same := func(map[string]string, *Job) string { return "base" }
	first := make(same)
	for name, change := range map[string]func(map[string]string, *Job) string{
		"nothing":               same,
		"another service's own": func(f map[string]string, _ *Job) string { f["web/index.html"] = "2"; return "base" },
		"the generation":        func(_ map[string]string, j *Job) string { j.Env["GENERATION"] = "2"; return "base" },
	} {
		if make(change) != first {
			t.Errorf("%s changed, and so did the fingerprint", name)
		}
	}
	for name, change := range map[string]func(map[string]string, *Job) string{
		"its own source":   func(f map[string]string, _ *Job) string { f["api/main.js"] = "2"; return "base" },
		"a shared file":    func(f map[string]string, _ *Job) string { f["shared/lib.js"] = "2"; return "base" },
		"a file's name":    func(f map[string]string, _ *Job) string { f["api/x"] = ""; return "base" },
		"a command":        func(_ map[string]string, j *Job) string { j.Spec.Build = "make all"; return "base" },
		"the environment":  func(_ map[string]string, j *Job) string { j.Env["A"] = "2"; return "base" },
		"the base image":   func(map[string]string, *Job) string { return "newer" },
		"its stop timeout": func(_ map[string]string, j *Job) string { j.Spec.StopTimeout = time.Second; return "base" },
	} {
		if make(change) == first {
			t.Errorf("%s changed, and the fingerprint did not", name)
		}
	}
}
