import { useEffect, useRef, useState } from 'preact/hooks';
import { bucketsOf, EPISODE_CHOICES, filtered, isAlike } from '../../../shared/run-folder/episode-filter.ts';
import type { EndMeanings } from '../../../shared/run-folder/run-files.ts';
import { counted } from '../../../shared/text.ts';
import { endText, successMark } from '../../components/ends.ts';
import { html } from '../../components/html.ts';
import type { EpisodeDigest } from '../../compute/episode-digest.ts';
import type { SearchReply } from '../../server/reader/run-reader.ts';
import type { SearchHit, TrajectoryFile } from '../../server/reader/trajectories.ts';
import { type Address, formatAddress } from '../address.ts';
import type { Query } from '../data/exported-source.ts';
import { useData, useSource } from '../data/hooks.ts';
import { levelOf, percent, short, signed } from '../format.ts';
import type { RunViewProps } from './parts.ts';
import { choose, Select, Status } from './parts.ts';

/** Groups shown before "show more". */
const FIRST_GROUPS = 24;
const SEARCH_DELAY_MS = 300;

/** The episodes of a step, by group, and those that contain a text. */
export function EpisodesView({ store, address }: RunViewProps) {
  const files = [...store.detail!.files].sort((a, b) => b.step - a.step || a.kind.localeCompare(b.kind));
  const { query } = address;
  const { ends } = store.detail!;
  const file = files.find(({ name }) => name === query.file) ?? files[0];
  const {
    value: episodes,
    answered,
    error,
  } = useData<readonly EpisodeDigest[]>(file && 'episodes', {
    id: store.id,
    file: file?.name,
  });
  // Until another file's episodes are loaded, the shown ones lead to their own.
  const shownFile = String(answered?.file);
  const [most, setMost] = useState(FIRST_GROUPS);
  if (!file)
    return html`<p class="panel">No trajectories yet. Training writes them every <code>tracking.trajectories_every</code> steps, and 20 of every validation.</p>`;
  // Rendered together: parts that come later would move the page.
  if (!episodes && !error) return html`<div class="stack episodes" aria-busy="true"></div>`;
  const shown = filtered(episodes ?? [], query);
  const groups = grouped(shown);
  return html`<div class="stack episodes">
    <${Filters} files=${files} file=${file} episodes=${episodes ?? []} query=${query} ends=${ends} />
    <${Search} store=${store} file=${file} query=${query} />
    <${Status} error=${error} />
    ${episodes && html`<p class="fine" role="status">${counted(shown.length, 'episode')} of ${episodes.length} in ${counted(groups.length, 'group')}${shown.some(({ success }) => success !== null) ? `; ${percent(shown.filter(({ success }) => success).length / shown.length)} succeed` : ''}</p>`}
    ${
      groups.every(({ length }) => length === 1)
        ? html`<${Members} id=${store.id} file=${shownFile} members=${shown.slice(0, 8 * most)} named=${true} ends=${ends} />`
        : html`<div class="tiles" style="--tile: 36rem">${groups
            .slice(0, most)
            .map(
              members =>
                html`<${Group} key=${`${members[0].group_id} ${members[0].tag}`} id=${store.id} file=${shownFile} members=${members} ends=${ends} />`,
            )}</div>`
    }
    ${groups.length > most && html`<button type="button" onClick=${() => setMost(most + 4 * FIRST_GROUPS)}>Show ${Math.min(groups.length - most, 4 * FIRST_GROUPS)} more groups</button>`}
  </div>`;
}

const grouped = (episodes: readonly EpisodeDigest[]): EpisodeDigest[][] => [
  ...Map.groupBy(episodes, ({ tag, group_id, seed }) => `${tag}/${group_id}/${seed}`).values(),
];

type Choices = Address['query'];

interface FiltersProps {
  readonly files: readonly TrajectoryFile[];
  readonly file: TrajectoryFile;
  readonly episodes: readonly EpisodeDigest[];
  readonly query: Choices;
  readonly ends?: EndMeanings;
}

function Filters({ files, file, episodes, query, ends }: FiltersProps) {
  const set = (name: string) => (value: string) => choose({ [name]: value });
  const tags = [...new Set(episodes.map(({ tag }) => tag))];
  const reached = new Map(
    episodes.flatMap(({ tag, ended_by }) =>
      ended_by === undefined ? [] : [[ended_by, endText(ended_by, ends?.[tag])]],
    ),
  );
  const buckets = [...new Set(bucketsOf(episodes).values())].sort();
  const number = (name: string, label: string) => html`<label class="field"><span>${label}</span>
    <input type="number" step="any" value=${query[name] ?? ''} onChange=${(event: Event) => set(name)((event.currentTarget as HTMLInputElement).value)} /></label>`;
  return html`<div class="row low controls filters">
    <${Select} label="Step" value=${file.name} onChange=${set('file')}
      options=${files.map(({ name, kind, step }) => [name, `${kind === 'train' ? 'training' : 'validation'}, step ${step}`] as const)} />
    ${(tags.length > 1 || query.env) && html`<${Select} label="Environment" value=${query.env ?? ''} onChange=${set('env')} options=${[['', 'all'], ...tags.map(tag => [tag, tag] as const)]} />`}
    <${Select} label="Success" value=${query.success ?? ''} onChange=${set('success')} options=${[['', 'all'], ['yes', 'succeeded'], ['no', 'failed']]} />
    ${reached.size > 0 && html`<${Select} label="End" value=${query.end ?? ''} onChange=${set('end')} options=${[['', 'all'], ...reached]} />`}
    <${Select} label="Problem" value=${query.problem ?? ''} onChange=${set('problem')}
      options=${[['', 'any'], ['penalty', 'format penalty'], ['invalid', 'turn without a valid action'], ['cut', 'response cut off'], ['unfinished', 'ran out of turns']]} />
    ${
      episodes.some(({ filter }) => filter) &&
      html`<${Select} label="Rollout filter" value=${query.kept ?? ''} onChange=${set('kept')} options=${[['', 'all'], ['yes', 'kept'], ['no', 'dropped']]} />`
    }
    ${
      buckets.length > 1 &&
      html`<${Select} label="Reward variance" value=${query.bucket ?? ''} onChange=${set('bucket')}
      options=${[['', 'all'], ...buckets.map(bucket => [String(bucket), bucket === 1 ? 'bucket 1, least' : `bucket ${bucket}`] as const)]} />`
    }
    <span class="row low">${number('min', 'Return from')} ${number('max', 'to')}</span>
  </div>`;
}

interface MembersProps {
  readonly id: string;
  readonly file: string;
  readonly members: readonly EpisodeDigest[];
  /** True to show the level of each. */
  readonly named?: boolean;
  readonly ends?: EndMeanings;
}

/** Episodes next to one another. */
function Members({ id, file, members, named, ends }: MembersProps) {
  return html`<ul class="tiles members" style="--tile: 7.5rem">${members.map(
    episode => html`<li key=${episode.index}><a class="card member ${successMark(episode.success).tone}" href=${formatAddress({ view: 'episode', run: id, query: { file, index: String(episode.index) } })}>
      ${episode.success !== null && html`<span class="outcome">${successMark(episode.success).sign} ${episode.success ? 'success' : 'failed'}</span>`}
      ${episode.ended_by !== undefined && html`<span class="fine">${endText(episode.ended_by, ends?.[episode.tag])}</span>`}
      ${named && html`<span class="fine">${levelOf(episode)}</span>`}
      <span class="value">return ${short(episode.return)}</span>
      ${episode.advantage !== undefined && html`<span class="fine">advantage ${signed(episode.advantage)}</span>`}
      <span class="fine">${counted(episode.turns, 'turn')}${episode.invalid > 0 ? `, ${episode.invalid} invalid` : ''}${episode.cut ? ', cut off' : ''}</span>
    </a></li>`,
  )}</ul>`;
}

/** A spread; 0 where only rounding makes one. */
const flat = (spread: number): string => short(isAlike(Math.abs(spread)) ? 0 : spread);

/** Members of a group next to one another. */
function Group({ id, file, members, ends }: Omit<MembersProps, 'named'>) {
  const [{ filter, group_id }] = members;
  const why =
    filter &&
    (filter.kept
      ? `kept: score ${flat(filter.score)}`
      : `dropped: score ${flat(filter.score)}${isAlike(filter.std) ? ', all returns are alike' : ''}`);
  return html`<section class="panel">
    <div class="panel-head"><h2>${levelOf(members[0])}</h2>
      ${filter && html`<span class="chip ${filter.kept ? 'good' : 'warn'}">${why}</span>`}
      ${members[0].prompt !== undefined && html`<span class="fine cut">… ${members[0].prompt}</span>`}
      <span class="fine push">group ${group_id}${filter ? `, spread ${flat(filter.std)}` : ''}</span></div>
    <${Members} id=${id} file=${file} members=${members} ends=${ends} />
  </section>`;
}

interface SearchProps {
  readonly store: RunViewProps['store'];
  readonly file: TrajectoryFile;
  readonly query: Choices;
}

/** A search so far. */
interface Found extends SearchReply {
  readonly q: string;
  /** The query that it answers. */
  readonly key: string;
  readonly error?: string;
}

/** Full-text search in prompts and responses of the episodes that pass the filters. */
function Search({ store, file, query }: SearchProps) {
  const { q = '' } = query;
  const everywhere = query.all === 'yes';
  const { found, isCurrent, more } = useSearch({
    id: store.id,
    q,
    file: everywhere ? undefined : file.name,
    ...Object.fromEntries(EPISODE_CHOICES.map(name => [name, query[name]])),
  });
  return html`<div class="row low controls" role="search">
      <label class="field grow"><span>Search prompts and responses</span>
        <input type="search" aria-keyshortcuts="/" value=${q} onInput=${(event: Event) => choose({ q: (event.currentTarget as HTMLInputElement).value })} /></label>
      <label class="check"><input type="checkbox" checked=${everywhere} onChange=${() => choose({ all: everywhere ? '' : 'yes' })} /> in all steps</label>
    </div>
    <${Status} error=${found?.error} />
    ${
      q !== '' &&
      !found?.error &&
      html`<div class="panel"><p role="status">${found && isCurrent ? foundText(found) : 'Searching …'}</p>
      ${found && html`<ul class="stack hits">${found.hits.map(hit => html`<${Hit} key=${`${hit.file} ${hit.index}`} id=${store.id} hit=${hit} wanted=${found.q} />`)}</ul>`}
      ${isCurrent && found?.next !== undefined && html`<button type="button" onClick=${more}>Search on</button>`}</div>`
    }`;
}

/** Searches a moment after the query changed; `more` continues where the search ended. */
function useSearch(query: Query & { readonly q: string }) {
  const source = useSource();
  const [found, setFound] = useState<Found>();
  const asked = useRef('');
  const key = JSON.stringify(query);
  const ask = async (before: readonly SearchHit[], from?: string) => {
    let reply: Found;
    try {
      reply = { ...(await source.get<SearchReply>('search', { ...query, from })), q: query.q, key };
    } catch (error) {
      reply = { hits: [], complete: false, q: query.q, key, error: (error as Error).message };
    }
    if (asked.current === key) setFound({ ...reply, hits: [...before, ...reply.hits] });
  };
  useEffect(() => {
    asked.current = key;
    if (query.q === '') return setFound(undefined);
    const timer = setTimeout(() => void ask([]), SEARCH_DELAY_MS);
    return () => clearTimeout(timer);
  }, [source, key]);
  return { found, isCurrent: found?.key === key, more: () => ask(found?.hits ?? [], found?.next) };
}

function foundText({ hits, complete }: SearchReply): string {
  const found = hits.length === 0 ? 'Nothing found' : `Found in ${counted(hits.length, 'episode')}`;
  return `${found}${complete ? '.' : ' so far.'}`;
}

function Hit({ id, hit, wanted }: { readonly id: string; readonly hit: SearchHit; readonly wanted: string }) {
  const at = hit.snippet.toLowerCase().indexOf(wanted.toLowerCase());
  const link = formatAddress({
    view: 'episode',
    run: id,
    query: { file: hit.file, index: String(hit.index), turn: String(hit.turn) },
  });
  return html`<li><a href=${link}>${hit.file}, ${levelOf(hit.digest)}, turn ${hit.turn + 1}</a>
    ${hit.digest.success !== null && html`<span class="chip ${successMark(hit.digest.success).tone}">${hit.digest.success ? 'success' : 'failed'}</span> `}<span class="fine">${hit.where}</span>
    <pre class="snippet">…${hit.snippet.slice(0, at)}<mark>${hit.snippet.slice(at, at + wanted.length)}</mark>${hit.snippet.slice(at + wanted.length)}…</pre></li>`;
}
