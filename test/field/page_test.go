package field

import (
	"fmt"
	"strings"
)

// result is a row: the version of what was run, and a cell for each case. A
// tool has one, named works.
type result struct {
	version string
	cells   map[string]string
}

// render makes the page. results has, for each row, its version and what was
// found.
func render(results map[string]*result) string {
	var w strings.Builder
	w.WriteString(`# Kafka clients, as they are

Written by scripts/test-field.sh, which runs each of these clients as a process against a node that is a process too, and
fails when a cell would say less than before. With every change kcat, franz-go and kafkajs run in test/clients, which asks more
of them (answers lost on the way, named members that come back), and kafka-clients and kafka-python here.

| client | language | version |`)
	for _, c := range cases {
		w.WriteString(" " + c.name + " |")
	}
	w.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(cases)) + "\n")
	for _, e := range roster {
		r := results[e.name]
		fmt.Fprintf(&w, "| %s | %s | %s |", e.name, e.lang, r.version)
		for _, c := range cases {
			fmt.Fprintf(&w, " %s |", r.cells[c.name])
		}
		w.WriteString("\n")
	}
	w.WriteString("\nThe cases:\n\n")
	for _, c := range cases {
		fmt.Fprintf(&w, "- %s: %s\n", c.name, c.says)
	}
	w.WriteString("\nGroups were tried with: ")
	for i, e := range roster {
		if i > 0 {
			w.WriteString("; ")
		}
		w.WriteString(e.name + " " + strings.Join(e.groups, ", "))
	}
	w.WriteString(". server is the protocol of KIP-848; server-pattern the same with a pattern that the node resolves.\n")
	w.WriteString(remarks())
	w.WriteString("\n## Kafka's own tools\n\nRun from the jars of Maven by their main classes, org.apache.kafka.tools.*.\n\n| tool | version | result | what was done |\n|---|---|---|---|\n")
	for _, tool := range tools {
		r := results[tool.name]
		fmt.Fprintf(&w, "| %s | %s | %s | %s |\n", tool.name, r.version, r.cells["works"], tool.says)
	}
	return w.String()
}

// remarks lists what is nothing for a client and what it says in its own way.
func remarks() string {
	var w strings.Builder
	for _, e := range roster {
		for _, c := range cases {
			if why := e.lacks[c.name]; why != "" {
				fmt.Fprintf(&w, "- %s, %s: %s\n", e.name, c.name, why)
			}
		}
		if e.text {
			fmt.Fprintf(&w, "- %s writes lines of text, with the same headers for all, at times of its own, and does not say where they went; it prints headers as text\n", e.name)
		}
		if e.drops {
			fmt.Fprintf(&w, "- %s counts a record as read that arrives just when it is told to leave, without showing it: nothing is written then\n", e.name)
		}
		if e.blurs {
			fmt.Fprintf(&w, "- %s does not everywhere tell empty from null\n", e.name)
		}
		if e.classic {
			fmt.Fprintf(&w, "- %s describes groups of the classic protocol only\n", e.name)
		}
		if len(e.without) > 0 {
			fmt.Fprintf(&w, "- %s has no call to %s\n", e.name, strings.Join(e.without, ", "))
		}
		for _, m := range mistakes {
			if says, ok := e.own[m.name]; ok {
				fmt.Fprintf(&w, "- %s, errors, %s: %s\n", e.name, m.name, says)
			}
		}
	}
	if w.Len() == 0 {
		return ""
	}
	return "\nWhat a dash means, and what a client says in its own way:\n\n" + w.String()
}
