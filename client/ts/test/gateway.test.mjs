// Against a real gateway, whose address and whose tester's address are in the environment:
// pipeline/gateway runs this.
import assert from "node:assert";
import { test } from "node:test";
import { Follower } from "../live.js";

const url = process.env.LATTICE_GATEWAY;
const tester = process.env.LATTICE_TESTER;
const ask = async (path) => (await fetch(tester + path, { method: "POST" })).json();
const sorted = (rows) => JSON.parse(JSON.stringify([...rows])).map((r) => JSON.stringify(Object.entries(r).sort())).sort();

async function until(what, ok) {
  for (let i = 0; !(await ok()); i++) {
    assert.ok(i < 300, `it never came to this: ${what}`);
    await new Promise((r) => setTimeout(r, 20));
  }
}

test("rows through cut connections", { skip: !url && "no LATTICE_GATEWAY" }, async () => {
  const ended = [];
  const follower = new Follower({ url, minWait: 1, maxWait: 50, onClose: (why) => ended.push(why) });
  const feed = follower.follow("user_stream", "artist_followers");
  const narrow = follower.follow("user_stream:u1", "follows");
  const refused = follower.follow("user_stream:u1", "artist_followers");
  let told = 0;
  feed.onChange(() => told++);
  follower.start();
  await until("the snapshot", () => feed.upToDate && narrow.upToDate && refused.error);
  for (let i = 0; i < 8; i++) {
    await ask("/write");
    if (i % 2) await ask("/cut");
  }
  const same = async () => feed.upToDate && JSON.stringify(sorted(feed.rows())) === JSON.stringify(sorted(await ask("/rows")));
  try {
    await until("the rows of the database", same);
  } catch (err) {
    err.message += ` (${feed.upToDate}, ${feed.gaps} gaps, ${feed.error}; ${JSON.stringify(ended)}; has ${sorted(feed.rows())}; want ${sorted(await ask("/rows"))})`;
    throw err;
  } finally {
    follower.stop();
  }
  assert.ok(told > 0 && ended.length > 0, `told ${told} times, cut ${ended.length} times`);
  assert.match(refused.error, /^invalid: /);
});
