import { curvePlot, type PlotCurve } from '../../docs/generator/plot.ts';
import { mean, pairedBootstrap, unbiasedStd, wilsonInterval } from '../../trainer/algorithms/statistics.ts';
import type { Claim } from './claim.ts';
import { type ClaimOutcome, type ClaimPoint, successAt } from './outcomes.ts';
import type { ReferenceSuccess } from './reference-players.ts';
import { reasoningSection } from './thinking.ts';

/** 97.5 % quantiles of Student's t by degrees of freedom from 1. */
const T_975 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
const T_MANY = 1.96;
const MINUTE = 60;

const percent = (share: number) => (100 * share).toFixed(1);
const byStep = ({ step }: ClaimPoint) => step;
const bySeconds = ({ seconds }: ClaimPoint) => seconds;

/**
 * Mean with Student's 95 % interval, in percent; a value alone with Wilson's.
 * @param episodes that a value is a share of; without them a value alone has no interval
 */
function shownMean(values: readonly number[], episodes?: number): string {
  if (values.length === 0) return '';
  if (values.length === 1) {
    if (episodes === undefined) return `${percent(values[0])} %`;
    const [low, high] = wilsonInterval(values[0] * episodes, episodes);
    return `${percent(values[0])} % (${percent(low)}–${percent(high)})`;
  }
  const half = ((T_975[values.length - 2] ?? T_MANY) * unbiasedStd(values)) / Math.sqrt(values.length);
  const [low, high] = [Math.max(0, mean(values) - half), Math.min(1, mean(values) + half)];
  return `${percent(mean(values))} % (${percent(low)}–${percent(high)})`;
}

/** The page of a claim: tables over the seeds, in Markdown. */
export function claimPage(
  claim: Claim,
  outcomes: readonly ClaimOutcome[],
  command: string,
  references: ReferenceSuccess = {},
): string {
  const variants = [...new Set(outcomes.map(({ variant }) => variant))];
  const sets = [...new Set(outcomes.flatMap(({ points }) => Object.keys(points.at(-1)?.sets ?? {})))];
  const seeds = [...new Set(outcomes.map(({ seed }) => seed))];
  const rows = variants.map(variant => {
    const own = outcomes.filter(outcome => outcome.variant === variant);
    const last = own.flatMap(({ points }) => points.at(-1) ?? []);
    const { episodes, sets: setEpisodes } = own[0].validated;
    const cells = [
      variant,
      shownMean(
        own.flatMap(({ points }) => points[0]?.success ?? []),
        episodes,
      ),
      shownMean(
        last.map(({ success }) => success),
        episodes,
      ),
      ...sets.map(set =>
        shownMean(
          last.flatMap(point => point.sets[set] ?? []),
          setEpisodes[set],
        ),
      ),
      own.map(({ points }) => percent(points.at(-1)?.success ?? 0)).join(', '),
      String(Math.round(mean(last.map(byStep)))),
      mean(own.map(({ seconds }) => seconds / MINUTE)).toFixed(1),
    ];
    return `| ${cells.join(' | ')} |`;
  });
  const head = ['variant', 'before', 'after', ...sets, 'each seed', 'iterations', 'minutes'];
  return [
    `# ${claim.title}`,
    '',
    `_Reference._ Written from [its data](./data/claim-${claim.name}.json) by`,
    '',
    '```sh',
    command,
    '```',
    '',
    ...claim.text.flatMap(paragraph => [...wrapped(paragraph), '']),
    seeds.length === 1
      ? `Success with seed ${seeds[0]} alone, and Wilson’s 95 % interval over the episodes of the validation.`
      : `Success over ${seeds.length} seeds (${seeds.join(', ')}): mean and Student’s 95 % interval.`,
    '',
    `| ${head.join(' | ')} |`,
    `|${head.map(() => '---|').join('')}`,
    ...rows,
    '',
    ...wrapped(`${endings(outcomes)}${workersOf(outcomes)}`),
    '',
    ...(claim.players ? tagTable(outcomes, references) : []),
    ...pairTable(claim, outcomes),
    ...referenceTable(claim),
    ...reasoningSection(outcomes),
    `![${claim.title}, by iteration](../pictures/claim-${claim.name}-iterations.svg)`,
    '',
    `![${claim.title}, by minute](../pictures/claim-${claim.name}-minutes.svg)`,
    '',
  ].join('\n');
}

/** Says if iterations or time ended the runs. */
function endings(outcomes: readonly ClaimOutcome[]): string {
  const early = outcomes.filter(({ ended }) => ended !== 'finished');
  if (early.length === 0) return 'All runs went to their last iteration, however long it took.';
  const named = early.map(({ variant, seed, ended }) => `${variant} with seed ${seed} (${ended})`);
  return `Ended before their last iteration: ${named.join(', ')}.`;
}

/** Number of workers of the runs, where known. */
function workersOf(outcomes: readonly ClaimOutcome[]): string {
  const variants = Map.groupBy(outcomes, ({ workers }) => workers);
  const named = [...variants].flatMap(([workers, own]) => {
    if (workers === undefined) return [];
    const who = variants.size === 1 ? 'Each' : [...new Set(own.map(({ variant }) => variant))].join('; ');
    return [` ${who}: ${workers === 1 ? 'one worker' : `${workers} workers`}.`];
  });
  return named.join('');
}

/** Success at the end by environment: a row for each, a column for each variant that was validated there. */
function tagTable(outcomes: readonly ClaimOutcome[], references: ReferenceSuccess): string[] {
  const ends = outcomes.flatMap(({ variant, points }) => points.slice(-1).map(point => ({ variant, point })));
  const tags = [...new Set(ends.flatMap(({ point }) => Object.keys(point.tags)))];
  const variants = [...new Set(ends.map(({ variant }) => variant))];
  const [most] = variants;
  const shown = (variant: string, tag: string) =>
    shownMean(
      ends.flatMap(({ variant: own, point }) => (own === variant ? (point.tags[tag] ?? []) : [])),
      outcomes.find(outcome => outcome.variant === variant)!.validated.tags[tag],
    );
  const others = (tag: string) => variants.filter(variant => variant !== most && shown(variant, tag) !== '');
  return [
    'Success in each environment at the end, next to players that learn nothing:',
    '',
    `| environment | ${most} | other variants | random | best player |`,
    '|---|---|---|---|---|',
    ...tags.map(tag => {
      const rest = others(tag).map(variant => `${variant}: ${shown(variant, tag)}`);
      const { random, ...best } = references[tag] ?? {};
      const players = [
        random === undefined ? '' : `${percent(random)} %`,
        Object.entries(best)
          .map(([policy, success]) => `${policy}: ${percent(success)} %`)
          .join('; '),
      ];
      return `| ${[tag, shown(most, tag), rest.join('; '), ...players].join(' | ')} |`;
    }),
    '',
  ];
}

function pairTable({ pairs }: Claim, outcomes: readonly ClaimOutcome[]): string[] {
  const rows = pairs.flatMap(([without, with_]) => {
    const of = (variant: string, seed: number) =>
      outcomes.find(outcome => outcome.variant === variant && outcome.seed === seed);
    const both = [...new Set(outcomes.map(({ seed }) => seed))].flatMap(seed => {
      const [a, b] = [of(without, seed), of(with_, seed)];
      return a && b && a.points.length > 0 && b.points.length > 0 ? [{ a, b }] : [];
    });
    if (both.length === 0) return [];
    const compared = [
      ['equal iterations', byStep],
      ['equal time', bySeconds],
    ] as const;
    const rows = compared.map(([name, unit]) => {
      const values = both.flatMap(({ a, b }) => {
        const end = Math.min(unit(a.points.at(-1)!), unit(b.points.at(-1)!));
        const [first, second] = [successAt(a.points, end, unit), successAt(b.points, end, unit)];
        return first === undefined || second === undefined ? [] : [[first, second] as const];
      });
      if (values.length === 0) return '';
      const episodes = both[0].a.validated.episodes;
      const cells =
        values.length === 1 ? differenceOfShares(...values[0], episodes) : differenceOfSeeds(values);
      return `${cells} after ${name}`;
    });
    return wrapped(`- ${with_} − ${without}: ${rows.filter(row => row !== '').join('; ')}`, '  ');
  });
  if (rows.length === 0) return [];
  const seeds = new Set(outcomes.map(({ seed }) => seed)).size;
  return [
    ...(seeds === 1
      ? [
          'Differences in points (95 % interval of two shares of a validation’s episodes); other seeds may differ by more.',
        ]
      : [
          'Differences in points, seed by seed (95 % interval by bootstrap, p of the sign-flip test: at least 0.25 with three',
          'seeds).',
        ]),
    '',
    ...rows,
    '',
  ];
}

type Pair = readonly [without: number, with_: number];

function differenceOfSeeds(pairs: readonly Pair[]): string {
  const { difference, low, high, p } = pairedBootstrap(
    pairs.map(([without]) => without),
    pairs.map(([, with_]) => with_),
  );
  return differenceCells(difference, [low, high], `, p ${p.toFixed(3)}`);
}

/** Difference of two shares of `episodes` episodes each, as text. */
function differenceOfShares(without: number, with_: number, episodes: number): string {
  const difference = with_ - without;
  const error = Math.sqrt((without * (1 - without) + with_ * (1 - with_)) / episodes);
  const half = T_MANY * error;
  return differenceCells(difference, [difference - half, difference + half], '');
}

const differenceCells = (difference: number, [low, high]: readonly [number, number], p: string) =>
  `${percent(difference)} (${percent(low)} to ${percent(high)}${p})`;

function referenceTable({ references }: Claim): string[] {
  if (references.length === 0) return [];
  return [
    'For comparison:',
    '',
    ...references.flatMap(({ name, success, source }) => wrapped(`- ${name}: ${success} (${source})`, '  ')),
    '',
  ];
}

/** Mean success of each variant over its seeds: by iteration, and by minute. */
export function claimFigures(claim: Claim, outcomes: readonly ClaimOutcome[]): ReadonlyMap<string, string> {
  const figure = (unit: (point: ClaimPoint) => number, name: string) =>
    curvePlot(claim.title, meanCurves(outcomes, unit), name);
  return new Map([
    [`docs/pictures/claim-${claim.name}-iterations.svg`, figure(byStep, 'iteration')],
    [`docs/pictures/claim-${claim.name}-minutes.svg`, figure(({ seconds }) => seconds / MINUTE, 'minute')],
  ]);
}

/** From where all seeds of a variant have begun; one that has ended keeps its last success, as its policy does. */
export function meanCurves(
  outcomes: readonly ClaimOutcome[],
  unit: (point: ClaimPoint) => number,
): PlotCurve[] {
  return [...new Set(outcomes.map(({ variant }) => variant))].flatMap(name => {
    const own = outcomes.filter(({ variant, points }) => variant === name && points.length > 0);
    if (own.length === 0) return [];
    const ends = own.map(({ points }) => unit(points.at(-1)!));
    const begin = Math.max(...own.map(({ points }) => unit(points[0])));
    const last = Math.max(begin, ...ends);
    const longest = own.find(({ points }) => unit(points.at(-1)!) === Math.max(...ends))!;
    const inside = longest.points.map(unit).filter(at => at > begin && at < last);
    const points = [...new Set([begin, ...inside, last])].map((at): [number, number] => {
      const values = own.map(({ points }, i) => successAt(points, Math.min(at, ends[i]), unit)!);
      return [at, 100 * mean(values)];
    });
    return [{ name, points }];
  });
}

/** A paragraph as lines of at most 120 columns. @param indent of all but the first */
function wrapped(text: string, indent = ''): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > 120) {
      lines.push(line);
      line = indent + word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line];
}
