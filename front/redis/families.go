package redis

// families is the table: every command that is served. What is not in it is
// answered as an unknown command.
func families() []family {
	return append([]family{
		connectionCommands(),
		serverCommands(),
		transactionCommands(),
		pubsubCommands(),
		stringCommands(),
		keyCommands(),
	}, otherCommands()...)
}
