// Package node turns a Config into a running Lattice node: it opens the data
// directory, wires the engine to the front ends, runs everything and closes it.
// It holds no logic of its own.
//
//	n, err := node.Open(ctx, cfg, node.Options{})
//	if err != nil { ... }
//	err = n.Run(ctx) // until ctx ends
//	err = errors.Join(err, n.Close())
//
// Open takes the directory's lock, so that a second node on the same directory
// is refused with the process that has it. Run writes node.json once every
// listener accepts connections, and removes it when it ends.
package node
