package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/adrg/xdg"
	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/berth-host/berth/internal/client"
)

// memory is the file that keeps what must outlive a run: which stack a folder has on
// which server, and the tokens. Only its user can read it.
type memory struct{ path string }

// openMemory returns the memory in the user's configuration folder.
func openMemory() *memory {
	return &memory{filepath.Join(xdg.ConfigHome, "berth", "stacks.json")}
}

// remembered is the content of the file, by server address.
type remembered struct {
	Servers map[string]*onServer `json:"servers"`
}

// onServer is what is remembered of one server.
type onServer struct {
	APIKey  string            `json:"api_key,omitempty"`
	Email   string            `json:"email,omitempty"` // of the key's account
	Folders map[string]string `json:"folders"`         // absolute path to the id of its stack
	Stacks  map[string]kept   `json:"stacks"`          // by id
}

// kept holds what only the creation of a stack returned.
type kept struct {
	Name        string `json:"name"`
	ManageToken string `json:"manage_token"`
	ClaimCode   string `json:"claim_code,omitempty"`
	ClaimURL    string `json:"claim_url,omitempty"`
}

// load returns what is remembered of a server.
func (m *memory) load(server string) (*onServer, error) {
	all, err := m.read()
	if err != nil {
		return nil, err
	}
	return all.of(server), nil
}

// update changes what is remembered of a server; only one process does so at a time.
func (m *memory) update(server string, change func(*onServer)) error {
	if err := os.MkdirAll(filepath.Dir(m.path), 0o700); err != nil {
		return fmt.Errorf("write %s: %w", m.path, err)
	}
	unlock, err := lockedfile.MutexAt(m.path + ".lock").Lock()
	if err != nil {
		return fmt.Errorf("write %s: %w", m.path, err)
	}
	defer unlock()
	all, err := m.read()
	if err != nil {
		return err
	}
	change(all.of(server))
	return m.write(all)
}

func (m *memory) read() (*remembered, error) {
	all := &remembered{}
	data, err := os.ReadFile(m.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return all, nil
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", m.path, err)
	}
	if err := json.Unmarshal(data, all); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; fix it, or move it away and log in again", m.path, err)
	}
	return all, nil
}

// write replaces the file in one step; only its user can read a new one.
func (m *memory) write(all *remembered) error {
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", m.path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(m.path), ".stacks-*.json") // with mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", m.path, err)
	}
	_, err = f.Write(append(data, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), m.path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", m.path, err)
	}
	return nil
}

// of returns what is remembered of a server, for changing.
func (r *remembered) of(server string) *onServer {
	if r.Servers == nil {
		r.Servers = map[string]*onServer{}
	}
	s := r.Servers[server]
	if s == nil {
		s = &onServer{}
		r.Servers[server] = s
	}
	if s.Folders == nil {
		s.Folders = map[string]string{}
	}
	if s.Stacks == nil {
		s.Stacks = map[string]kept{}
	}
	return s
}

// keep remembers a new stack, and that it belongs to the folder.
func (s *onServer) keep(folder string, st *client.Stack) {
	if folder != "" {
		s.Folders[folder] = st.ID
	}
	s.Stacks[st.ID] = kept{Name: st.Name, ManageToken: st.ManageToken, ClaimCode: st.ClaimCode, ClaimURL: st.ClaimURL}
}

// forget removes a deleted stack.
func (s *onServer) forget(id string) {
	delete(s.Stacks, id)
	maps.DeleteFunc(s.Folders, func(_, its string) bool { return its == id })
}

// foldersOf returns the folders that have a stack, sorted.
func (s *onServer) foldersOf(id string) []string {
	var folders []string
	for folder, its := range s.Folders {
		if its == id {
			folders = append(folders, folder)
		}
	}
	slices.Sort(folders)
	return folders
}

// nearest returns the stack of a folder, or of the nearest folder above that has one.
func (s *onServer) nearest(folder string) string {
	id, parent := s.Folders[folder], filepath.Dir(folder)
	if id != "" || parent == folder {
		return id
	}
	return s.nearest(parent)
}

// folderKey returns the key under which a folder's stack is remembered: its path
// without links.
func folderKey(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	return abs, nil
}
