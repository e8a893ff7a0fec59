// Follows the rows of projections at a Lattice gateway: connects, comes back when the
// connection is lost, resumes where it was, and sees by itself when something is missing. No
// dependencies; browsers, and Node.js from 22 on. docs/protocol/gateway.md describes what travels.
//
//   const follower = new Follower({ url: "ws://127.0.0.1:8082/ws" });
//   const followers = follower.follow("user_stream", "artist_followers");
//   followers.onChange(() => console.log([...followers.rows()]));
//   follower.start();
/** Something was lost on the way: the channel is to be read anew. */
export class GapError extends Error {
}
const maxGone = 10000;
/** What one channel has shown so far. Frames go in; nothing else happens here. */
export class View {
    /** Where to resume; empty: there is nothing to resume. */
    cursor = "";
    /** Whether the rows are complete and current, as far as is known. */
    upToDate = false;
    #rows = new Map();
    #staged;
    #gone = new Map();
    #asOf = 0;
    #began = false;
    #partial = false;
    get size() {
        return this.#rows.size;
    }
    /** The row with this primary key. */
    row(key) {
        return this.#rows.get(canonical(key))?.value;
    }
    *rows() {
        for (const r of this.#rows.values())
            yield r.value;
    }
    /** The connection is lost: the rows stay, and are no longer current. */
    stale() {
        this.upToDate = this.#began = false;
        this.#staged = undefined;
    }
    /** Takes a frame and reports whether rows, or upToDate, changed. Throws GapError, and is then as before. */
    apply(f) {
        if (!this.#began && f.type !== "resume")
            return false;
        switch (f.type) {
            case "resume":
                this.#began = true;
                if (f.answer === "reset") {
                    this.#staged = new Map();
                    this.#gone = new Map();
                    this.#asOf = 0;
                    this.cursor = "";
                    this.upToDate = this.#partial = false;
                    return true;
                }
                if (this.cursor === "")
                    this.#partial = true; // live only
                this.cursor = f.cursor ?? "";
                return false;
            case "snapshot":
                if (!this.#staged)
                    throw new GapError("rows that nobody asked for");
                for (const r of f.rows ?? [])
                    this.#staged.set(canonical(r.key), { value: r.row, cursor: r.cursor });
                return false;
            case "patch":
                return this.#patch(f);
            case "up_to_date":
                this.#asOf = Math.max(this.#asOf, f.as_of ?? 0);
                if (this.#staged)
                    this.#rows = this.#staged;
                this.#staged = undefined;
                this.cursor = f.cursor ?? "";
                this.upToDate = true;
                return true;
        }
        return false;
    }
    #patch(f) {
        const rows = this.#staged ?? this.#rows;
        if (!this.#staged && f.prev_cursor !== this.cursor) {
            throw new GapError(`it follows ${f.prev_cursor}, the view is at ${this.cursor}`);
        }
        const key = canonical(f.key ?? {});
        const prev = f.row_prev ?? 0;
        const cursor = f.row_cursor ?? 0;
        const was = rows.get(key);
        const known = Math.max(was?.cursor ?? 0, this.#gone.get(key) ?? 0);
        let changed = false;
        if (cursor > known && cursor > this.#asOf) {
            if (prev > known && !this.#partial)
                throw new GapError(`row ${key} was at ${prev} and is at ${known}`);
            const next = applyOperations(prev === 0 ? undefined : was?.value, f.patch ?? []);
            if (next === undefined) {
                rows.delete(key);
                if (this.#gone.size >= maxGone)
                    this.#gone.clear();
                this.#gone.set(key, cursor);
            }
            else {
                rows.set(key, { value: next, cursor });
                this.#gone.delete(key);
            }
            changed = !this.#staged;
        }
        if (!this.#staged)
            this.cursor = f.cursor ?? "";
        return changed;
    }
}
/** The row with the operations done; undefined: there is no row. The old one is left as it is. */
export function applyOperations(row, operations) {
    for (const op of operations) {
        if (op.path === "")
            row = op.op === "remove" ? undefined : op.value;
        else
            row = set(row, op.path.split("/").slice(1), op);
    }
    return row;
}
function set(value, path, op) {
    const next = Object.assign(Object.create(null), isObject(value) ? value : undefined);
    const name = path[0];
    if (path.length > 1) {
        if (op.op !== "remove" || isObject(next[name]))
            next[name] = set(next[name], path.slice(1), op);
    }
    else if (op.op === "remove")
        delete next[name];
    else
        next[name] = op.value ?? null;
    return next;
}
function isObject(v) {
    return typeof v === "object" && v !== null && !Array.isArray(v);
}
function canonical(key) {
    return JSON.stringify(Object.keys(key).sort().map((name) => [name, key[name]]));
}
/** One channel that is followed. */
export class Feed {
    stream;
    projection;
    view = new View();
    /** Why the gateway does not serve the channel. */
    error;
    /** How often something was missing and the channel was read anew. */
    gaps = 0;
    #listeners = new Set();
    constructor(stream, projection) {
        this.stream = stream;
        this.projection = projection;
    }
    get upToDate() {
        return this.view.upToDate;
    }
    row(key) {
        return this.view.row(key);
    }
    rows() {
        return this.view.rows();
    }
    /** Calls f whenever rows, upToDate or error changed; returns what ends that. */
    onChange(f) {
        this.#listeners.add(f);
        return () => this.#listeners.delete(f);
    }
    /** @internal */
    changed() {
        for (const f of this.#listeners)
            f(this);
    }
}
/** One connection to a gateway that is made again when it is lost. */
export class Follower {
    #options;
    #feeds = new Map();
    #socket;
    #running = false;
    #wait;
    #retry;
    #end; // of the present connection
    constructor(options) {
        this.#options = options;
        this.#wait = options.minWait ?? 100;
    }
    /** Begins to follow a projection: of a stream, or as STREAM:ENTITY of one entity. */
    follow(stream, projection) {
        const at = address(stream, projection);
        let feed = this.#feeds.get(at);
        if (!feed) {
            feed = new Feed(stream, projection);
            this.#feeds.set(at, feed);
            this.#subscribe(feed);
        }
        return feed;
    }
    unfollow(feed) {
        this.#feeds.delete(address(feed.stream, feed.projection));
        this.#send({ type: "unsub", stream_id: feed.stream, channel: feed.projection });
    }
    start() {
        if (this.#running)
            return;
        this.#running = true;
        void this.#connect();
    }
    stop() {
        this.#running = false;
        clearTimeout(this.#retry);
        this.#end?.();
    }
    async #connect() {
        let token;
        try {
            token = await this.#options.token?.();
        }
        catch (err) {
            this.#lost({ code: 0, name: "token", message: String(err), final: false });
            return;
        }
        if (!this.#running)
            return;
        const socket = new WebSocket(this.#options.url);
        let closing;
        let silence = 15000; // to connect
        let over = false;
        let watch;
        // Once, whichever event says it: a socket whose handshake is cut may never tell of its closing.
        const end = (code, reason) => {
            if (over)
                return;
            over = true;
            clearTimeout(watch);
            socket.close();
            const name = closing?.code ?? "lost";
            const tokens = this.#options.token !== undefined;
            const final = name === "bad_frame" || name === "bad_cursor" || ((name === "unauthorized" || name === "expired") && !tokens);
            this.#lost({ code, name, message: closing?.message ?? reason, final });
        };
        // Without a frame for more than two heartbeats the connection is dead, whatever the socket says.
        const alive = () => {
            clearTimeout(watch);
            watch = setTimeout(() => end(0, "silence"), silence);
        };
        this.#end = () => end(1000, "stopped");
        socket.onopen = () => {
            if (over)
                return;
            this.#socket = socket;
            silence = 60000;
            alive();
            this.#send({ type: "hello", v: 1, fork_id: this.#options.fork ?? "", token: token ?? "", sdk: { name: "lattice-ts" } });
            for (const feed of this.#feeds.values())
                this.#subscribe(feed);
        };
        socket.onmessage = (e) => {
            if (over)
                return;
            try {
                const f = JSON.parse(String(e.data));
                if (f.type === "closing")
                    closing = f;
                if (f.type === "welcome" && f.heartbeat_ms)
                    silence = 2 * f.heartbeat_ms + 5000;
                this.#take(f);
            }
            catch (err) {
                end(0, String(err));
                return;
            }
            alive();
        };
        socket.onerror = () => {
            if (this.#socket !== socket)
                end(0, "not connected");
        };
        socket.onclose = (e) => end(e.code, e.reason);
        alive();
    }
    #lost(why) {
        this.#socket = undefined;
        for (const feed of this.#feeds.values()) {
            feed.view.stale();
            feed.changed();
        }
        if (!this.#running)
            return;
        if (why.final)
            this.#running = false;
        this.#options.onClose?.(why);
        if (!this.#running)
            return;
        this.#retry = setTimeout(() => void this.#connect(), this.#wait * (0.5 + Math.random()));
        this.#wait = Math.min(this.#wait * 2, this.#options.maxWait ?? 15000);
    }
    #take(f) {
        switch (f.type) {
            case "welcome":
                this.#wait = this.#options.minWait ?? 100;
                return;
            case "ping":
                this.#send({ type: "pong", ts: f.ts });
                return;
            case "auth_expiring":
                void this.#refresh();
                return;
        }
        const feed = this.#feeds.get(address(f.stream_id ?? "", f.channel ?? ""));
        if (!feed)
            return;
        let changed = false;
        if (f.type === "error") {
            feed.error = `${f.code}: ${f.message}`;
            changed = true;
        }
        else if (f.type === "unsubscribed") {
            feed.view.stale();
            changed = true;
            if (f.reason === "unavailable" || f.reason === "internal") {
                setTimeout(() => this.#subscribe(feed), (this.#options.maxWait ?? 15000) / 4);
            }
        }
        else {
            feed.error = undefined;
            try {
                changed = feed.view.apply(f);
            }
            catch (err) {
                if (!(err instanceof GapError))
                    throw err;
                // What the view has cannot be trusted to be whole: from the beginning.
                feed.view = new View();
                feed.gaps++;
                changed = true;
                this.#send({ type: "unsub", stream_id: feed.stream, channel: feed.projection });
                this.#subscribe(feed);
            }
        }
        if (changed)
            feed.changed();
    }
    async #refresh() {
        const token = await this.#options.token?.();
        if (token !== undefined)
            this.#send({ type: "auth", token });
    }
    #subscribe(feed) {
        this.#send({ type: "sub", stream_id: feed.stream, channel: feed.projection, from_cursor: feed.view.cursor });
    }
    #send(frame) {
        if (this.#socket?.readyState === 1)
            this.#socket.send(JSON.stringify(frame));
    }
}
function address(stream, projection) {
    return JSON.stringify([stream, projection]);
}
