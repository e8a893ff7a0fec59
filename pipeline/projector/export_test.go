package projector

// Crashing makes a projector commit no offset while dead returns true, as one that is
// killed behind a commit of the database.
func (o *Options) Crashing(dead func() bool) { o.crash = dead }
