package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/server"
)

// errUnwell is the error of a doctor that has already said what fails.
var errUnwell = errors.New("a check failed")

func doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what the server needs from this machine, and say what to do about faults",
		Long:  "Check what the server needs from this machine, and say what to do about faults. It works beside a running server and without one, and exits with 1 if a check fails.",
		Args:  cobra.NoArgs,
		RunE: configured(func(cmd *cobra.Command, config server.Config, _ []string) error {
			report, err := server.Examine(cmd.Context(), config)
			if err != nil {
				return err
			}
			text := []byte(report.String())
			if asJSON {
				if text, err = plainjson.MarshalLine(report); err != nil {
					return err
				}
			}
			if _, err := cmd.OutOrStdout().Write(text); err != nil {
				return err
			}
			if !report.OK {
				return errUnwell
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}
