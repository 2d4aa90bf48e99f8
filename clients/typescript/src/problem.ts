import type { components } from "./api.js";

/** What a refusal says: RFC 9457, with a stable `code` and what to do next in `detail`. */
export type ProblemBody = components["schemas"]["ProblemBody"];

/** The service refused, and says why. */
export class HoldfastProblem extends Error {
  override readonly name = "HoldfastProblem";
  readonly body: ProblemBody;

  constructor(body: ProblemBody) {
    super(`${body.title} (${body.status}, ${body.code}): ${body.detail}`);
    this.body = body;
  }

  get status(): number {
    return this.body.status;
  }

  /** The kind of refusal, as a word that does not change. */
  get code(): string {
    return this.body.code;
  }

  /** Whether the same request may succeed later. */
  get retryable(): boolean {
    return this.body.retryable;
  }
}

/** What came is not what was asked for: other bytes, or an answer that is none of the service's. */
export class HoldfastMismatch extends Error {
  override readonly name = "HoldfastMismatch";
}

/** The most of an answer that says why something was refused, in bytes. */
const LONGEST_PROBLEM = 64 * 1024;

/** The refusal an answer is; one that is not the service's own is said to be that. */
export async function refusal(response: Response): Promise<Error> {
  const text = await bounded(response, LONGEST_PROBLEM);
  try {
    const body: unknown = JSON.parse(text);
    if (isProblem(body)) {
      return new HoldfastProblem(body);
    }
  } catch {
    // Not JSON: something between us and the service answered.
  }
  return new HoldfastMismatch(`${response.status} by something that is not the service`);
}

/** The text of a body, refused where it is longer than `most` bytes. */
export async function bounded(response: Response, most: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of response.body ?? []) {
    length += chunk.length;
    if (length > most) {
      throw new HoldfastMismatch(`an answer of more than ${most} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function isProblem(body: unknown): body is ProblemBody {
  return (
    typeof body === "object" &&
    body !== null &&
    "code" in body &&
    typeof body.code === "string" &&
    "status" in body &&
    typeof body.status === "number"
  );
}
