import { html } from '../../components/html.ts';
import { withUnit } from '../../components/with-unit.ts';
import { MAX_TESTED, pairedTest, type TestResult, unpairedTest } from '../../compute/permutation-test.ts';
import { counted, percent, short } from '../format.ts';
import { lastCommon, type RunGroupOf } from './compare-groups.ts';
import { choose, Panel, Select } from './parts.ts';

interface GroupTestProps {
  readonly groups: readonly RunGroupOf[];
  readonly metric: string;
  /** Labels of the two groups, as the address has them. */
  readonly first?: string;
  readonly second?: string;
}

interface Pair {
  readonly seed: number;
  readonly first: number;
  readonly second: number;
}

/** Runs of two groups with the same seed, at the last step that all of them have. */
export function comparison(one: RunGroupOf, other: RunGroupOf, metric: string) {
  const last = lastCommon([...one.members, ...other.members], metric);
  if (!last) return undefined;
  const values = {
    first: last.values.slice(0, one.members.length),
    second: last.values.slice(one.members.length),
  };
  const seedOf = (group: RunGroupOf, i: number) => group.members[i].detail.row.run.seed;
  const bySeed = new Map(values.second.map((value, i) => [seedOf(other, i), value]));
  const pairs: Pair[] = values.first.flatMap((first, i) => {
    const seed = seedOf(one, i);
    const second = bySeed.get(seed);
    bySeed.delete(seed);
    return second === undefined ? [] : [{ seed, first, second }];
  });
  const isPaired = pairs.length > 1;
  const result = isPaired
    ? pairedTest(pairs.map(({ first, second }) => first - second))
    : unpairedTest(values.first, values.second);
  return { step: last.step, pairs: isPaired ? pairs : [], result, ...values };
}

/** Two groups of runs held against one another, by pairs of the same seed where there are some. */
export function GroupTest({ groups, metric, first, second }: GroupTestProps) {
  if (groups.length < 2) return null;
  const one = groups.find(({ label }) => label === first) ?? groups[0];
  const other =
    groups.find(group => group.label === second && group !== one) ?? groups.find(group => group !== one)!;
  const options = groups.map(({ label }) => [label, label] as const);
  const format = /success|ratio|share/.test(metric) ? percent : short;
  const found = comparison(one, other, metric);
  return html`<${Panel} title="Do two groups differ?" class="wide">
    <div class="row low controls">
      <${Select} label="First" value=${one.label} options=${options} onChange=${(label: string) => choose({ first: label }, true)} />
      <${Select} label="Second" value=${other.label} options=${options.filter(([label]) => label !== one.label)} onChange=${(label: string) => choose({ second: label }, true)} />
    </div>
    ${
      found
        ? html`<p><code>${metric}</code> at step ${found.step}, the last that all have: ${mean(found.first, format)} and ${mean(found.second, format)}.</p>
          <${Verdict} result=${found.result} pairs=${found.pairs.length} format=${format} />
          ${
            found.pairs.length > 0 &&
            html`<div class="scroll-x" tabindex="0" role="region" aria-label="Pairs"><table>
            <thead><tr><th scope="col" class="number">Seed</th><th scope="col" class="number">${one.label}</th><th scope="col" class="number">${other.label}</th><th scope="col" class="number">Difference</th></tr></thead>
            <tbody>${found.pairs.map(({ seed, first, second }) => html`<tr key=${seed}><td class="number">${seed}</td><td class="number">${format(first)}</td><td class="number">${format(second)}</td><td class="number">${signed(first - second, format)}</td></tr>`)}</tbody>
          </table></div>`
          }`
        : html`<p class="hint">There is no step at which all of their runs have <code>${metric}</code>.</p>`
    }
  <//>`;
}

/** A difference with its sign; of shares in percentage points. */
function signed(value: number, format: (value: number) => string): string {
  const size = Math.abs(value);
  const text = format === percent ? withUnit((100 * size).toFixed(1), 'points') : format(size);
  return `${value > 0 ? '+' : value < 0 ? '−' : ''}${text}`;
}

function mean(values: readonly number[], format: (value: number) => string): string {
  const average = values.reduce((sum, value) => sum + value, 0) / values.length;
  return values.length === 1
    ? format(average)
    : `${format(average)} on average of ${counted(values.length, 'run')}`;
}

interface VerdictProps {
  readonly result: TestResult | undefined;
  readonly pairs: number;
  readonly format: (value: number) => string;
}

function Verdict({ result, pairs, format }: VerdictProps) {
  if (!result) return html`<p class="hint">An exact test takes at most ${MAX_TESTED} runs or pairs.</p>`;
  const { difference, p, least } = result;
  const how =
    pairs > 0
      ? `exact sign-flip test of ${pairs} pairs of one seed`
      : 'exact permutation test; the groups have no two seeds in common';
  const few = least > 0.05 ? ` So few runs cannot give a p below ${short(least)}: train more seeds.` : '';
  return html`<p class="row"><b class="figure">${signed(difference, format)}</b> <b class="figure">p = ${short(p)}</b> <span class="fine">${p <= 0.05 ? 'beyond chance' : 'within chance'}; ${how}.${few}</span></p>`;
}
