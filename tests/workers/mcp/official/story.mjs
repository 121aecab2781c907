// The main story through two sessions of the official SDK for TypeScript, its time-outs as they are.
// Arguments: the server's url; then its parent's, its child's header of authorization.

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

const parent = await join(headers[0]);
const scout = await join(headers[1]);

const { task } = await parent.call("delegate", { agent: "scout", description: "How does auth work?" });
const { messages } = await scout.call("inbox");
assert.equal(messages[0].task_id, task.id);
await scout.call("ack", { messages: [messages[0].message_id] });

// Nobody answers for longer than the SDK waits for one call.
const question = { to: "parent", body: "Which branch?", task: task.id };
let answer = await scout.call("ask", question);
assert.equal(answer.status, "pending");
const asked = answer.ask_id;
const waiting = scout.call("ask_wait", { ask_id: asked });
await parent.call("reply", { message: asked, body: "main" });
answer = await waiting;
assert.equal(answer.body, "main");

await scout.call("done", { task: task.id, summary: "JWT" });
const ended = await parent.call("task_wait", { tasks: [task.id] });
assert.equal(ended.settled[0].summary, "JWT");
await Promise.all([parent.close(), scout.close()]);
console.log("story: told");
