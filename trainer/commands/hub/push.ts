import { existsSync, openAsBlob, readdirSync, readFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { uploadFiles } from '@huggingface/hub';
import { EnvHttpProxyAgent, fetch, Response } from 'undici';
import { stringify } from 'yaml';
import { closing } from '../../../shared/closing.ts';
import { VERSION } from '../../../shared/program.ts';
import { RUN_FILES, type RunStatus, type ValidationPoint } from '../../../shared/run-folder/run-files.ts';
import { loraConfig } from '../../config/sections/policy.ts';
import type { RunSettings } from '../../config/settings.ts';
import { parseModelName } from '../../hub/cache.ts';
import { HubClient, type HubClientOptions, PassingError } from '../../hub/hub-client.ts';
import {
  allowedFiles,
  HubError,
  type HubSettings,
  hubSettings,
  mayRedirect,
} from '../../hub/hub-settings.ts';
import { isAdapterFolder, readAdapterConfig } from '../../policy/checkpoint/model-folder.ts';
import { openProgress, type Progress, shownShare } from '../../tracking/progress.ts';
import { readCheckpoint } from '../../training/run-folder/checkpoint.ts';
import type { EvaluationRow } from '../evaluate/evaluation.ts';
import type { OptionsOf } from '../options.ts';
import { findServedModel } from './local-models.ts';

/** Contents of a card. */
interface CardParts {
  /** `organization/name`. */
  readonly id: string;
  /** True if the files are a PEFT adapter. */
  readonly adapter: boolean;
  /** The base in the adapter's config, or null. */
  readonly base: string | null;
  readonly license?: string;
  /** The model's run; undefined for a model from elsewhere. */
  readonly run?: { readonly folder: string; readonly settings: RunSettings; readonly step: number };
}

/** Sections of the settings that describe training and hold no addresses or tokens. */
const SHOWN = [
  'seed',
  'recipe',
  'algorithm',
  'loss',
  'optimizer',
  'training',
  'warm_start',
  'tags',
  'train_tags',
] as const;

/** File of the curve next to the card. */
const CURVE_FILE = 'validation.svg';

/** Validations of a run; empty where it has no status. */
function validationsOf(folder: string): readonly ValidationPoint[] {
  return readJson<RunStatus>(join(folder, RUN_FILES.status))?.validations ?? [];
}

/** The `README.md` of a model on a hub. It shows {@link CURVE_FILE} where {@link validationCurve} draws one. */
function modelCard(parts: CardParts): string {
  const { id, adapter, run } = parts;
  const init = run?.settings.policy.init;
  const base = [parts.base, init].find(name => name && parseModelName(name));
  const baseId = base ? parseModelName(base)!.id : undefined;
  const head = {
    library_name: adapter ? 'peft' : 'transformers',
    pipeline_tag: 'text-generation',
    tags: ['ragen', 'reinforcement-learning', ...(adapter ? ['lora'] : [])],
    ...(baseId ? { base_model: baseId, base_model_relation: adapter ? 'adapter' : 'finetune' } : {}),
    ...(parts.license ? { license: parts.license } : {}),
  };
  const sections = [
    `# ${id.split('/')[1]}`,
    `${adapter ? 'A LoRA adapter' : 'A language model'}${baseId ? ` of [${baseId}](https://huggingface.co/${baseId})` : ''}, trained with ragen ${VERSION}${
      run ? ` in ${environments(run.settings)} for ${run.step} iterations` : ''
    }.`,
    usage(parts, baseId),
    ...(run ? results(run.folder) : []),
    ...(run ? [training(run.settings, run.folder)] : []),
  ];
  return `---\n${stringify(head)}---\n\n${sections.join('\n\n')}\n`;
}

function environments({ tags, train_tags }: RunSettings): string {
  return [...new Set(train_tags.map(tag => tags[tag].env_id))].join(', ') || 'conversations';
}

function usage({ id, adapter }: CardParts, base: string | undefined): string {
  const python = adapter
    ? [
        'from peft import AutoPeftModelForCausalLM',
        '',
        `model = AutoPeftModelForCausalLM.from_pretrained("${id}")${base ? '' : '  # base_model_name_or_path must be here'}`,
      ]
    : [
        'from transformers import AutoModelForCausalLM, AutoTokenizer',
        '',
        `model = AutoModelForCausalLM.from_pretrained("${id}")`,
        `tokenizer = AutoTokenizer.from_pretrained("${id}")`,
      ];
  return ['## Use', '', '```python', ...python, '```', '', '```sh', `ragen serve ${id}`, '```'].join('\n');
}

/** The validation curve and evaluations, each with its interval. */
function results(folder: string): string[] {
  const points = validationsOf(folder);
  const interval = (low?: number, high?: number) =>
    low === undefined || high === undefined ? '' : `${shownShare(low)} to ${shownShare(high)}`;
  const curve = table(
    ['iteration', 'success', '95 % interval'],
    points.map(({ step, success, low, high }) => [String(step), shownShare(success), interval(low, high)]),
  );
  const picture =
    validationCurve(points) === undefined ? '' : `![Success of validation by iteration](${CURVE_FILE})\n\n`;
  const evaluations = join(folder, RUN_FILES.evaluations);
  const latest = existsSync(evaluations)
    ? readdirSync(evaluations)
        .filter(name => name.endsWith('.json'))
        .sort()
        .at(-1)
    : undefined;
  const rows =
    (latest && readJson<{ rows: readonly EvaluationRow[] }>(join(evaluations, latest))?.rows) || [];
  const evaluated = table(
    ['who plays', 'task', 'tokens drawn', 'episodes', 'success', '95 % interval'],
    rows.map(row => [
      basename(row.policy),
      row.tag,
      row.mode,
      String(row.episodes),
      shownShare(row.success),
      interval(row.success_low, row.success_high),
    ]),
  );
  return [
    ...(points.length > 0 ? [`## Validation while training\n\n${picture}${curve}`] : []),
    ...(rows.length > 0 ? [`## Evaluation\n\n${evaluated}`] : []),
  ];
}

function training(settings: RunSettings, folder: string): string {
  const shown: Record<string, unknown> = Object.fromEntries(SHOWN.map(key => [key, settings[key]]));
  if (settings.policy.lora) shown.lora = loraConfig(settings.policy.lora);
  return `## Training\n\nRun \`${basename(folder)}\`. The settings that matter:\n\n\`\`\`yaml\n${stringify(shown)}\`\`\``;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) =>
    `| ${cells.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

function readJson<T>(file: string): T | undefined {
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as T) : undefined;
}

const CARD_FILE = 'README.md';
/** Files that only training needs. */
const LEFT_OUT = /^(optimizer|trainer)\.|^value_head\./;

type PushOptions = OptionsOf<'push'> & {
  readonly progress?: Progress;
  readonly env?: Readonly<Record<string, string | undefined>>;
};

/**
 * The command `push`: sends a model or an adapter to a hub, with a model card made from its run.
 * @param target run (its newest checkpoint), checkpoint, or folder of a model or adapter
 * @param id `organization/name`
 * @returns the exit status
 * @throws Error or HubError with the remedy
 */
export async function push(target: string, id: string, options: PushOptions): Promise<number> {
  const { progress = openProgress(process.stderr), env } = options;
  if (parseModelName(id)?.id !== id) throw new Error(`push goes to organization/name, got ${id}`);
  const hub = hubSettings(env);
  needsHub(hub);
  const { folder, settings } = await findServedModel(target);
  const adapter = await isAdapterFolder(folder);
  const base = adapter ? (await readAdapterConfig(folder)).base : null;
  if (base !== null && parseModelName(base) === undefined) {
    progress.warn(
      `the adapter names its base by a folder of this machine (${base}): others cannot find it; merge it (merge-lora) or train it next to a model on the Hub`,
    );
  }
  const files = allowedFiles(await readdir(folder), folder).filter(
    name => name !== CARD_FILE && !LEFT_OUT.test(name),
  );
  const run = settings && runOf(folder, settings);
  const card = modelCard({ id, adapter, base, license: options.license, run });
  const curve = run && validationCurve(validationsOf(run.folder));
  const pictures = curve === undefined ? [] : [{ name: CURVE_FILE, content: new Blob([curve]) }];
  const contents = await Promise.all(
    files.map(async name => ({ name, content: await openAsBlob(join(folder, name)) })),
  );
  progress.note(`pushing ${files.join(', ')} and a model card to ${id}`);
  const { url, commit } = await publishModel(
    {
      id,
      private: options.private,
      title: options.message ?? `Push ${basename(target)} with ragen`,
      files: [...contents, ...pictures, { name: CARD_FILE, content: new Blob([card]) }],
    },
    { settings: hub, note: progress.note.bind(progress) },
  );
  console.log(`${url} (commit ${commit})`);
  return 0;
}

/** The run of a checkpoint's policy. */
function runOf(folder: string, settings: NonNullable<CardParts['run']>['settings']): CardParts['run'] {
  const checkpoint = dirname(folder);
  return { folder: dirname(dirname(checkpoint)), settings, step: readCheckpoint(checkpoint).state.step };
}

const WIDTH = 640;
const HEIGHT = 260;
const LEFT = 52;
const RIGHT = WIDTH - 16;
const TOP = 16;
const BOTTOM = HEIGHT - 40;
/** Grid lines of the share, from 0 to 1. */
const SHARES = [0, 0.25, 0.5, 0.75, 1];

const STYLE = `
:root { --paper: #ffffff; --line: #d0d7de; --ink: #1f2328; --curve: #0969da; }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --line: #3d444d; --ink: #f0f6fc; --curve: #4493f8; } }
text { font: 13px ui-sans-serif, Arial, sans-serif; fill: var(--ink); }
.paper { fill: var(--paper); } .line { stroke: var(--line); } .interval { fill: var(--curve); opacity: 0.2; }
.curve { fill: none; stroke: var(--curve); stroke-width: 2; } .point { fill: var(--curve); }`;

/** Success of each validation by iteration as SVG, with its 95 % interval where known; undefined for fewer than two. */
export function validationCurve(points: readonly ValidationPoint[]): string | undefined {
  if (points.length < 2) return undefined;
  const last = Math.max(1, ...points.map(({ step }) => step));
  const x = (step: number) => rounded(LEFT + ((RIGHT - LEFT) * step) / last);
  const y = (share: number) => rounded(BOTTOM - (BOTTOM - TOP) * share);
  const path = (of: readonly (readonly [number, number])[]) =>
    of.map(([step, share]) => `${x(step)},${y(share)}`).join(' ');
  const known = points.filter(({ low, high }) => low !== undefined && high !== undefined);
  const upper = known.map(({ step, high }) => [step, high!] as const);
  const lower = known.map(({ step, low }) => [step, low!] as const).reverse();
  const curve = points.map(({ step, success }) => [step, success] as const);
  const steps = [...new Set([points[0].step, Math.round(last / 2), last])];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img">
<title>Success of validation by iteration</title>
<style>${STYLE}
</style>
<rect class="paper" width="${WIDTH}" height="${HEIGHT}"/>
${SHARES.map(
  share =>
    `<line class="line" x1="${LEFT}" x2="${RIGHT}" y1="${y(share)}" y2="${y(share)}"/><text x="${LEFT - 8}" y="${y(share) + 4}" text-anchor="end">${100 * share} %</text>`,
).join('\n')}
${steps.map(step => `<text x="${x(step)}" y="${BOTTOM + 18}" text-anchor="middle">${step}</text>`).join('\n')}
<text x="${(LEFT + RIGHT) / 2}" y="${HEIGHT - 6}" text-anchor="middle">iteration</text>
${known.length < 2 ? '' : `<polygon class="interval" points="${path([...upper, ...lower])}"/>\n`}<polyline class="curve" points="${path(curve)}"/>
${points.map(({ step, success }) => `<circle class="point" cx="${x(step)}" cy="${y(success)}" r="3"/>`).join('\n')}
</svg>
`;
}

/** A coordinate with at most one decimal. */
function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}

const CONFLICT = 409;
const TOO_MANY_REQUESTS = 429;

/** Files to be committed to a model's repository. */
interface Publication {
  /** `organization/name`. */
  readonly id: string;
  readonly files: readonly { readonly name: string; readonly content: Blob }[];
  /** Title of the commit. */
  readonly title: string;
  /** Makes a new repository private; the organization's default when absent. An existing one does not change. */
  readonly private?: boolean;
}

/** @throws HubError offline, or without a token */
function needsHub(settings: HubSettings): void {
  if (settings.offline) throw new HubError('HF_HUB_OFFLINE is set, and a push needs the Hub: unset it');
  if (settings.token === undefined)
    throw new HubError('a push needs a token with write access: set HF_TOKEN, or run `hf auth login`');
}

/**
 * Creates the repository if there is none, and adds one commit with the files to its main branch.
 * @throws HubError where the Hub refuses
 */
async function publishModel(
  publication: Publication,
  options: HubClientOptions & { readonly settings: HubSettings },
): Promise<{ readonly url: string; readonly commit: string }> {
  const { settings } = options;
  const { id, files, title } = publication;
  await using client = closing(new HubClient(settings, options));
  await createRepository(client, publication);
  const { commit } = (await uploadFiles({
    repo: { type: 'model', name: id },
    files: files.map(({ name, content }) => ({ path: name, content })),
    commitTitle: title,
    hubUrl: settings.endpoint,
    fetch: authorizedFetch(client, id),
    abortSignal: options.signal,
    useXet: false,
  }))!;
  return { url: `${settings.endpoint}/${id}`, commit: commit.oid };
}

async function createRepository(client: HubClient, { id, private: hidden }: Publication): Promise<void> {
  const [organization, name] = id.split('/');
  const body = JSON.stringify({ type: 'model', name, organization, private: hidden });
  await client.retried(id, async () => {
    const headers = { 'content-type': 'application/json' };
    const answer = await client.send('api/repos/create', { method: 'POST', headers, body });
    const text = await client.text(answer, id);
    if (answer.status >= 300 && answer.status !== CONFLICT) throw client.refused(answer, id, text);
  });
}

/** The `fetch` of the library: it sends the token to the hub only, and retries passing failures. */
function authorizedFetch(client: HubClient, id: string): typeof globalThis.fetch {
  const { endpoint, token } = client.settings;
  const dispatcher = new EnvHttpProxyAgent();
  const send = async (input: unknown, init: Record<string, unknown> = {}) => {
    const url = new URL(String(input));
    if (!mayRedirect(endpoint, url))
      throw new HubError(`${endpoint} wants files sent to ${url.origin}: refused`);
    const headers = new Headers(init.headers as HeadersInit | undefined);
    if (url.origin === new URL(endpoint).origin) headers.set('authorization', `Bearer ${token}`);
    else headers.delete('authorization');
    return client.retried(id, async () => {
      const answer = await fetch(url, {
        ...init,
        headers: Object.fromEntries(headers),
        dispatcher,
        redirect: 'error',
      } as Parameters<typeof fetch>[1]).catch(error => {
        client.signal?.throwIfAborted();
        throw new PassingError(`${url.origin}: ${String((error as Error).cause ?? error)}`, { cause: error });
      });
      if (answer.status === TOO_MANY_REQUESTS || answer.status >= 500) {
        throw new PassingError(`${url.origin} answers ${answer.status}`, { status: answer.status });
      }
      // The library reads replies without limits, so it gets whole ones.
      const { status, headers: received, body } = answer;
      const text = body && (await client.text({ body: Readable.fromWeb(body), url }, id));
      if (status === 401 || status === 403) throw client.refused({ status, headers: {} }, id, text ?? '');
      return Object.defineProperty(new Response(text, { status, headers: received }), 'url', {
        value: url.href,
      });
    });
  };
  return send as unknown as typeof globalThis.fetch;
}
