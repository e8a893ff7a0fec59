package spec

import (
	"regexp"
	"slices"
)

// sections takes the declarations of one file.
func (c *checker) sections(tree *node, file string) {
	known := sections()
	if tree.kind != mapping {
		c.fail(tree.Pos, "expected sections (%s), and this is %s", oneOf(sortedKeys(known)), tree.describe())
		return
	}
	rootKeys := []string{"dsl_version", "app", "platform", "fork", "ir_version", "description", "includes"}
	for i, k := range tree.keys {
		section, ok := known[k.text]
		switch body := tree.items[i]; {
		case slices.Contains(rootKeys, k.text):
			if !slices.Contains(rootNames(), file) && k.text != "description" && k.text != "dsl_version" {
				c.fail(k.Pos, "%s belongs into %s", k.text, rootNames()[0])
			}
		case !ok && slices.Contains(rootNames(), file): // reported with the root's own keys
		case !ok:
			c.unknown(k.Pos, "unknown section", k.text, sortedKeys(known))
		case body.kind == scalar && body.value == nil: // nothing in it yet
		case section == "listener":
			c.list2defs(section, body)
		case body.kind != mapping:
			c.fail(body.Pos, "%s: expected names with what they are, and this is %s", k.text, body.describe())
		default:
			for j, name := range body.keys {
				c.define(section, name, body.items[j])
			}
		}
	}
}

func (c *checker) list2defs(section string, body *node) {
	if body.kind != sequence {
		c.fail(body.Pos, "listeners: expected a list, and this is %s", body.describe())
		return
	}
	for _, item := range body.items {
		c.defs[section] = append(c.defs[section], def{at: item.Pos, body: item})
	}
}

// define takes one declaration. Names become parts of SQL names, topics' keys and paths.
func (c *checker) define(section string, name, body *node) {
	if !c.nameOK(name.Pos, section, name.text) {
		return
	}
	if c.byName[section] == nil {
		c.byName[section] = map[string]Pos{}
	}
	if first, twice := c.byName[section][name.text]; twice {
		c.fail(name.Pos, "%s %q is declared already, in %s", section, name.text, first)
		return
	}
	c.byName[section][name.text] = name.Pos
	c.defs[section] = append(c.defs[section], def{name.text, name.Pos, body})
}

func (c *checker) nameOK(pos Pos, what, name string) bool {
	pattern, words := `^[A-Za-z_][A-Za-z0-9_]{0,62}$`, "letters, digits and _, at most 63"
	if what == "query" {
		pattern, words = `^[A-Za-z_][A-Za-z0-9_-]{0,62}$`, "letters, digits, _ and -, at most 63"
	}
	if !regexp.MustCompile(pattern).MatchString(name) {
		c.fail(pos, "%s %q: a name has %s", what, name, words)
		return false
	}
	return true
}

// unexecutedSections warns of what is read and does nothing here.
func (c *checker) unexecutedSections() {
	why := map[string]string{
		"commit_envelope": "transfers over several entities are not coordinated",
		"decision":        "no language model is called",
		"prompt":          "no language model is called",
		"provider":        "no language model is called",
		"memory":          "nothing is embedded",
		"relationship":    "there is no graph of entities",
		"resource":        "there are no lookup tables",
	}
	for _, section := range sortedKeys(why) {
		for _, d := range c.defs[section] {
			c.warn(WarnNotExecuted, d.at, "%s %s is read and not executed: %s", section, d.name, why[section])
		}
	}
}
