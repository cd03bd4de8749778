import { Random } from '../../../shared/random.ts';

/**
 * The corpus that ships with SearchQA: an invented country, written by rule from a fixed seed, so that nothing in it
 * can be known from anywhere but a search. Questions join facts of two or three documents.
 */

export interface Document {
  readonly id: string;
  readonly title: string;
  readonly text: string;
}

export interface QuestionRecord {
  readonly question: string;
  /** All answers that count as right. */
  readonly answers: readonly string[];
}

export interface World {
  readonly documents: readonly Document[];
  readonly questions: readonly QuestionRecord[];
}

const SEED = 20_251_120;
const RIVERS = 12;
const TOWNS = 24;
const PEOPLE = 56;
const COMPANIES = 16;
const MUSEUMS = 12;
const COMPARISONS = 80;

const ONSETS = [
  'Bal',
  'Cor',
  'Dun',
  'Elm',
  'Far',
  'Gal',
  'Hol',
  'Ist',
  'Kar',
  'Lun',
  'Mor',
  'Nar',
  'Or',
  'Pel',
  'Quin',
  'Ros',
  'Sel',
  'Tor',
  'Ul',
  'Ver',
  'Wen',
  'Yar',
  'Zel',
];
const TOWN_ENDS = ['bridge', 'ford', 'haven', 'mark', 'mere', 'stead', 'thorpe', 'vale', 'wick'];
const RIVER_ENDS = ['a', 'en', 'ia', 'is', 'ora', 'une'];
const FIRST_NAMES = [
  'Adela',
  'Bertil',
  'Cosima',
  'Dorian',
  'Edda',
  'Fabian',
  'Gisela',
  'Henrik',
  'Ilka',
  'Joris',
  'Katrin',
  'Leopold',
  'Mirela',
  'Nils',
  'Odette',
  'Pavel',
  'Ronja',
  'Stellan',
  'Tilda',
  'Viktor',
];
const LAST_ENDS = ['ander', 'berg', 'dahl', 'eskin', 'holm', 'ovic', 'quist', 'rell', 'sund', 'wald'];
const REGIONS = ['the northern highlands', 'the coastal plain', 'the lake district', 'the southern hills'];
const GOODS = [
  'glass',
  'paper',
  'clocks',
  'cheese',
  'wool',
  'pianos',
  'salt',
  'bicycles',
  'porcelain',
  'lenses',
];
const ADJECTIVES = [
  'Silent',
  'Amber',
  'Hollow',
  'Distant',
  'Broken',
  'Golden',
  'Winter',
  'Hidden',
  'Crooked',
  'Restless',
];
const NOUNS = [
  'Harbour',
  'Orchard',
  'Lantern',
  'Meridian',
  'Staircase',
  'Archive',
  'Garden',
  'Compass',
  'Threshold',
  'Mirror',
];

const TRADES = [
  { trade: 'novelist', work: 'novel', made: 'wrote', by: 'author' },
  { trade: 'composer', work: 'symphony', made: 'composed', by: 'composer' },
  { trade: 'painter', work: 'painting', made: 'painted', by: 'painter' },
  { trade: 'film director', work: 'film', made: 'directed', by: 'director' },
] as const;

interface Town {
  readonly name: string;
  readonly river: string;
  readonly region: string;
  readonly good: string;
  readonly founded: number;
}

interface Person {
  readonly name: string;
  readonly born: number;
  readonly town: Town;
  readonly trade: string;
}

let world: World | undefined;

/** The shipped world; made once. */
export function shippedWorld(): World {
  world ??= makeWorld(Random.fromSeed(SEED));
  return world;
}

function makeWorld(rng: Random): World {
  const drawn = new Set<string>();
  const fresh = (make: () => string): string => {
    for (;;) {
      const name = make();
      if (drawn.has(name)) continue;
      drawn.add(name);
      return name;
    }
  };
  const list = <T>(count: number, make: (index: number) => T): T[] =>
    Array.from({ length: count }, (_, index) => make(index));
  const documents: Document[] = [];
  const questions: QuestionRecord[] = [];
  const write = (title: string, text: string): void => {
    documents.push({ id: `doc-${documents.length + 1}`, title, text: `${title}. ${text}` });
  };
  const ask = (question: string, ...answers: string[]): void => {
    questions.push({ question, answers });
  };

  const rivers = list(RIVERS, () => fresh(() => rng.choice(ONSETS) + rng.choice(RIVER_ENDS)));
  const towns = list(
    TOWNS,
    (): Town => ({
      name: fresh(() => rng.choice(ONSETS) + rng.choice(TOWN_ENDS)),
      river: rng.choice(rivers),
      region: rng.choice(REGIONS),
      good: rng.choice(GOODS),
      founded: 1100 + rng.integer(600),
    }),
  );
  const person = (trade: string): Person => ({
    name: fresh(() => `${rng.choice(FIRST_NAMES)} ${rng.choice(ONSETS)}${rng.choice(LAST_ENDS)}`),
    born: 1820 + rng.integer(140),
    town: rng.choice(towns),
    trade,
  });

  for (const river of rivers) {
    const along = towns.filter(town => town.river === river).map(town => town.name);
    const passes = along.length > 0 ? ` It flows past ${along.join(', ')}.` : ' No town lies on its banks.';
    write(river, `The ${river} is a river of ${60 + rng.integer(500)} kilometres.${passes}`);
  }
  for (const { name, river, region, good, founded } of towns) {
    write(
      name,
      `${name} is a town on the river ${river} in ${region}. It was founded in ${founded} and is known for its ${good}.`,
    );
  }

  const people: Person[] = [];
  for (let index = 0; index < PEOPLE; index++) {
    const { trade, work, made, by } = TRADES[index % TRADES.length];
    const maker = person(trade);
    people.push(maker);
    const title = fresh(() => `The ${rng.choice(ADJECTIVES)} ${rng.choice(NOUNS)}`);
    const year = maker.born + 25 + rng.integer(40);
    const setting = rng.choice(towns);
    write(
      maker.name,
      `${maker.name} (born ${maker.born}) was a ${trade} from ${maker.town.name}, best known for the ${work} ${title}.`,
    );
    write(
      title,
      `${title} is a ${work} that ${maker.name} ${made} in ${year}. It is inspired by the town of ${setting.name}.`,
    );
    ask(`In which town was the ${by} of the ${work} ${title} born?`, maker.town.name);
    ask(`In which year was the ${by} of the ${work} ${title} born?`, String(maker.born));
    ask(
      `On which river lies the town that inspired the ${work} ${title}?`,
      setting.river,
      `the river ${setting.river}`,
    );
    ask(
      `On which river lies the birthplace of the ${by} of the ${work} ${title}?`,
      maker.town.river,
      `the river ${maker.town.river}`,
    );
  }
  for (let index = 0; index < COMPANIES; index++) {
    const founder = person('engineer');
    const seat = rng.choice(towns);
    const good = rng.choice(GOODS);
    const name = fresh(() => `${rng.choice(ONSETS)}${rng.choice(LAST_ENDS)} Works`);
    const year = founder.born + 22 + rng.integer(30);
    write(
      name,
      `${name} is a company in ${seat.name} that makes ${good}. It was founded in ${year} by ${founder.name}.`,
    );
    write(
      founder.name,
      `${founder.name} (born ${founder.born}) was an engineer from ${founder.town.name} who founded a company at the age of ${year - founder.born}.`,
    );
    ask(`In which town was the founder of ${name} born?`, founder.town.name);
    ask(`In which year was the town founded where ${name} has its seat?`, String(seat.founded));
  }
  for (let index = 0; index < MUSEUMS; index++) {
    const architect = person('architect');
    const town = rng.choice(towns);
    const name = fresh(() => `${rng.choice(ADJECTIVES)} ${rng.choice(['Hall', 'House', 'Gallery'])} Museum`);
    write(name, `The ${name} in ${town.name} was built by the architect ${architect.name}.`);
    write(
      architect.name,
      `${architect.name} (born ${architect.born}) was an architect who grew up in ${architect.town.name}.`,
    );
    ask(`For which product is the town known that has the ${name}?`, town.good);
    ask(`Where did the architect of the ${name} grow up?`, architect.town.name);
  }
  while (questions.length < PEOPLE * 4 + (COMPANIES + MUSEUMS) * 2 + COMPARISONS) {
    const [a, b] = rng.shuffle(people);
    if (rng.chance(0.5)) {
      if (a.born !== b.born)
        ask(`Who was born earlier, ${a.name} or ${b.name}?`, a.born < b.born ? a.name : b.name);
    } else {
      ask(
        `Were ${a.name} and ${b.name} born in towns on the same river?`,
        a.town.river === b.town.river ? 'yes' : 'no',
      );
    }
  }
  return { documents, questions };
}
