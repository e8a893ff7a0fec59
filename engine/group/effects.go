package group

// effects collects the replies that a state machine decided on. The Manager
// runs them once it has let go of the group.
type effects struct {
	calls []func()
}

func (fx *effects) join(reply func(JoinResult), r JoinResult) {
	fx.calls = append(fx.calls, func() { reply(r) })
}

func (fx *effects) sync(reply func(SyncResult), r SyncResult) {
	fx.calls = append(fx.calls, func() { reply(r) })
}

func (fx *effects) run() {
	for _, call := range fx.calls {
		call()
	}
}
