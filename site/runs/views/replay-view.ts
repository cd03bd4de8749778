import type { EpisodeRecord } from '../../../shared/run-folder/run-files.ts';
import { counted } from '../../../shared/text.ts';
import { Board } from '../../boards/board.ts';
import { html } from '../../components/html.ts';
import { useWork } from '../../components/store.ts';
import type { EpisodeDigest } from '../../compute/episode-digest.ts';
import type { EpisodeReply } from '../../server/reader/trajectories.ts';
import { formatAddress } from '../address.ts';
import { useData, useSource } from '../data/hooks.ts';
import { short } from '../format.ts';
import type { RunViewProps } from './parts.ts';
import { choose, Select, Status } from './parts.ts';

/** Most validations shown side by side; of more, some evenly chosen and the last. */
const MAX_FRAMES = 12;

interface Take {
  readonly file: string;
  readonly step: number;
  readonly index: number;
  readonly episode: EpisodeRecord;
}

/** One validation level as played at every validation. */
export function ReplayView({ store, address }: RunViewProps) {
  const files = store
    .detail!.files.filter(({ kind }) => kind === 'validation')
    .sort((a, b) => a.step - b.step);
  const last = files.at(-1);
  const { value: levels, error } = useData<readonly EpisodeDigest[]>(last && 'episodes', {
    id: store.id,
    file: last?.name,
  });
  const { value: before } = useData<readonly EpisodeDigest[]>(last && 'episodes', {
    id: store.id,
    file: files[0]?.name,
  });
  const level =
    levels?.find(({ seed, tag }) => `${tag}/${seed}` === address.query.level) ??
    (before && levels && telling(before, levels));
  const takes = useTakes(store.id, chosenOf(files), level?.index);
  const most = Math.max(0, ...takes.map(({ episode }) => episode.turns.length));
  const turn = Math.min(most, Number(address.query.turn ?? most));
  if (!last) return html`<p class="panel">No validation yet: its first episodes appear here.</p>`;
  const show = (value: number) => choose({ turn: String(Math.max(0, Math.min(most, value))) });
  return html`<div class="stack">
    <${Status} error=${error} loading=${!levels && !error} />
    ${
      level &&
      html`<div class="row low controls">
      <${Select} label="Validation level" value=${`${level.tag}/${level.seed}`}
        options=${levels!.map(({ tag, seed }) => [`${tag}/${seed}`, `${tag}, seed ${seed}`] as const)}
        onChange=${(value: string) => choose({ level: value, turn: '' })} />
      <label class="field grow"><span>Turn ${turn} of ${most}</span>
        <input type="range" min="0" max=${most} value=${turn} onInput=${(event: Event) => show(Number((event.currentTarget as HTMLInputElement).value))} /></label>
      <button type="button" onClick=${() => show(turn - 1)} disabled=${turn === 0}>Back</button>
      <button type="button" onClick=${() => show(turn + 1)} disabled=${turn === most}>Next</button>
      <${PlayLevel} store=${store} level=${level} />
    </div>
    <ul class="tiles" style="--tile: 13rem">${takes.map(take => html`<${Frame} key=${take.step} store=${store} take=${take} turn=${turn} />`)}</ul>`
    }
  </div>`;
}

/** The level that best shows what was learned: one that failed at first and succeeds now. */
function telling(before: readonly EpisodeDigest[], now: readonly EpisodeDigest[]): EpisodeDigest | undefined {
  return now.find(({ success }, i) => success && before[i]?.success === false) ?? now[0];
}

/** At most this many files, evenly chosen, including the first and the last. */
function chosenOf<T>(files: readonly T[]): readonly T[] {
  if (files.length <= MAX_FRAMES) return files;
  return Array.from(
    { length: MAX_FRAMES },
    (_, i) => files[Math.round((i * (files.length - 1)) / (MAX_FRAMES - 1))],
  );
}

/** The same line of each file: validations play the same levels in the same order. */
function useTakes(
  id: string,
  files: readonly { readonly name: string; readonly step: number }[],
  index: number | undefined,
): readonly Take[] {
  const source = useSource();
  const names = files.map(({ name }) => name).join();
  const read = async (): Promise<readonly Take[]> => {
    if (index === undefined) return [];
    const reading = files.map(async ({ name, step }) => {
      const reply = await source
        .get<EpisodeReply>('episode', { id, file: name, index })
        .catch(() => undefined);
      return reply ? [{ file: name, step, index, episode: reply.episode }] : [];
    });
    return (await Promise.all(reading)).flat();
  };
  return useWork(read, [source, id, names, index]).value ?? [];
}

function Frame({
  store,
  take,
  turn,
}: {
  readonly store: RunViewProps['store'];
  readonly take: Take;
  readonly turn: number;
}) {
  const { episode, step } = take;
  const { turns } = episode;
  const over = turn >= turns.length;
  const state = over ? episode.final_structured : turns[turn].structured;
  const text = over ? episode.final_state : turns[turn].state;
  const link = formatAddress({
    view: 'episode',
    run: store.id,
    query: { file: take.file, index: String(take.index), turn: String(Math.min(turn, turns.length - 1)) },
  });
  return html`<li class="card frame">
    <p class="row apart"><a href=${link}>Step ${step}</a>
      ${over ? html`<span class="chip ${episode.success ? 'good' : 'bad'}">${episode.success ? 'success' : 'no success'}</span>` : html`<span class="fine">turn ${turn + 1} of ${turns.length}</span>`}</p>
    <${Board} state=${state} text=${text} />
    <p class="fine">return ${short(episode.return)} in ${counted(turns.length, 'turn')}</p>
  </li>`;
}

/** A link to play the level on the environment server. */
function PlayLevel({
  store,
  level,
}: {
  readonly store: RunViewProps['store'];
  readonly level: EpisodeDigest;
}) {
  const { server } = useSource().site;
  if (server === null) return null;
  const config = store.detail!.row.run.tags.find(({ tag }) => tag === level.tag)?.config ?? {};
  return html`<a class="button" href=${playAddress(server, level.env_id, level.seed ?? 0, config)}>Play this level yourself</a>`;
}

/** The address of a level on the server's page. */
export function playAddress(server: string, envId: string, seed: number, config: object): string {
  const query = new URLSearchParams({ seed: String(seed) });
  if (Object.keys(config).length > 0) query.set('config', JSON.stringify(config));
  return `${server}#/play/${encodeURIComponent(envId)}?${query}`;
}
