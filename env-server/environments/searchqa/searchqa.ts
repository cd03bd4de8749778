import type { Static } from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { textTool } from '../core/actions.ts';
import { InvalidField, partOf, pick, readRecords, textField } from '../core/datasets/records.ts';
import { dataFile, indexOption, MARKED_WORDS, words } from '../core/datasets/word-problems.ts';
import {
  type ActionTool,
  type Environment,
  InvalidConfig,
  InvalidOptions,
  type ObservationFormat,
  RIGHT_OR_WRONG,
  stepInfo,
  type Transition,
} from '../core/environment.ts';
import { integerSetting } from '../core/settings.ts';
import { dict, LINES, list, number, type ObservationSpaces, orNull } from '../core/spaces.ts';
import { SPLIT_PRESETS, splitSchema } from '../core/splits.ts';
import { extractAnswer, markAnswer } from './answer.ts';
import {
  DOCUMENTS,
  type Document,
  httpRetriever,
  indexRetriever,
  QUESTIONS,
  type QuestionRecord,
  RetrievalFailed,
  type RetrievedDocument,
} from './retriever.ts';

const MAX_STEPS = 5;
const MAX_ACTION_LENGTH = 4000;
const MAX_OBSERVATION_LENGTH = 100_000;
/** Characters of observations: English text, and the mark of a text that was cut. */
const CHARSET = `${LINES}…`;

const TOOLS: readonly ActionTool[] = [
  textTool('search', 'Shows the documents that fit best.', 'search[{query}]', {
    query: 'One fact to look for',
  }),
  textTool('answer', 'Answers the question, which ends the episode.', 'finish[{answer}]', {
    answer: 'A short answer',
  }),
];

const configSchema = closed({
  split: splitSchema,
  data: dataFile(
    'File of questions: .jsonl, .json or .parquet with question and answer (or ground_truth, a text or a list).',
  ),
  corpus: dataFile(
    'File of documents that is searched: .jsonl, .json or .parquet with text (or contents), title and id.',
  ),
  retriever: Type.Optional(
    closed(
      {
        url: Type.String({
          minLength: 1,
          maxLength: 2048,
          description: 'Address of a retriever to search instead of a corpus.',
        }),
        timeout_ms: integerSetting(5000, [1, 120_000], 'Time for one search.'),
      },
      {
        description: 'A service that answers GET /health and POST /retrieve {query, top_k}.',
      },
    ),
  ),
  max_documents: integerSetting(5, [1, 50], 'Documents shown for a search.'),
  max_document_chars: integerSetting(800, [50], 'Characters shown of a document.'),
  max_result_chars: integerSetting(4000, [50], 'Characters shown of all documents.'),
  max_steps: integerSetting(MAX_STEPS, [1], 'Actions before truncation.'),
});

const optionsSchema = closed({
  question: Type.Optional(
    Type.String({ minLength: 1, maxLength: MAX_ACTION_LENGTH, description: 'Goes with answers.' }),
  ),
  answers: Type.Optional(
    Type.Array(Type.String({ pattern: '\\S' }), {
      minItems: 1,
      description: 'Right answers to the pinned question.',
    }),
  ),
  index: indexOption('Question within the split, from 0.'),
});

type SearchQaConfig = Static<typeof configSchema>;
type SearchQaOptions = Static<typeof optionsSchema>;

export type SearchQaState = {
  readonly question: string;
  readonly answers: readonly string[];
  /** Settings of a search. */
  readonly source: Pick<
    SearchQaConfig,
    'corpus' | 'retriever' | 'max_documents' | 'max_document_chars' | 'max_result_chars'
  >;
  /** Number of queries so far. */
  readonly queries: readonly string[];
  /** Text that the last action showed. */
  readonly report: string;
  readonly finished: { readonly answer: string; readonly reward: number } | null;
};

/** SearchQA-v0: questions that need several searches in a corpus. */
export const searchQa = {
  spec: {
    id: 'SearchQA-v0',
    title: 'Question answering by search',
    description: [
      'A question that several documents answer together. `search[query]` shows the best documents, `finish[answer]` answers and ends the episode. Any other text is an invalid action, but counts as an answer and ends the episode.',
      '',
      'The answer is marked as in HotpotQA: an exact match (in lower case, without punctuation and articles) pays 1, otherwise F1 over words if it is at least 0.3, else 0. Any pay counts as success. `info.rewards` has `exact_match` and `f1` without that limit. An empty action or query changes nothing.',
      '',
      'Searched is a corpus about an invented country that ships with the environment, a corpus file (BM25 in both), or an HTTP retriever. A search that the retriever does not answer says so and sets `search_failed` in `info`. A retriever runs on the server’s own machine or on a host that its operator lists in `RAGEN_RETRIEVER_HOSTS`.',
    ].join('\n'),
    tags: ['search', 'question answering', 'text'],
    configSchema,
    optionsSchema,
    presets: SPLIT_PRESETS,
    observationSpace: { type: 'Text', maxLength: MAX_OBSERVATION_LENGTH },
    actionSpace: { type: 'Text', minLength: 1, maxLength: MAX_ACTION_LENGTH, charset: LINES },
    ...MARKED_WORDS,
    knownOptimum: { success: 1, source: 'reference policy `oracle`, which knows the answer' },
    maxEpisodeSteps: MAX_STEPS,
    ends: {
      right_answer: RIGHT_OR_WRONG.right_answer,
      similar_answer: 'Gave an answer with words of the right one',
      wrong_answer: RIGHT_OR_WRONG.wrong_answer,
    },
    exampleAction: 'search[river of the town Cormere]',
    history: [{ version: 0, change: 'First version.' }],
  },

  describe: ({ max_steps }: SearchQaConfig) => ({
    instruction: `Answer the question. Search for documents as often as you need, one fact at a time, then give a short answer. You have ${max_steps} actions in all.`,
    actionFormat: 'search[query] or finish[answer]',
  }),

  observationSpaces({ data, corpus, retriever }: SearchQaConfig): ObservationSpaces {
    const of = words([data, corpus, retriever?.url], CHARSET);
    return {
      text: of(MAX_OBSERVATION_LENGTH),
      structured: dict({
        question: of(MAX_ACTION_LENGTH),
        queries: list(of(MAX_ACTION_LENGTH)),
        report: of(MAX_OBSERVATION_LENGTH),
        finished: orNull(dict({ answer: of(MAX_ACTION_LENGTH), reward: number(0, 1) })),
      }),
    };
  },

  checkConfig({ corpus, retriever }: SearchQaConfig): void {
    if (corpus !== undefined && retriever)
      throw new InvalidConfig('/retriever', 'give either corpus or retriever');
    if (retriever) httpRetriever(retriever.url);
  },

  async reset(config: SearchQaConfig, rng: Random, options: JsonObject): Promise<SearchQaState> {
    const { corpus, retriever, max_documents, max_document_chars, max_result_chars } = config;
    const { question, answers } = await chooseQuestion(config, rng, options);
    if (corpus !== undefined) await readRecords('/corpus', corpus, readDocument);
    if (retriever) await httpRetriever(retriever.url).checkHealth(retriever.timeout_ms);
    const source = { corpus, retriever, max_documents, max_document_chars, max_result_chars };
    return {
      question,
      answers,
      source: Object.fromEntries(
        Object.entries(source).filter(([, value]) => value !== undefined),
      ) as typeof source,
      queries: [],
      report: '',
      finished: null,
    };
  },

  async step(state: SearchQaState, action: Json): Promise<Transition<SearchQaState>> {
    const text = typeof action === 'string' && action.length <= MAX_ACTION_LENGTH ? action.trim() : '';
    const query = /^search\[(.*)\]$/is.exec(text)?.[1].trim();
    if (state.finished || text === '' || query === '') {
      const hint = state.finished ? state.report : 'Write search[query] or finish[answer].';
      return transition({ ...state, report: hint }, 'invalid', false, false);
    }
    if (query !== undefined) return search(state, query);
    const finish = /^finish\[(.*)\]$/is.exec(text)?.[1].trim();
    const answer = finish ?? extractAnswer(text);
    const { reward, f1, exact } = markAnswer(answer, state.answers);
    const next = { ...state, report: `Your answer: ${answer}`, finished: { answer, reward } };
    return transition(next, finish === undefined ? 'free_text' : 'finish', finish !== undefined, true, {
      answer,
      f1,
      exact_match: exact,
      rewards: { exact_match: Number(exact), f1 },
    });
  },

  observe({ question, queries, report, finished }: SearchQaState, format: ObservationFormat): Json {
    if (format === 'structured') return { question, queries, report, finished };
    return report === '' ? `Question: ${question}` : `Question: ${question}\n${report}`;
  },

  tools: TOOLS,

  references: {
    oracle: {
      title: 'The answer',
      plan: ({ answers, finished }: SearchQaState) => (finished ? [] : [`finish[${answers[0]}]`]),
    },
    random: {
      title: 'Answers with a random word of the question',
      plan: ({ question, finished }: SearchQaState, _count: number, rng: Random) =>
        finished ? [] : [`finish[${rng.choice(question.split(' '))}]`],
    },
  },
} satisfies Environment<SearchQaConfig, SearchQaState>;

function transition(
  state: SearchQaState,
  kind: 'search' | 'finish' | 'free_text' | 'invalid',
  valid: boolean,
  effective: boolean,
  more: JsonObject = {},
): Transition<SearchQaState> {
  const { finished } = state;
  const reward = kind === 'finish' || kind === 'free_text' ? (finished?.reward ?? 0) : 0;
  return {
    state,
    reward,
    terminated: finished !== null,
    info: stepInfo((finished?.reward ?? 0) > 0, valid, effective, finished && endOf(finished.reward), {
      action_type: kind,
      rewards: { exact_match: 0, f1: 0 },
      ...more,
    }),
  };
}

function endOf(reward: number): string {
  if (reward === 1) return 'right_answer';
  return reward > 0 ? 'similar_answer' : 'wrong_answer';
}

async function search(state: SearchQaState, query: string): Promise<Transition<SearchQaState>> {
  const queries = [...state.queries, query];
  try {
    const found = await retrieve(state, query);
    const report = `Results for "${query}":\n${resultText(found, state)}`;
    return transition({ ...state, queries, report }, 'search', true, true, { results: found.length });
  } catch (error) {
    if (!(error instanceof RetrievalFailed)) throw error;
    const report = `No results for "${query}": ${error.message}.`;
    return transition({ ...state, queries, report }, 'search', true, true, {
      results: 0,
      search_failed: error.message,
    });
  }
}

async function retrieve({ source }: SearchQaState, query: string): Promise<readonly RetrievedDocument[]> {
  const { retriever, corpus, max_documents: topK } = source;
  if (retriever) return httpRetriever(retriever.url).search(query, topK, retriever.timeout_ms);
  const documents = corpus === undefined ? DOCUMENTS : await readRecords('/corpus', corpus, readDocument);
  return indexRetriever(documents).search(query, topK);
}

function resultText(found: readonly RetrievedDocument[], { source }: SearchQaState): string {
  if (found.length === 0) return 'Nothing was found.';
  const documents = found.map(({ text }, index) => `[${index + 1}] ${cut(text, source.max_document_chars)}`);
  return cut(documents.join('\n'), source.max_result_chars);
}

function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

async function chooseQuestion(
  { data, split }: SearchQaConfig,
  rng: Random,
  { question, answers, index }: SearchQaOptions,
): Promise<QuestionRecord> {
  if (question !== undefined && answers) return { question, answers };
  if (question !== undefined) throw new InvalidOptions('/answers', 'question needs its answers next to it');
  if (answers) throw new InvalidOptions('/question', 'answers need their question');
  const all = data === undefined ? QUESTIONS : await readRecords('/data', data, readQuestion);
  return pick(
    partOf(all, split, record => record.question),
    index,
    rng,
  );
}

const ANSWER_FIELDS = ['ground_truth', 'answer', 'answers', 'golden_answers'];

/**
 * A record of HotpotQA, or of RAGEN's version of it: a question and one or more answers.
 * @throws InvalidField
 */
export function readQuestion(record: JsonObject): QuestionRecord {
  const field = ANSWER_FIELDS.find(name => record[name] !== undefined && record[name] !== null);
  if (!field) throw new InvalidField('answer', `expected one of the fields ${ANSWER_FIELDS.join(', ')}`);
  const answers = [record[field]].flat() as Json[];
  if (answers.length === 0 || !answers.every(answer => typeof answer === 'string' && answer.trim() !== '')) {
    throw new InvalidField(field, 'expected a text or a list of texts');
  }
  return { question: textField(record, 'question'), answers: answers as string[] };
}

/**
 * A document of a corpus: `text` or `contents`, with an optional `title` and `id`.
 * @throws InvalidField
 */
export function readDocument(record: JsonObject): Document {
  const text = textField(
    record,
    record.text === undefined && record.contents !== undefined ? 'contents' : 'text',
  );
  const title = typeof record.title === 'string' ? record.title : '';
  const { id } = record;
  const name = typeof id === 'string' || typeof id === 'number' ? String(id) : title;
  return { id: name, title, text: title !== '' && !text.startsWith(title) ? `${title}. ${text}` : text };
}
