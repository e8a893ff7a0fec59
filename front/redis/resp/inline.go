package resp

// Split appends the words of an inline command to args, and reports false when
// quotes are not balanced or are followed by something else than space.
//
// A word in double quotes knows \n \r \t \b \a, \xHH, and \ before any other
// character; one in single quotes knows \' only.
func Split(args [][]byte, line []byte) ([][]byte, bool) {
	for {
		for len(line) > 0 && space(line[0]) {
			line = line[1:]
		}
		if len(line) == 0 {
			return args, true
		}
		word, rest, ok := nextWord(line)
		if !ok {
			return args, false
		}
		args = append(args, word)
		line = rest
	}
}

// nextWord reads the word at the start of line, which is not empty. It aliases
// line where nothing was quoted.
func nextWord(line []byte) (word, rest []byte, ok bool) {
	for i, c := range line {
		switch c {
		case ' ', '\n', '\r', '\t', 0:
			return line[:i:i], line[i+1:], true
		case '"', '\'':
			return quotedWord(append([]byte(nil), line[:i]...), line[i:])
		}
	}
	return line, nil, true
}

// quotedWord goes on with a word in which quotes occur.
func quotedWord(word, line []byte) (_, rest []byte, ok bool) {
	for len(line) > 0 {
		switch c := line[0]; c {
		case ' ', '\n', '\r', '\t', 0:
			return word, line[1:], true
		case '"', '\'':
			word, line, ok = quotes(word, line[1:], c)
			// Closing quotes end the word.
			if !ok || len(line) > 0 && !space(line[0]) {
				return nil, nil, false
			}
			return word, line, true
		default:
			word, line = append(word, c), line[1:]
		}
	}
	return word, nil, true
}

// quotes appends what stands up to the closing quote.
func quotes(word, line []byte, quote byte) (_, rest []byte, ok bool) {
	for len(line) > 0 {
		c := line[0]
		switch {
		case c == quote:
			return word, line[1:], true
		case c == '\\' && quote == '\'' && len(line) > 1 && line[1] == '\'':
			word, line = append(word, '\''), line[2:]
		case c == '\\' && quote == '"' && len(line) > 3 && line[1] == 'x' && hex(line[2]) >= 0 && hex(line[3]) >= 0:
			word, line = append(word, byte(hex(line[2])<<4|hex(line[3]))), line[4:]
		case c == '\\' && quote == '"' && len(line) > 1:
			word, line = append(word, escaped(line[1])), line[2:]
		default:
			word, line = append(word, c), line[1:]
		}
	}
	return nil, nil, false
}

func escaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

func hex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// space is C's isspace.
func space(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }
