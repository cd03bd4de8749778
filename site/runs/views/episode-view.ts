import { useEffect, useMemo, useRef } from 'preact/hooks';
import { isObject, type Json } from '../../../shared/json.ts';
import { isAlike } from '../../../shared/run-folder/episode-filter.ts';
import type { EpisodeRecord } from '../../../shared/run-folder/run-files.ts';
import { counted } from '../../../shared/text.ts';
import { Board, boardKindOf } from '../../boards/board.ts';
import { saveFile } from '../../components/buttons.ts';
import { episodeEnd, type Meanings, successMark } from '../../components/ends.ts';
import { html } from '../../components/html.ts';
import type { EpisodeDigest } from '../../compute/episode-digest.ts';
import { type PathCell, playerOf } from '../../compute/episode-digest.ts';
import type { EpisodeReply } from '../../server/reader/trajectories.ts';
import { formatAddress, parseAddress } from '../address.ts';
import { useData } from '../data/hooks.ts';
import { levelOf, short, signed } from '../format.ts';
import { useBranch } from './branch.ts';
import type { RunViewProps } from './parts.ts';
import { choose, Status, useKeys } from './parts.ts';
import { weightsIn } from './tag-panels.ts';
import { knownTints, probability, promptRange, type Tint } from './tokens.ts';
import { TurnPanel } from './turn-panel.ts';
import { Arrow, actionNames, leastLikely, leastLikelyIn, turnNumbers } from './turn-words.ts';

/** Names of actions that may need more than a line in the strip of turns have three lines, and their whole in a title. */
const LONG_NAME = 20;
const MAX_NAME = 200;
const THREE_LINES =
  'display: -webkit-box; overflow: hidden; overflow-wrap: anywhere; -webkit-box-orient: vertical; -webkit-line-clamp: 3';
/** Longest expected answer on one line. */
const MAX_ANSWER_LENGTH = 200;
/** A link within a line that a finger can hit: 24 px high. */
const TARGET = 'padding-block: 5px';

/** One episode: its end, its turns, the chosen turn in detail, and the rest of its group. */
export function EpisodeView({ store, address }: RunViewProps) {
  const { file = '', index = '0' } = address.query;
  const { value, error } = useData<EpisodeReply>('episode', { id: store.id, file, index });
  const { value: all, error: noGroup } = useData<readonly EpisodeDigest[]>('episodes', {
    id: store.id,
    file,
  });
  const isKnown = value !== undefined && (all ?? noGroup) !== undefined;
  const current = value?.file === file && value.index === Number(index);
  // The previous episode stays until the next one is loaded, so that nothing jumps and no key is lost.
  return html`<div class="stack episode" aria-busy=${value && !current ? 'true' : undefined}>
    <${Status} error=${error} loading=${!isKnown && !error} />
    ${error && html`<p><a href=${formatAddress({ view: 'episodes', run: store.id })}>All episodes of ${store.id}</a></p>`}
    ${isKnown && !error && html`<${Episode} key=${`${value.file} ${value.index}`} store=${store} address=${address} reply=${value} all=${all ?? []} />`}
  </div>`;
}

interface EpisodeProps extends RunViewProps {
  readonly reply: EpisodeReply;
  /** All episodes of the file; empty where they cannot be read. */
  readonly all: readonly EpisodeDigest[];
}

function Episode({ store, address, reply, all }: EpisodeProps) {
  const { episode, file, count } = reply;
  const { turns, samples } = episode;
  const { query } = address;
  /** The episode in the address, which may still be loading. */
  const index = Number(query.index ?? 0);
  const last = Math.max(0, turns.length - 1);
  const least = useMemo(() => leastLikely(episode), [episode]);
  const turn = Math.max(
    0,
    Math.min(last, query.turn === undefined ? (least?.turn ?? 0) : Number(query.turn) || 0),
  );
  const sample = samples[turns[turn]?.sample];
  const range = turns[turn]?.tokens ?? [0, 0];
  const [start, end] = range;
  const wanted = query.token === undefined ? undefined : start + Number(query.token);
  const token =
    wanted !== undefined && wanted >= start && wanted < end ? wanted : leastLikelyIn(sample, range);
  const tints = knownTints(samples[0]);
  const tint = tints.find(name => name === query.tint) ?? tints[0];
  const checkpoint = /^\d{1,9}$/.test(query.checkpoint ?? '') ? Number(query.checkpoint) : undefined;
  const branch = useBranch(store, reply, checkpoint);
  const { tag, group_id } = episode;
  const group = all.filter(other => other.tag === tag && other.group_id === group_id);
  const other = (to: number) =>
    formatAddress({
      view: 'episode',
      run: store.id,
      query: { file, index: String(to), tint: query.tint ?? '', checkpoint: query.checkpoint ?? '' },
    });
  const go = (to: number) => choose({ turn: String(Math.max(0, Math.min(last, to))), token: '' });
  const pick = (at: number) => choose({ turn: String(turn), token: String(at - start) });
  const memberAt = (at: number) => group.findIndex(one => one.index === at);
  const now = () => Number(parseAddress(location.hash).query.index ?? 0); // Earlier keys may not be rendered yet.
  useKeys({
    ArrowLeft: () => go(turn - 1),
    ArrowRight: () => go(turn + 1),
    ArrowUp: () => token !== undefined && pick(Math.max(start, token - 1)),
    ArrowDown: () => token !== undefined && pick(Math.min(end - 1, token + 1)),
    t: () => tint && choose({ tint: tints[(tints.indexOf(tint) + 1) % tints.length] }),
    b: () => branch.available && !branch.busy && void branch.open(turn, 'hand'),
    g: () => group.length > 1 && open(other(group[(memberAt(now()) + 1) % group.length].index)),
    j: () => now() < count - 1 && open(other(now() + 1)),
    k: () => now() > 0 && open(other(now() - 1)),
  });
  const meanings = store.detail!.ends?.[tag];
  const end_ = episodeEnd(episode, meanings);
  const mark = successMark(episode.success);
  return html`<div class="row">
      <nav class="fine grow" aria-label="Position"><a style=${TARGET} href="#/">Runs</a> / <a style=${TARGET} href=${formatAddress({ view: 'overview', run: store.id })}>${store.id}</a> / <a style=${TARGET} href=${formatAddress({ view: 'episodes', run: store.id, query: { file } })}>${stepOf(file)}</a>${group.length > 1 ? ` / Group ${group_id} / Try ${memberAt(index) + 1}` : ''}</nav>
      <span class="row"><span class="fine">Episode ${index + 1} of ${count}</span>
      ${index > 0 ? html`<a class="button small" href=${other(index - 1)} aria-keyshortcuts="k" aria-label="Episode before"><${Arrow} name="up" /></a>` : null}
      ${index < count - 1 ? html`<a class="button small" href=${other(index + 1)} aria-keyshortcuts="j" aria-label="Episode after"><${Arrow} name="down" /></a>` : null}
      <button type="button" class="small" onClick=${() => saveFile(`${tag}-${episode.seed ?? file}-${index}.jsonl`, new Blob([chatLine(reply)]))}>Save<span class="visually-hidden"> as messages (JSONL)</span></button></span>
    </div>
    <div class="row apart low">
      <div class="grow"><h1>${end_.text}${turns.length > 0 ? ` in turn ${turns.length}` : ''} ${episode.success !== null && html`<span class="chip ${mark.tone}" data-sign=${mark.sign}>${mark.word}</span>`}</h1>
        <${Facts} episode=${episode} /></div>
      <${Figures} episode=${episode} weights=${weightsIn(store.detail!.config)} group=${group} least=${least} onLeast=${() => least && choose({ turn: String(least.turn), token: '' })} />
    </div>
    <${TurnStrip} episode=${episode} turn=${turn} onTurn=${go} end=${end_.text} />
    ${branch.branch && branch.View && html`<${branch.View} key=${branch.branch.session} branch=${branch.branch} close=${branch.close} server=${branch.server} />`}
    ${
      turns.length > 0 &&
      html`<${TurnPanel} reply=${reply} turn=${turn} token=${token} tint=${tint} tints=${tints} onToken=${pick}
        onTint=${(value: Tint) => choose({ tint: value })} branch=${branch} folder=${store.detail!.folder} id=${store.id} checkpoint=${checkpoint} />`
    }
    ${group.length > 1 && html`<${GroupMembers} group=${group} level=${turns[0]?.structured} index=${index} link=${other} meanings=${meanings} />`}
    <p class="fine keys"><kbd>←</kbd> <kbd>→</kbd> turn ${token !== undefined && html`<kbd>↑</kbd> <kbd>↓</kbd> token <kbd>T</kbd> tint `}${branch.available && html`<kbd>B</kbd> branch `}<kbd>G</kbd> next of the group <kbd>J</kbd> <kbd>K</kbd> next and previous episode</p>
    <div class="bar thumb-bar"><button type="button" aria-label="Turn before" disabled=${turn === 0} onClick=${() => go(turn - 1)}>←</button>
      <strong>Turn ${turn + 1}/${turns.length}</strong>
      <button type="button" aria-label="Turn after" disabled=${turn === last} onClick=${() => go(turn + 1)}>→</button></div>`;
}

/** `train-000010` → `Step 10`, and `validation-000010` → `Validation 10`. */
function stepOf(file: string): string {
  const [kind, step = ''] = file.split('-');
  return `${kind === 'train' ? 'Step' : 'Validation'} ${Number(step)}`;
}

const open = (hash: string): void => {
  location.hash = hash;
};

/** An action in the strip of turns; of a tool's long arguments the first without its name. */
function ActionName({ name }: { readonly name: string }) {
  if (name.length <= LONG_NAME) return html`<span><${Arrow} name=${name} />${name}</span>`;
  const [tool, rest] = name.split(/\(\n {2}\w+: ?\n? */, 2);
  const text = rest === undefined ? name : `${tool}(${rest}`;
  return html`<span style=${THREE_LINES} title=${name}>${text.slice(0, MAX_NAME)}</span>`;
}

function Facts({ episode }: { readonly episode: EpisodeRecord }) {
  const { env_id, seed, turns, filter, server, samples, format, expected } = episode;
  if (format !== undefined) {
    const answer = expected === undefined ? '' : ` · expected answer: ${clipped(expected)}`;
    return html`<p class="fine">${env_id === format ? '' : `${env_id} · `}${counted(turns.length, 'turn')} · ${format} file${answer}</p>`;
  }
  const actions = turns.reduce((sum, turn) => sum + turn.actions.length, 0);
  const version = samples.reduce((most, { versions }) => versions.reduce((a, b) => Math.max(a, b), most), 0);
  return html`<p class="fine"><span title=${`played on ${server}`}>${env_id}</span>, seed ${seed} · ${counted(actions, 'action')} in ${counted(turns.length, 'turn')}${version > 0 ? ` · sampled by weights ${version}` : ''}
    ${filter && html` <span class="chip ${filter.kept ? 'good' : 'warn'}">${filter.kept ? 'kept' : 'dropped'}, score ${short(filter.score)}</span>`}</p>`;
}

interface FiguresProps {
  readonly episode: EpisodeRecord;
  readonly weights?: Readonly<Record<string, number>>;
  readonly group: readonly EpisodeDigest[];
  readonly least: ReturnType<typeof leastLikely>;
  readonly onLeast: () => void;
}

/** The numbers of an episode, each with its reference value. */
function Figures({ episode, weights, group, least, onLeast }: FiguresProps) {
  const numbers = episode.turns.map(turn => turnNumbers(turn, episode.samples[turn.sample]));
  const expected = numbers[0]?.value;
  const advantages = numbers.flatMap(({ advantage }) => advantage ?? []);
  const mean =
    advantages.length > 0 ? advantages.reduce((a, b) => a + b, 0) / advantages.length : episode.advantage;
  return html`<dl class="figures">
    ${episode.return !== null && html`<div><dt>return</dt><dd class="figure">${short(episode.return)}</dd></div>`}
    ${componentSums(episode).map(([name, sum]) => html`<div key=${name}><dt>${name}${weights && `, weight ${short(weights[name] ?? 0)}`}</dt><dd class="figure">${short(sum)}</dd></div>`)}
    ${expected !== undefined && html`<div><dt>critic expected</dt><dd class="figure">${short(expected)}</dd></div>`}
    ${mean !== undefined && html`<div><dt>advantage${advantages.length > 0 ? ', mean' : ''}</dt><dd class="figure">${signed(mean)}</dd></div>`}
    ${group.some(({ success }) => success !== null) && group.length > 1 && html`<div><dt>of the group succeeded</dt><dd class="figure">${group.filter(({ success }) => success).length} <small>of ${group.length}</small></dd></div>`}
    ${least && html`<div><dt><button type="button" class="link" style=${TARGET} onClick=${onLeast}>least likely token</button></dt><dd class="figure">${probability(least.logProb)} <small>turn ${least.turn + 1}</small></dd></div>`}
  </dl>`;
}

/** A text shortened to one line. */
const clipped = (text: string): string =>
  text.length > MAX_ANSWER_LENGTH ? `${text.slice(0, MAX_ANSWER_LENGTH)}…` : text;

/** Reward components of an episode, each summed over its turns. */
function componentSums({ turns }: EpisodeRecord): [name: string, sum: number][] {
  const sums = new Map<string, number>();
  for (const { rewards = {} } of turns) {
    for (const [name, value] of Object.entries(rewards)) sums.set(name, (sums.get(name) ?? 0) + value);
  }
  return [...sums];
}

interface StripProps {
  readonly episode: EpisodeRecord;
  readonly turn: number;
  readonly onTurn: (turn: number) => void;
  /** The end of the episode in words. */
  readonly end: string;
}

/** All turns in a row, each with its actions, reward, value and advantage. */
function TurnStrip({ episode, turn, onTurn, end }: StripProps) {
  const place = useRef<HTMLDivElement>(null);
  const { turns, samples } = episode;
  const numbers = useMemo(() => turns.map(one => turnNumbers(one, samples[one.sample])), [episode]);
  const most = (key: 'value' | 'advantage') =>
    numbers.reduce((most, one) => Math.max(most, Math.abs(one[key] ?? 0)), key === 'value' ? 1 : 0.01);
  const [mostValue, mostAdvantage] = [most('value'), most('advantage')];
  useEffect(() => {
    const strip = place.current!;
    const chosen = strip.children[turn] as HTMLElement | undefined;
    if (!chosen || strip.scrollWidth <= strip.clientWidth) return;
    const left = chosen.offsetLeft - strip.offsetLeft;
    if (left < strip.scrollLeft || left + chosen.offsetWidth > strip.scrollLeft + strip.clientWidth)
      strip.scrollLeft = left - 24;
  }, [turn]);
  return html`<div ref=${place} class="strip turn-strip" role="group" aria-label="Turns">
    ${turns.map((one, i) => {
      const { value, advantage } = numbers[i];
      const names = actionNames(one);
      return html`<button key=${i} type="button" class="card turn-cell" aria-pressed=${i === turn} onClick=${() => onTurn(i)}>
        <span class="row apart"><strong>Turn ${i + 1}</strong><span class="fine">${episode.return === null ? '' : `reward ${short(one.reward)}`}${one.penalty < 0 ? `, penalty ${short(one.penalty)}` : ''}</span></span>
        ${
          one.rewards &&
          html`<span class="fine">${Object.entries(one.rewards)
            .map(([name, value]) => `${name} ${short(value)}`)
            .join(', ')}</span>`
        }
        <span class="row tight">${names.length === 0 ? html`<span class="outcome">no valid action</span>` : names.map((name, k) => html`<${ActionName} key=${k} name=${name} />`)}${one.finish_reason === 'length' ? html`<span class="outcome">${names.length === 0 ? 'and ' : ''}cut off</span>` : null}</span>
        ${value !== undefined && html`<span class="row tight turn-number"><span class="fine">value</span><span class="number">${value.toFixed(2).replace('-', '−')}</span><${Meter} share=${value / mostValue} /></span>`}
        ${advantage !== undefined && html`<span class="row tight turn-number"><span class="fine">advantage</span><span class="number">${signed(advantage)}</span><${Meter} share=${advantage / mostAdvantage} middle /></span>`}
      </button>`;
    })}
    <div class="note ${successMark(episode.success).tone}"><strong class="title">${end}</strong>${episode.return !== null && html`<span class="fine">return</span><strong class="figure title">${short(episode.return)}</strong>`}</div>
  </div>`;
}

/**
 * An episode as OpenAI messages, a line of JSON: `{"messages": [{"role", "content"}, …], "success", "return", …}`.
 * Everything before the first response is one user message, including chat markers in the prompt.
 */
function chatLine({ episode, texts }: EpisodeReply): string {
  const { turns, samples, env_id, seed, success } = episode;
  const messages = turns.flatMap((turn, at) => {
    const ids = samples[turn.sample]?.token_ids.slice(...promptRange(turns, at)) ?? [];
    return [
      { role: 'user', content: ids.length > 0 ? ids.map(id => texts[id] ?? '').join('') : turn.state },
      { role: 'assistant', content: turn.llm_raw_response },
    ];
  });
  return `${JSON.stringify({ messages, env_id, seed, success, return: episode.return })}\n`;
}

/** Groups of more tries have no boards. */
const MAX_BOARDS = 64;
/** Boards of square cells, by [row, col]. */
const GRIDS = new Set(['frozen-lake', 'sokoban']);
/** Distance of a step from the middle of its cells, to the right of its direction: there and back are two lines. */
const ASIDE = 0.1;

interface GroupProps {
  readonly group: readonly EpisodeDigest[];
  /** Structured state that all tries begin with. */
  readonly level?: Json;
  readonly index: number;
  readonly link: (index: number) => string;
  readonly meanings?: Meanings;
}

/** The attempts at the same level, each with its path on boards that have one. */
export function GroupMembers({ group, level, index, link, meanings }: GroupProps) {
  const [{ seed, filter, group_id }] = group;
  const won = group.filter(({ success }) => success).length;
  const isKnown = group.some(({ success }) => success !== null);
  const most = group.reduce((most, { advantage = 0 }) => Math.max(most, Math.abs(advantage)), 0.01);
  return html`<section class="stack" aria-label="Group">
    <div class="panel-head"><h2>Group ${group_id}: the same ${seed === null ? 'prompt' : 'level'}, ${counted(group.length, 'try', 'tries')}${isKnown ? `, ${won} succeeded` : ''}</h2>
      <span class="fine">${levelOf(group[0])}${group.some(({ advantage }) => advantage !== undefined) ? ' · bars: advantage' : ''}${filter ? ` · spread of returns ${short(isAlike(filter.std) ? 0 : filter.std)}, ${filter.kept ? 'kept' : 'dropped'}` : ''}</span></div>
    <ul class="strip tries" style="--tile: 8.75rem">${group.map((one, i) => {
      const { tone, sign } = successMark(one.success);
      const end = episodeEnd(one, meanings).text;
      return html`<li key=${one.index}><a class="card try ${tone}" href=${link(one.index)} aria-current=${one.index === index ? 'true' : undefined}>
        <span class="row">${group.length <= MAX_BOARDS && html`<${PathBoard} level=${level} path=${one.path} success=${one.success} />`}
          <span><strong>${i + 1}</strong><br /><span class="fine">${counted(one.turns, 'turn')}</span></span></span>
        <span class="outcome cut" title=${end}>${sign} ${end}</span>
        <span class="row tight apart fine"><span>return ${short(one.return)}</span>${one.advantage !== undefined && html`<span class="number"><span class="visually-hidden">advantage </span>${signed(one.advantage)}</span>`}</span>
        ${one.advantage !== undefined && html`<${Meter} share=${one.advantage / most} middle />`}
      </a></li>`;
    })}</ul>
  </section>`;
}

interface PathBoardProps {
  readonly level?: Json;
  readonly path?: readonly PathCell[];
  readonly success: boolean | null;
}

/** A level with the path of a try. Nothing where the path does not begin at the level's player. */
function PathBoard({ level, path, success }: PathBoardProps) {
  const start = playerOf(level);
  if (!path || !start || path[0]?.join() !== start.join()) return null;
  if (!isObject(level) || !GRIDS.has(boardKindOf(level).name)) return null;
  const [row, col] = path.at(-1)!.map(place => place + 0.5);
  return html`<span class="path-board"><${Board} state=${level} />
    <svg viewBox="0 0 ${level.cols} ${level.rows}" aria-hidden="true" fill="none" stroke="currentColor" stroke-width=".12" stroke-linejoin="round" stroke-linecap="round">
      <path d=${lineOf(path)} />
      ${success === false ? html`<path stroke-width=".16" d="M${col - 0.2} ${row - 0.2}l.4 .4m0-.4l-.4 .4" />` : html`<circle fill="currentColor" cx=${col} cy=${row} r=".14" />`}
    </svg></span>`;
}

/** The steps of a path as SVG, each on its own side. */
function lineOf(path: readonly PathCell[]): string {
  const steps = path.slice(1).flatMap(([row, col], i) => {
    const [fromRow, fromCol] = path[i];
    const [down, right] = [Math.sign(row - fromRow) * ASIDE, Math.sign(col - fromCol) * ASIDE];
    return [`${fromCol + 0.5 - down} ${fromRow + 0.5 + right}`, `${col + 0.5 - down} ${row + 0.5 + right}`];
  });
  return steps.length === 0 ? '' : `M${steps.join('L')}`;
}

interface MeterProps {
  /** −1 to 1 of the longest bar. */
  readonly share: number;
  /** The bar begins in the middle, and extends to the left below 0. */
  readonly middle?: boolean;
}

/** A number as a bar. */
function Meter({ share, middle }: MeterProps) {
  const length = Math.min(1, Math.abs(share)) / (middle ? 2 : 1);
  const from = middle ? 0.5 - (share < 0 ? length : 0) : 0;
  return html`<span class="meter ${share < 0 ? 'down' : 'up'}" style=${{ '--from': from.toFixed(3), '--share': length.toFixed(3) }}></span>`;
}
