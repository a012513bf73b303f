package web

import "github.com/gofiber/fiber/v2"

// addRoutes adds the pages and forms to the app.
func (w *pages) addRoutes(app *fiber.App) {
	app.Get("/", w.anyone(w.home))
	app.Get("/docs", w.anyone(w.docsPage))
	app.Get("/assets/:name", serveAsset)
	app.Get("/favicon.ico", serveIcon)

	app.Get("/signup", w.anyone(w.signUpPage))
	app.Post("/signup", w.checkForm(w.signUp))
	app.Get("/signin", w.anyone(w.signInPage))
	app.Post("/signin", w.checkForm(w.signIn))
	app.Post("/signout", w.checkForm(w.signOut))

	app.Get("/claim", w.claimEntry)
	app.Post("/claim", w.checkForm(w.claimTyped))
	app.Get("/claim/:code", w.anyone(w.claimPage))
	app.Post("/claim/:code", w.checkForm(w.anyone(w.claim)))

	app.Get("/dashboard", w.signedInOnly(w.dashboard))
	app.Get("/dashboard/stream", w.signedInOnly(w.dashboardStream))
	app.Get("/dashboard/account", w.signedInOnly(w.accountPage))
	app.Post("/dashboard/account/key", w.checkForm(w.signedInOnly(w.rotateKey)))
	app.Post("/dashboard/account/password", w.checkForm(w.signedInOnly(w.changePassword)))
	app.Get("/dashboard/account/delete", w.signedInOnly(w.deleteAccountPage))
	app.Post("/dashboard/account/delete", w.checkForm(w.signedInOnly(w.deleteAccount)))
	app.Post("/dashboard/account/sessions", w.checkForm(w.signedInOnly(w.endOtherSessions)))
	app.Post("/dashboard/account/sessions/:session", w.checkForm(w.signedInOnly(w.endSession)))

	app.Get("/dashboard/stacks/:id", w.ownerOnly(w.stackPage))
	app.Get("/dashboard/stacks/:id/source", w.ownerOnly(w.sourcePage))
	app.Get("/dashboard/stacks/:id/source.tar.gz", w.ownerOnly(w.sourceArchive))
	app.Get("/dashboard/stacks/:id/source/*", w.ownerOnly(w.sourcePage))
	app.Get("/dashboard/stacks/:id/stream", w.ownerOnly(w.stackStream))
	app.Get("/dashboard/stacks/:id/claimed", w.ownerOnly(w.claimedPage))
	app.Get("/dashboard/stacks/:id/claimed/stream", w.ownerOnly(w.claimedStream))
	app.Post("/dashboard/stacks/:id/restart/:service", w.checkForm(w.ownerOnly(w.restart)))
	app.Post("/dashboard/stacks/:id/rebuild", w.checkForm(w.ownerOnly(w.rebuild)))
	app.Get("/dashboard/stacks/:id/env", w.ownerOnly(w.variablesPage))
	app.Post("/dashboard/stacks/:id/env", w.checkForm(w.ownerOnly(w.setVariable)))
	app.Get("/dashboard/stacks/:id/data", w.ownerOnly(w.dataPage))
	app.Get("/dashboard/stacks/:id/data/:service", w.ownerOnly(w.downloadData))
	app.Post("/dashboard/stacks/:id/data/:service", drained(w.ownerOnly(w.uploadData)))
	app.Get("/dashboard/stacks/:id/domains", w.ownerOnly(w.domainsPage))
	app.Post("/dashboard/stacks/:id/domains", w.checkForm(w.ownerOnly(w.addDomain)))
	app.Post("/dashboard/stacks/:id/domains/check", w.checkForm(w.ownerOnly(w.checkDomain)))
	app.Post("/dashboard/stacks/:id/domains/primary", w.checkForm(w.ownerOnly(w.markDomain)))
	app.Post("/dashboard/stacks/:id/domains/remove", w.checkForm(w.ownerOnly(w.removeDomain)))
	app.Post("/dashboard/stacks/:id/revoke", w.checkForm(w.ownerOnly(w.revoke)))
	app.Get("/dashboard/stacks/:id/delete", w.ownerOnly(w.deletePage))
	app.Post("/dashboard/stacks/:id/delete", w.checkForm(w.ownerOnly(w.delete)))
	app.Post("/dashboard/stacks/:id/deliveries/test", w.checkForm(w.ownerOnly(w.testDelivery)))
	app.Post("/dashboard/stacks/:id/deliveries/:event", w.checkForm(w.ownerOnly(w.resendDelivery)))
}
