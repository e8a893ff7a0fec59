/** What JSON can say. */
export type Json = null | boolean | number | string | Json[] | {
    [name: string]: Json;
};
/** A row, or a key: an object of columns. */
export type Row = {
    readonly [column: string]: Json;
};
/** One change of a row. add and replace do the same. */
export interface Operation {
    op: "add" | "replace" | "remove";
    /** "/member/member", or "" for the whole row. */
    path: string;
    value?: Json;
}
/** A frame of the gateway, with every member that it may have. */
export interface Frame {
    type: string;
    code?: string;
    message?: string;
    status?: number;
    stream_id?: string;
    channel?: string;
    answer?: "nothing_missed" | "replay" | "reset";
    reason?: string;
    key?: Row;
    patch?: Operation[];
    row_prev?: number;
    row_cursor?: number;
    as_of?: number;
    ts?: number;
    heartbeat_ms?: number;
    prev_cursor?: string;
    cursor?: string;
    rows?: {
        key: Row;
        row: Row;
        cursor: number;
    }[];
}
/** Something was lost on the way: the channel is to be read anew. */
export declare class GapError extends Error {
}
/** What one channel has shown so far. Frames go in; nothing else happens here. */
export declare class View {
    #private;
    /** Where to resume; empty: there is nothing to resume. */
    cursor: string;
    /** Whether the rows are complete and current, as far as is known. */
    upToDate: boolean;
    get size(): number;
    /** The row with this primary key. */
    row(key: Row): Row | undefined;
    rows(): Generator<Row>;
    /** The connection is lost: the rows stay, and are no longer current. */
    stale(): void;
    /** Takes a frame and reports whether rows, or upToDate, changed. Throws GapError, and is then as before. */
    apply(f: Frame): boolean;
}
/** The row with the operations done; undefined: there is no row. The old one is left as it is. */
export declare function applyOperations(row: Row | undefined, operations: Operation[]): Row | undefined;
export interface Options {
    /** ws://HOST:PORT/ws, or wss:// */
    url: string;
    /** Default: the application's own. */
    fork?: string;
    /** Returns a token each time that one is needed. */
    token?: () => string | Promise<string>;
    /** Milliseconds before a connection is tried again: from minWait (100), doubled, to maxWait (15000). */
    minWait?: number;
    maxWait?: number;
    /** Told why a connection ended; the follower comes back unless final. */
    onClose?: (why: {
        code: number;
        name: string;
        message: string;
        final: boolean;
    }) => void;
}
/** One channel that is followed. */
export declare class Feed {
    #private;
    readonly stream: string;
    readonly projection: string;
    view: View;
    /** Why the gateway does not serve the channel. */
    error: string | undefined;
    /** How often something was missing and the channel was read anew. */
    gaps: number;
    constructor(stream: string, projection: string);
    get upToDate(): boolean;
    row(key: Row): Row | undefined;
    rows(): Generator<Row>;
    /** Calls f whenever rows, upToDate or error changed; returns what ends that. */
    onChange(f: (feed: Feed) => void): () => void;
    /** @internal */
    changed(): void;
}
/** One connection to a gateway that is made again when it is lost. */
export declare class Follower {
    #private;
    constructor(options: Options);
    /** Begins to follow a projection: of a stream, or as STREAM:ENTITY of one entity. */
    follow(stream: string, projection: string): Feed;
    unfollow(feed: Feed): void;
    start(): void;
    stop(): void;
}
