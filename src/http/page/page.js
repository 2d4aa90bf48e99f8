// The page of Holdfast: sign in with a one-time code, see your sessions, download their files.
//
// The token lives in this tab's sessionStorage and travels in the Authorization field: a cookie
// would be sent to every other port of this host, the agent's own dev server included. Everything a
// session says (names, descriptions, paths) is untrusted text and only ever set as text.

const KEY = "holdfast.token";
/** Above this a browser tab would hold too much in memory; a shell takes any size. */
const TAB_LIMIT = 512 * 1024 * 1024;

/** What each reason of a closed gate means to the one who would like the file. */
const CLOSED = {
  "not-enabled": "the operator has not turned on the release of workspace files",
  "no-report": "this host has not been probed yet",
  "no-arena": "there is no place beside the workspace to probe this host in",
  forged: "the probe's report is not one this server made",
  stale: "the probe's report is too old",
  "host-mismatch": "the probe's report is from another system",
  incomplete: "the probe could not try everything",
  "control-not-beaten": "the probe proved nothing this time",
  "escape-seen": "the probe saw a file from outside get through",
};

const at = (id) => document.getElementById(id);
const fill = (id) => at(id).content.firstElementChild.cloneNode(true);

function say(text) {
  at("note").textContent = text;
  at("note").hidden = !text;
}

/** Shows characters that change how their neighbours are read as their code points. */
function visible(text) {
  const hidden = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
  return text.replace(hidden, (c) => `‹U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = bytes / 1024;
  let unit = units.shift();
  while (value >= 1024 && units.length > 0) {
    value /= 1024;
    unit = units.shift();
  }
  return `${value.toFixed(1)} ${unit}`;
}

/** A refusal of the server, with its own words. */
class Refusal extends Error {
  constructor(problem, status) {
    super([problem.title, problem.detail].filter(Boolean).join(". ") || `the server answered ${status}`);
    this.status = status;
  }
}

async function call(path, options = {}) {
  const headers = new Headers(options.headers);
  const token = sessionStorage.getItem(KEY);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  const response = await fetch(path, { ...options, headers, credentials: "omit", cache: "no-store" });
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Refusal(problem, response.status);
  }
  return response;
}

const json = (path, options) => call(path, options).then((response) => response.json());

async function redeem(code) {
  const answer = await json("v1/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ code }),
  });
  sessionStorage.setItem(KEY, answer.token);
}

function leave(why) {
  sessionStorage.removeItem(KEY);
  at("sessions").replaceChildren();
  at("who").textContent = "";
  at("leave").hidden = true;
  at("enter").hidden = false;
  say(why);
}

/** Reads a whole answer, checks its length and digest, and only then hands it to the browser. */
async function download(file, button, progress) {
  button.disabled = true;
  progress.hidden = false;
  try {
    const response = await call(file.href.slice(1));
    const parts = [];
    let got = 0;
    const reader = response.body.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parts.push(part.value);
      got += part.value.length;
      progress.value = file.bytes === 0 ? 1 : got / file.bytes;
    }
    const blob = new Blob(parts, { type: "application/octet-stream" });
    if (blob.size !== file.bytes) throw new Error(`only ${got} of ${file.bytes} bytes arrived`);
    if (globalThis.crypto?.subtle) {
      const digest = await crypto.subtle.digest("SHA-256", await blob.arrayBuffer());
      const hex = Array.from(new Uint8Array(digest), (b) => b.toString(16).padStart(2, "0")).join("");
      if (`sha256:${hex}` !== file.attachmentId) throw new Error("what arrived is not what was named");
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = savedName(response.headers.get("Content-Disposition"));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    say("");
  } catch (error) {
    report(error, "The download did not finish");
  } finally {
    button.disabled = false;
    progress.hidden = true;
    progress.value = 0;
  }
}

/** The name the server chose: it is safe on every system, the reference's own need not be. */
function savedName(disposition) {
  const extended = /filename\*=UTF-8''([^;]+)/i.exec(disposition ?? "");
  if (extended) return decodeURIComponent(extended[1]);
  return /filename="([^"]+)"/i.exec(disposition ?? "")?.[1] ?? "download";
}

function report(error, what) {
  if (error instanceof Refusal && error.status === 401) {
    leave("Your sign-in has ended. Ask for a new one-time code.");
  } else {
    say(`${what}: ${error.message}.`);
  }
}

function showFile(file) {
  const row = fill("file");
  const button = row.querySelector("button");
  const name = file.name ?? "unnamed image";
  row.querySelector(".name").textContent = visible(name);
  row.querySelector(".facts").textContent = `${size(file.bytes)} · ${file.attachmentId.slice(0, 19)}…`;
  row.querySelector(".facts").title = file.attachmentId;
  button.setAttribute("aria-label", `Download ${visible(name)}`);
  if (file.state !== "available") {
    button.disabled = true;
    button.textContent = file.state;
    button.title = "The reference stands, but its content cannot be given out.";
  } else if (file.bytes > TAB_LIMIT) {
    button.disabled = true;
    button.textContent = "Use the shell";
    button.title = "Too large for a browser tab: `holdfast get` or curl takes any size.";
  } else {
    const progress = row.querySelector("progress");
    button.addEventListener("click", () => download(file, button, progress));
  }
  return row;
}

function showDeliverable(item) {
  const row = fill("deliverable");
  row.querySelector(".name").textContent = visible(item.path);
  const facts = [item.description && visible(item.description), item.refused];
  row.querySelector(".facts").textContent = facts.filter(Boolean).join(" · ");
  return row;
}

const nothing = (text) => Object.assign(document.createElement("li"), { textContent: text, className: "facts" });

async function showSession(entry) {
  const card = fill("session");
  card.querySelector("h2").textContent = visible(entry.id);
  at("sessions").append(card);
  try {
    const snapshot = await json(`v1/sessions/${entry.session}/snapshot`);
    const { files, deliverables } = snapshot.display;
    card.querySelector(".facts").textContent = `created ${new Date(entry.createdAt).toLocaleString()}`;
    card.querySelector(".files").replaceChildren(
      ...(files.length > 0 ? files.map((file) => showFile(file)) : [nothing("none yet")]),
    );
    const items = deliverables.items;
    card.querySelector(".mode").textContent =
      items.length > 0 && deliverables.mode === "metadata-only"
        ? `Names only: ${CLOSED[deliverables.reason] ?? deliverables.reason}. (${deliverables.reason})`
        : "";
    card.querySelector(".deliverables").replaceChildren(
      ...(items.length > 0 ? items.map(showDeliverable) : [nothing("none yet")]),
    );
  } catch (error) {
    card.querySelector(".facts").textContent = `This session cannot be shown: ${error.message}.`;
    if (error instanceof Refusal && error.status === 401) report(error, "");
  }
}

/** Shows the next sessions, newest first, and a way to more of them. */
async function showMore(after) {
  const page = await json(after === undefined ? "v1/sessions" : `v1/sessions?after=${after}`);
  for (const entry of page.sessions) await showSession(entry);
  for (const session of page.damaged) say(`The log of session ${session} is damaged; the operator can say more.`);
  if (after === undefined && page.sessions.length === 0) say("No session is yours yet.");
  const last = page.sessions.at(-1);
  if (page.hasMore && last) {
    const more = Object.assign(document.createElement("button"), { type: "button", textContent: "Older sessions" });
    more.addEventListener("click", () => {
      more.remove();
      showMore(last.session).catch((error) => report(error, "Older sessions cannot be shown"));
    });
    at("sessions").append(more);
  }
}

async function show() {
  at("enter").hidden = true;
  at("leave").hidden = false;
  say("");
  const host = await json("v1/host");
  at("who").textContent = `${host.name} ${host.version}`;
  at("sessions").replaceChildren();
  await showMore(undefined);
}

async function start() {
  const code = decodeURIComponent(location.hash.slice(1));
  // The code is used up by the first try; it should not stay in the address bar or the history.
  if (code) history.replaceState(null, "", location.pathname + location.search);
  try {
    if (code) await redeem(code);
    if (sessionStorage.getItem(KEY)) await show();
    else leave("");
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) {
      leave(code ? "That sign-in link was used or has expired. Ask for a new one." : "Your sign-in has ended.");
    } else {
      leave(`The server cannot be reached or refused: ${error.message}.`);
    }
  }
}

at("leave").addEventListener("click", () => leave("You have signed out of this tab."));
at("enter").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await redeem(at("code").value.trim());
    at("code").value = "";
    await show();
  } catch (error) {
    report(error, "Signing in failed");
  }
});

await start();
