import { h, newId } from '../../components/element.ts';
import type { Environment } from '../client/wire.ts';

interface StartBarActions {
  /** @param preset undefined for the defaults */
  choose(preset: string | undefined): void;
  /** @param seed undefined for one that the server draws */
  reset(seed: number | undefined): void;
}

/** Preset, seed, and the buttons that begin an episode. */
export class StartBar {
  readonly #presets: HTMLSelectElement;
  readonly #seed: HTMLInputElement;
  readonly element: HTMLFormElement;
  /** A seed was written that nothing was begun with: the field keeps it. */
  #edited = false;

  constructor({ presets, capabilities }: Environment, { choose, reset }: StartBarActions) {
    const presetId = newId();
    const seedId = newId();
    this.#presets = h(
      'select',
      { id: presetId, onchange: () => choose(this.preset) },
      h('option', { value: '' }, 'defaults'),
      ...Object.keys(presets).map(name => h('option', { value: name }, name)),
    );
    this.#seed = h('input', {
      id: seedId,
      type: 'number',
      min: 0,
      step: 1,
      placeholder: capabilities.seed ? 'drawn' : 'none',
      disabled: !capabilities.seed,
      oninput: () => {
        this.#edited = true;
      },
    });
    this.element = h(
      'form',
      {
        class: 'row start',
        novalidate: true,
        onsubmit: (event: SubmitEvent) => {
          event.preventDefault();
          reset(this.takeSeed());
        },
      },
      Object.keys(presets).length > 0 &&
        h('span', { class: 'pair' }, h('label', { for: presetId }, 'Preset'), this.#presets),
      h('span', { class: 'pair' }, h('label', { for: seedId }, 'Seed'), this.#seed),
      h('button', { type: 'submit' }, 'Reset'),
      capabilities.seed && h('button', { type: 'button', onclick: () => this.#drawSeed(reset) }, 'New seed'),
    );
  }

  get preset(): string | undefined {
    return this.#presets.value || undefined;
  }

  set preset(preset: string | undefined) {
    this.#presets.value = preset ?? '';
  }

  /** The seed for an episode that begins now; undefined where the field is empty. */
  takeSeed(): number | undefined {
    this.#edited = false;
    const { valueAsNumber } = this.#seed;
    return Number.isNaN(valueAsNumber) ? undefined : valueAsNumber;
  }

  /** Shows the seed that is played, unless another one is being written. */
  set seed(seed: number | undefined) {
    if (this.#edited) return;
    this.#seed.value = seed === undefined ? '' : String(seed);
  }

  #drawSeed(reset: StartBarActions['reset']): void {
    this.#edited = false;
    reset(undefined);
  }
}
