package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"
)

func (a *app) dataCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "data",
		Short: "Get and replace the data of a service",
		Long:  "Get what a service has in $DATA_DIR as a tar.gz, or replace all of it. Once a stack is claimed, only its owner can.",
		Example: `berth data pull api backup.tar.gz
berth data push api backup.tar.gz
tar -C data -cz . | berth data push api`,
		GroupID: "stack",
	}
	cmd.AddCommand(a.dataPullCommand(), a.dataPushCommand())
	return cmd
}

func (a *app) dataPullCommand() *cobra.Command {
	var stop bool
	cmd := &cobra.Command{
		Use:   "pull [STACK] SERVICE [FILE]",
		Short: "Get the data of a service",
		Long: `Get what a service has in $DATA_DIR, as a tar.gz, into FILE, or on standard output without it or for -. The service runs meanwhile, and files may change; with --stop it stops for that time. Of a database it is a dump: pg_dump's custom format, or an RDB file.

FILE is written only once all of the data has arrived.`,
		Example: `berth data pull api backup.tar.gz
berth data pull --stop api | tar -tz`,
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "stop the service for that time")
	return a.onService(cmd, func(ctx context.Context, t *target, service, file string) error {
		if file == "" && a.ui.shows {
			return usagef("the data is not for a terminal; pass a file, as in berth data pull %s backup.tar.gz", service)
		}
		return a.pullData(ctx, t, service, file, stop)
	})
}

func (a *app) dataPushCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "push [STACK] SERVICE [FILE]",
		Short: "Replace the data of a service",
		Long:  `Replace everything that a service has in $DATA_DIR by a tar or tar.gz, which is FILE, or standard input without it or for -. Paths in it are relative to $DATA_DIR. For a database it is a dump. It returns once the service is healthy with the new data; if it does not get healthy, the data stays what it was.`,
		Example: `berth data push api backup.tar.gz
tar -C data -cz . | berth data push api`,
	}
	return a.onService(cmd, func(ctx context.Context, t *target, service, file string) error {
		if file == "" && a.ui.asks {
			return usagef("there is no data on a terminal; pass a file, as in berth data push %s backup.tar.gz", service)
		}
		return a.pushData(ctx, t, service, file)
	})
}

// onService makes cmd a command that takes a service and perhaps a file; "-" means none.
func (a *app) onService(cmd *cobra.Command, do func(ctx context.Context, t *target, service, file string) error) *cobra.Command {
	a.forStack(cmd, 2, func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return usagef("pass the service, as in berth data %s api", cmd.Name())
		}
		t, err := a.target(ctx)
		if err != nil {
			return err
		}
		file := argument(args[1:], "")
		if file == "-" {
			file = ""
		}
		return do(ctx, t, args[0], file)
	})
	cmd.GroupID = ""
	return cmd
}

// pullData writes the data of a service to a file, or to standard output for "".
func (a *app) pullData(ctx context.Context, t *target, service, file string, stop bool) error {
	data, err := t.api.Data(ctx, t.stack.ID, service, stop)
	if err != nil {
		return err
	}
	defer data.Close()
	if file == "" {
		_, err := io.Copy(a.ui.out, data)
		return brokenOff(ctx, err)
	}
	size, err := writeWhole(file, data)
	if err != nil {
		return brokenOff(ctx, err)
	}
	return a.report(map[string]string{"file": file}, "data of %s: %s in %s", service, units.HumanSize(float64(size)), file)
}

// brokenOff words an error in the middle of the data: one of this machine's files, or else of
// the connection.
func brokenOff(ctx context.Context, err error) error {
	_, ofPath := errors.AsType[*fs.PathError](err)
	_, ofRename := errors.AsType[*os.LinkError](err)
	switch {
	case err == nil:
		return nil
	case ofPath || ofRename:
		return &failure{code: exitOther, detail: "the data cannot be written: " + err.Error(), next: "pass another file"}
	}
	return cmp.Or(ctx.Err(), error(&failure{code: exitUnreachable, detail: "the data did not arrive whole: " + err.Error(), next: "run the command again"}))
}

// writeWhole writes a file, which only its user can read, once all of its content is there.
func writeWhole(file string, content io.Reader) (size int64, err error) {
	temp, err := os.CreateTemp(filepath.Dir(file), ".berth-*")
	if err != nil {
		return 0, err
	}
	size, err = io.Copy(temp, content)
	if err = cmp.Or(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		os.Remove(temp.Name())
	}
	return size, err
}

// pushData replaces the data of a service by a file, or by standard input for "".
func (a *app) pushData(ctx context.Context, t *target, service, file string) error {
	in, size := a.ui.in, int64(-1)
	if file != "" {
		opened, err := os.Open(file)
		if err != nil {
			return &failure{code: exitInvalid, detail: fmt.Sprintf("the data cannot be read: %v", err)}
		}
		defer opened.Close()
		info, err := opened.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return &failure{code: exitInvalid, detail: file + " is not a file; pack the folder first: tar -C " + file + " -cz . | berth data push " + service}
		}
		in, size = opened, info.Size()
	}
	st, err := t.api.ReplaceData(ctx, t.stack.ID, service, struct{ io.Reader }{in}, size)
	if err != nil {
		return err
	}
	if a.json {
		return a.ui.printJSON(st)
	}
	a.ui.sayf("%s of %s serves the new data", service, st.ID)
	return nil
}
