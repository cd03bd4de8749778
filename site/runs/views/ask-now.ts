import { useEffect, useRef, useState } from 'preact/hooks';
import type {
  AskReply,
  CheckpointAnswer,
  CheckpointRequest,
} from '../../../shared/run-folder/checkpoint-request.ts';
import { html } from '../../components/html.ts';
import { useSource } from '../data/hooks.ts';
import { isLocked, TokenForm } from './token-form.ts';
import { probability, withLineEnds } from './token-text.ts';
import { FEW_TOKENS, tintScale } from './tokens.ts';

interface AskNowProps extends Pick<CheckpointRequest, 'file' | 'index' | 'turn'> {
  /** Id of the run. */
  readonly id: string;
}

interface AskState {
  readonly reply?: AskReply;
  readonly error?: unknown;
  readonly isBusy?: boolean;
}

/** Button that samples responses to the prompt of a turn from the newest checkpoint, and the responses. */
export function AskNow({ id, ...place }: AskNowProps) {
  const source = useSource();
  const [{ reply, error, isBusy }, setState] = useState<AskState>({});
  const open = useRef(true);
  useEffect(
    () => () => {
      open.current = false;
    },
    [],
  );
  const ask = async () => {
    setState({ isBusy: true });
    const state = await source.checkpoint<AskReply>(id, { action: 'ask', ...place }).then(
      reply => ({ reply }),
      error => ({ error }),
    );
    if (open.current) setState(state);
  };
  return html`<div class="row"><button type="button" class="small" disabled=${isBusy} onClick=${ask}>Sample four responses</button>
      <span class="fine" role="status">${isBusy ? 'Asking; the first request loads the checkpoint …' : reply ? `from the checkpoint of step ${reply.step}, at temperature 1, unconstrained` : ''}</span></div>
    ${error !== undefined && html`<p class="fine outcome field-error" role="alert">${(error as Error).message}</p>`}
    ${isLocked(error) && html`<${TokenForm} onToken=${ask} />`}
    ${reply && html`<ol class="stack tight" aria-label="Sampled responses">${reply.answers.map((answer, i) => html`<li key=${i}><${Answer} ...${answer} /></li>`)}</ol>`}`;
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
