import { useEffect, useMemo, useState } from 'preact/hooks';
import {
  type AskReply,
  type CheckpointAnswer,
  type CheckpointRequest,
  type KeptCheckpoints,
  promptProblem,
} from '../../../shared/run-folder/requests.ts';
import { counted, shellWord } from '../../../shared/text.ts';
import { Board } from '../../boards/board.ts';
import { Command } from '../../components/buttons.ts';
import { CodeField } from '../../components/fields.ts';
import { html } from '../../components/html.ts';
import { isLocked } from '../../components/request.ts';
import { useWork } from '../../components/store.ts';
import type { EpisodeReply } from '../../server/reader/trajectories.ts';
import { useSource } from '../data/hooks.ts';
import { BranchControls, type BranchState } from './branch.ts';
import { choose, Select, TokenForm } from './parts.ts';
import {
  FEW_TOKENS,
  isSigned,
  probability,
  promptRange,
  SampledTokens,
  SCALES,
  type Tint,
  TokenPanel,
  Tokens,
  tintScale,
  withLineEnds,
} from './tokens.ts';
import { Arrow, actionsOf, statesOf } from './turn-words.ts';

/** A prompt or response with a longer line takes half of the width below the boards. */
const LONG_LINE = 60;
/** Texts without tokens take what a screen has left. */
const TALL = 'max-height: max(20rem, 100dvh - 26rem)';
const shade = (tint: string) => `color-mix(in srgb, var(--tint-${tint}) 44%, var(--sunken))`;
const RAMPS = {
  amount: `var(--sunken), ${shade('amount')}`,
  signed: `${shade('down')}, var(--sunken), ${shade('up')}`,
};

interface TurnPanelProps {
  readonly reply: EpisodeReply;
  readonly turn: number;
  /** Index of the chosen token in the turn's sample; absent where none was sampled. */
  readonly token?: number;
  readonly tint?: Tint;
  readonly tints: readonly Tint[];
  readonly onToken: (at: number) => void;
  readonly onTint: (tint: Tint) => void;
  readonly branch: BranchState;
  /** Folder of the run, for commands. */
  readonly folder: string;
  /** Id of the run. */
  readonly id: string;
  /** Step of the chosen checkpoint; absent for the newest. */
  readonly checkpoint?: number;
}

/** The chosen turn: its observation, response and actions, with the chosen token next to them. */
export function TurnPanel({
  reply,
  turn: at,
  token,
  tint,
  tints,
  onToken,
  onTint,
  branch,
  folder,
  id,
  checkpoint,
}: TurnPanelProps) {
  const { episode, texts } = reply;
  const { trainer, exported, checkpoints } = useSource().site;
  const turn = episode.turns[at];
  const sample = episode.samples[turn.sample];
  const known = sample !== undefined && turn.tokens[1] > turn.tokens[0] && Object.keys(texts).length > 0;
  const scale = tint && tintScale(tint, episode.samples);
  const given = promptRange(episode.turns, at);
  const textBetween = (from: number, to: number) =>
    sample.token_ids
      .slice(from, to)
      .map(id => texts[id] ?? '')
      .join('');
  const promptText = known ? textBetween(...given) : turn.state;
  // Another program's file has only texts: the prompt is what the policy saw.
  const isForeign = episode.format !== undefined;
  const long =
    isForeign ||
    [promptText, turn.llm_raw_response].some(text => text.split('\n').some(line => line.length > LONG_LINE));
  const states = statesOf(episode, at);
  return html`<div class="stack turn-row">
    <section class="panel turn ${long ? 'long' : ''}" aria-label="Turn ${at + 1}">
      <div class="stack turn-boards ${long ? 'wide' : ''}">
        <div class="panel-head"><h2><span role="status">Turn ${at + 1} of ${episode.turns.length}</span></h2>${!isForeign && html`<span class="fine">${counted(turn.actions_left, 'action')} left before</span>`}</div>
        ${
          !isForeign &&
          html`<ol class="stack states" style=${{ '--states': states.length }}>${states.map(
            (state, i) => html`<li key=${i}><${Board} state=${state.structured} text=${state.text} />
            <p class="state-caption">${i === 0 ? 'Before' : html`<${Arrow} name=${state.caption!} />${state.caption}`}${state.slipped && html` <span class="outcome warn">${state.slipped}</span>`}</p></li>`,
          )}</ol>
        <${BranchControls} state=${branch} turn=${at} />`
        }
      </div>
      <div class="stack">
        <div class="panel-head"><h2>Prompt</h2><span class="fine">${known ? counted(given[1] - given[0], 'token') : ''}</span></div>
        ${known ? html`<${Tokens} sample=${sample} range=${given} texts=${texts} />` : html`<pre style=${TALL} tabindex="0" aria-label="Prompt">${turn.state}</pre>`}
      </div>
      <div class="stack">
        <div class="panel-head"><h2>Response</h2><span class="fine">${known ? counted(turn.tokens[1] - turn.tokens[0], 'token') : ''}</span></div>
        ${
          known
            ? html`<${SampledTokens} sample=${sample} range=${turn.tokens} texts=${texts} tint=${tint} scale=${scale} chosen=${token} onChoose=${onToken} />`
            : html`<pre style=${TALL} tabindex="0" aria-label="Response">${turn.llm_raw_response}</pre>`
        }
        ${!isForeign && html`<p class="fine">Carried out: <strong>${actionsOf(turn)}</strong></p>`}
        ${known && !isForeign && !exported && html`<${AskHere} key=${`${reply.file} ${reply.index} ${at}`} trainer=${trainer} folder=${folder} prompt=${sample.token_ids.slice(0, turn.tokens[0])} promptText=${textBetween(0, turn.tokens[0])} step=${checkpoint} length=${turn.tokens[1] - turn.tokens[0]} end=${turn.finish_reason === 'length' ? undefined : texts[sample.token_ids[turn.tokens[1] - 1]]} place=${checkpoints ? { id, file: reply.file, index: reply.index, turn: at } : undefined} />`}
      </div>
    </section>
    ${
      known &&
      token !== undefined &&
      html`<aside class="panel" aria-label="Token">
      ${
        tint &&
        html`<${Select} label="Tokens tinted by" value=${tint} options=${tints.map(name => [name, name] as const)} onChange=${onTint} />
      <p class="row tight"><span class="fine">${SCALES[tint][0]}</span><span class="meter ramp" style=${{ '--ramp': isSigned(tint) ? RAMPS.signed : RAMPS.amount }}></span><span class="fine">${SCALES[tint][1]}</span></p>`
      }
      <${TokenPanel} sample=${sample} range=${turn.tokens} texts=${texts} at=${token} turn=${at} />
    </aside>`
    }
  </div>`;
}

/** A longer prompt is too much for a command line. */
const MAX_PROMPT = 8192;
const MAX_TEXT = 30_000;
/** Digits of a step in the name of its checkpoint. */
const STEP_DIGITS = 6;
const LEAST_ANSWER = 16;
const ANSWERS = 4;

/** Changed prompts by run, episode and turn, until the page is left. */
const drafts = new Map<string, string>();

interface AskProps {
  readonly trainer: string;
  readonly folder: string;
  /** Tokens that the policy had before its response. */
  readonly prompt: readonly number[];
  /** Their text. */
  readonly promptText: string;
  /** Step of the chosen checkpoint; the newest where it is absent. */
  readonly step?: number;
  /** Tokens of the response. */
  readonly length: number;
  /** Text of the token that ended the response; absent where it was cut off. */
  readonly end?: string;
  /** The turn that the page asks about, where its dashboard can ask. */
  readonly place?: Pick<Parameters<typeof AskNow>[0], 'id' | 'file' | 'index' | 'turn'>;
}

/** Commands, besides a button, that give a checkpoint of a run the same tokens or a changed text, and print responses. */
export function AskHere({ trainer, folder, prompt, promptText, step, length, end, place }: AskProps) {
  const draft = place && `${place.id} ${place.file} ${place.index} ${place.turn}`;
  const [text, setText] = useState((draft && drafts.get(draft)) ?? promptText);
  const change = (text: string) => {
    if (draft) drafts.set(draft, text);
    setText(text);
  };
  if (prompt.length > MAX_PROMPT) return null;
  const served =
    step === undefined ? folder : `${folder}/checkpoints/step-${String(step).padStart(STEP_DIGITS, '0')}`;
  const isShort = text === promptText || (text.length > 0 && text.length <= MAX_TEXT);
  const body = JSON.stringify({
    prompt: text === promptText ? prompt : text,
    max_tokens: Math.max(LEAST_ANSWER, length),
    n: ANSWERS,
    stop: end ? [end] : undefined,
  });
  return html`<details><summary>Ask the checkpoint here</summary>
    <div class="stack tight">${place && html`<${AskNow} ...${place} step=${step} prompt=${promptText} text=${text} onText=${change} />`}<${Command} text=${`${trainer} serve ${served}`} />
      ${isShort && html`<${Command} text=${`curl -s http://127.0.0.1:8000/v1/completions -H 'content-type: application/json' -d ${shellWord(body)}`} />`}</div>
  </details>`;
}

/** Checkpoints in the list, the newest ones; characters shown of a text as the tokenizer reads it. */
const MAX_LISTED = 200;
const MAX_READ = 500;

interface AskNowProps extends Pick<CheckpointRequest, 'file' | 'index' | 'turn' | 'step'> {
  /** Id of the run. */
  readonly id: string;
  /** The text of the turn's prompt. */
  readonly prompt: string;
  /** It, or what it was changed to. */
  readonly text: string;
  readonly onText: (text: string) => void;
}

interface AskState {
  readonly reply?: AskReply;
  readonly error?: unknown;
  readonly isBusy?: boolean;
}

/** Samples responses to the prompt of a turn, or to a changed one, from a checkpoint, and shows them. */
function AskNow({ id, prompt, text, onText, ...place }: AskNowProps) {
  const source = useSource();
  const [{ reply, error, isBusy }, setState] = useState<AskState>({});
  /** Aborted when the turn is left: a checkpoint that loads for it is given up. */
  const leaving = useMemo(() => new AbortController(), []);
  useEffect(() => () => leaving.abort(), []);
  const ask = async () => {
    setState({ isBusy: true });
    const request = { action: 'ask', ...place, prompt: text === prompt ? undefined : text } as const;
    const state = await source.send<AskReply>('checkpoint', id, request, leaving.signal).then(
      reply => ({ reply }),
      error => ({ error }),
    );
    if (!leaving.signal.aborted) setState(state);
  };
  const problem = promptProblem(text);
  return html`<${CheckpointChoice} id=${id} step=${place.step} changes=${isBusy} />
    <${CodeField} label="Prompt to answer" rows=${3} text=${text} onText=${onText} error=${problem}
      hint="Parts that you leave unchanged keep their tokens." />
    <div class="row"><button type="button" class="small" disabled=${isBusy || problem !== undefined} onClick=${ask}>Sample four responses</button>
      ${text !== prompt && html`<button type="button" class="small" onClick=${() => onText(prompt)}>Undo the changes</button>`}
      <span class="fine" role="status">${isBusy ? 'Asking; the first request loads the checkpoint …' : reply ? `from the checkpoint of step ${reply.step}, at temperature 1, unconstrained${reply.encoded ? `; ${counted(reply.encoded.tokens, 'token')} of the prompt ${reply.encoded.tokens === 1 ? 'is' : 'are'} new` : ''}` : ''}</span></div>
    ${reply?.encoded?.readAs !== undefined && html`<p class="fine outcome warn">The tokenizer lacks some of the new text, and reads it as: <code>${reply.encoded.readAs.slice(0, MAX_READ)}</code></p>`}
    ${error !== undefined && html`<p class="fine outcome field-error" role="alert">${(error as Error).message}</p>`}
    ${isLocked(error) && html`<${TokenForm} onToken=${ask} />`}
    ${reply && html`<ol class="stack tight" aria-label="Sampled responses">${reply.answers.map((answer, i) => html`<li key=${i}><${Answer} ...${answer} /></li>`)}</ol>`}`;
}

interface ChoiceProps extends Pick<AskNowProps, 'id' | 'step'> {
  /** The list is read again whenever it changes. */
  readonly changes: unknown;
}

/** Select of the run's checkpoints; the choice is in the address. */
function CheckpointChoice({ id, step, changes }: ChoiceProps) {
  const source = useSource();
  const read = () => source.get<KeptCheckpoints>('checkpoints', { id });
  const { value: kept, error: problem } = useWork(read, [source, id, changes]);
  const { steps = [], best } = kept ?? {};
  const newest = steps.at(-1);
  const older = new Set([...steps.slice(-MAX_LISTED), best ?? newest].filter(one => one !== newest));
  const options: [string, string][] = [...older]
    .sort((a, b) => b! - a!)
    .map(one => [String(one), `step ${one}${one === best ? ', the best' : ''}`]);
  const first =
    newest === undefined ? 'the newest' : `step ${newest}, the newest${newest === best ? ' and best' : ''}`;
  const isListed = step === undefined || step === newest || older.has(step);
  if (!isListed) options.push([String(step), `step ${step}${kept ? ', not kept' : ''}`]);
  return html`<${Select} inline label="Checkpoint" value=${step === undefined || step === newest ? '' : String(step)}
      options=${[['', first], ...options]} onChange=${(value: string) => choose({ checkpoint: value })} />
    ${problem !== undefined && html`<p class="fine outcome field-error" role="alert">The checkpoints cannot be listed: ${problem.message}</p>`}`;
}

/** A response, each token tinted by its probability. */
function Answer({ text, tokens, isCut }: CheckpointAnswer) {
  const scale = tintScale('log-probability', []);
  const few = tokens.length <= FEW_TOKENS;
  const whole = tokens.reduce((sum, [, logProb]) => sum + logProb, 0);
  return html`<div class="code-box tokens sampled ${few ? 'few' : ''}" tabindex="0" role="group" aria-label=${text}><span class="token-block">${tokens.map(
    ([text, logProb], i) =>
      html`<span key=${i} class="token amount" title=${probability(logProb)} style=${{ '--share': scale(logProb).share.toFixed(3), '--hue': 'var(--tint-amount)' }}>${withLineEnds(text)}${few && html`<small>${probability(logProb)}</small>`}</span>`,
  )}</span></div>
  <p class="fine">${probability(whole)} likely as a whole${isCut && ', cut off'}</p>`;
}
