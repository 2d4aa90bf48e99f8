import type { components } from "./api.js";
import { type Content, download, type DownloadOptions } from "./download.js";
import { bounded, HoldfastMismatch, refusal } from "./problem.js";
import { follow, type FollowOptions, type Frame } from "./stream.js";

type Schemas = components["schemas"];

export type Session = Schemas["SessionBody"];
export type Snapshot = Schemas["SnapshotBody"];
export type Pending = Schemas["PendingBody"];
export type Release = Schemas["ReleaseBody"];
export type Receipt = Schemas["ReceiptBody"];

export interface Options {
  /** Where the service is, such as `https://files.example.org`. */
  readonly url: string;
  /** The bearer token: it is sent there and nowhere else. */
  readonly token: string;
}

interface Sending {
  readonly headers?: Record<string, string>;
  readonly body?: string | Uint8Array<ArrayBuffer> | null;
  readonly signal?: AbortSignal;
}

/** The longest JSON answer, in bytes. */
const LONGEST = 16 * 1024 * 1024;

/** One principal's way to a Holdfast service. */
export class Holdfast {
  readonly #base: URL;
  readonly #token: string;

  constructor(options: Options) {
    this.#base = new URL(options.url);
    this.#token = options.token;
  }

  /** Sends a request; redirects are not followed, and no other host ever sees the token. */
  async send(method: string, path: string, sending: Sending = {}): Promise<Response> {
    const url = new URL(path, this.#base);
    if (url.origin !== this.#base.origin) {
      throw new HoldfastMismatch("an address of another host");
    }
    const { headers, ...rest } = sending;
    return await fetch(url, {
      ...rest,
      method,
      redirect: "error",
      headers: { authorization: `Bearer ${this.#token}`, ...headers },
    });
  }

  async #json<T>(method: string, path: string, form?: unknown, key?: string): Promise<T> {
    const headers: Record<string, string> = { accept: "application/json" };
    if (form !== undefined) {
      headers["content-type"] = "application/json";
    }
    if (key !== undefined) {
      headers["idempotency-key"] = key;
    }
    const body = form === undefined ? null : JSON.stringify(form);
    const response = await this.send(method, path, { headers, body });
    if (!response.ok) {
      throw await refusal(response);
    }
    const text = await bounded(response, LONGEST);
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }

  host(): Promise<Schemas["HostBody"]> {
    return this.#json("GET", "/v1/host");
  }

  createSession(form: Schemas["SessionForm"]): Promise<Session> {
    return this.#json("POST", "/v1/sessions", form);
  }

  snapshot(session: string): Promise<Snapshot> {
    return this.#json("GET", `${at(session)}/snapshot`);
  }

  /** Appends events, all or none; under a key a repeat appends nothing. */
  append(session: string, form: Schemas["AppendForm"], key?: string): Promise<Schemas["AppendedBody"]> {
    return this.#json("POST", `${at(session)}/events`, form, key);
  }

  /** Submits a message durably. The same key gives the same receipt and inserts nothing again. */
  submit(session: string, form: Schemas["MessageForm"], key: string): Promise<Schemas["MessageReceipt"]> {
    return this.#json("POST", `${at(session)}/messages`, form, key);
  }

  async upload(session: string, name: string, body: Uint8Array): Promise<Schemas["UploadBody"]> {
    const path = `${at(session)}/attachments?name=${encodeURIComponent(name)}`;
    const response = await this.send("POST", path, { body: new Uint8Array(body) });
    if (!response.ok) {
      throw await refusal(response);
    }
    return JSON.parse(await bounded(response, LONGEST)) as Schemas["UploadBody"];
  }

  /** Puts an approval or a form to the session's people. */
  ask(session: string, form: Schemas["AskForm"], key?: string): Promise<Schemas["AskedBody"]> {
    return this.#json("POST", `${at(session)}/interactions`, form, key);
  }

  /** Waits until what was asked has ended. */
  async told(session: string, requestId: string): Promise<Schemas["ToldBody"]> {
    const path = `${at(session)}/interactions/${encodeURIComponent(requestId)}?waitSeconds=60`;
    for (;;) {
      const told = await this.#json<Schemas["ToldBody"]>("GET", path);
      if (told.state !== "pending") {
        return told;
      }
    }
  }

  interactions(session: string): Promise<Schemas["InteractionsBody"]> {
    return this.#json("GET", `${at(session)}/interactions`);
  }

  /** Allows or rejects exactly the approval that was shown. */
  decide(
    item: Pending,
    decision: "allowed-once" | "rejected",
    note?: string,
  ): Promise<Schemas["DecidedBody"]> {
    return this.#settle(item, { decision, ...(note === undefined ? {} : { note }) });
  }

  /** Answers a form. */
  answer(item: Pending, answers: Schemas["ReplyForm"][]): Promise<Schemas["DecidedBody"]> {
    return this.#settle(item, { answers });
  }

  #settle(item: Pending, answer: Partial<Schemas["DecisionForm"]>): Promise<Schemas["DecidedBody"]> {
    const form: Schemas["DecisionForm"] = {
      bridgeGeneration: item.bridgeGeneration,
      hostId: item.hostId,
      session: item.session,
      requestId: item.requestId,
      ...(item.turn == null ? {} : { turn: item.turn }),
      ...(item.turnStartSeq == null ? {} : { turnStartSeq: item.turnStartSeq }),
      ...answer,
    };
    const path = `${at(item.session)}/interactions/${encodeURIComponent(item.requestId)}/decision`;
    return this.#json("POST", path, form);
  }

  permission(session: string): Promise<Schemas["PermissionBody"]> {
    return this.#json("GET", `${at(session)}/permission`);
  }

  choose(session: string, form: Schemas["PermissionForm"]): Promise<Schemas["PermissionBody"]> {
    return this.#json("PUT", `${at(session)}/permission`, form);
  }

  /** Releases a presented file, or asks about exactly its bytes: a receipt, or what waits. */
  release(
    session: string,
    place: { logGeneration: number; seq: number; index: number },
    key?: string,
  ): Promise<Receipt | Release> {
    const item = `${place.logGeneration}/${place.seq}/${place.index}`;
    return this.#json("POST", `${at(session)}/deliverables/${item}/release`, undefined, key);
  }

  /** Decides about exactly the bytes that were shown. */
  decideRelease(
    release: Release,
    decision: "allowed-once" | "rejected",
  ): Promise<Schemas["ReleaseDecidedBody"]> {
    const path = `${at(release.session)}/releases/${encodeURIComponent(release.requestId)}/decision`;
    const { attachmentId, bytes } = release;
    return this.#json("POST", path, { attachmentId, bytes, decision });
  }

  /** An address that opens one attachment without a token, shown this once. */
  ticket(form: Schemas["TicketForm"]): Promise<Schemas["TicketBody"]> {
    return this.#json("POST", "/v1/tickets", form);
  }

  /** Downloads into `file`, which appears only once every byte is verified. */
  download(content: Content, file: string, options?: DownloadOptions): Promise<void> {
    return download(this, content, file, options);
  }

  /** Everything the caller may see, as it happens. */
  follow(options?: FollowOptions): AsyncGenerator<Frame, void> {
    return follow(this, options);
  }

  acknowledge(stream: string, lastEventId: string): Promise<Schemas["AckBody"]> {
    return this.#json("POST", `/v1/streams/${encodeURIComponent(stream)}/ack`, { lastEventId });
  }
}

function at(session: string): string {
  return `/v1/sessions/${encodeURIComponent(session)}`;
}
