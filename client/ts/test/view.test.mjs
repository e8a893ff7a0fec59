import assert from "node:assert";
import { test } from "node:test";
import { GapError, View } from "../live.js";

const patch = (n, prev, row, ops, key = "a") => ({
  type: "patch", prev_cursor: `c${n - 1}`, cursor: `c${n}`, row_prev: prev, row_cursor: row, key: { id: key }, patch: ops,
});
const put = (path, value) => ({ op: "replace", path, value });

function begun() {
  const v = new View();
  v.apply({ type: "resume", answer: "reset", cursor: "c0" });
  v.apply({ type: "snapshot", rows: [{ key: { id: "a" }, row: { id: "a", n: 1 }, cursor: 5 }] });
  assert.equal(v.size, 0, "half a snapshot is not shown");
  v.apply({ type: "up_to_date", cursor: "c0", as_of: 7 });
  return v;
}
const rows = (v) => JSON.parse(JSON.stringify([...v.rows()]));

test("a snapshot and patches make the rows", () => {
  const v = begun();
  assert.ok(v.upToDate);
  v.apply(patch(1, 5, 8, [put("/n", 2), put("/deep/er", [1]), { op: "remove", path: "/none" }]));
  v.apply(patch(2, 0, 9, [put("/id", "b")], "b"));
  v.apply(patch(3, 8, 10, [{ op: "remove", path: "/deep/er" }]));
  assert.deepEqual(rows(v), [{ id: "a", n: 2, deep: {} }, { id: "b" }]);
  v.apply(patch(4, 10, 11, [{ op: "remove", path: "" }]));
  assert.deepEqual(rows(v), [{ id: "b" }]);
  assert.equal(v.cursor, "c4");
});

test("what the rows have already is passed over", () => {
  const v = begun();
  v.apply(patch(1, 3, 5, [put("/n", 0)]));
  v.apply(patch(2, 0, 7, [put("/id", "x")], "x")); // the snapshot was as of 7: x is gone again
  assert.deepEqual(rows(v), [{ id: "a", n: 1 }]);
});

test("gaps are seen and never applied", () => {
  const v = begun();
  assert.throws(() => v.apply(patch(2, 5, 8, [put("/n", 2)])), GapError, "a frame is missing");
  assert.throws(() => v.apply(patch(1, 6, 8, [put("/n", 2)])), GapError, "a patch of the row is missing");
  assert.deepEqual(rows(v), [{ id: "a", n: 1 }]);
});

test("members of strangers do not reach prototypes", () => {
  const v = begun();
  v.apply(patch(1, 5, 8, [put("/__proto__/polluted", true), put("/x", JSON.parse('{"__proto__":{"polluted":true}}'))]));
  assert.equal({}.polluted, undefined);
});

test("frames of an earlier subscription are passed over", () => {
  const v = new View();
  assert.equal(v.apply(patch(9, 1, 2, [])), false);
  assert.equal(v.apply({ type: "up_to_date", cursor: "c9" }), false);
  assert.equal(v.upToDate, false);
});
