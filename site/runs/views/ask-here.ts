import type { ComponentChildren } from 'preact';
import { shellWord } from '../../../shared/shell-word.ts';
import { Command } from '../../components/copy-button.ts';
import { html } from '../../components/html.ts';

/** A longer prompt is too much for a command line. */
const MAX_PROMPT = 8192;
const LEAST_ANSWER = 16;
const ANSWERS = 4;

interface AskProps {
  readonly trainer: string;
  readonly folder: string;
  /** Tokens that the policy had before its response. */
  readonly prompt: readonly number[];
  /** Tokens of the response. */
  readonly length: number;
  /** Text of the token that ended the response; absent where it was cut off. */
  readonly end?: string;
  /** A button that asks it from the page, where a dashboard can. */
  readonly children?: ComponentChildren;
}

/** Commands, besides a button, that give the newest checkpoint of a run the same tokens, and print some of its responses. */
export function AskHere({ trainer, folder, prompt, length, end, children }: AskProps) {
  if (prompt.length > MAX_PROMPT) return null;
  const body = JSON.stringify({
    prompt,
    max_tokens: Math.max(LEAST_ANSWER, length),
    n: ANSWERS,
    stop: end ? [end] : undefined,
  });
  return html`<details><summary>Ask the checkpoint here</summary>
    <div class="stack tight">${children}<${Command} text=${`${trainer} serve ${folder}`} />
      <${Command} text=${`curl -s http://127.0.0.1:8000/v1/completions -H 'content-type: application/json' -d ${shellWord(body)}`} /></div>
  </details>`;
}
