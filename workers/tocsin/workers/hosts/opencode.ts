// Wakes OpenCode when mail for its agent arrives, and hands it what comes while it works.
// Written by `tocsin connect opencode`; with --undo it takes it away. Do not edit.
//
// A listener, `tocsin hook opencode listen`, stays with the session that a person last wrote to. It
// says a line of JSON when there is something, and is told what OpenCode does.

import { type ChildProcess, spawn } from "node:child_process";
import type { Plugin } from "@opencode-ai/plugin";

const tocsin: { command: string[]; env: Record<string, string> } = __TOCSIN__;

const PATH = "prompt";
const MARK = "TOCSIN_OPENCODE"; // the process that has the listener, for those started inside it
const SHORTEST = 1_000;
const LONGEST = 60_000;

export const Tocsin: Plugin = async ({ client, directory }) => {
  const owner = process.env[MARK];
  if ((owner && owner !== String(process.pid)) || process.env.TOCSIN_TURN) return {};
  process.env[MARK] = String(process.pid);

  let current: string | undefined; // the session that speaks for the seat
  let listener: ChildProcess | undefined;
  let again: ReturnType<typeof setTimeout> | undefined;
  let working = false;
  let queued = new Set<string>(); // what OpenCode has and has not come to yet
  const inner = new Set<string>(); // sessions that a tool started

  const tell = (line: object) => {
    if (listener?.stdin?.writable) listener.stdin.write(`${JSON.stringify(line)}\n`);
  };

  const hand = async (said: { text: string; messages?: string[] }) => {
    const session = current;
    const messages = said.messages ?? [];
    if (!session) return;
    if (working && messages.length > 0 && messages.every((id) => queued.has(id))) return;
    try {
      const parts = [{ type: "text" as const, text: said.text }];
      const answer = await client.session.promptAsync({ path: { id: session }, body: { parts } });
      if (answer.error) throw new Error(JSON.stringify(answer.error));
      for (const id of messages) queued.add(id);
      tell({ tried: PATH, ok: true, messages });
    } catch (failure) {
      tell({ tried: PATH, ok: false, messages, detail: String(failure).slice(0, 500) });
    }
  };

  const start = (session: string, pause = SHORTEST) => {
    const [program, ...words] = tocsin.command;
    const child = spawn(program, [...words, "hook", "opencode", "listen", "--session", session], {
      cwd: directory,
      env: { ...process.env, ...tocsin.env },
      stdio: ["pipe", "pipe", "ignore"],
    });
    listener = child;
    let lines = "";
    let heard = false;
    child.on("error", () => {}); // `close` follows
    child.stdin.on("error", () => {});
    child.stdout.setEncoding("utf8").on("data", (text) => {
      heard = true;
      lines += text;
      for (let end = lines.indexOf("\n"); end >= 0; end = lines.indexOf("\n")) {
        const line = lines.slice(0, end);
        lines = lines.slice(end + 1);
        try {
          const said = JSON.parse(line);
          if (said.event === "wake" || said.event === "mail") void hand(said);
        } catch {
          // a line that is not ours
        }
      }
    });
    child.on("close", () => {
      if (listener !== child) return; // it was stopped
      listener = undefined;
      const next = heard ? SHORTEST : Math.min(pause * 2, LONGEST);
      again = setTimeout(() => start(session, next), pause);
    });
    tell({ state: working ? "working" : "idle" });
  };

  const stop = () => {
    clearTimeout(again);
    const child = listener;
    listener = undefined;
    child?.stdin?.end();
  };

  const take = (session: string) => {
    if (session === current || inner.has(session)) return;
    stop();
    current = session;
    queued = new Set();
    start(session);
  };

  return {
    "chat.message": async ({ sessionID }) => take(sessionID),
    event: async ({ event }) => {
      if (event.type === "session.created") {
        if (event.properties.info.parentID) inner.add(event.properties.info.id);
        else take(event.properties.info.id);
      } else if (event.type === "session.deleted" && event.properties.info.id === current) {
        stop();
        current = undefined;
      } else if (event.type === "session.status" && event.properties.sessionID === current) {
        working = event.properties.status.type !== "idle";
        if (!working) queued = new Set();
        tell({ state: working ? "working" : "idle" });
      }
    },
    dispose: async () => stop(),
  };
};
