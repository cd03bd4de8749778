import t from 'tap';
import { lacksPython, PYTHON_MS, runPython } from '../../../test/python.test-data.ts';
import { until } from '../../../test/until.test-data.ts';
import { hostOf, listening } from '../../../test/wire.test-data.ts';

t.test(
  'the Python client of MCP plays a session',
  { skip: lacksPython('mcp'), timeout: PYTHON_MS },
  async t => {
    const app = await listening(t);
    const url = `http://${hostOf(app)}/compat/openenv/test%2FCounter-v0/mcp`;
    const seen = await runPython(new URL('./mcp.test-data.py', import.meta.url), url);
    t.match(seen, {
      play: {
        greeting: { protocolVersion: /^\d{4}-\d\d-\d\d$/, instructions: /^Count to 3\..*0\/3/s },
        tools: [{ name: 'act', inputSchema: { type: 'object', required: ['action'] } }],
        results: [
          { content: [{ type: 'text', text: /^1\/3/ }], isError: false },
          { content: [{ type: 'text', text: /^2\/3/ }], structuredContent: { reward: 1 } },
        ],
        error: /action: Field required/,
      },
      negotiated: /^(?:1\/3.*)?$/,
    });
    await until(() => app.sessions.size === 0);
  },
);

t.test(
  'the Python client of MCP calls the tools of an environment',
  { skip: lacksPython('mcp'), timeout: PYTHON_MS },
  async t => {
    const app = await listening(t);
    const url = `http://${hostOf(app)}/mcp/test%2FCounter-v0`;
    const seen = await runPython(new URL('./mcp-tools.test-data.py', import.meta.url), url);
    const stepped = { structuredContent: { reward: 1, step: 1 }, isError: false };
    t.match(seen, {
      play: {
        tools: ['reset', 'step', 'observe', 'valid_actions'],
        results: [
          { content: [{ type: 'text', text: /^0\/3/ }], structuredContent: { seed: 1 } },
          stepped,
          { structuredContent: { valid_actions: ['add', 'draw'] } },
          { isError: false, structuredContent: { info: { action_is_valid: false } } },
        ],
      },
    });
    const { stateless } = seen as { readonly stateless: unknown };
    if (stateless !== null) t.match(stateless, stepped);
    await until(() => app.sessions.size === 0);
  },
);
