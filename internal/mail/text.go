package mail

import (
	"fmt"
	"strings"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/store"
)

// letter is the text of a mail. A subject has no text of a tenant: an id at most.
type letter struct {
	subject string
	body    string
}

// subject is what a notice is about.
type subject struct {
	id, name string // of the stack
	detail   string
	base     string // URL of the installation, without a slash at its end
}

// notice returns the mail of a kind about a stack.
func notice(kind store.MailKind, s subject) letter {
	page := s.base + "/dashboard/stacks/" + s.id
	stack := safetext.Quote(s.name) + " (" + s.id + ")"
	foot := "\n\nThe stack is in your account at " + s.base + ".\nTurn off mails like this one at " + s.base + "/dashboard/account.\n"
	switch kind {
	case store.MailFailed:
		return letter{"Stack " + s.id + " failed", "The stack " + stack + " failed and no longer runs:\n\n" + indent(s.detail) +
			"\n\nIts data is kept. Look at its logs, and deploy it again:\n" + page + foot}
	case store.MailCrashing:
		return letter{"A service of stack " + s.id + " keeps crashing", "The service " + safetext.Quote(s.detail) + " of the stack " + stack +
			" has crashed several times within a few minutes. It is started again each time; if it goes on, the stack fails.\n\nIts log says more:\n" + page + foot}
	case store.MailDomain:
		return letter{"Stack " + s.id + " has lost a domain", "A domain no longer leads to the stack " + stack + ":\n\n" + indent(s.detail) +
			"\n\nPut its records back at your DNS, and check it on this page:\n" + page + "/domains" + foot}
	case store.MailDisk:
		return letter{"Stack " + s.id + " takes too much of the disk", "The stack " + stack + " has got too large:\n\n" + indent(s.detail) +
			"\n\nDelete data with a command in a running service, or replace it by less:\n" + page + foot}
	case store.MailClaimed:
		return letter{"Stack " + s.id + " was claimed", "The stack " + stack + " was claimed and is now in your account. It stays until you delete it.\n\n" +
			"If it was not you, change your password and rotate your key. The stack:\n" + page + foot}
	}
	panic(fmt.Sprintf("no notice of the kind %q", kind))
}

// resetLetter is for somebody who forgot the password.
func resetLetter(base, token string) letter {
	return letter{"Choose a new password", "Somebody, probably you, asked for a new password for your account at " + base + ".\n\n" +
		"To choose one, open this link within 30 minutes:\n" + base + "/signin/reset/" + token + "\n\n" +
		"All sessions are signed out then. If it was not you, do nothing: your password stays as it is.\n"}
}

// confirmLetter is for a new account, or, with the id of a stack, for a claim.
func confirmLetter(base, token, stackID string) letter {
	link := base + "/signup/confirm/" + token
	if stackID != "" {
		return letter{"Confirm your address to claim stack " + stackID, "The stack " + stackID + " can be claimed by this address only, for the account that you have at " + base + ".\n\n" +
			"To confirm the address and claim the stack, open this link within 30 minutes and press the button there:\n" + link + "\n\n" +
			"If it was not you who wanted to claim it, do nothing.\n"}
	}
	return letter{"Confirm your address", "An account with this address was created at " + base + ".\n\n" +
		"To confirm that the address is yours, open this link within 30 minutes and press the button there:\n" + link + "\n\n" +
		"If you did not create an account, do nothing.\n"}
}

// indent returns text of a program as a paragraph that stands out.
func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(safetext.String(text), "\n"), "\n", "\n    ")
}
