package expr

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// hashText returns what is hashed of a value: text as it is, all else as JSON.
func hashText(v ref.Val) (string, error) {
	if s, ok := scalarText(v); ok {
		return s, nil
	}
	n, err := fromCEL(v)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(n) // members in order of their names
	return string(b), err
}

// hash is 32 hexadecimal digits of SHA-256.
func hash(v ref.Val) ref.Val {
	s, err := hashText(v)
	if err != nil {
		return types.WrapErr(err)
	}
	h := sha256.Sum256([]byte(s))
	return types.String(hex.EncodeToString(h[:16]))
}

// shard is FNV-1a, 64 bits, modulo n.
func shard(v, n ref.Val) ref.Val {
	count, ok := n.(types.Int)
	if !ok || count < 1 || count > 1<<20 {
		return types.NewErr("shard: expected 1 to %d shards", 1<<20)
	}
	s, err := hashText(v)
	if err != nil {
		return types.WrapErr(err)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return types.Int(h.Sum64() % uint64(count))
}
