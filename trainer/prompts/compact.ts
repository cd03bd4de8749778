import { ACTION_SEPARATOR } from '../../shared/response.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { checkResponseLength, mostStates, responseGrammar, StateGrammars, schemaGrammar } from './grammar.ts';
import {
  composeResponse,
  type Prompt,
  type PromptTask,
  type PromptTokens,
  responseRules,
  type TurnView,
} from './prompt.ts';

/** A state drawn as rows of single-character symbols. */
export interface Grid {
  readonly rows: readonly (readonly string[])[];
  /** The outermost cells were all walls and are left out of `rows`. */
  readonly walled: boolean;
}

/**
 * Reads a state as a grid, and drops a border that is all wall; `walled` keeps that information.
 * @param symbols the possible symbols of a cell; each one character
 * @param wall the symbol of a wall, if the environment has one
 * @returns undefined where the text is not a grid: an unknown character, or rows of different lengths
 */
export function readGrid(
  state: string,
  symbols: ReadonlySet<string>,
  wall: string | undefined,
): Grid | undefined {
  const rows: string[][] = [];
  for (const line of state.split('\n')) {
    const cells = Array.from(line);
    if (cells.length === 0 || (rows.length > 0 && cells.length !== rows[0].length)) return undefined;
    for (const cell of cells) if (!symbols.has(cell)) return undefined;
    rows.push(cells);
  }
  if (wall === undefined || !hasBorder(rows, wall)) return { rows, walled: false };
  return { rows: rows.slice(1, -1).map(row => row.slice(1, -1)), walled: true };
}

/** The border is all wall and there is something inside it. */
function hasBorder(rows: readonly (readonly string[])[], wall: string): boolean {
  const last = rows.length - 1;
  if (last < 2 || rows[0].length < 3) return false;
  return (
    rows[0].every(cell => cell === wall) &&
    rows[last].every(cell => cell === wall) &&
    rows.every(row => row[0] === wall && row.at(-1) === wall)
  );
}

/** Precedes a complete grid, or one without its border of walls. */
const GRID = '<grid>';
const WALLED = '<walled>';
/** Precedes a state that is text. */
const TEXT = '<text>';
const SPACE = ' ';
/** Follows a response without a valid action. */
const INVALID = '<invalid>';
const NEW_ROW = '\n';
const AFTER_THOUGHT = ['</think>', '<answer>'];
const END = '</answer>';
const RESPONSE_WORDS = ['<think>', ...AFTER_THOUGHT, END, ACTION_SEPARATOR];

/** Number of actions left, as one token. */
const left = (count: number): string => `<${count} left>`;
/** Number of turns left, this one included, as one token. */
const turnsLeft = (count: number): string => `<${count} turns>`;

/**
 * The prompt for small policies from scratch: a few tokens a turn and no sentences, e.g. for Sokoban `<10
 * left><walled>_OX_\n__P_\n____\n____<think>`. The policy learns the meaning of the symbols.
 */
export function compactPrompt(task: PromptTask, tokenizer?: Tokenizer): Prompt {
  const rules = responseRules(task);
  const pieces = compactPieces(task);
  const turn = (view: TurnView): string => pieces(view).join('');
  return {
    task,
    ...rules,
    compose: actions => composeResponse(task, actions, ACTION_SEPARATOR),
    wording: {
      system: () => '',
      turn,
      folded: (view, past) => [...past.map(entry => turn(entry.view) + entry.response), turn(view)].join(''),
    },
    tokens: tokenizer && compactTokens(task, pieces, rules.prime, tokenizer),
  };
}

/**
 * The words a tokenizer needs for the compact prompts of these tasks, for `buildWordTokenizer`.
 * @throws Error naming the environment that has no vocabulary, being free text
 */
export function compactVocabulary(tasks: readonly PromptTask[]): string[] {
  const words = new Set<string>([...RESPONSE_WORDS, GRID, WALLED, INVALID, NEW_ROW]);
  for (const { description, maxActionsPerTrajectory, maxTurns, turnsLeft: showsTurns } of tasks) {
    if (!description.vocabulary) {
      throw new Error(
        `${description.environmentId} has no fixed vocabulary, so a word-level tokenizer cannot write its states: ` +
          'give a tokenizer of a pretrained model, or choose another environment or observation format',
      );
    }
    if (!isGridTask(description.legend, description.vocabulary, description.actions)) {
      words.add(TEXT).add(SPACE);
    }
    for (let count = 1; count <= maxActionsPerTrajectory; count++) words.add(left(count));
    for (let count = 1; showsTurns && count <= maxTurns; count++) words.add(turnsLeft(count));
    for (const word of description.vocabulary) words.add(word);
    for (const action of namedActions(description)) words.add(action);
  }
  return [...words];
}

/** Most counts, and most actions, that are single tokens next to bytes; others are spelled. */
const MAX_COUNTS = 64;
const MAX_ACTION_WORDS = 256;

/**
 * Single tokens in the compact prompts of these tasks next to the 256 bytes, for `buildByteTokenizer`: the tags, the
 * counts and the actions, of JSON actions all but the numbers.
 */
export function compactByteWords(tasks: readonly PromptTask[]): string[] {
  const words = new Set<string>([...RESPONSE_WORDS, GRID, WALLED, INVALID, TEXT]);
  for (const { description, maxActionsPerTrajectory, maxTurns, turnsLeft: showsTurns } of tasks) {
    for (let count = 1; count <= Math.min(MAX_COUNTS, maxActionsPerTrajectory); count++)
      words.add(left(count));
    for (let count = 1; showsTurns && count <= Math.min(MAX_COUNTS, maxTurns); count++)
      words.add(turnsLeft(count));
    const actions = new Set(shownActions(description).flatMap(description.jsonActions ? aroundNumbers : one));
    if (actions.size <= MAX_ACTION_WORDS) for (const action of actions) words.add(action);
  }
  return [...words];
}

const one = (action: string): readonly string[] => [action];

/**
 * The parts of a JSON action between its numbers, which are spelled: a policy can write other numbers than the examples, and
 * what it learns of 4.1 serves 4.2.
 */
const aroundNumbers = (action: string): readonly string[] =>
  action.split(/[-.\d]+/).filter(part => part !== '');

/** The actions that an environment names: all of a discrete space, or examples. */
const namedActions = ({ actions, exampleActions }: PromptTask['description']): readonly string[] =>
  (actions ?? exampleActions ?? []).filter(action => action !== '');

/** The actions with parts that are single tokens. */
const shownActions = (description: PromptTask['description']): readonly string[] =>
  description.drawnActions ?? namedActions(description);

/** Every word is a symbol of one character or an action: states are grids. */
function isGridTask(
  legend: PromptTask['description']['legend'],
  vocabulary: readonly string[],
  actions: readonly string[] = [],
): boolean {
  const symbols = new Set(legend.map(entry => entry.symbol));
  return vocabulary.every(
    word => actions.includes(word) || (symbols.has(word) && Array.from(word).length === 1),
  );
}

/** A turn as pieces; each is one token, except for a state's text that is not a grid. */
function compactPieces(task: PromptTask): (view: TurnView) => string[] {
  const { legend } = task.description;
  const symbols = new Set(legend.map(entry => entry.symbol));
  const wall = legend.find(entry => /\bwall\b/i.test(entry.meaning))?.symbol;
  return view => {
    const pieces: string[] = view.lastInvalid ? [INVALID] : [];
    pieces.push(left(view.actionsLeft));
    if (task.turnsLeft) pieces.push(turnsLeft(task.maxTurns - view.turn + 1));
    const grid = readGrid(view.state, symbols, wall);
    if (!grid) {
      pieces.push(TEXT, view.state);
      return pieces;
    }
    pieces.push(grid.walled ? WALLED : GRID);
    for (let row = 0; row < grid.rows.length; row++) {
      if (row > 0) pieces.push(NEW_ROW);
      for (const cell of grid.rows[row]) pieces.push(cell);
    }
    return pieces;
  };
}

function compactTokens(
  task: PromptTask,
  pieces: (view: TurnView) => string[],
  prime: string,
  tokenizer: Tokenizer,
): PromptTokens {
  const known = new Map<string, number>();
  const append = (ids: number[], piece: string): void => {
    const id = known.get(piece) ?? tokenOf(piece, tokenizer);
    if (id !== undefined) {
      known.set(piece, id);
      ids.push(id);
    } else {
      for (const part of encodeKnown(piece, tokenizer, task)) ids.push(part);
    }
  };
  const turn = (view: TurnView): number[] => {
    const ids: number[] = [];
    for (const piece of pieces(view)) append(ids, piece);
    append(ids, prime);
    return ids;
  };
  const [end, separator, ...lead] = [END, ACTION_SEPARATOR, ...(task.think ? AFTER_THOUGHT : [])].map(
    word => {
      const id = tokenizer.idOf(word);
      if (id !== undefined) return id;
      throw new Error(
        `the \`compact\` prompt needs a tokenizer in which ${word} is one token: build one from the environments’ vocabulary, or choose the \`chat\` prompt`,
      );
    },
  );
  const actions = actionSequences(task.description, tokenizer);
  checkResponseLength(task, actions, lead.length + 1, tokenizer);
  const around = { lead, separator: [separator], end: [end] };
  const ofState = new StateGrammars(task, tokenizer, around, action => encodedAction(action, tokenizer));
  return {
    opening: () => [],
    turn,
    folded: (view, past) => {
      const ids: number[] = [];
      for (const entry of past) {
        for (const id of turn(entry.view).slice(0, -1)) ids.push(id);
        for (const id of encodeKnown(entry.response, tokenizer, task)) ids.push(id);
      }
      for (const id of turn(view)) ids.push(id);
      return ids;
    },
    close: () => [],
    stopTokenIds: tokenizer.eosTokenId === undefined ? [end] : [end, tokenizer.eosTokenId],
    ending: [],
    actionTokenIds:
      actions.length > 0 ? new Set(actions.flat()) : freeTokens(tokenizer, [end, separator, ...lead]),
    get grammar() {
      const { actionSchema } = task.description;
      if (actionSchema) {
        return schemaGrammar(actionSchema, task, tokenizer, { lead, end: [end], before: '', after: '' });
      }
      return responseGrammar({ ...around, actions }, task.maxActionsPerTurn, mostStates(tokenizer));
    },
    stateGrammar: listed => ofState.of(listed),
    stateResponse: action => ofState.response(action),
  };
}

/** The token of a text; none for a text that merely spells the name of a token of bytes, as `Ġ` spells a space's. */
function tokenOf(text: string, tokenizer: Tokenizer): number | undefined {
  const id = tokenizer.idOf(text);
  return id !== undefined && tokenizer.decode([id]) === text ? id : undefined;
}

/** Every token that can occur in a free-text action. */
function freeTokens({ vocabularySize }: Tokenizer, structure: readonly number[]): Set<number> {
  const ids = new Set(Array.from({ length: vocabularySize }, (_, id) => id));
  for (const id of structure) ids.delete(id);
  return ids;
}

/** The tokens of each named action; without names, each word of the environment may be one. */
function actionSequences(
  { vocabulary, ...description }: PromptTask['description'],
  tokenizer: Tokenizer,
): (readonly number[])[] {
  const named = namedActions(description);
  if (named.length > 0)
    return named.map(action => encodedAction(action, tokenizer)).filter(ids => ids !== undefined);
  return (vocabulary ?? []).flatMap(word => {
    const id = tokenizer.idOf(word);
    return id === undefined ? [] : [[id]];
  });
}

/** The tokens of an action; undefined for one that the tokenizer cannot write. */
function encodedAction(action: string, tokenizer: Tokenizer): readonly number[] | undefined {
  const ids = tokenizer.encode(action);
  return tokenizer.decode(ids) === action ? ids : undefined;
}

/** A state has words that the vocabulary lacks. */
export class UnknownWords extends Error {
  override readonly name = 'UnknownWords';
}

const EXCERPT_LENGTH = 200;

/** @throws UnknownWords when the ids decode to another text */
function encodeKnown(text: string, tokenizer: Tokenizer, task: PromptTask): number[] {
  const ids = tokenizer.encode(text);
  // No tokenizer can write half a surrogate pair, which JSON may contain.
  if (tokenizer.decode(ids) !== text.toWellFormed()) {
    const shown = (words: string) => JSON.stringify(words.slice(0, EXCERPT_LENGTH));
    throw new UnknownWords(
      `the tokenizer cannot write ${shown(text)} of ${task.description.environmentId}; it reads ` +
        `${shown(tokenizer.decode(ids))}: the vocabulary was built for another environment or configuration`,
    );
  }
  return ids;
}
