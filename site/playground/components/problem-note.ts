import { fill, h } from '../../components/element.ts';
import { withUnit } from '../../components/with-unit.ts';
import { RequestFailed } from '../client/client.ts';
import type { Violation } from '../client/wire.ts';

/** Advice for this page, in place of details from the server that name its routes. */
const PAGE_ADVICE: { readonly [code: string]: string } = {
  environment_exists:
    'An environment has this id already. Press Replace to put your definition in its place, or choose another id.',
  builtin_environment: 'This id belongs to a built-in environment. Choose another id for yours.',
  environment_in_use:
    'Sessions of this environment are open. Wait until they end (Watch shows them), then press the button again.',
};

/** Line of a script, as the checker names it. */
export const LINE = /line (\d+)/;

/** Full report of an error; hidden while there is none. */
export class ProblemNote {
  readonly element = h('div', { class: 'note bad problem', role: 'alert', hidden: true });
  readonly #show: ((violation: Violation) => void) | undefined;

  /** @param show leads to the place of a violation; without it their pointers are only named */
  constructor(show?: (violation: Violation) => void) {
    this.#show = show;
  }

  clear(): void {
    this.element.hidden = true;
    fill(this.element);
  }

  /** Runs work and shows what it throws; true when it threw nothing. */
  async around(work: () => Promise<void>): Promise<boolean> {
    try {
      await work();
      this.clear();
      return true;
    } catch (error) {
      this.show(error);
      return false;
    }
  }

  show(error: unknown): void {
    const isNew = this.element.hidden;
    this.element.hidden = false;
    this.#report(error);
    if (isNew) this.element.scrollIntoView({ block: 'nearest' });
  }

  #report(error: unknown): void {
    if (!(error instanceof RequestFailed)) {
      fill(this.element, h('p', { class: 'title' }, error instanceof Error ? error.message : String(error)));
      return;
    }
    const { title, status, code, detail, errors = [], trace_id: trace, retry_after_s: wait } = error.problem;
    const items = errors
      .map(violation => this.#violation(violation, code, detail))
      .filter(item => item.hasChildNodes());
    fill(
      this.element,
      h('p', { class: 'title' }, title),
      h('p', {}, (code !== undefined && PAGE_ADVICE[code]) || detail),
      items.length > 0 && h('ul', {}, ...items),
      wait !== undefined && h('p', {}, `Try again in ${withUnit(wait, 's')}.`),
      h('p', { class: 'fine' }, `${status}${code ? ` ${code}` : ''}${trace ? ` · trace ${trace}` : ''}`),
    );
  }

  /** Item for a violation: a link to its place, and its text unless `detail` contains it. */
  #violation(violation: Violation, code: string | undefined, detail: string): HTMLLIElement {
    const show = this.#show;
    const pointer = code === 'check_failed' ? undefined : violation.pointer || '/';
    const place = LINE.exec(violation.detail)?.[0] ?? pointer;
    const isRepeated = detail.includes(violation.detail);
    if (isRepeated && !show) return h('li');
    return h(
      'li',
      {},
      place !== undefined &&
        (show
          ? h('button', { type: 'button', class: 'link', onclick: () => show(violation) }, place)
          : h('code', {}, place)),
      !isRepeated && ` ${violation.detail}`,
    );
  }
}
