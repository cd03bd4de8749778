import type { Json } from '../../../shared/json.ts';
import { isAlike } from '../../../shared/run-folder/episode-filter.ts';
import { Board, boardKindOf } from '../../boards/board.ts';
import { isObject } from '../../boards/board-kind.ts';
import { episodeEnd, type Meanings, successMark } from '../../components/ends.ts';
import { html } from '../../components/html.ts';
import type { EpisodeDigest } from '../../compute/episode-digest.ts';
import { type PathCell, playerOf } from '../../compute/episode-path.ts';
import { counted, levelOf, short, signed } from '../format.ts';
import { Meter } from './meter.ts';

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
