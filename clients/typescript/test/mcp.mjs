// Calls the tools of skein mcp with the official client, over both transports. node mcp.mjs SKEIN SERVER ACCOUNT URL
import assert from 'node:assert/strict';
import {Client} from '@modelcontextprotocol/sdk/client/index.js';
import {StdioClientTransport} from '@modelcontextprotocol/sdk/client/stdio.js';
import {StreamableHTTPClientTransport} from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [command, server, account, url] = process.argv.slice(2);
const answers = [];
for (const transport of [new StdioClientTransport({command, args: ['mcp', '--server', server]}), new StreamableHTTPClientTransport(new URL(url))]) {
  const client = new Client({name: 'test', version: '1'});
  await client.connect(transport);
  assert.match(client.getInstructions(), /followers\(A\)/);
  const {tools} = await client.listTools();
  const call = async (name, args) => {
    const {isError, content} = await client.callTool({name, arguments: args});
    return {isError, answer: JSON.parse(content[0].text)};
  };
  const followers = await call('query', {set: `followers(${account})`, limit: 2, names: true});
  assert.equal(followers.answer.members.length, 2);
  assert.equal(Object.keys(followers.answer.handles).length, 2);
  const counts = await call('counts', {edge: ['followers', 'follows'], subject: [account]});
  assert.equal(counts.answer.subjects[0].totals[0], followers.answer.total);
  const wrong = await call('query', {set: 'folowers(x)'});
  assert.ok(wrong.isError && /did you mean followers/.test(wrong.answer.message));
  const {resources} = await client.listResources();
  const {contents} = await client.readResource({uri: resources[0].uri});
  assert.match(contents[0].text, /## Sets/);
  answers.push(JSON.stringify([tools.map(t => t.name), followers.answer.total]));
  await client.close();
}
assert.equal(answers[0], answers[1]);
console.log(`skein mcp: ${JSON.parse(answers[0])[0].length} tools`);
