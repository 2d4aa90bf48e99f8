// A host and a person, each with this client, against a running service. Ends with 0 when all of it held.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { type Frame, Holdfast, HoldfastMismatch, HoldfastProblem, type Pending } from "../src/index.js";

const url = process.env["HOLDFAST_URL"] ?? "";
const session = process.env["HOLDFAST_SESSION"] ?? "";
const host = new Holdfast({ url, token: process.env["HOST_TOKEN"] ?? "" });
const person = new Holdfast({ url, token: process.env["PERSON_TOKEN"] ?? "" });

/** A stream that is read in the background, and waited on for what is looked for. */
class Reader {
  readonly #over = new AbortController();
  readonly #seen: Frame[] = [];
  readonly #ended: Promise<void>;
  #wake: () => void = () => {};

  constructor(client: Holdfast, lastEventId?: string) {
    const from = lastEventId === undefined ? {} : { lastEventId };
    const frames = client.follow({ signal: this.#over.signal, acknowledgeEvery: 1000, ...from });
    this.#ended = (async () => {
      for await (const frame of frames) {
        this.#seen.push(frame);
        this.#wake();
      }
    })();
  }

  async until(event: string, is: (data: any) => boolean = () => true): Promise<Frame> {
    const late = AbortSignal.timeout(30_000);
    for (;;) {
      const found = this.#seen.find((frame) => frame.event === event && is(frame.data));
      if (found !== undefined) {
        return found;
      }
      late.throwIfAborted();
      await new Promise<void>((wake) => {
        this.#wake = wake;
        late.addEventListener("abort", () => wake(), { once: true });
      });
    }
  }

  count(event: string): number {
    return this.#seen.filter((frame) => frame.event === event).length;
  }

  get last(): string | undefined {
    return this.#seen.findLast((frame) => frame.id !== undefined)?.id;
  }

  async close(): Promise<void> {
    this.#over.abort();
    await this.#ended;
  }
}

const refused = (code: string) => (error: unknown) =>
  error instanceof HoldfastProblem && error.code === code && error.body.requestId !== "";

async function main(): Promise<void> {
  const service = await person.host();
  assert.equal(service.capabilities.approval.reason, "per-session");

  // A message, durable, once for its key.
  await host.append(session, { events: [{ type: "turn/start", data: { turn: 1 } }] });
  const submitted = await person.submit(session, { text: "build it" }, "message-1");
  assert.deepEqual(await person.submit(session, { text: "build it" }, "message-1"), submitted);
  await assert.rejects(
    person.submit(session, { text: "something else" }, "message-1"),
    refused("idempotency-key-reused"),
  );

  // The stream, and an approval answered by what it showed.
  const reader = new Reader(person);
  await reader.until("live");
  for (;;) {
    // The first acknowledgement is on its way.
    const { capabilities } = await person.interactions(session);
    if (capabilities.approval.interactive) {
      break;
    }
    assert.equal(capabilities.approval.reason, "nobody-present");
  }
  const ask = { kind: "approval", agent: "a1", toolName: "shell", reason: "cargo build" } as const;
  const asked = await host.ask(session, ask);
  const shown = await reader.until("approval/requested", (data) => data.requestId === asked.requestId);
  const item = shown.data as Pending;
  assert.equal(item.toolName, "shell");
  await assert.rejects(
    person.decide({ ...item, bridgeGeneration: item.bridgeGeneration + 1 }, "allowed-once"),
    (error) => error instanceof HoldfastProblem,
  );
  const [told, decided] = await Promise.all([
    host.told(session, asked.requestId),
    person.decide(item, "allowed-once"),
  ]);
  assert.equal(decided.accepted, true);
  assert.equal(told.outcome, "allowed-once");
  await assert.rejects(person.decide(item, "rejected"), refused("already-decided"));

  // A question.
  const question = await host.ask(session, {
    kind: "question",
    agent: "a1",
    questions: [{ id: "q", question: "Which?", options: [{ label: "red" }, { label: "blue" }] }],
  });
  const form = await reader.until("question/requested", (data) => data.requestId === question.requestId);
  await person.answer(form.data as Pending, [{ id: "q", selected: ["blue"] }]);
  const answer = await host.told(session, question.requestId);
  assert.deepEqual([answer.outcome, answer.answers], ["answered", [{ id: "q", selected: ["blue"] }]]);

  // A permission.
  const chosen = await person.choose(session, { value: "workspace-write", acknowledgeRisk: false });
  assert.equal((await person.permission(session)).currentValue, chosen.currentValue);

  // What happens while nobody reads is told on the way back, once.
  const last = reader.last;
  assert.ok(last !== undefined);
  await reader.close();
  await host.append(session, { events: [{ type: "note", data: { n: 1 } }] });
  const again = new Reader(person, last);
  await again.until("session/event", (data) => data.event.type === "note");
  await again.until("live");
  assert.equal(again.count("session/event"), 1);
  await again.close();

  await downloads();
}

async function downloads(): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), "holdfast-client-"));
  try {
    const bytes = new Uint8Array(3 * 1024 * 1024).map((_, at) => (at * 31 + (at >> 8)) & 0xff);
    const uploaded = await host.upload(session, "result.bin", bytes);
    const digest = createHash("sha256").update(bytes).digest("hex");
    assert.equal(uploaded.attachmentId, `sha256:${digest}`);
    const attachment = {
      attachmentId: uploaded.attachmentId,
      name: uploaded.name,
      bytes: uploaded.bytes,
    };
    const message = { text: "here it is", attachments: [attachment] };
    await host.submit(session, message, "message-2");
    const files = (await person.snapshot(session)).display.files;
    const file = files.find((one) => one.attachmentId === uploaded.attachmentId);
    assert.ok(file !== undefined);
    const saved = join(dir, "result.bin");
    await person.download(file, saved);
    assert.ok((await readFile(saved)).equals(bytes));

    // Cut in the middle, again and again: it goes on where it stopped.
    const cutting = await cutter();
    try {
      const through = new Holdfast({ url: cutting.url, token: process.env["PERSON_TOKEN"] ?? "" });
      await through.download(file, join(dir, "cut.bin"), { tries: 20 });
      assert.ok((await readFile(join(dir, "cut.bin"))).equals(bytes));
      assert.ok(cutting.cuts() > 2, `${cutting.cuts()} cuts`);
    } finally {
      cutting.close();
    }

    // Other bytes than were named are refused, and nothing is left of them.
    const other = { ...file, attachmentId: `sha256:${"0".repeat(64)}` };
    await assert.rejects(person.download(other, join(dir, "other.bin")), HoldfastMismatch);
    assert.deepEqual((await readdir(dir)).sort(), ["cut.bin", "result.bin"]);

    // A ticket needs no token.
    const ticket = await person.ticket({ session, attachmentId: file.attachmentId });
    const opened = await fetch(new URL(ticket.href ?? "", url));
    assert.equal(opened.status, 200);
    assert.ok(Buffer.from(await opened.arrayBuffer()).equals(bytes));
    const stranger = new Holdfast({ url, token: `hf_${"0".repeat(64)}` });
    await assert.rejects(stranger.download(file, join(dir, "none")), refused("unauthenticated"));
  } finally {
    await rm(dir, { recursive: true });
  }
}

/** A way to the service that cuts every answer after a while. */
async function cutter(): Promise<{ url: string; cuts: () => number; close: () => void }> {
  let cuts = 0;
  const server = createServer(async (request, response) => {
    const headers = new Headers();
    for (const name of ["authorization", "range", "if-range"]) {
      const value = request.headers[name];
      if (typeof value === "string") {
        headers.set(name, value);
      }
    }
    const answer = await fetch(new URL(request.url ?? "/", url), { headers });
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    let sent = 0;
    for await (const chunk of answer.body ?? []) {
      sent += chunk.length;
      response.write(chunk);
      if (sent > 400_000) {
        cuts += 1;
        // What was written is on its way before the connection ends.
        setTimeout(() => response.destroy(), 50);
        return;
      }
    }
    response.end();
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  return {
    url: `http://127.0.0.1:${address.port}`,
    cuts: () => cuts,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

await main();
console.log("all of it held");
