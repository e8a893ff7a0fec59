package redis

// families is the table: every command that is served. What is not in it is
// answered as an unknown command.
func families() []family {
	generic := keyCommands()
	generic.rows = append(generic.rows, sortCommands()...)
	return append([]family{
		connectionCommands(),
		serverCommands(),
		transactionCommands(),
		pubsubCommands(),
		stringCommands(),
		bitCommands(),
		generic,
		listCommands(),
		hashCommands(),
		setCommands(),
		sortedSetCommands(),
		latticeCommands(),
	}, otherCommands()...)
}
