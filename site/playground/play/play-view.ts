import { h } from '../../components/element.ts';
import type { PlayAddress } from '../address.ts';
import type { Client } from '../client/client.ts';
import { EnvironmentPicker } from '../components/environment-picker.ts';
import { ProblemNote } from '../components/problem-note.ts';
import { requestLog } from '../components/request-log.ts';
import { Transcript } from '../components/transcript.ts';
import type { View } from '../view.ts';
import { EpisodeView, type EpisodeViewOptions } from './episode-view.ts';

/** Pick an environment, play it, see what went over the wire. */
export class PlayView implements View<'play'> {
  readonly #picker: EnvironmentPicker;
  readonly #episodeView: EpisodeView;
  readonly #transcript = new Transcript();
  readonly #saveNote = new ProblemNote();
  readonly element: HTMLElement;
  /** Number of the latest request to show something; results of earlier ones are dropped. */
  #turn = 0;

  constructor(client: Client, options: Pick<EpisodeViewOptions, 'announce' | 'onaddress'>) {
    this.#picker = new EnvironmentPicker(client);
    this.#episodeView = new EpisodeView(client, {
      ...options,
      onchange: moves => this.#transcript.show(moves),
    });
    this.element = h(
      'div',
      { class: 'play-view' },
      this.#episodeView.element,
      this.#picker.element,
      h(
        'div',
        { class: 'stack roomy side' },
        requestLog(client),
        h(
          'section',
          { class: 'panel', 'aria-labelledby': 'steps-title' },
          h(
            'div',
            { class: 'panel-head' },
            h('h2', { id: 'steps-title' }, 'Steps'),
            h(
              'button',
              { type: 'button', class: 'quiet small', onclick: () => this.#save() },
              'Save trajectory',
            ),
          ),
          this.#saveNote.element,
          this.#transcript.element,
        ),
      ),
    );
    addEventListener('pagehide', () => this.#episodeView.close());
  }

  async show({ view: _view, envId, ...start }: PlayAddress, _first: boolean): Promise<void> {
    document.addEventListener('keydown', this.#press);
    const turn = ++this.#turn;
    const listed = this.#picker.load();
    const chosen = envId ?? (await listed)?.[0]?.env_id;
    if (chosen === undefined || turn !== this.#turn) return;
    this.#picker.current = chosen;
    await this.#episodeView.open({ envId: chosen, ...start }, true);
  }

  hide(): void {
    document.removeEventListener('keydown', this.#press);
    this.#turn++;
    this.#episodeView.close();
  }

  /** To the board. */
  focus(): void {
    this.#episodeView.focus();
  }

  readonly #press = (event: KeyboardEvent): void => this.#episodeView.press(event);

  async #save(): Promise<void> {
    await this.#saveNote.around(async () => {
      const { episode } = this.#episodeView;
      if (!episode) return;
      const address = URL.createObjectURL(
        new Blob([await episode.trajectory()], { type: 'application/jsonl' }),
      );
      h('a', { href: address, download: `${episode.session.session_id}.jsonl` }).click();
      URL.revokeObjectURL(address);
    });
  }
}
