package main

// usage is the template of a command's usage. Of the settings, which are flags of every
// command, only the help of berthd itself lists more than the data directory.
const usage = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]

Available Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{with .InheritedFlags.Lookup "data-dir"}}

Settings:
      --{{.Name}} string   {{.Usage}} (default "{{.DefValue}}")
Every other setting is a flag, too: berthd help lists them.{{end}}{{if .HasAvailableSubCommands}}

Use "{{.CommandPath}} [command] --help" for more information about a command.{{end}}
`
