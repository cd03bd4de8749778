import type { Test } from 'tap';
import type { ServerPool } from '../client/servers.ts';
import type { GenerateRequest, Generation } from '../generation/generation.ts';
import { buildWordTokenizer } from '../models/tokenizer/builder.ts';
import { CHAT_TEMPLATE_FILE, tokenizerFromFiles } from '../models/tokenizer/load.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { Collector } from '../rollout/collection/collector.ts';
import { describeTags } from '../rollout/described-tag.ts';
import type { RewardHook } from '../rollout/rewards/reward-hook.ts';
import { serve } from '../rollout/server.test-data.ts';
import type { GroupPlan, Tag } from '../rollout/tag.ts';
import { Gateway, type GatewaySettings, programAgent } from './gateway.ts';
import type { GatewayPolicy } from './rollout.ts';

/** Characters that every small tokenizer of these tests has. */
const CHARACTERS = ['\n', ...Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i))];
const MARKS = ['<|im_start|>', '<tool_call>', '</tool_call>'];

/** Conversations as ChatML, tools and calls as Qwen writes them. */
const TEMPLATE = `{%- if tools %}<|im_start|>tools
{%- for tool in tools %}
{{ tool.function.name }}{% endfor %}<eos>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{%- for call in message.tool_calls or [] %}<tool_call>{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}</tool_call>{% endfor %}<eos>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`;

/** A tokenizer of characters, marks and words, with a chat template. */
export function chatTokenizer(words: readonly string[] = []): Tokenizer {
  const { files } = buildWordTokenizer([...MARKS, ...words, ...CHARACTERS]);
  return tokenizerFromFiles({ ...files, [CHAT_TEMPLATE_FILE]: TEMPLATE }, 'test');
}

/** A policy that answers by a script, one token after the other, all with the same log-probability. */
export function scriptedPolicy(
  tokenizer: Tokenizer,
  answer: (prompt: string, seed: number) => string,
): GatewayPolicy & { readonly requests: GenerateRequest[] } {
  const texts = new Map<number, string>();
  const requests: GenerateRequest[] = [];
  return {
    maxSequenceLength: 4096,
    vocabularySize: tokenizer.vocabularySize,
    requests,
    async generate(request): Promise<Generation> {
      requests.push(request);
      const prompt = (texts.get(request.sequenceId) ?? '') + tokenizer.decode(request.append);
      const text = `${answer(prompt, request.seed)}<eos>`;
      texts.set(request.sequenceId, prompt + text);
      const tokenIds = Int32Array.from(tokenizer.encode(text)).subarray(0, request.sampling.maxNewTokens);
      return {
        tokenIds,
        logProbs: new Float32Array(tokenIds.length).fill(-0.5),
        versions: new Int32Array(tokenIds.length).fill(3),
        finishReason: 'stop',
      } as Generation;
    },
    release: id => void texts.delete(id),
  };
}

export const BANDIT: Tag = {
  name: 'Arms',
  environmentId: 'Bandit-v0',
  config: { low_reward: 0, high_probability: 1 },
  maxTurns: 1,
  maxActionsPerTurn: 1,
  maxActionsPerTrajectory: 1,
  formatPenalty: 0,
};

export const LAKE: Tag = {
  name: 'Lake',
  environmentId: 'FrozenLake-v0',
  config: { success_rate: 1 },
  maxTurns: 8,
  maxActionsPerTurn: 1,
  maxActionsPerTrajectory: 8,
  formatPenalty: 0,
};

export interface PlayedByProgram {
  readonly collector: Collector;
  readonly policy: ReturnType<typeof scriptedPolicy>;
  readonly notes: string[];
  readonly gateway: Gateway;
  play(groups: number, size?: number, reward?: RewardHook): ReturnType<Collector['collect']>;
}

/**
 * A program of Node that plays with a scripted policy against a real environment server, which several may share; all ends
 * with the test.
 */
export async function programPlays(
  t: Test,
  settings: Pick<GatewaySettings, 'command'> & Partial<GatewaySettings>,
  {
    tag = BANDIT,
    answer,
    servers,
  }: {
    readonly tag?: Tag;
    readonly answer: (prompt: string, seed: number) => string;
    readonly servers?: ServerPool;
  },
  tokenizer: Tokenizer = chatTokenizer(),
): Promise<PlayedByProgram> {
  servers ??= await serve(t);
  const policy = scriptedPolicy(tokenizer, answer);
  const gateway = await Gateway.open(
    {
      workers: 0,
      processes: 4,
      timeoutMs: 20_000,
      maxCalls: 16,
      maxTokens: 20_000,
      verifierKey: undefined,
      ...settings,
    },
    policy,
    tokenizer,
  );
  t.teardown(() => gateway.close());
  const collector = new Collector({
    servers,
    tags: await describeTags(servers, [tag]),
    prompt: 'chat',
    response: { responseLength: 64, think: false },
    concurrency: 64,
  });
  const notes: string[] = [];
  return {
    collector,
    policy,
    notes,
    gateway,
    play(groups, size = 2, reward = undefined) {
      const plans = Array.from(
        { length: groups },
        (_, i): GroupPlan => ({ groupId: i, tag: tag.name, seed: 100 + i, size }),
      );
      const agent = programAgent(gateway, 2, text => notes.push(text));
      const sampling = { temperature: 1, topK: 0, topP: 1 };
      return collector.collect(plans, { agent, sampling, samplingSeed: 5, ...(reward && { reward }) });
    },
  };
}

/** The command of a program in JavaScript with a few helpers. */
export function script(code: string): string[] {
  const helpers = `
    const { env } = process;
    const ask = async (url, token, body, method = 'POST') => {
      const reply = await fetch(url, { method, headers: { authorization: 'Bearer ' + token, ...(body && { 'content-type': 'application/json' }) }, body: body && JSON.stringify(body) });
      const text = await reply.text();
      return { status: reply.status, body: text ? JSON.parse(text) : null };
    };
    const chat = async (messages, more = {}, e = env) => (await ask(e.OPENAI_BASE_URL + '/chat/completions', e.OPENAI_API_KEY, { messages, ...more })).body;
    const step = async (action, e = env) => (await ask(e.RAGEN_SESSION_URL + '/step', e.RAGEN_SESSION_TOKEN, { action })).body;
    const task = () => JSON.parse(env.RAGEN_TASK);
  `;
  return [process.execPath, '--input-type=module', '-e', helpers + code];
}

/** The arm that the observation names first; observations read `A or B`. */
export const firstArm = (prompt: string) => /user\n(\S+) or/.exec(prompt)?.[1] ?? 'none';

/** Asks for one answer and takes it as the step. */
export const PULL = `
  const reply = await chat([{ role: 'user', content: task().observation }]);
  await step(reply.choices[0].message.content);
`;
