import { basename, dirname } from 'node:path';
import { orAborted } from '../../../shared/http/retry.ts';
import { Random } from '../../../shared/random.ts';
import { counted } from '../../../shared/text.ts';
import { type WaitEvents, whoIsAway, whoIsBack } from '../../client/retry.ts';
import type { EnvServerSettings } from '../../client/server.ts';
import { openServers, type ServerPool } from '../../client/servers.ts';
import { baseFolder, validationTags } from '../../config/derived.ts';
import { checkBranching } from '../../config/learning-combinations.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { Generator } from '../../generation/generation.ts';
import { allowedTokens, type Grammars, type TokenGrammar } from '../../generation/grammar.ts';
import { buildByteTokenizer, buildWordTokenizer, withWords } from '../../models/tokenizer/builder.ts';
import { loadTokenizer, TOKENIZER_FILE } from '../../models/tokenizer/load.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import { findTokenizer } from '../../policy/checkpoint/model-folder.ts';
import { compactByteWords, compactVocabulary } from '../../prompts/compact.ts';
import type { Prompt } from '../../prompts/prompt.ts';
import type { Agent } from '../../rollout/agents/agent.ts';
import { Collector, type CollectorSettings } from '../../rollout/collection/collector.ts';
import {
  type DescribedTag,
  describeTags,
  promptTask,
  type ResponseSettings,
} from '../../rollout/described-tag.ts';
import { costsTheEpisode, EnvironmentSession, OPENING_ATTEMPTS } from '../../rollout/environment-session.ts';
import type { Player } from '../../rollout/episode-agent.ts';
import type { RewardHook } from '../../rollout/rewards/reward-hook.ts';
import type { GroupPlan, Tag } from '../../rollout/tag.ts';
import { shownDuration } from '../../tracking/progress.ts';
import type { PlayedGroups, PlayOptions, Rollouts } from '../sources/episode-source.ts';

/** Time for an abandoned collection to close its sessions. */
const CLOSING_GRACE_MS = 2_000;

/** The environments of a run: connected, described, and ready for a text agent. */
export interface TextRunContext {
  readonly servers: ServerPool;
  readonly tags: readonly DescribedTag[];
  readonly collector: Collector;
  close(): Promise<void>;
}

/** The same with a tokenizer, for policies. */
export interface RunContext extends TextRunContext {
  readonly tokenizer: Tokenizer;
  /** Ids of the tokens that actions are made of, per tag. */
  readonly actionTokens: ReadonlyMap<string, ReadonlySet<number>>;
  /** Grammars of constrained responses, by tag; those of the others follow their states, or are not constrained. */
  readonly grammars: Grammars;
}

/**
 * Connects to the servers and prepares prompts and tokenizer for the tags of the run. Waits for servers that do not
 * answer yet.
 * @param tokenizerFolder folder of the policy, with its tokenizer there or with its base; undefined makes a fresh one
 * @param note called when a server goes away and when it is back
 * @throws the signal's reason when it is aborted before the servers have answered
 */
export function openRunContext(
  settings: RunSettings,
  tokenizerFolder: string | undefined,
  note: (text: string) => void,
  signal: AbortSignal,
): Promise<RunContext> {
  return connected(settings, note, signal, async (servers, described) => {
    const tags = settings.rollout.constrained
      ? await orAborted(withStateActions(servers, described, settings.validation.seed), signal)
      : described;
    for (const text of checkBranching(settings, tags)) note(text);
    const tokenizer =
      tokenizerFolder === undefined
        ? await freshTokenizer(settings, tags, note)
        : await loadTokenizer(await findTokenizer(tokenizerFolder, baseFolder(settings)));
    const collector = new Collector({
      ...collectorSettings(settings, servers, tags),
      // A program writes its own prompts, which go to the policy through the gateway.
      ...(settings.rollout.agent
        ? {}
        : { tokenizer, maxSequenceLength: settings.rollout.max_model_len ?? settings.policy.context }),
    });
    const actionTokens = new Map(
      tags.map(({ tag }) => [
        tag.name,
        collector.prompt(tag.name).tokens?.actionTokenIds ?? new Set<number>(),
      ]),
    );
    const grammars = settings.rollout.constrained ? responseGrammars(tags, collector) : {};
    return { servers, tags, tokenizer, collector, actionTokens, grammars, close: () => servers.close() };
  });
}

/**
 * The tokenizer of a policy from scratch, as `policy.tokenizer` says.
 * @throws Error naming an environment without a vocabulary, or the file that is missing or broken
 */
async function freshTokenizer(
  settings: RunSettings,
  tags: readonly DescribedTag[],
  note: (text: string) => void,
): Promise<Tokenizer> {
  const { tokenizer } = settings.policy;
  const response = responseSettings(settings);
  const tasks = tags.map(tag => promptTask(tag, response));
  const free = tasks.find(({ description }) => !description.vocabulary)?.description.environmentId;
  if (tokenizer === 'words' || (tokenizer === null && free === undefined)) {
    return buildWordTokenizer(compactVocabulary(tasks));
  }
  if (tokenizer === null || tokenizer === 'bytes') {
    if (tokenizer === null)
      note(`${free} has no fixed vocabulary, so the policy reads and writes bytes (policy.tokenizer: bytes)`);
    return buildByteTokenizer(compactByteWords(tasks));
  }
  const loaded = await loadTokenizer(
    basename(tokenizer) === TOKENIZER_FILE ? dirname(tokenizer) : tokenizer,
  ).catch(error => {
    throw new Error(
      `policy.tokenizer: ${(error as Error).message}; it is words, bytes, or a ${TOKENIZER_FILE}`,
    );
  });
  return settings.rollout.prompt === 'compact'
    ? withWords(loaded, compactByteWords(tasks), tokenizer)
    : loaded;
}

/** {@link openRunContext} for agents that read and write text and need no tokenizer. */
export function openTextRunContext(
  settings: RunSettings,
  note: (text: string) => void,
  signal: AbortSignal,
): Promise<TextRunContext> {
  return connected(settings, note, signal, async (servers, tags) => {
    const collector = new Collector(collectorSettings(settings, servers, tags));
    return { servers, tags, collector, close: () => servers.close() };
  });
}

/** The result of `make` on connected servers and their tags; closes the servers if it fails. */
async function connected<T>(
  settings: RunSettings,
  note: (text: string) => void,
  signal: AbortSignal,
  make: (servers: ServerPool, tags: readonly DescribedTag[]) => Promise<T>,
): Promise<T> {
  const { failover_s, server_patience_s } = settings.rollout;
  const events = waitNotes(note, server_patience_s);
  const servers = openServers(serverSettings(settings), events, 1000 * failover_s);
  try {
    return await make(servers, await orAborted(describeTags(servers, namedTags(settings)), signal));
  } catch (error) {
    await servers.close();
    throw error;
  }
}

function responseSettings({ rollout }: RunSettings): ResponseSettings {
  return {
    responseLength: rollout.response_length,
    think: rollout.think,
    ...(rollout.show_turns_left ? { turnsLeft: true } : {}),
  };
}

function collectorSettings(
  settings: RunSettings,
  servers: ServerPool,
  tags: readonly DescribedTag[],
): CollectorSettings {
  const { rollout } = settings;
  return {
    servers,
    tags,
    prompt: rollout.prompt,
    response: responseSettings(settings),
    context: { mode: rollout.context_mode, window: rollout.max_context_window },
    stopStrings: rollout.stop_strings,
    concurrency: rollout.concurrency,
    outageMs: 1000 * rollout.failover_s,
    groupTimeoutMs: rollout.group_timeout_s === null ? undefined : 1000 * rollout.group_timeout_s,
  };
}

/** @throws Error naming a tag with a schema of its actions that makes no grammar */
function grammarOf({ tokens }: Prompt, tag: string): TokenGrammar | undefined {
  try {
    return tokens?.grammar;
  } catch (error) {
    throw new Error(
      `rollout.constrained: responses under ${tag} have no grammar: ${(error as Error).message}`,
    );
  }
}

/** @throws Error naming a tag without a grammar for its responses */
function responseGrammars(tags: readonly DescribedTag[], collector: Collector): Grammars {
  const grammars: { [tag: string]: TokenGrammar } = {};
  for (const { tag, constrained } of tags) {
    if (constrained) continue;
    const grammar = grammarOf(collector.prompt(tag.name), tag.name);
    if (!grammar) {
      throw new Error(
        `rollout.constrained: responses under ${tag.name} have no grammar; it needs states that list their valid actions, or named actions, or \`actions\` in the environment's definition, that are not too many and none of which continues another with || or <`,
      );
    }
    grammars[tag.name] = grammar;
  }
  return grammars;
}

/**
 * The agent that samples from a policy in this context, constrained if the run's responses are.
 * @param topLogProbs number of likeliest tokens to keep with each sampled token
 */
export function sampledAgent(context: RunContext, policy: Generator, topLogProbs = 0): Agent {
  return policyAgent(policy, tag => (tag in context.grammars ? tag : undefined), topLogProbs);
}

/** Rollouts of an agent in a context. */
export function agentRollouts(
  context: TextRunContext,
  agent: Player,
  note: (text: string) => void,
  reward?: RewardHook,
): Rollouts {
  return {
    async play(groups: readonly GroupPlan[], options: PlayOptions): Promise<PlayedGroups> {
      const { sampling, seed, signal, isPartial = false } = options;
      const collecting = context.collector.collect(groups, {
        agent,
        ...(reward ? { reward } : {}),
        sampling,
        samplingSeed: seed,
        isPartial,
        signal,
      });
      const collection = await orAborted(collecting, signal, CLOSING_GRACE_MS);
      sayFailures(collection.lost, 'episode', 'left out', note);
      sayFailures(collection.dropped, 'group', 'given up', note);
      return {
        episodes: collection.episodes,
        metrics: { ...collection.metrics },
      };
    },
  };
}

/** Failures of one collection and tag that are said one by one. */
const MAX_SAID = 3;

/** Says the first failures of each tag, and how many more there are. */
function sayFailures(
  failures: readonly { readonly plan: GroupPlan; readonly error: Error }[],
  what: string,
  end: string,
  note: (text: string) => void,
): void {
  for (const [tag, own] of Map.groupBy(failures, ({ plan }) => plan.tag)) {
    for (const { plan, error } of own.slice(0, MAX_SAID))
      note(`${what} of ${tag} with seed ${plan.seed} ${end}: ${error.message}`);
    const more = own.length - MAX_SAID;
    if (more > 0) note(`${counted(more, `more ${what}`)} of ${tag} ${end}`);
  }
}

function namedTags(settings: RunSettings): Tag[] {
  const names = new Set([...settings.train_tags, ...validationTags(settings)]);
  return [...names].map(name => {
    const tag = settings.tags[name];
    return {
      name,
      environmentId: tag.env_id,
      config: tag.config as Tag['config'],
      ...(tag.actions ? { actions: tag.actions as Tag['actions'] } : {}),
      ...(tag.number_span === null ? {} : { numberSpan: tag.number_span }),
      maxTurns: tag.max_turn,
      maxActionsPerTurn: tag.max_actions_per_turn,
      maxActionsPerTrajectory: tag.max_actions_per_traj,
      formatPenalty: settings.rollout.format_penalty,
    };
  });
}

function serverSettings(settings: RunSettings): EnvServerSettings[] {
  const retry = { patienceMs: 1000 * settings.rollout.server_patience_s };
  return settings.servers.map(({ url, weight, tag_weights, token }) => ({
    url,
    weight,
    tagWeights: tag_weights,
    retry,
    ...(token === null ? {} : { token }),
  }));
}

/**
 * Says once that a server is away and for how long it is waited for, repeats it at intervals, and says when it is back; of each tag,
 * that the first lost episode is played again.
 */
function waitNotes(note: (text: string) => void, patienceS: number): WaitEvents {
  const reminded = new Map<string, { readonly at: number; readonly error: Error }>();
  const replayed = new Set<string>();
  return {
    onWaiting({ server, error, waitedMs }) {
      const last = reminded.get(server);
      const at = performance.now();
      if (last && at - last.at < REMIND_EVERY_MS) return;
      reminded.set(server, { at, error });
      const who = `${whoIsAway(server, error)} (${error.message})`;
      const waited = waitedMs / 1000;
      const still = shownDuration(Math.max(0, patienceS - waited));
      note(
        last
          ? `still waiting after ${shownDuration(waited)}, for up to ${still} more: ${who}`
          : `${who}; waiting for it for up to ${still}`,
      );
    },
    onBack({ server, waitedMs }) {
      const last = reminded.get(server);
      if (last) note(`${whoIsBack(server, last.error)} after ${shownDuration(waitedMs / 1000)}`);
      reminded.delete(server);
    },
    onReplay(tag, error) {
      if (replayed.has(tag)) return;
      replayed.add(tag);
      note(
        `an episode of ${tag} is played again from its start, as it was lost: ${error.message}. Others are counted in rollouter/replayed_episodes`,
      );
    },
  };
}

const REMIND_EVERY_MS = 30_000;

/**
 * The agent that samples from a local policy.
 * @param grammarOf names the grammar for responses under a tag, one of those the policy was given at the start; absent:
 * any token can be sampled
 * @param topLogProbs number of likeliest tokens to keep with each sampled token
 */
export function policyAgent(
  policy: Generator,
  grammarOf: (tag: string) => string | undefined = () => undefined,
  topLogProbs = 0,
): Agent {
  return {
    async respond({ sequenceId, append, sampling, seed, grammar, episode }) {
      const generation = await policy.generate({
        sequenceId,
        append,
        sampling,
        seed,
        grammar: grammar ?? grammarOf(episode.tag),
        ...(topLogProbs > 0 ? { topLogProbs } : {}),
      });
      return grammar ? { ...generation, allowed: allowedTokens(grammar, generation.tokenIds) } : generation;
    },
    release: sequenceId => policy.release(sequenceId),
  };
}

/**
 * Tags with constrained responses: where an environment lists the valid actions of a state, a response holds one of those, unless
 * a turn may have several named ones. Opens a session of each such tag to find out.
 */
function withStateActions(
  servers: ServerPool,
  tags: readonly DescribedTag[],
  seed: number,
): Promise<DescribedTag[]> {
  return Promise.all(
    tags.map(async described => {
      const { tag, seedable, actionNames } = described;
      if (actionNames && tag.maxActionsPerTurn > 1) return described;
      const spec = {
        environmentId: tag.environmentId,
        tag: tag.name,
        config: tag.config,
        options: tag.options,
        groupName: `${tag.name}/actions`,
        validActions: true,
      };
      for (let attempt = 1; ; attempt++) {
        try {
          const seeded = { ...spec, seed: seedable ? seed + attempt - 1 : undefined };
          const [session] = await EnvironmentSession.openGroup(servers, seeded, 1);
          const lists = await listsValidActions(session, actionNames).finally(() => session.close());
          return lists ? { ...described, constrained: true } : described;
        } catch (error) {
          if (!costsTheEpisode(error) || attempt === OPENING_ATTEMPTS) throw error;
        }
      }
    }),
  );
}

/** Steps in which an environment with named actions shows whether some are invalid at times. */
const PROBED_STEPS = 32;

/**
 * Whether states list their valid actions. Where actions have names, a server lists all of them if it does not know, so a random
 * episode is played until a state lists fewer.
 */
async function listsValidActions(
  session: EnvironmentSession,
  actionNames: DescribedTag['actionNames'],
): Promise<boolean> {
  if (!actionNames) return session.validActions !== undefined;
  const rng = Random.fromSeed(0);
  for (let step = 0; step < PROBED_STEPS && session.validActions?.length; step++) {
    if (session.validActions.length < actionNames.names.length) return true;
    await session.act([rng.choice(session.validActions)]);
  }
  return false;
}
