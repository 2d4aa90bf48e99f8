import { createHash } from "node:crypto";
import { open, rename, rm } from "node:fs/promises";

import type { Holdfast } from "./client.js";
import { HoldfastMismatch, HoldfastProblem, refusal } from "./problem.js";

/** What is downloaded: an attachment of a listing, or what a receipt stands for. */
export interface Content {
  /** Where it is. */
  readonly href: string;
  /** `sha256:` and 64 digits. */
  readonly attachmentId: string;
  readonly bytes: number;
}

export interface DownloadOptions {
  readonly signal?: AbortSignal;
  /** Called with the bytes that are there so far. */
  readonly onProgress?: (bytes: number) => void;
  /** How often a cut transfer is gone on with: 5 when absent. */
  readonly tries?: number;
}

/**
 * Downloads into `file`, which is not there before every byte is verified: a cut transfer goes on where it
 * stopped, and what is not the named content is refused and removed.
 */
export async function download(
  client: Holdfast,
  content: Content,
  file: string,
  options: DownloadOptions = {},
): Promise<void> {
  const part = `${file}.part`;
  const target = await open(part, "w", 0o600);
  let done = false;
  try {
    const transfer = new Transfer(client, content, options);
    await transfer.run(async (bytes) => {
      await target.write(bytes);
    });
    await target.sync();
    await rename(part, file);
    done = true;
  } finally {
    await target.close();
    if (!done) {
      await rm(part, { force: true });
    }
  }
}

/** One content on its way, over as many answers as it takes. */
class Transfer {
  readonly #client: Holdfast;
  readonly #content: Content;
  readonly #options: DownloadOptions;
  readonly #hash = createHash("sha256");
  #length = 0;
  #etag: string | undefined;

  constructor(client: Holdfast, content: Content, options: DownloadOptions) {
    this.#client = client;
    this.#content = content;
    this.#options = options;
  }

  async run(write: (bytes: Uint8Array) => Promise<void>): Promise<void> {
    const { bytes, attachmentId } = this.#content;
    let tries = this.#options.tries ?? 5;
    do {
      if (tries-- === 0) {
        throw new HoldfastMismatch(`cut again and again, the last time after ${this.#length} bytes`);
      }
    } while (!(await this.#more(write)) && this.#length < bytes);
    if (this.#length !== bytes || `sha256:${this.#hash.digest("hex")}` !== attachmentId) {
      throw new HoldfastMismatch(`${this.#length} other bytes arrived`);
    }
  }

  /** Reads on until the end or a cut: whether the answer came to its end. */
  async #more(write: (bytes: Uint8Array) => Promise<void>): Promise<boolean> {
    const headers: Record<string, string> = {};
    if (this.#length > 0 && this.#etag !== undefined) {
      headers["range"] = `bytes=${this.#length}-`;
      headers["if-range"] = this.#etag;
    }
    const isFirst = this.#length === 0;
    try {
      const signal = this.#options.signal ? { signal: this.#options.signal } : {};
      const response = await this.#client.send("GET", this.#content.href, { headers, ...signal });
      if (!response.ok) {
        throw await refusal(response);
      }
      if (response.status !== (isFirst ? 200 : 206)) {
        await response.body?.cancel();
        throw new HoldfastMismatch(`${response.status} where the rest was asked for`);
      }
      this.#etag ??= response.headers.get("etag") ?? undefined;
      for await (const bytes of response.body ?? []) {
        this.#length += bytes.length;
        if (this.#length > this.#content.bytes) {
          throw new HoldfastMismatch(`more than ${this.#content.bytes} bytes arrived`);
        }
        this.#hash.update(bytes);
        await write(bytes);
        this.#options.onProgress?.(this.#length);
      }
      return true;
    } catch (error) {
      // A full disk is no cut.
      const isOurs = error instanceof Error && "syscall" in error && error.syscall === "write";
      const isFinal =
        error instanceof HoldfastMismatch || (error instanceof HoldfastProblem && !error.retryable);
      if (isOurs || isFinal || this.#options.signal?.aborted) {
        throw error;
      }
      return false;
    }
  }
}
