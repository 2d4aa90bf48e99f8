// The page of Holdfast: sign in with a one-time code, see your sessions, download their files.
//
// The token lives in this tab's sessionStorage and travels in the Authorization field: a cookie
// would be sent to every other port of this host, the agent's own dev server included. A download is a
// link, which cannot carry a field: it goes by a ticket for that one file. Everything a
// session says (names, descriptions, paths) is untrusted text and only ever set as text.

import { listen } from "./stream.js";

const KEY = "holdfast.token";
/** How long a download may wait to begin, in seconds; one that has begun may take longer. */
const TICKET_LIFE = 300;
/** One download, and what a proxy that reads ahead or a browser that fetches in pieces needs more. */
const TICKET_USES = 3;

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

/** How long a session is left to change before it is shown again, in milliseconds. */
const SETTLE = 300;

/** What was released in this tab, by session and place: a session shown again still has it to download. */
const released = new Map();
/** Sessions that are to be shown again. */
const stale = new Map();
let listening;

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
  listening?.abort();
  released.clear();
  at("sessions").replaceChildren();
  at("who").textContent = "";
  at("leave").hidden = true;
  at("enter").hidden = false;
  say(why);
}

/** Asks for a ticket and lets the browser follow it: a bare anchor, which keeps no file in this tab. */
async function download(session, file, button) {
  button.disabled = true;
  try {
    const wish = { session, attachmentId: file.attachmentId, lifeSeconds: TICKET_LIFE, uses: TICKET_USES };
    if (file.receipt) wish.receipt = file.receipt;
    else if (file.name) wish.name = file.name;
    const ticket = await json("v1/tickets", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(wish),
    });
    const link = document.createElement("a");
    link.href = ticket.href.slice(1);
    // An answer that is no file stays a failed download; the name is the server's to choose.
    link.download = "";
    link.click();
    say("");
  } catch (error) {
    report(error, "The download could not be started");
  } finally {
    button.disabled = false;
  }
}

function report(error, what) {
  if (error instanceof Refusal && error.status === 401) {
    leave("Your sign-in has ended. Ask for a new one-time code.");
  } else {
    say(`${what}: ${error.message}.`);
  }
}

function showFile(session, file) {
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
  } else {
    button.addEventListener("click", () => download(session, file, button));
  }
  return row;
}

const placeOf = (item) => (item.index === null ? "all" : `${item.logGeneration}/${item.seq}/${item.index}`);
const cardOf = (session) => at("sessions").querySelector(`[data-session="${session}"]`);

/** Asks the server to copy and release exactly these bytes, or to ask somebody about them. */
async function release(session, path, what, row) {
  const button = row.querySelector("button");
  button.disabled = true;
  try {
    const answer = await json(`v1/sessions/${session}/${path}`, { method: "POST" });
    if (answer.receipt) offer(row, answer);
    else addAsk(session, answer);
    say("");
  } catch (error) {
    report(error, `${what} was not released`);
  } finally {
    button.disabled = false;
    progress(row, "");
  }
}

function progress(row, text) {
  const told = row.querySelector(".progress");
  if (told) told.textContent = text;
}

/** Puts a way to download what a receipt released in the place of the question. */
function offer(row, receipt) {
  released.set(`${receipt.statement.session} ${placeOf(receipt.statement)}`, receipt);
  const button = row.querySelector("button");
  const done = button.cloneNode();
  done.textContent = "Download";
  // It was disabled while somebody decided.
  done.disabled = false;
  const file = { ...receipt.statement, receipt: receipt.receipt };
  done.addEventListener("click", () => download(file.session, file, done));
  button.replaceWith(done);
}

function showDeliverable(session, item, mode) {
  const row = fill("deliverable");
  row.querySelector(".name").textContent = visible(item.path);
  const facts = [item.description && visible(item.description), item.refused];
  row.querySelector(".facts").textContent = facts.filter(Boolean).join(" · ");
  const button = row.querySelector("button");
  const place = placeOf(item);
  row.dataset.place = place;
  const had = released.get(`${session} ${place}`);
  if (had) {
    offer(row, had);
  } else if (mode === "release" && !item.refused) {
    button.setAttribute("aria-label", `Ask for ${visible(item.path)}`);
    const path = `deliverables/${place}/release`;
    button.addEventListener("click", () => release(session, path, visible(item.path), row));
  } else {
    button.remove();
  }
  return row;
}

/** Everything in the session, while there is anything. */
function showEverything(session, row, isThere) {
  const button = row.querySelector("button");
  row.hidden = !isThere;
  row.dataset.place = "all";
  const asking = button.cloneNode(true);
  asking.disabled = false;
  asking.textContent = "Ask for everything as one archive";
  asking.addEventListener("click", () => release(session, "archive", "The archive", row));
  button.replaceWith(asking);
  const had = released.get(`${session} all`);
  if (had) offer(row, had);
}

/** What waits for a yes or no: everything the decision is bound to, and nothing the file says of itself. */
function showAsk(session, ask) {
  const row = fill("ask");
  const name = ask.path === null ? `${visible(ask.name)}: everything in this session` : visible(ask.path);
  row.dataset.request = ask.requestId;
  row.querySelector(".name").textContent = name;
  row.querySelector(".facts").textContent =
    `${size(ask.bytes)} · ${ask.attachmentId} · copied ${new Date(ask.pinnedAt).toLocaleString()}`;
  const decide = async (decision) => {
    row.dataset.mine = "yes";
    const buttons = row.querySelectorAll("button");
    for (const button of buttons) button.disabled = true;
    try {
      const answer = await json(`v1/sessions/${session}/releases/${ask.requestId}/decision`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ attachmentId: ask.attachmentId, bytes: ask.bytes, decision }),
      });
      if (answer.receipt) {
        buttons[1].remove();
        offer(row, answer.receipt);
        row.removeAttribute("data-request");
      } else {
        row.remove();
      }
      say("");
    } catch (error) {
      for (const button of buttons) button.disabled = false;
      row.removeAttribute("data-mine");
      report(error, "The decision was not taken");
    }
  };
  const [allow, reject] = row.querySelectorAll("button");
  allow.setAttribute("aria-label", `Let ${name} leave`);
  reject.setAttribute("aria-label", `Keep ${name}`);
  allow.addEventListener("click", () => decide("allowed-once"));
  reject.addEventListener("click", () => decide("rejected"));
  return row;
}

const nothing = (text) => Object.assign(document.createElement("li"), { textContent: text, className: "facts" });

/** Shows a question once, before what is declared. */
function addAsk(session, ask) {
  const list = cardOf(session)?.querySelector(".deliverables");
  if (!list || list.querySelector(`[data-request="${ask.requestId}"]`)) return;
  list.querySelector(":scope > .facts")?.remove();
  list.prepend(showAsk(session, ask));
}

async function showSession(entry, isNew) {
  const card = fill("session");
  card.dataset.session = entry.session;
  card.querySelector("h2").textContent = visible(entry.id);
  if (isNew) at("sessions").prepend(card);
  else at("sessions").append(card);
  await paint(card, entry);
}

async function paint(card, entry) {
  try {
    const snapshot = await json(`v1/sessions/${entry.session}/snapshot`);
    const { files, deliverables } = snapshot.display;
    card.querySelector("h2").textContent = visible(snapshot.id);
    card.querySelector(".facts").textContent = `created ${new Date(snapshot.createdAt).toLocaleString()}`;
    card.querySelector(".files").replaceChildren(
      ...(files.length > 0 ? files.map((file) => showFile(entry.session, file)) : [nothing("none yet")]),
    );
    const items = deliverables.items;
    card.querySelector(".mode").textContent =
      items.length > 0 && deliverables.mode === "metadata-only"
        ? `Names only: ${CLOSED[deliverables.reason] ?? deliverables.reason}. (${deliverables.reason})`
        : "";
    showEverything(entry.session, card.querySelector(".everything"), files.length + items.length > 0);
    const waiting = (await json(`v1/sessions/${entry.session}/releases`)).pendingReleases;
    const asks = waiting.map((one) => showAsk(entry.session, one));
    const rows = items.map((item) => showDeliverable(entry.session, item, deliverables.mode));
    card.querySelector(".deliverables").replaceChildren(
      ...(items.length + asks.length > 0 ? [...asks, ...rows] : [nothing("none yet")]),
    );
  } catch (error) {
    card.querySelector(".facts").textContent = `This session cannot be shown: ${error.message}.`;
    if (error instanceof Refusal && error.status === 401) report(error, "");
  }
}

/** Shows the next sessions, newest first, and a way to more of them. */
async function showMore(after) {
  const page = await json(after === undefined ? "v1/sessions" : `v1/sessions?after=${after}`);
  for (const entry of page.sessions) await showSession(entry, false);
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

/** Shows a session again, once it has settled. */
function refresh(session) {
  const card = cardOf(session);
  if (!card || stale.has(session)) return;
  const timer = setTimeout(() => {
    stale.delete(session);
    if (card.isConnected) paint(card, { session });
  }, SETTLE);
  stale.set(session, timer);
}

/** A question ended elsewhere: it goes, and what was released can be downloaded here too. */
async function settled(row, data) {
  if (!row || row.dataset.mine) return;
  row.remove();
  if (!data.receipt) return;
  try {
    const receipt = await json(`v1/receipts/${data.receipt}`);
    released.set(`${data.session} ${placeOf(receipt.statement)}`, receipt);
    refresh(data.session);
  } catch (error) {
    report(error, "What was released elsewhere cannot be shown");
  }
}

/** What happens while the page is open. */
function take({ event, data }) {
  const card = data.session && cardOf(data.session);
  switch (event) {
    case "ready":
      if (data.resumed || !at("sessions").dataset.listened) at("sessions").dataset.listened = "yes";
      else for (const shown of at("sessions").children) if (shown.dataset.session) refresh(shown.dataset.session);
      break;
    case "host/session-added":
      if (!card) showSession({ session: data.session, id: data.session }, true);
      break;
    case "host/session-removed":
      card?.remove();
      break;
    case "session/event":
      refresh(data.session);
      break;
    case "release/requested":
      addAsk(data.session, data);
      break;
    case "release/resolved":
      settled(card?.querySelector(`[data-request="${data.requestId}"]`), data);
      break;
    case "release/progress": {
      const row = card?.querySelector(`[data-place="${placeOf(data)}"]`);
      const files = data.ofFiles > 0 ? `${data.files} of ${data.ofFiles} files, ` : "";
      if (row) progress(row, `copying: ${files}${size(data.bytes)}`);
      break;
    }
  }
}

async function follow() {
  listening?.abort();
  listening = new AbortController();
  const open = (last, signal) =>
    call("v1/events", { signal, headers: last ? { "Last-Event-ID": last } : {} });
  try {
    await listen(open, take, listening.signal);
  } catch (error) {
    report(error, "What happens is no longer shown");
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
  follow();
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
