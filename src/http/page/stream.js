// The event stream, read with fetch: a token cannot travel in an EventSource, and may not in an address.

/** The longest frame that is read, in characters; no frame of the server is as long. */
const LONGEST = 1 << 20;
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15000;

/** The frames of one answer, as they come. */
async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    if (text.length > LONGEST) throw new Error("a frame has no end");
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      const data = field("data");
      // A line of its own is a sign of life.
      if (data !== undefined) yield { id: field("id"), event: field("event"), data: JSON.parse(data) };
    }
  }
}

const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });

/**
 * Hands over every frame until `signal` says stop, and goes on after a cut where it was. `open` opens a stream
 * after a frame, or the first; what it throws with `status` 401 ends the listening.
 */
export async function listen(open, take, signal) {
  let last;
  let wait = FIRST_PAUSE;
  while (!signal.aborted) {
    try {
      const response = await open(last, signal);
      for await (const frame of frames(response.body)) {
        wait = FIRST_PAUSE;
        if (frame.id) last = frame.id;
        take(frame);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) throw error;
    }
    await pause(wait, signal);
    wait = Math.min(wait * 2, LONGEST_PAUSE);
  }
}
