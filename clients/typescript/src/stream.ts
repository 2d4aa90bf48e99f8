import { setTimeout as sleep } from "node:timers/promises";

import type { Holdfast } from "./client.js";
import { HoldfastMismatch, HoldfastProblem, refusal } from "./problem.js";

/** One frame of the event stream. */
export interface Frame {
  /** Where it stands in the caller's order; frames that are told again have none. */
  readonly id: string | undefined;
  readonly event: string;
  readonly data: unknown;
}

export interface FollowOptions {
  /** Ends the stream. */
  readonly signal?: AbortSignal;
  /** The last frame that was read by an earlier stream. */
  readonly lastEventId?: string;
  /** How often what was read is acknowledged, in milliseconds: 10 to 15 seconds keep one present. */
  readonly acknowledgeEvery?: number;
  /** How long a silent stream is believed in, in milliseconds; heartbeats come every 15 seconds. */
  readonly silence?: number;
}

/** The longest frame, in characters. */
const LONGEST_FRAME = 4 * 1024 * 1024;
/** The longest pause between two tries to connect, in milliseconds. */
const LONGEST_PAUSE = 10_000;

/**
 * Everything the caller may see, from `ready` on, and again after each cut: the stream goes on after the
 * last frame that was read, or says `reset` and begins anew. Reading it and acknowledging what was read is
 * what makes somebody present.
 *
 * Ends when `signal` is fired; throws what is refused for good, such as a token that ended.
 */
export async function* follow(
  client: Holdfast,
  options: FollowOptions = {},
): AsyncGenerator<Frame, void> {
  let last = options.lastEventId;
  let pause = 250;
  for (;;) {
    if (options.signal?.aborted) {
      return;
    }
    try {
      for await (const frame of once(client, last, options)) {
        last = frame.id ?? last;
        pause = 250;
        yield frame;
        if (frame.event === "stream/error") {
          break;
        }
      }
    } catch (error) {
      if (options.signal?.aborted) {
        return;
      }
      if (error instanceof HoldfastProblem && !error.retryable) {
        throw error;
      }
    }
    await sleep(pause, undefined, options.signal ? { signal: options.signal } : {}).catch(() => {});
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

/** One connection. */
async function* once(
  client: Holdfast,
  last: string | undefined,
  options: FollowOptions,
): AsyncGenerator<Frame, void> {
  const over = new AbortController();
  const end = () => over.abort();
  options.signal?.addEventListener("abort", end, { once: true });
  let acknowledging: NodeJS.Timeout | undefined;
  const silence = options.silence ?? 45_000;
  let silent = setTimeout(end, silence);
  try {
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (last !== undefined) {
      headers["last-event-id"] = last;
    }
    const response = await client.send("GET", "/v1/events", { headers, signal: over.signal });
    if (!response.ok || response.body === null) {
      throw await refusal(response);
    }
    let read = last;
    for await (const frame of frames(response.body, () => {
      clearTimeout(silent);
      silent = setTimeout(end, silence);
    })) {
      read = frame.id ?? read;
      if (frame.event === "ready") {
        const stream = streamId(frame.data);
        const acknowledge = () => {
          if (read !== undefined) {
            // A lost acknowledgement is made up for by the next.
            client.acknowledge(stream, read).catch(() => {});
          }
        };
        acknowledge();
        acknowledging = setInterval(acknowledge, options.acknowledgeEvery ?? 12_000);
      }
      yield frame;
    }
  } finally {
    clearTimeout(silent);
    clearInterval(acknowledging);
    options.signal?.removeEventListener("abort", end);
    over.abort();
  }
}

function streamId(data: unknown): string {
  if (typeof data === "object" && data !== null && "streamId" in data) {
    return String(data.streamId);
  }
  throw new HoldfastMismatch("a stream whose first frame names no stream");
}

/** The frames in a body; comments are heartbeats and only tell `alive`. */
export async function* frames(
  body: ReadableStream<Uint8Array>,
  alive: () => void = () => {},
): AsyncGenerator<Frame, void> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let text = "";
  for await (const chunk of body) {
    alive();
    text += decoder.decode(chunk, { stream: true });
    for (;;) {
      const end = text.indexOf("\n\n");
      if (end < 0) {
        break;
      }
      const frame = parse(text.slice(0, end));
      text = text.slice(end + 2);
      if (frame !== undefined) {
        yield frame;
      }
    }
    if (text.length > LONGEST_FRAME) {
      throw new HoldfastMismatch(`a frame of more than ${LONGEST_FRAME} characters`);
    }
  }
}

function parse(block: string): Frame | undefined {
  let id: string | undefined;
  let event = "";
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) {
      continue;
    }
    const value = line.slice(colon + 1).replace(/^ /, "");
    switch (line.slice(0, colon)) {
      case "id":
        id = value;
        break;
      case "event":
        event = value;
        break;
      case "data":
        data.push(value);
        break;
    }
  }
  return event === "" ? undefined : { id, event, data: JSON.parse(data.join("\n") || "null") };
}
