import { fileURLToPath } from 'node:url';
import { PYTHON } from '../../test/python.test-data.ts';

/** A program of `docs/examples/agents`, and how its model answers. */
export interface ExampleAgent {
  readonly name: string;
  readonly command: readonly string[];
  /** It can stay and ask for one episode after the other. */
  readonly stays: boolean;
  /** Python packages that it needs. */
  readonly packages: readonly string[];
  /** An action as its model writes it. */
  write(action: string): string;
}

const file = (name: string) => fileURLToPath(new URL(`../../docs/examples/agents/${name}`, import.meta.url));
const plain = (action: string) => action;

export const CALL_OPENING = '<tool_call>{"name": "step", "arguments": {"action": "';
export const CALL_CLOSING = '"}}</tool_call>';

export const EXAMPLE_AGENTS: readonly ExampleAgent[] = [
  {
    name: 'Python, openai',
    command: [PYTHON, file('openai_agent.py')],
    stays: true,
    packages: ['openai'],
    write: plain,
  },
  {
    name: 'Python, openai with tools of MCP',
    command: [PYTHON, file('tools_agent.py')],
    stays: true,
    packages: ['openai', 'mcp', 'httpx2'],
    write: action => CALL_OPENING + action + CALL_CLOSING,
  },
  {
    name: 'Python, LangChain with tools of MCP',
    command: [PYTHON, file('langchain_agent.py')],
    stays: true,
    packages: ['langchain_openai', 'langchain_protocol', 'mcp', 'httpx2'],
    write: action => CALL_OPENING + action + CALL_CLOSING,
  },
  {
    name: 'TypeScript, openai',
    command: [process.execPath, file('openai-agent.ts')],
    stays: true,
    packages: [],
    write: plain,
  },
  {
    name: 'TypeScript, planner and actor',
    command: [process.execPath, file('two-roles.ts')],
    stays: true,
    packages: [],
    write: plain,
  },
  { name: 'curl and jq', command: ['sh', file('curl-agent.sh')], stays: false, packages: [], write: plain },
];
