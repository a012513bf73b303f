package web

// routes is the table of pages and forms.
func (w *Web) routes() {
	w.app.Get("/", w.home)
	w.app.Get("/docs", w.docsPage)
	w.app.Get("/assets/:name", serveAsset)
	w.app.Get("/favicon.ico", serveIcon)

	w.app.Get("/signup", w.signUpPage)
	w.app.Post("/signup", w.form(w.signUp))
	w.app.Get("/signin", w.signInPage)
	w.app.Post("/signin", w.form(w.signIn))
	w.app.Post("/signout", w.form(w.signOut))

	w.app.Get("/claim", w.claimEntry)
	w.app.Post("/claim", w.form(w.claimTyped))
	w.app.Get("/claim/:code", w.claimPage)
	w.app.Post("/claim/:code", w.form(w.claim))

	w.app.Get("/dashboard", w.owner(w.dashboard))
	w.app.Get("/dashboard/stream", w.owner(w.dashboardStream))
	w.app.Get("/dashboard/account", w.owner(w.accountPage))
	w.app.Post("/dashboard/account/key", w.form(w.owner(w.rotateKey)))
	w.app.Post("/dashboard/account/password", w.form(w.owner(w.changePassword)))
	w.app.Get("/dashboard/account/delete", w.owner(w.deleteAccountPage))
	w.app.Post("/dashboard/account/delete", w.form(w.owner(w.deleteAccount)))
	w.app.Post("/dashboard/account/sessions", w.form(w.owner(w.endOtherSessions)))
	w.app.Post("/dashboard/account/sessions/:session", w.form(w.owner(w.endSession)))

	w.app.Get("/dashboard/stacks/:id", w.owner(w.stackPage))
	w.app.Get("/dashboard/stacks/:id/stream", w.owner(w.stackStream))
	w.app.Get("/dashboard/stacks/:id/claimed", w.owner(w.claimedPage))
	w.app.Get("/dashboard/stacks/:id/claimed/stream", w.owner(w.claimedStream))
	w.app.Post("/dashboard/stacks/:id/restart/:service", w.form(w.owner(w.restart)))
	w.app.Post("/dashboard/stacks/:id/revoke", w.form(w.owner(w.revoke)))
	w.app.Get("/dashboard/stacks/:id/delete", w.owner(w.deletePage))
	w.app.Post("/dashboard/stacks/:id/delete", w.form(w.owner(w.delete)))
	w.app.Post("/dashboard/stacks/:id/deliveries/test", w.form(w.owner(w.testDelivery)))
	w.app.Post("/dashboard/stacks/:id/deliveries/:event", w.form(w.owner(w.resendDelivery)))
}
