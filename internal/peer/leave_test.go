package peer_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/peer"
)

// A server that stops ends what other nodes have asked it, whichever version they speak.
func TestForward_EndsWhatIsUnderWayWhenTheOwnersServerStops(t *testing.T) {
	for version := 1; version <= peer.Protocol; version++ {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			const requests = 50
			begun, goOn := make(chan struct{}, requests), make(chan struct{})
			w := newWorld(t)
			w.give(theStack, "n2")
			first, second := w.joinAt(version, "n1", noAPI("n1")), w.joinAt(version, "n2", noAPI("n2"))
			second.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "begun, ")
				http.NewResponseController(w).Flush()
				begun <- struct{}{}
				<-goOn
				io.WriteString(w, "ended")
			}))
			for _, n := range []*node{first, second} {
				if err := n.table.Load(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			var asked sync.WaitGroup
			for range requests {
				asked.Go(func() {
					if res, text := first.ask(t, "GET", theHost, "/", nil, nil); res.StatusCode != 200 || text != "begun, ended" {
						t.Errorf("%s %q", res.Status, text)
					}
				})
			}
			for range requests {
				<-begun
			}
			stopped := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				stopped <- second.peers.Shutdown(ctx)
			}()
			select {
			case err := <-stopped:
				t.Fatalf("the server stopped before its requests had ended: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			close(goOn)
			asked.Wait()
			if err := <-stopped; err != nil {
				t.Errorf("the server stopped with %v", err)
			}
		})
	}
}
