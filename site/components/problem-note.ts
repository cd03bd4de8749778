import { useLayoutEffect, useRef } from 'preact/hooks';
import { html } from './html.ts';
import { type ProblemReply, RequestFailed } from './request.ts';
import { withUnit } from './text.ts';

/** One fault, with a JSON pointer to it in the request. */
export type Violation = NonNullable<ProblemReply['errors']>[number];

/** Advice for this page, which replaces server details that name routes. */
const PAGE_ADVICE: { readonly [code: string]: string } = {
  unauthorized: 'Write a token of this server into the field at the top of the page.',
  environment_exists:
    'An environment has this id already. Press Replace to put your definition in its place, or choose another id.',
  builtin_environment: 'This id belongs to a built-in environment. Choose another id for yours.',
  environment_in_use:
    'Sessions of this environment are open. Wait until they end (Watch shows them), then press the button again.',
};

/** Line of a script, as the checker reports it. */
export const LINE = /line (\d+)/;

interface ProblemNoteProps {
  /** An error; undefined while there is none. */
  readonly problem: unknown;
  /** Moves to the place of a violation; without it pointers are only shown. */
  readonly reveal?: (violation: Violation) => void;
  /** A remedy, after the report. */
  readonly advice?: string;
}

/** Full report of an error. */
export function ProblemNote({ problem, reveal, advice }: ProblemNoteProps) {
  const place = useRef<HTMLDivElement>(null);
  const isShown = problem !== undefined;
  useLayoutEffect(() => {
    if (isShown) place.current?.scrollIntoView({ block: 'nearest' });
  }, [isShown]);
  if (!isShown) return null;
  return html`<div ref=${place} class="note bad problem" role="alert">
    ${
      problem instanceof RequestFailed
        ? report(problem, reveal)
        : html`<p class="title">${problem instanceof Error ? problem.message : String(problem)}</p>`
    }
    ${advice !== undefined && html`<p>${advice}</p>`}
  </div>`;
}

function report({ problem }: RequestFailed, reveal: ProblemNoteProps['reveal']) {
  const { title, status, code, detail, errors = [], trace_id: trace, retry_after_s: wait } = problem;
  const items = errors.flatMap(violation => {
    const isRepeated = detail.includes(violation.detail);
    if (isRepeated && !reveal) return [];
    const pointer = code === 'check_failed' ? undefined : violation.pointer || '/';
    const place = LINE.exec(violation.detail)?.[0] ?? pointer;
    const link = reveal
      ? html`<button type="button" class="link" onClick=${() => reveal(violation)}>${place}</button>`
      : html`<code>${place}</code>`;
    const text = isRepeated ? '' : ` ${violation.detail}`;
    return place === undefined && text === '' ? [] : [html`<li>${place !== undefined && link}${text}</li>`];
  });
  return html`<p class="title">${title}</p>
    <p>${(code !== undefined && PAGE_ADVICE[code]) || detail}</p>
    ${items.length > 0 && html`<ul>${items}</ul>`}
    ${wait !== undefined && html`<p>Try again in ${withUnit(wait, 's')}.</p>`}
    <p class="fine">${status}${code ? ` ${code}` : ''}${trace ? ` · trace ${trace}` : ''}</p>`;
}
