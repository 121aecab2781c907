// The demo's story through sessions of the official SDK for TypeScript, its time-outs as they are.
// Arguments: the server's url; then the headers of authorization of its parent and two children. The
// fleet's minutes are short; a scheduler runs.

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, ...headers] = process.argv.slice(2);

async function join(authorization) {
  const client = new Client({ name: "story", version: "1" });
  const requestInit = { headers: { authorization } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  return {
    close: () => client.close(),
    call: async (name, args = {}) => {
      const result = await client.callTool({ name, arguments: args });
      assert(!result.isError, JSON.stringify(result.content));
      return result.structuredContent;
    },
  };
}

const [parent, scout, planner] = await Promise.all(headers.map(join));

// The one message that comes, acked.
async function mail(agent) {
  for (;;) {
    const { messages } = await agent.call("inbox");
    if (messages.length) {
      assert.equal(messages.length, 1, JSON.stringify(messages));
      await agent.call("ack", { messages: [messages[0].message_id] });
      return messages[0];
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function begun(description) {
  const { task } = await parent.call("delegate", { agent: "scout", description });
  assert.equal((await mail(scout)).task_id, task.id);
  return task.id;
}

// A slow answer: one reminder, which ends nothing; then the answer, and the result.
const read = await begun("Tell a newcomer where to start.");
const where = { to: "planner", body: "Where?", task: read, window_minutes: 200 };
const asked = await scout.call("ask", where);
assert.equal(asked.status, "pending");
assert.equal((await mail(planner)).message_id, asked.ask_id);
const reminder = await mail(parent);
assert.deepEqual([reminder.kind, reminder.task_id], ["reminder", read]);
const answered = scout.call("ask_wait", { ask_id: asked.ask_id });
await planner.call("reply", { message: asked.ask_id, body: "In auth.py." });
assert.equal((await answered).body, "In auth.py.");
await scout.call("done", { task: read, summary: "Start in auth.py." });
const settled = await mail(parent);
assert.deepEqual([settled.kind, settled.data.status], ["task_settled", "completed"]);

// A question that nobody answers: its task is blocked, not the parent.
const rewrite = await begun("Rewrite its longest file.");
const may = { to: "planner", body: "May I?", task: rewrite, expects_reply: true };
await scout.call("message", { ...may, reply_within_minutes: 8 });
let ended = { status: "pending" };
while (ended.status === "pending") ended = await parent.call("task_wait", { tasks: [rewrite] });
assert.deepEqual([ended.settled[0].status, ended.settled[0].return_code], ["blocked", 2]);
await Promise.all([parent, scout, planner].map((agent) => agent.close()));
console.log("story: told");
