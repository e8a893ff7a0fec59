package spec

import "testing"

// BenchmarkProject measures one event on one projection of plain paths with a counter.
func BenchmarkProject(b *testing.B) {
	app := load(b, "../../examples/concertapp")
	p := app.Projection("artist_followers")
	m := Message{Type: "ARTIST_FOLLOWED", EntityID: "u", TS: 1, Payload: map[string]any{"user_id": "u", "artist_id": "a"}}
	row := map[string]any{"artist_id": "a", "followers": int64(5), "followed_at": int64(0), "last_follower": "v"}
	b.ReportAllocs()
	for b.Loop() {
		s, err := p.Step(m)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Apply(row); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecide measures an intent with three guards and two writes.
func BenchmarkDecide(b *testing.B) {
	app := load(b, "../../examples/concertapp")
	in := app.Intents["FOLLOW_ARTIST"]
	r := Request{Payload: map[string]any{"user_id": "u", "artist_id": "a"}, EntityID: "u", TS: 1}
	b.ReportAllocs()
	for b.Loop() {
		if d, err := in.Decide(r); err != nil || d.Rejection != nil {
			b.Fatal(err, d.Rejection)
		}
	}
}
