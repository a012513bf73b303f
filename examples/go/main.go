// Command notes stores Markdown notes and shows them as pages:
//
//	curl --data-binary @note.md $PUBLIC_URL
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"

	"github.com/yuin/goldmark"
)

const maxNote = 1 << 20

func main() {
	dir, err := os.OpenRoot(os.Getenv("DATA_DIR"))
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "curl --data-binary @note.md %s\n", os.Getenv("PUBLIC_URL"))
	})
	http.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) { keep(dir, w, r) })
	http.HandleFunc("GET /{name}", func(w http.ResponseWriter, r *http.Request) { show(dir, w, r) })
	log.Fatal(http.ListenAndServe(":"+os.Getenv("PORT"), nil))
}

func keep(dir *os.Root, w http.ResponseWriter, r *http.Request) {
	note, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxNote))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	name := rand.Text()
	if err := dir.WriteFile(name, note, 0o600); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%s/%s\n", os.Getenv("PUBLIC_URL"), name)
}

func show(dir *os.Root, w http.ResponseWriter, r *http.Request) {
	note, err := dir.ReadFile(r.PathValue("name"))
	if errors.Is(err, fs.ErrNotExist) {
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := goldmark.Convert(note, w); err != nil {
		log.Print(err)
	}
}
