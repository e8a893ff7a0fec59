package intents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/intents/request"
	"github.com/lattice-log/lattice/pipeline/ledger"
)

// maxBody bounds the body of a request: a payload, and what is around it.
const maxBody = event.MaxPayload + 16<<10

// Handler serves POST /v1/intents and the gRPC service.
//
//	{"intentId":"…","intentType":"FOLLOW_ARTIST","streamId":"…","entityId":"user-123",
//	 "forkId":"prod","payload":{…},"expectedSequence":4,"correlationId":"…","causationId":"…"}
//
// Only intentId and intentType must be there. The answer, status 200, is
//
//	{"accepted":true,"cursor":1891,"events":[{"eventType":"ARTIST_FOLLOWED","sequenceNumber":5}]}
//	{"accepted":false,"rejectionCode":"TAKEN","rejectionMessage":"occupied"}
//
// and any other status comes with {"accepted":false,"error":"…","kind":"…"}:
//
//	400 invalid, 401/403 denied, 404 not found, 409 conflict (the intent id is another
//	intent's), 413 too large, 415 no JSON, 503 unavailable (send it again, with the same id)
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/intents", s.post)
	path, service := s.connect()
	mux.Handle(path, service)
	// A page of another site must not submit with the user's cookies or address.
	return http.NewCrossOriginProtection().Handler(mux)
}

func (s *Service) post(w http.ResponseWriter, hr *http.Request) {
	if t, _, err := mime.ParseMediaType(hr.Header.Get("Content-Type")); err != nil || t != "application/json" {
		s.refused.Add(1)
		refuse(w, http.StatusUnsupportedMediaType, lattice.E(lattice.Invalid, errors.New("send JSON, and say so: Content-Type: application/json")))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, hr.Body, maxBody))
	if err != nil {
		s.refused.Add(1)
		if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			err = lattice.E(lattice.TooLarge, fmt.Errorf("the body has more than %d bytes", maxBody))
		} else {
			err = lattice.E(lattice.Invalid, fmt.Errorf("read the body: %w", err))
		}
		refuse(w, status(err), err)
		return
	}
	r, err := request.Parse(body)
	if err != nil {
		s.refused.Add(1)
		refuse(w, status(err), err)
		return
	}
	a, err := s.Submit(hr.Context(), r)
	if err != nil {
		s.report(hr.Context(), r, err)
		refuse(w, status(err), err)
		return
	}
	respond(w, http.StatusOK, answerOf(&a))
}

// answer is the body of a reply.
type answer struct {
	Accepted         bool        `json:"accepted"`
	Cursor           *int64      `json:"cursor,omitempty"`
	Events           *[]numbered `json:"events,omitempty"`
	RejectionCode    string      `json:"rejectionCode,omitempty"`
	RejectionMessage *string     `json:"rejectionMessage,omitempty"`
	Error            string      `json:"error,omitempty"`
	Kind             string      `json:"kind,omitempty"`
}

type numbered struct {
	EventType      string `json:"eventType"`
	SequenceNumber int64  `json:"sequenceNumber"`
}

func answerOf(a *ledger.Answer) answer {
	if !a.Accepted() {
		return answer{RejectionCode: a.Rejection.Code, RejectionMessage: &a.Rejection.Message}
	}
	events := make([]numbered, len(a.Events))
	for i, e := range a.Events {
		events[i] = numbered{e.EventType, e.SequenceNumber}
	}
	return answer{Accepted: true, Cursor: &a.Cursor, Events: &events}
}

func respond(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client is gone: it has its intent id
}

func refuse(w http.ResponseWriter, code int, err error) {
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	respond(w, code, answer{Error: err.Error(), Kind: lattice.KindOf(err).String()})
}

// status maps each kind to what HTTP calls it.
func status(err error) int {
	switch lattice.KindOf(err) {
	case lattice.Invalid, lattice.OutOfRange:
		return http.StatusBadRequest
	case lattice.Denied:
		return http.StatusForbidden
	case lattice.NotFound, lattice.NotYet:
		return http.StatusNotFound
	case lattice.Exists, lattice.Conflict, lattice.Fenced, lattice.Diverged:
		return http.StatusConflict
	case lattice.TooLarge:
		return http.StatusRequestEntityTooLarge
	case lattice.Unavailable, lattice.NotLeader, lattice.Storage:
		return http.StatusServiceUnavailable
	case lattice.Unsupported:
		return http.StatusNotImplemented
	}
	return http.StatusInternalServerError
}
