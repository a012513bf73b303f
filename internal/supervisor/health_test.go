package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBrief_SaysWhyARequestFailed(t *testing.T) {
	for cause, want := range map[error]string{
		context.DeadlineExceeded:                                 "none in time",
		&net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed}: "none in time", // the deadline met a read
		io.ErrUnexpectedEOF:                                      "it hung up",
		fmt.Errorf("%w", http.ErrNotSupported):                   http.ErrNotSupported.Error(),
		errors.New("malformed HTTP response"):                    "malformed HTTP response",
	} {
		require.Equal(t, want, brief(&url.Error{Op: "Get", URL: "http://10.0.0.2:8080/", Err: cause}))
	}
}
