// Reads server-sent events with fetch, because EventSource cannot send a token.

const TOKEN = "cdc token";
const SILENT_MS = 30000;
const AGAIN_MS = 3000;
const AGAIN = "Check that the process is running. This page tries again every few seconds.";

export class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

/** Request a page of this server with the token of this tab. */
export async function ask(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? {Authorization: `Bearer ${token}`} : {};
  const answer = await fetch(path, {cache: "no-store", ...options, headers});
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem.detail ?? answer.statusText);
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** Follow the events for ever. Calls `on.event(name, data)`, `on.lost(why)`, and `await on.token(why)` if it needs one. */
export async function follow(path, on) {
  for (;;) {
    try {
      await once(path, on.event);
      on.lost(`the connection ended. ${AGAIN}`);
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        await on.token(error.message);
        continue;
      }
      on.lost(error instanceof Refused ? error.message : `the server does not answer. ${AGAIN}`);
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

async function once(path, event) {
  const stop = new AbortController();
  let timer = setTimeout(() => stop.abort(), SILENT_MS);
  try {
    const answer = await ask(path, {signal: stop.signal});
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENT_MS);
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      parts.forEach((part) => tell(part, event));
    }
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
}

function tell(part, event) {
  let name = "";
  let data = "";
  for (const line of part.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data = line.slice(6);
  }
  if (name) event(name, JSON.parse(data));
}
