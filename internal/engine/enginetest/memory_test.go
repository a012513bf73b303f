package enginetest

import (
	"context"
	"math/rand/v2"
	"path"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

var web = engine.Key{Stack: "stk_3f2a9c1b7d4e", Service: "web", Generation: 1}

// serve listens until it is asked to end.
func serve(p *Process) int {
	p.Listen(8080)
	select {
	case <-p.Terminated:
		return 0
	case <-p.Killed:
		return 137
	}
}

func TestEngine_RunsTheProgramOfAContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(map[string]Program{"serve": serve}, "base")
		defer e.Close()
		d := e.Driver(Options{})
		require.NoError(t, d.Place(t.Context(), web, 1))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended, _ := d.Ended(ctx)
		id, err := d.Run(t.Context(), engine.Spec{Name: web.Process(0), Key: web, Image: "base", Cmd: []string{"serve"}, Network: web.Network()})
		require.NoError(t, err)
		synctest.Wait()
		c, err := d.Look(t.Context(), id)
		require.NoError(t, err)
		require.True(t, c.Running)
		require.True(t, e.Connects(c.IP+":8080"))
		e.Kill(c.Name, 3)
		require.Equal(t, engine.End{ID: id, Key: web}, <-ended)
		c, err = d.Look(t.Context(), id)
		require.NoError(t, err)
		require.False(t, c.Running)
		require.Equal(t, 3, c.ExitCode)
	})
}

func TestDriver_KeepsTheContract(t *testing.T) {
	Suite(t, func(t *testing.T, test func(*testing.T, Bench)) {
		synctest.Test(t, func(t *testing.T) {
			e := New(map[string]Program{"helper": helper}, "base", "tools")
			defer e.Close()
			e.Fill(1 << 40)
			e.takeTime()
			const subnets = 2
			test(t, Bench{
				Driver:  e.Driver(Options{Instance: "own", Subnets: subnets, Registry: NewRegistry("registry")}),
				Another: e.Driver(Options{Instance: "another", Subnets: subnets}),
				Subnets: subnets, Image: "base", Tools: "tools", Registry: "registry",
				Command:     func(words ...string) []string { return append(words, "helper") },
				Script:      func(words ...string) []string { return append(words, "helper") },
				LoseAnswers: e.loseAnswers, Leave: e.Leave, Return: e.Return,
				BreakStart: e.breakStart, BreakPromote: e.breakPromote, TakeAddress: e.takeAddress, BreakFill: e.breakFill,
			})
		})
	})
}

// changes are the methods whose answers loseAnswers loses.
var changes = []string{
	"Place", "Run", "Restart", "Stop", "Remove", "Discard", "Snapshot", "Restore", "Prepare", "Start", "Commit", "Tag", "Promote",
}

// takeTime makes requests take different times, so that those of calls at once mix.
func (e *Engine) takeTime() {
	for _, method := range append(changes, "HasImage", "Look") {
		e.Before(method, func(string) error {
			time.Sleep(rand.N(7 * time.Millisecond))
			return nil
		})
	}
}

// loseAnswers loses the first answer of each method for each object.
func (e *Engine) loseAnswers() {
	for _, method := range changes {
		lost := map[string]bool{}
		e.After(method, func(object string) error {
			if lost[object] {
				return nil
			}
			lost[object] = true
			return engine.ErrUnreachable
		})
	}
}

// breakStart loses the answer of the next Start or Restart, and the request after it.
func (e *Engine) breakStart() {
	for _, method := range []string{"Start", "Restart"} {
		e.After(method, func(string) error {
			e.After("Start", nil)
			e.After("Restart", nil)
			time.Sleep(time.Millisecond) // the process ends
			e.Before(method, func(string) error {
				e.Before(method, nil)
				return engine.ErrUnreachable
			})
			return engine.ErrUnreachable
		})
	}
}

// takeAddress gives the address of one container to another while the first is promoted,
// and with leave makes the engine go away before the first has another address.
func (e *Engine) takeAddress(id, other string, leave bool) {
	e.After("Promote", func(string) error {
		e.After("Promote", nil)
		e.mu.Lock()
		defer e.mu.Unlock()
		c := e.find(id)
		e.find(other).ip, c.ip = c.ip, ""
		if leave {
			e.away = true
			return engine.ErrUnreachable
		}
		e.join(c)
		return engine.ErrAddressTaken
	})
}

// breakPromote makes the engine go away in the middle of the next Promote.
func (e *Engine) breakPromote() {
	e.After("Promote", func(id string) error {
		e.After("Promote", nil)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.find(id).ip, e.away = "", true
		return engine.ErrUnreachable
	})
}

// breakFill makes the next Run or Restore break off when it has filled a part of a volume.
func (e *Engine) breakFill(key engine.Key, name string) {
	for _, method := range []string{"Run", "Restore"} {
		e.Before(method, func(string) error {
			e.Before("Run", nil)
			e.Before("Restore", nil)
			e.mu.Lock()
			defer e.mu.Unlock()
			e.volumes[name] = newVolume("own", key.WithoutGeneration(), map[string]string{"part": "of it"})
			return engine.ErrUnreachable
		})
	}
}

// helper is the program of the suite.
func helper(p *Process) int {
	word, args := p.Args[0], p.Args[1:len(p.Args)-1]
	switch word {
	case "print":
		p.Print(args[0])
	case "count":
		n, pause := atoi(args[0]), duration(args[1])
		for i := range n {
			p.Print(strconv.Itoa(i))
			time.Sleep(pause)
		}
	case "exit":
		return atoi(args[0])
	case "serve":
		p.Print("serving")
		code := p.wait(p.Terminated, 0)
		if code == 0 && len(args) > 0 {
			p.Write(path.Dir(args[0]), path.Base(args[0]), args[1])
		}
		return code
	case "stubborn":
		p.Print("serving")
		p.Print("begun")
		return p.wait(nil, 0)
	case "mourn":
		p.Print("begun")
		code := p.wait(p.Terminated, 143)
		p.Write(path.Dir(args[0]), path.Base(args[0]), "asked")
		return code
	case "listen":
		for _, port := range args {
			p.Listen(atoi(strings.TrimPrefix(port, ":")))
		}
		p.Print("listening")
		return p.wait(p.Terminated, 143)
	case "dial":
		if p.Dial(args[0]) == nil {
			return 1
		}
		p.Print("hello")
	case "call":
		works := p.Dial(args[0])
		if works == nil {
			return 1
		}
		p.Print("hello")
		if code := p.wait(p.Terminated, 0); code != 0 || !works() {
			return 1
		}
		p.Print("still connected")
	case "append":
		p.Write(path.Dir(args[0]), path.Base(args[0]), p.Read(path.Dir(args[0]), path.Base(args[0]))+args[1])
	case "cat":
		text := p.Read(path.Dir(args[0]), path.Base(args[0]))
		if text == "" {
			return 1
		}
		p.Print(text)
	}
	return 0
}

// wait returns code once the process is asked to end, or 137 once it is killed.
func (p *Process) wait(asked <-chan struct{}, code int) int {
	select {
	case <-asked:
		return code
	case <-p.Killed:
		return 137
	}
}

func atoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}
