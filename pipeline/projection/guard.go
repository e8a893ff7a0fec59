package projection

// Guard is what is durable about one entity for one projection: the key is projection,
// tenant schema, fork, stream, entity.
type Guard struct {
	// Applied is the greatest sequence number whose effects are in the rows; 0: none.
	Applied int64
	// Parked is the greatest sequence number that waits among the dead letters; 0: none
	// does. While there is one, everything later waits behind it.
	Parked int64
}

// Verdict is what an event is to its entity.
type Verdict uint8

// The verdicts.
const (
	// Fresh: apply it, and set Guard.Applied.
	Fresh Verdict = iota
	// Duplicate: pass over it. Its effects, or it itself among the parked, are durable.
	Duplicate
	// Behind: park it behind the dead letter of its entity, and set Guard.Parked.
	Behind
	// Early: events before it are missing. Fetch them from the ledger first.
	Early
)

func (v Verdict) String() string {
	return [...]string{"fresh", "duplicate", "behind", "early"}[v]
}

// Judge says what an event with this sequence number is. previous is the sequence number
// of the last event before it that the projection takes, where the caller knows that one,
// and -1 where it does not: sequence numbers have no gaps, but a projection does not take
// every event of an entity. Without it, nothing is Early.
func Judge(g Guard, sequence, previous int64) Verdict {
	known := max(g.Applied, g.Parked)
	switch {
	case sequence <= known:
		return Duplicate
	case previous > known:
		return Early
	case g.Parked > 0:
		return Behind
	}
	return Fresh
}

// Retry says what to do with the dead letters of an entity when the first of them is tried
// again: they are applied in their order, sequence by sequence. parked are the sequence
// numbers that wait, ascending; done says how many of them were applied before one failed.
// It returns the guard afterwards.
func (g Guard) Retry(parked []int64, done int) Guard {
	if done > 0 {
		g.Applied = max(g.Applied, parked[done-1])
	}
	if done == len(parked) {
		g.Parked = 0
	}
	return g
}
