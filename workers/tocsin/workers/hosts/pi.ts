// Wakes pi when mail for its agent arrives, and hands it what comes while it works.
// Written by `tocsin connect pi`; `tocsin connect pi --undo` takes it away. Do not edit.
//
// A listener, `tocsin hook pi listen`, stays with each session of pi. It says a line of JSON when
// there is something, and is told what pi does. It runs on by itself while the broker is away.

import { type ChildProcess, spawn } from "node:child_process";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";

const tocsin: { command: string[]; env: Record<string, string> } = __TOCSIN__;

const PATH = "send-user-message";
const MARK = "TOCSIN_PI"; // the process of pi that has the listener, for those started inside it
const SHORTEST = 1_000;
const LONGEST = 60_000;

interface Said {
  event: "wake" | "mail";
  text: string;
  messages?: string[];
  delivery?: "steer" | "follow_up";
}

export default function (pi: ExtensionAPI) {
  let listener: ChildProcess | undefined;
  let again: NodeJS.Timeout | undefined;
  let working = false;
  let queued = new Set<string>(); // what waits in pi's own queue until its run is over

  // Another pi that a tool of this one starts is not the agent, and neither is a turn that Tocsin runs.
  const owner = process.env[MARK];
  if ((owner && owner !== String(process.pid)) || process.env.TOCSIN_TURN) return;
  process.env[MARK] = String(process.pid);

  const tell = (line: object) => {
    if (listener?.stdin?.writable) listener.stdin.write(`${JSON.stringify(line)}\n`);
  };

  const hand = (said: Said) => {
    const messages = said.messages ?? [];
    if (working && messages.length > 0 && messages.every((id) => queued.has(id))) return;
    const steer = said.event === "mail" && said.delivery === "steer";
    try {
      // While pi is idle either starts a run; while it works, one waits for the run's end.
      pi.sendUserMessage(said.text, { deliverAs: steer ? "steer" : "followUp" });
      for (const id of messages) queued.add(id);
      tell({ tried: PATH, ok: true, messages });
    } catch (failure) {
      tell({ tried: PATH, ok: false, messages, detail: String(failure).slice(0, 500) });
    }
  };

  const start = (ctx: ExtensionContext, pause = SHORTEST) => {
    const [program, ...words] = tocsin.command;
    const session = ctx.sessionManager.getSessionId();
    const child = spawn(program, [...words, "hook", "pi", "listen", "--session", session], {
      cwd: ctx.cwd,
      env: { ...process.env, ...tocsin.env },
      stdio: ["pipe", "pipe", "pipe"],
    });
    listener = child;
    let lines = "";
    let last = "";
    let heard = false;
    child.stdin.on("error", () => {}); // it has ended; `close` follows
    child.stderr.setEncoding("utf8").on("data", (text) => {
      last = (last + text).slice(-1_000);
    });
    child.stdout.setEncoding("utf8").on("data", (text) => {
      heard = true;
      lines += text;
      for (let end = lines.indexOf("\n"); end >= 0; end = lines.indexOf("\n")) {
        const line = lines.slice(0, end);
        lines = lines.slice(end + 1);
        try {
          const said = JSON.parse(line);
          if (said.event === "wake" || said.event === "mail") hand(said);
        } catch {
          // a line that is not ours
        }
      }
    });
    child.on("error", (failure) => {
      last = failure.message;
    });
    child.on("close", () => {
      if (listener !== child) return; // it was stopped
      listener = undefined;
      const next = heard ? SHORTEST : Math.min(pause * 2, LONGEST);
      if (pause === SHORTEST) ctx.ui.notify(`Tocsin does not listen: ${last.trim()}`, "warning");
      again = setTimeout(() => start(ctx, next), pause);
    });
    tell({ state: working ? "working" : "idle" });
  };

  const stop = () => {
    clearTimeout(again);
    const child = listener;
    listener = undefined;
    child?.stdin?.end();
  };

  pi.on("session_start", (_event, ctx) => {
    stop();
    working = !ctx.isIdle();
    queued = new Set();
    start(ctx);
  });
  pi.on("agent_start", () => {
    working = true;
    tell({ state: "working" });
  });
  pi.on("agent_settled", () => {
    working = false;
    queued = new Set();
    tell({ state: "idle" });
  });
  pi.on("session_shutdown", stop);
}
