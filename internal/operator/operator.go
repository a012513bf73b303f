// Package operator carries out what an operator tells a running server: to stop or delete a
// stack, to disable an account, to ban a network. Commands come over a socket in the server's
// data directory. Each of them is recorded with the user who sent it.
//
// Code in this package changes stacks through the supervisor, accounts through package
// account, and bans and the record of commands in the store. The answers to its commands are
// in shapes.go.
package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/usage"
)

// Host knows, stops and deletes the stacks of this node; the supervisor implements it.
type Host interface {
	// Down reports whether a stack is of this node and not served.
	Down(id string) bool
	Stop(ctx context.Context, id, reason string) error
	Delete(ctx context.Context, id string) error
}

// Config is what a Server works with.
type Config struct {
	Store    *store.Store
	Host     Host
	Accounts *account.Accounts
	Bans     *Bans
	Usage    func() map[string]map[string]usage.Use // by stack and service
	Builds   func() (running, waiting int)
	BackUp   func(context.Context, Backup, io.Writer) error
	// Node says what is known of a node of the cluster: ready, away or lost. It is nil on one
	// machine.
	Node func(id string) (name, state string)
	Log  *slog.Logger
}

// Server answers the commands of operators.
type Server struct {
	cfg         Config
	http        http.Server
	stopping    context.Context // ends with StopBackups
	stopBackups context.CancelFunc
}

type uidKey struct{}

// New returns a Server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg}
	s.stopping, s.stopBackups = context.WithCancel(context.Background())
	mux := http.NewServeMux()
	answer(s, mux, "/stacks/list", func(none) string { return "stacks list" }, s.listStacks)
	answer(s, mux, "/stacks/show", func(a stackID) string { return "stacks show " + word(a.ID) }, s.showStack)
	answer(s, mux, "/stacks/stop", func(a stopping) string { return "stacks stop " + word(a.ID) + " --reason " + quote(a.Reason) }, s.stopStack)
	answer(s, mux, "/stacks/delete", func(a stackID) string { return "stacks delete " + word(a.ID) }, s.deleteStack)
	answer(s, mux, "/accounts/list", func(none) string { return "accounts list" }, s.listAccounts)
	answer(s, mux, "/accounts/disable", disabling.line, s.disableAccount)
	answer(s, mux, "/accounts/enable", func(a email) string { return "accounts enable " + word(a.Email) }, s.enableAccount)
	answer(s, mux, "/bans/list", func(none) string { return "ban --list" }, s.listBans)
	answer(s, mux, "/bans/add", banning.line, s.addBan)
	answer(s, mux, "/bans/remove", func(a network) string { return "unban " + word(a.Network) }, s.removeBan)
	answer(s, mux, "/audit", func(limit) string { return "audit" }, s.listEntries)
	mux.HandleFunc("POST /backup", s.backUp)
	s.http = http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 10 * time.Second,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, uidKey{}, uidOf(c))
		},
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return s
}

// Serve answers commands until Close.
func (s *Server) Serve(l net.Listener) error { return s.http.Serve(l) }

// Shutdown waits for the commands under way except backups, or for ctx, and then ends them.
func (s *Server) Shutdown(ctx context.Context) error {
	s.StopBackups()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("shut the operator's socket down: %w", err), s.http.Close())
	}
	return nil
}

// The arguments of the commands.
type (
	none    struct{}
	stackID struct {
		ID string `json:"id"`
	}
	stopping struct {
		ID     string `json:"id"`
		Reason string `json:"reason"`
	}
	email struct {
		Email string `json:"email"`
	}
	disabling struct {
		Email  string `json:"email"`
		Reason string `json:"reason"`
		Stop   bool   `json:"stop"` // its stacks, too
	}
	network struct {
		Network string `json:"network"`
	}
	banning struct {
		Network string `json:"network"`
		For     string `json:"for"` // "" for ever
	}
	limit struct {
		Limit int `json:"limit"`
	}
)

func (a disabling) line() string {
	line := "accounts disable " + word(a.Email)
	if a.Reason != "" {
		line += " --reason " + quote(a.Reason)
	}
	if a.Stop {
		line += " --stop"
	}
	return line
}

func (a banning) line() string {
	if a.For == "" {
		return "ban " + word(a.Network)
	}
	return "ban " + word(a.Network) + " --for " + word(a.For)
}

func quote(text string) string { return fmt.Sprintf("%q", text) }

// shellQuote returns a text as one word of a shell's command.
func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// plain matches an argument that is one word, whatever it says.
var plain = regexp.MustCompile(`^[A-Za-z0-9_.:@/+-]+$`)

// word returns an argument as it is recorded: an entry is one line, and no argument looks like
// several.
func word(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return quote(text)
}

// maxCommand is how many bytes a command may have.
const maxCommand = 64 << 10

// refusal is the answer to a command that was not carried out.
type refusal struct {
	Detail string `json:"detail"`
}

// refuse answers a command that was not carried out.
func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnprocessableEntity)
	_ = json.NewEncoder(w).Encode(refusal{oneLine(err)}) // the caller may have left
}

// oneLine returns what an error says, also if it is made of several.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// answer makes a server answer one command, whose line is recorded with its result.
func answer[A, R any](s *Server, mux *http.ServeMux, path string, line func(A) string, do func(context.Context, A) (R, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		var args A
		var result R
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommand)).Decode(&args)
		if err == nil {
			// Whoever gave the command may leave; what was begun is done and recorded.
			ctx := context.WithoutCancel(r.Context())
			err = s.audited(ctx, line(args), func() (err error) {
				result, err = do(ctx, args)
				return err
			})
		}
		if err != nil {
			refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(result) // the caller may have left
	})
}

// begun is the result of a command that is being carried out, or was when the server died.
const begun = "begun"

// audited records a command, carries it out, and records what came of it.
func (s *Server) audited(ctx context.Context, command string, do func() error) error {
	uid, ok := ctx.Value(uidKey{}).(int)
	if !ok {
		uid = unknownUser
	}
	id, err := s.cfg.Store.Audit(ctx, store.AuditEntry{At: stack.Now(), UID: uid, Command: command, Result: begun})
	if err != nil {
		return fmt.Errorf("nothing was done, since the audit cannot be written: %w", err)
	}
	err = do()
	result := "ok"
	if err != nil {
		result = oneLine(err)
	}
	s.cfg.Log.Info("operator", "uid", uid, "command", command, "result", result)
	if fault := s.cfg.Store.EndAudit(ctx, id, result); fault != nil {
		return errors.Join(err, fmt.Errorf("the audit does not say what came of the command: %w", fault))
	}
	return err
}

func (s *Server) listStacks(ctx context.Context, _ none) (Stacks, error) {
	all, err := s.cfg.Store.All(ctx)
	if err != nil {
		return Stacks{}, err
	}
	emails, err := s.emails(ctx)
	if err != nil {
		return Stacks{}, err
	}
	used := s.cfg.Usage()
	list := Stacks{Stacks: make([]Stack, len(all))}
	for i, st := range all {
		list.Stacks[i] = s.view(st, emails, used[st.ID])
	}
	list.Builds.Running, list.Builds.Waiting = s.cfg.Builds()
	return list, nil
}

func (s *Server) showStack(ctx context.Context, a stackID) (Stack, error) {
	st, err := s.cfg.Store.Get(ctx, a.ID)
	if err != nil {
		return Stack{}, err
	}
	emails, err := s.emails(ctx)
	if err != nil {
		return Stack{}, err
	}
	used := s.cfg.Usage()[st.ID]
	whole := s.view(st, emails, used)
	whole.Services = make([]Service, len(st.Generation.Services))
	for i := range st.Generation.Services {
		svc := &st.Generation.Services[i]
		use := used[svc.Spec.Name]
		whole.Services[i] = Service{svc.Spec.Name, svc.Spec.Runtime.String(), string(svc.Status), use.Cores, use.Memory, nil}
		if bytes, ok := st.Disk.Data[svc.Spec.Name]; ok {
			whole.Services[i].Data = &bytes
		}
	}
	whole.Left, err = s.left(ctx, st.ID)
	return whole, err
}

// nodeOf returns the name and the state of the node that owns a stack; "" on one machine.
func (s *Server) nodeOf(st *stack.Stack) (name, state string) {
	if s.cfg.Node == nil {
		return "", ""
	}
	return s.cfg.Node(st.Node)
}

// left returns the data of a stack that is on nodes that do not own it.
func (s *Server) left(ctx context.Context, id string) ([]Left, error) {
	all := []Left{}
	if s.cfg.Node == nil {
		return all, nil
	}
	remains, err := s.cfg.Store.DataLeft(ctx, id)
	for _, r := range remains {
		name, _ := s.cfg.Node(r.Node)
		all = append(all, Left{r.StackID, r.Node, name, r.Volumes})
	}
	return all, err
}

// emails returns the emails of all accounts by their ids.
func (s *Server) emails(ctx context.Context) (map[string]string, error) {
	accounts, err := s.cfg.Store.Accounts(ctx)
	emails := make(map[string]string, len(accounts))
	for _, a := range accounts {
		emails[a.Account.ID] = a.Account.Email
	}
	return emails, err
}

// view returns a stack as an operator sees it.
func (s *Server) view(st *stack.Stack, emails map[string]string, used map[string]usage.Use) Stack {
	v := Stack{
		ID: st.ID, Name: st.Name, Status: string(st.Status), CreatedAt: st.CreatedAt, Deploying: st.Deploying != 0,
		Restoring: st.Restoring() || st.Status == stack.Live && s.cfg.Host.Down(st.ID),
		Failure:   cmp.Or(st.Error, st.DeployError), Node: st.Node, Epoch: st.Epoch,
	}
	v.NodeName, v.NodeState = s.nodeOf(st)
	if st.Owner != "" {
		owner := cmp.Or(emails[st.Owner], st.Owner)
		v.Owner = &owner
	}
	if !st.ExpiresAt.IsZero() {
		v.ExpiresAt = &st.ExpiresAt
	}
	for _, use := range used {
		add(&v.Cores, use.Cores)
		add(&v.Memory, use.Memory)
	}
	if !st.Disk.At.IsZero() {
		data, all := st.Disk.AllData(), st.Disk.Total()
		v.Data, v.Disk, v.DiskAt = &data, &all, &st.Disk.At
	}
	return v
}

// add adds what was measured.
func add[T int64 | float64](sum **T, more *T) {
	if more == nil {
		return
	}
	if *sum == nil {
		*sum = new(T)
	}
	**sum += *more
}

func (s *Server) stopStack(ctx context.Context, a stopping) (none, error) {
	if strings.TrimSpace(a.Reason) == "" {
		return none{}, errors.New("the owner is told why: give a reason with --reason TEXT")
	}
	return none{}, s.cfg.Host.Stop(ctx, a.ID, stoppedFor(a.Reason))
}

// stoppedFor returns the error of a stack that an operator has stopped.
func stoppedFor(reason string) string {
	return "stopped by the operator of this host: " + strings.TrimSpace(reason)
}

func (s *Server) deleteStack(ctx context.Context, a stackID) (none, error) {
	return none{}, s.cfg.Host.Delete(ctx, a.ID)
}

func (s *Server) listAccounts(ctx context.Context, _ none) (Accounts, error) {
	all, err := s.cfg.Store.Accounts(ctx)
	list := Accounts{Accounts: make([]Account, len(all))}
	for i, a := range all {
		list.Accounts[i] = Account{a.Account.ID, a.Account.Email, a.CreatedAt, a.Stacks, a.Account.DisabledFor != "", a.Account.DisabledFor}
	}
	return list, err
}

func (s *Server) disableAccount(ctx context.Context, a disabling) (Stopped, error) {
	stopped := Stopped{Stacks: []string{}}
	disabled, err := s.cfg.Accounts.Disable(ctx, a.Email, a.Reason)
	if err != nil || !a.Stop {
		return stopped, err
	}
	owned, err := s.cfg.Store.Owned(ctx, disabled.ID)
	if err != nil {
		return stopped, err
	}
	var errs []error
	for _, st := range owned {
		if st.Status == stack.Expired {
			continue
		}
		reason := "its account is disabled: " + disabled.DisabledFor
		err := s.cfg.Host.Stop(ctx, st.ID, stoppedFor(reason))
		switch {
		case err == nil:
			stopped.Stacks = append(stopped.Stacks, st.ID)
		case errors.Is(err, store.ErrNotOwner):
			name, _ := s.nodeOf(st)
			errs = append(errs, fmt.Errorf("the account is disabled, but its stack %s is on node %s; run this there: berthd stacks stop %s --reason %s",
				st.ID, name, st.ID, shellQuote(reason)))
		default:
			errs = append(errs, fmt.Errorf("the account is disabled, but its stack %s was not stopped: %w", st.ID, err))
		}
	}
	return stopped, errors.Join(errs...)
}

func (s *Server) enableAccount(ctx context.Context, a email) (none, error) {
	return none{}, s.cfg.Accounts.Enable(ctx, a.Email)
}

func (s *Server) listBans(ctx context.Context, _ none) (BanList, error) {
	all, err := s.cfg.Store.Bans(ctx)
	list := BanList{Bans: make([]Ban, len(all))}
	for i, b := range all {
		list.Bans[i] = Ban{Network: b.Network.String(), CreatedAt: b.CreatedAt}
		if !b.EndsAt.IsZero() {
			list.Bans[i].EndsAt = &b.EndsAt
		}
	}
	return list, err
}

func (s *Server) addBan(ctx context.Context, a banning) (Ban, error) {
	prefix, err := parseNetwork(a.Network)
	if err != nil {
		return Ban{}, err
	}
	if prefix.Bits() == 0 {
		return Ban{}, fmt.Errorf("%s is every address there is; name a smaller network", prefix)
	}
	ban := store.Ban{Network: prefix, CreatedAt: stack.Now()}
	shown := Ban{Network: prefix.String(), CreatedAt: ban.CreatedAt}
	if a.For != "" {
		lasts, err := stack.ParseDurationLike(a.For, "24h or 30d")
		if err == nil && lasts <= 0 {
			err = errors.New("no time at all; leave it out to ban for ever, or use berthd unban")
		}
		if err != nil {
			return Ban{}, fmt.Errorf("--for %q: %w", a.For, err)
		}
		ban.EndsAt = ban.CreatedAt.Add(lasts)
		shown.EndsAt = &ban.EndsAt
	}
	if err := s.cfg.Store.SetBan(ctx, ban); err != nil {
		return Ban{}, err
	}
	return shown, s.readBans(ctx)
}

// readBans makes what the database says of bans hold at once.
func (s *Server) readBans(ctx context.Context) error {
	if err := s.cfg.Bans.Read(ctx, s.cfg.Store); err != nil {
		return fmt.Errorf("stored, and it holds within %s once the database can be read: %w", bansEvery, err)
	}
	return nil
}

func (s *Server) removeBan(ctx context.Context, a network) (none, error) {
	prefix, err := parseNetwork(a.Network)
	if err != nil {
		return none{}, err
	}
	there, err := s.cfg.Store.RemoveBan(ctx, prefix)
	if err == nil && !there {
		err = fmt.Errorf("%s is not banned; berthd ban --list shows the networks that are", prefix)
	}
	if err != nil {
		return none{}, err
	}
	return none{}, s.readBans(ctx)
}

// parseNetwork reads a network or an address, which is a network of one.
func parseNetwork(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, fmt.Errorf("%q is not a network or an address; write it as in 203.0.113.0/24, 203.0.113.7 or 2001:db8::/48", text)
	}
	if prefix.Addr().Is4In6() {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), max(0, prefix.Bits()-96))
	}
	return prefix.Masked(), nil
}

func (s *Server) listEntries(ctx context.Context, a limit) (Entries, error) {
	all, err := s.cfg.Store.AuditEntries(ctx, a.Limit)
	list := Entries{Entries: make([]Entry, len(all))}
	for i, e := range all {
		list.Entries[i] = Entry(e)
	}
	return list, err
}
