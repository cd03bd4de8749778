import { useEffect, useMemo, useState } from 'preact/hooks';
import { counted } from '../../../shared/counted.ts';
import {
  type AskReply,
  type CheckpointAnswer,
  type CheckpointRequest,
  type KeptCheckpoints,
  promptProblem,
} from '../../../shared/run-folder/checkpoint-request.ts';
import { CodeField } from '../../components/fields.ts';
import { html } from '../../components/html.ts';
import { isLocked } from '../../components/request.ts';
import { useWork } from '../../components/store.ts';
import { useSource } from '../data/hooks.ts';
import { choose, Select, TokenForm } from './parts.ts';
import { FEW_TOKENS, probability, tintScale, withLineEnds } from './tokens.ts';

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
export function AskNow({ id, prompt, text, onText, ...place }: AskNowProps) {
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
      options=${[['', first], ...options]} onChange=${(value: string) => choose({ checkpoint: value }, true)} />
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
