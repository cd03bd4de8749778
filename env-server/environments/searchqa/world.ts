import { readFileSync } from 'node:fs';
import { Random } from '../../../shared/random.ts';

/**
 * SearchQA's own corpus: an invented country, generated from a fixed seed, so that only a search can find its facts.
 * Questions join facts of two or three documents.
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

/** Parts of names. Their order matters: another order makes another world. */
const WORDS: Readonly<
  Record<
    | 'onsets'
    | 'townEnds'
    | 'riverEnds'
    | 'firstNames'
    | 'lastEnds'
    | 'regions'
    | 'goods'
    | 'adjectives'
    | 'nouns',
    readonly string[]
  >
> = JSON.parse(readFileSync(new URL('./words.json', import.meta.url), 'utf8'));

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
  world ??= new WorldBuilder(Random.fromSeed(SEED)).build();
  return world;
}

/** Writes the documents and questions. Each method draws in a fixed order: another order makes another world. */
class WorldBuilder {
  readonly #rng: Random;
  readonly #names = new Set<string>();
  readonly #documents: Document[] = [];
  readonly #questions: QuestionRecord[] = [];
  readonly #rivers: readonly string[];
  readonly #towns: readonly Town[];

  constructor(rng: Random) {
    this.#rng = rng;
    this.#rivers = Array.from({ length: RIVERS }, () =>
      this.#fresh(() => rng.choice(WORDS.onsets) + rng.choice(WORDS.riverEnds)),
    );
    this.#towns = Array.from({ length: TOWNS }, () => ({
      name: this.#fresh(() => rng.choice(WORDS.onsets) + rng.choice(WORDS.townEnds)),
      river: rng.choice(this.#rivers),
      region: rng.choice(WORDS.regions),
      good: rng.choice(WORDS.goods),
      founded: 1100 + rng.integer(600),
    }));
  }

  build(): World {
    this.#writeRivers();
    this.#writeTowns();
    const people = Array.from({ length: PEOPLE }, (_, index) => this.#writePerson(index));
    for (let index = 0; index < COMPANIES; index++) this.#writeCompany();
    for (let index = 0; index < MUSEUMS; index++) this.#writeMuseum();
    this.#compare(people);
    return { documents: this.#documents, questions: this.#questions };
  }

  /** An unused name. */
  #fresh(make: () => string): string {
    for (;;) {
      const name = make();
      if (this.#names.has(name)) continue;
      this.#names.add(name);
      return name;
    }
  }

  #person(trade: string): Person {
    const rng = this.#rng;
    return {
      name: this.#fresh(
        () => `${rng.choice(WORDS.firstNames)} ${rng.choice(WORDS.onsets)}${rng.choice(WORDS.lastEnds)}`,
      ),
      born: 1820 + rng.integer(140),
      town: rng.choice(this.#towns),
      trade,
    };
  }

  #write(title: string, text: string): void {
    this.#documents.push({ id: `doc-${this.#documents.length + 1}`, title, text: `${title}. ${text}` });
  }

  #ask(question: string, ...answers: string[]): void {
    this.#questions.push({ question, answers });
  }

  #writeRivers(): void {
    for (const river of this.#rivers) {
      const along = this.#towns.filter(town => town.river === river).map(town => town.name);
      const passes = along.length > 0 ? ` It flows past ${along.join(', ')}.` : ' No town lies on its banks.';
      this.#write(river, `The ${river} is a river of ${60 + this.#rng.integer(500)} kilometres.${passes}`);
    }
  }

  #writeTowns(): void {
    for (const { name, river, region, good, founded } of this.#towns) {
      this.#write(
        name,
        `${name} is a town on the river ${river} in ${region}. It was founded in ${founded} and is known for its ${good}.`,
      );
    }
  }

  /** The author of a work, and the work. */
  #writePerson(index: number): Person {
    const rng = this.#rng;
    const { trade, work, made, by } = TRADES[index % TRADES.length];
    const maker = this.#person(trade);
    const title = this.#fresh(() => `The ${rng.choice(WORDS.adjectives)} ${rng.choice(WORDS.nouns)}`);
    const year = maker.born + 25 + rng.integer(40);
    const setting = rng.choice(this.#towns);
    this.#write(
      maker.name,
      `${maker.name} (born ${maker.born}) was a ${trade} from ${maker.town.name}, best known for the ${work} ${title}.`,
    );
    this.#write(
      title,
      `${title} is a ${work} that ${maker.name} ${made} in ${year}. It is inspired by the town of ${setting.name}.`,
    );
    this.#ask(`In which town was the ${by} of the ${work} ${title} born?`, maker.town.name);
    this.#ask(`In which year was the ${by} of the ${work} ${title} born?`, String(maker.born));
    this.#ask(
      `On which river lies the town that inspired the ${work} ${title}?`,
      setting.river,
      `the river ${setting.river}`,
    );
    this.#ask(
      `On which river lies the birthplace of the ${by} of the ${work} ${title}?`,
      maker.town.river,
      `the river ${maker.town.river}`,
    );
    return maker;
  }

  #writeCompany(): void {
    const rng = this.#rng;
    const founder = this.#person('engineer');
    const seat = rng.choice(this.#towns);
    const good = rng.choice(WORDS.goods);
    const name = this.#fresh(() => `${rng.choice(WORDS.onsets)}${rng.choice(WORDS.lastEnds)} Works`);
    const year = founder.born + 22 + rng.integer(30);
    this.#write(
      name,
      `${name} is a company in ${seat.name} that makes ${good}. It was founded in ${year} by ${founder.name}.`,
    );
    this.#write(
      founder.name,
      `${founder.name} (born ${founder.born}) was an engineer from ${founder.town.name} who founded a company at the age of ${year - founder.born}.`,
    );
    this.#ask(`In which town was the founder of ${name} born?`, founder.town.name);
    this.#ask(`In which year was the town founded where ${name} has its seat?`, String(seat.founded));
  }

  #writeMuseum(): void {
    const rng = this.#rng;
    const architect = this.#person('architect');
    const town = rng.choice(this.#towns);
    const name = this.#fresh(
      () => `${rng.choice(WORDS.adjectives)} ${rng.choice(['Hall', 'House', 'Gallery'])} Museum`,
    );
    this.#write(name, `The ${name} in ${town.name} was built by the architect ${architect.name}.`);
    this.#write(
      architect.name,
      `${architect.name} (born ${architect.born}) was an architect who grew up in ${architect.town.name}.`,
    );
    this.#ask(`For which product is the town known that has the ${name}?`, town.good);
    this.#ask(`Where did the architect of the ${name} grow up?`, architect.town.name);
  }

  /** Questions about two people each. */
  #compare(people: readonly Person[]): void {
    const rng = this.#rng;
    const wanted = this.#questions.length + COMPARISONS;
    while (this.#questions.length < wanted) {
      const [a, b] = rng.shuffle(people);
      if (!rng.chance(0.5)) {
        this.#ask(
          `Were ${a.name} and ${b.name} born in towns on the same river?`,
          a.town.river === b.town.river ? 'yes' : 'no',
        );
      } else if (a.born !== b.born) {
        this.#ask(`Who was born earlier, ${a.name} or ${b.name}?`, a.born < b.born ? a.name : b.name);
      }
    }
  }
}
