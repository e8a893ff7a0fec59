package group

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/testkit/transcript"
)

var rewrite = flag.Bool("rewrite", false, "write what the transcripts in testdata now say")

// TestTranscripts runs the scripts in testdata. A script is commands, each
// followed by ---- and what it must print; -rewrite writes what it prints. The
// group is g unless group= says otherwise.
//
//	topic NAME N | grow NAME N | drop NAME | lose END   topics and logs
//	join WHO [instance= topics= protocols= meta= session= rebalance= v4 v9]
//	sync WHO [gen= protocol= WHO:topic:partitions...]
//	beat WHO [gen=] | leave WHO... | instance=X ...
//	hb WHO EPOCH [topics= regex= owned= assignor= instance= rebalance= full v1]
//	commit WHO|admin EPOCH topic:partition:offset[:metadata]... [txn=PRODUCER [over]]
//	end PRODUCER commit|abort
//	fetch [topic:partition...] [stable=yes] | delete-offsets ... | delete-group | describe | list
//	advance DURATION | restart | expire | hold | settle
//
// A member id is printed as the name that the script gave the member. Replies
// that come later than their request are printed where they come.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, *rewrite, func(t *testing.T) func(string) string {
		s := &script{t: t, world: newWorld(t, nil), ids: map[string]string{}, names: map[string]string{}, gens: map[string]int32{}}
		return s.run
	})
}

type script struct {
	*world
	t     *testing.T
	out   []string
	hold  bool
	ids   map[string]string // name -> member id
	names map[string]string // member id -> name
	gens  map[string]int32  // name -> generation last told
}

// args are a command's words, with key=value taken apart.
type args struct {
	words []string
	named map[string]string
}

func (a args) get(key, otherwise string) string {
	if v, ok := a.named[key]; ok {
		return v
	}
	return otherwise
}

func (a args) has(word string) bool { return slices.Contains(a.words, word) }

func (s *script) run(line string) string {
	fields := strings.Fields(line)
	a := args{named: map[string]string{}}
	for _, f := range fields[1:] {
		if k, v, ok := strings.Cut(f, "="); ok {
			a.named[k] = v
		} else {
			a.words = append(a.words, f)
		}
	}
	s.out = nil
	s.command(fields[0], a)
	if !s.hold {
		s.settle()
	}
	if err := s.verify(); err != nil {
		s.say("BROKEN: %v", err)
	}
	text := ""
	for _, line := range s.out {
		for id, name := range s.names {
			line = strings.ReplaceAll(line, id, name)
		}
		text += line + "\n"
	}
	return text
}

func (s *script) say(format string, args ...any) { s.out = append(s.out, fmt.Sprintf(format, args...)) }

func (s *script) command(name string, a args) {
	group := a.get("group", "g")
	switch name {
	case "topic", "grow":
		n, _ := strconv.Atoi(a.words[1])
		if name == "topic" {
			s.topics.create(a.words[0], int32(n))
		} else {
			s.topics.grow(a.words[0], int32(n))
		}
		s.TopicsChanged()
	case "drop":
		s.TopicDeleted(s.topics.remove(a.words[0]))
	case "lose":
		n, _ := strconv.Atoi(a.words[0])
		s.topics.lose(int64(n))
	case "advance":
		d, err := time.ParseDuration(a.words[0])
		if err != nil {
			s.t.Fatal(err)
		}
		s.clock.Advance(d)
	case "restart":
		s.restart(s.t, nil)
	case "expire":
		s.expire()
	case "hold", "settle":
		s.hold = name == "hold"
	case "join":
		s.join(group, a)
	case "sync":
		s.sync(group, a)
	case "beat":
		s.beat(group, a)
	case "leave":
		s.leave(group, a)
	case "hb":
		s.heartbeat(group, a)
	case "commit":
		s.commit(group, a)
	case "end":
		s.end(group, a)
	case "fetch":
		s.fetch(group, a)
	case "delete-group":
		s.DeleteGroup(group, func(err error) { s.say("%s", outcome(err)) })
	case "delete-offsets":
		s.DeleteOffsets(group, s.partitions(a.words), func(r DeleteOffsetsResult) { s.results("", r.Err, r.Partitions) })
	case "describe":
		s.describe(group)
	case "list":
		for _, l := range s.List() {
			s.say("%s %s %s %q members=%d", l.Group, l.Type, l.State, l.ProtocolType, l.Members)
		}
	default:
		s.t.Fatalf("no command %q", name)
	}
}

// outcome prints an error by its sentinel's own words.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.TrimPrefix(err.Error(), "group: ")
}

func (s *script) learn(who, id string) {
	if id != "" && s.names[id] == "" {
		s.ids[who], s.names[id] = id, who
	}
}

func (s *script) join(group string, a args) {
	who := a.words[0]
	r := JoinRequest{
		Group: group, MemberID: s.ids[who], InstanceID: a.get("instance", ""), Client: Client{ID: who, Host: "h"},
		Session: s.duration(a, "session", "10s"), Rebalance: s.duration(a, "rebalance", "60s"),
		ProtocolType: a.get("type", "consumer"), NeedsMemberID: a.has("v4"), CanSkipAssignment: a.has("v9"),
	}
	for _, p := range strings.Split(a.get("protocols", "range"), ",") {
		metadata := subscription(strings.Split(a.get("topics", "t"), ",")...)
		if text, ok := a.named["meta"]; ok {
			metadata = []byte(text)
		}
		r.Protocols = append(r.Protocols, Protocol{Name: p, Metadata: metadata})
	}
	asked := r.MemberID
	s.Join(r, func(r JoinResult) {
		s.learn(who, r.MemberID)
		if r.Err != nil {
			s.say("%s: join: %s", s.nameOr(asked, who), outcome(r.Err))
			return
		}
		s.gens[who] = r.Generation
		more := ""
		for _, m := range r.Members {
			more += " " + m.ID
			if m.InstanceID != "" {
				more += "(" + m.InstanceID + ")"
			}
		}
		if r.SkipAssignment {
			more += " skip-assignment"
		}
		s.say("%s: join: generation=%d protocol=%s leader=%s%s", r.MemberID, r.Generation, r.Protocol, r.Leader, more)
	})
}

func (s *script) nameOr(id, otherwise string) string {
	if n := s.names[id]; n != "" {
		return n
	}
	return otherwise
}

func (s *script) duration(a args, key, otherwise string) time.Duration {
	d, err := time.ParseDuration(a.get(key, otherwise))
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *script) generation(a args, who string) int32 {
	if g, err := strconv.Atoi(a.get("gen", "")); err == nil {
		return int32(g)
	}
	return s.gens[who]
}

func (s *script) sync(group string, a args) {
	who := a.words[0]
	r := SyncRequest{
		Group: group, MemberID: s.ids[who], InstanceID: a.get("instance", ""), Generation: s.generation(a, who),
		ProtocolType: a.get("type", ""), Protocol: a.get("protocol", ""),
	}
	for _, w := range a.words[1:] {
		to, rest, _ := strings.Cut(w, ":")
		topic, list, _ := strings.Cut(rest, ":")
		var partitions []int32
		for _, p := range strings.Split(list, ",") {
			n, _ := strconv.Atoi(p)
			partitions = append(partitions, int32(n))
		}
		r.Assignments = append(r.Assignments, MemberAssignment{MemberID: s.ids[to], Assignment: assignment(topic, partitions...)})
	}
	s.Sync(r, func(r SyncResult) {
		if r.Err != nil {
			s.say("%s: sync: %s", who, outcome(r.Err))
			return
		}
		assigned, err := parseAssignment(r.Assignment)
		if err != nil {
			s.t.Error(err)
		}
		s.say("%s: sync: %s", who, printed(assigned))
	})
}

func printed(all []TopicPartitions) string {
	if len(all) == 0 {
		return "nothing"
	}
	var parts []string
	for _, t := range all {
		parts = append(parts, strings.ReplaceAll(fmt.Sprintf("%s%v", t.Name, t.Partitions), " ", ","))
	}
	return strings.Join(parts, " ")
}

func (s *script) beat(group string, a args) {
	who := a.words[0]
	err := s.Heartbeat(HeartbeatRequest{Group: group, MemberID: s.ids[who], InstanceID: a.get("instance", ""), Generation: s.generation(a, who)})
	s.say("%s: %s", who, outcome(err))
}

func (s *script) leave(group string, a args) {
	r := LeaveRequest{Group: group}
	for _, who := range a.words {
		if instance, ok := strings.CutPrefix(who, "@"); ok {
			r.Members = append(r.Members, LeavingMember{InstanceID: instance})
			continue
		}
		r.Members = append(r.Members, LeavingMember{MemberID: s.ids[who], InstanceID: a.get("instance", "")})
	}
	res := s.Leave(r)
	s.results("leave ", res.Err, res.Members)
}

func (s *script) results(what string, err error, each []error) {
	if err != nil {
		s.say("%s%s", what, outcome(err))
		return
	}
	for _, e := range each {
		s.say("%s%s", what, outcome(e))
	}
}

func (s *script) heartbeat(group string, a args) {
	who := a.words[0]
	epoch, err := strconv.Atoi(a.words[1])
	if err != nil {
		s.t.Fatal(err)
	}
	r := ConsumerHeartbeatRequest{
		Group: group, MemberID: s.ids[who], MemberEpoch: int32(epoch), InstanceID: a.get("instance", ""),
		Assignor: a.get("assignor", ""), Client: Client{ID: who, Host: "h"}, ClientMakesID: a.has("v1"),
	}
	if epoch == 0 {
		r.Rebalance = s.duration(a, "rebalance", "30s")
		r.Topics, r.Owned = []string{}, []lattice.TopicPartition{}
	}
	if topics, ok := a.named["topics"]; ok {
		r.Topics = strings.Split(topics, ",")
	}
	if regex, ok := a.named["regex"]; ok {
		r.Regex = &regex
	}
	if owned, ok := a.named["owned"]; ok {
		r.Owned = []lattice.TopicPartition{}
		if owned != "" {
			r.Owned = s.partitions(strings.Split(owned, "+"))
		}
	}
	if a.has("full") {
		r.Rebalance = 30 * time.Second
	}
	res := s.ConsumerHeartbeat(r)
	if res.Err != nil {
		s.say("%s: %s", who, outcome(res.Err))
		return
	}
	s.learn(who, res.MemberID)
	if res.Assign {
		s.say("%s: epoch=%d assigned %s", who, res.MemberEpoch, printed(res.Assigned))
	} else {
		s.say("%s: epoch=%d", who, res.MemberEpoch)
	}
}

// partitions reads topic:1,2 words.
func (s *script) partitions(words []string) []lattice.TopicPartition {
	var tps []lattice.TopicPartition
	for _, w := range words {
		topic, list, _ := strings.Cut(w, ":")
		for _, p := range strings.Split(list, ",") {
			n, err := strconv.Atoi(p)
			if err != nil {
				s.t.Fatalf("%q: %v", w, err)
			}
			tps = append(tps, s.tp(topic, int32(n)))
		}
	}
	return tps
}

func (s *script) commit(group string, a args) {
	epoch, err := strconv.Atoi(a.words[1])
	if err != nil {
		s.t.Fatal(err)
	}
	r := CommitRequest{Group: group, MemberID: s.ids[a.words[0]], InstanceID: a.get("instance", ""), Generation: int32(epoch)}
	for _, w := range a.words[2:] {
		parts := strings.Split(w, ":")
		if len(parts) < 3 {
			continue
		}
		p, _ := strconv.Atoi(parts[1])
		offset, _ := strconv.Atoi(parts[2])
		o := OffsetCommit{TopicPartition: s.tp(parts[0], int32(p)), Offset: int64(offset), LeaderEpoch: -1}
		if e, err := strconv.Atoi(a.get("leader-epoch", "")); err == nil {
			o.LeaderEpoch = int32(e)
		}
		if len(parts) > 3 {
			o.Metadata = parts[3]
		}
		r.Offsets = append(r.Offsets, o)
	}
	done := func(r CommitResult) { s.results("commit ", r.Err, r.Partitions) }
	if _, ok := a.named["txn"]; ok {
		s.commitInTransaction(r, a, done)
		return
	}
	s.CommitOffsets(r, done)
}

func (s *script) fetch(group string, a args) {
	_, stable := a.named["stable"]
	r := FetchRequest{Group: group, MemberEpoch: -1, Partitions: s.partitions(a.words), All: len(a.words) == 0, Stable: stable}
	if who, ok := a.named["member"]; ok {
		epoch, _ := strconv.Atoi(a.get("epoch", "0"))
		r.MemberID, r.MemberEpoch = s.ids[who], int32(epoch)
	}
	res := s.FetchOffsets(r)
	if res.Err != nil {
		s.say("%s", outcome(res.Err))
	}
	for _, o := range res.Offsets {
		line := fmt.Sprintf("%s:%d offset=%d leader-epoch=%d", o.Topic, o.Partition, o.Offset, o.LeaderEpoch)
		if o.Unstable {
			line += " unstable"
		}
		if o.Metadata != "" {
			line += " metadata=" + o.Metadata
		}
		if v, ok := s.value(group, o.TopicPartition); ok && v.Reset > 0 {
			line += fmt.Sprintf(" reset=%d target=%d", v.Reset, v.Target)
		}
		s.say("%s", line)
	}
}

func (s *script) value(group string, tp lattice.TopicPartition) (Value, bool) {
	b, ok := s.offsets.kept[string(Key{group, tp}.AppendTo([]byte{'o'}))]
	v, err := ParseValue(b)
	return v, ok && err == nil
}

func (s *script) describe(group string) {
	d, err := s.Describe(group)
	if err != nil {
		s.say("%s", outcome(err))
		if !errors.Is(err, ErrGroupNotFound) {
			s.t.Error(err)
		}
		return
	}
	s.say("%s %s epoch=%d/%d type=%q protocol=%q leader=%s", d.Type, d.State, d.Epoch, d.AssignmentEpoch, d.ProtocolType, d.Protocol, d.Leader)
	lines := map[string]string{}
	for _, m := range d.Members {
		line := fmt.Sprintf("  %s client=%s host=%s epoch=%d subscribed=%v%s assigned=%s", m.ID, m.Client.ID, m.Client.Host, m.Epoch, m.Subscribed, m.Regex, printed(m.Assigned))
		if m.InstanceID != "" {
			line += " instance=" + m.InstanceID
		}
		if d.Type == Consumer {
			line += " target=" + printed(m.Target)
		}
		lines[s.nameOr(m.ID, m.ID)] = line
	}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		s.say("%s", lines[name])
	}
}
