import { ACTION_SEPARATOR, parseResponse } from '../../shared/response.ts';
import { counted } from '../../shared/text.ts';
import { endTokenIds } from '../models/tokenizer/load.ts';
import type { ChatTemplate, Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { checkResponseLength, mostStates, responseGrammar, StateGrammars, schemaGrammar } from './grammar.ts';
import {
  composeResponse,
  type PastTurn,
  type Prompt,
  type PromptTask,
  type PromptTokens,
  type PromptWording,
  responseRules,
  type TurnView,
} from './prompt.ts';

const MAX_DECIMALS = 4;
/** Placeholder of a response when a template is rendered to find the text after one. */
export const PLACEHOLDER = '\u0001response\u0001';

/** The prompt in full sentences, formatted with the model's chat template. */
export function chatPrompt(task: PromptTask, tokenizer?: Tokenizer): Prompt {
  const wording = chatWording(task);
  const rules = responseRules(task);
  return {
    task,
    ...rules,
    wording,
    compose: actions => composeResponse(task, actions, ` ${ACTION_SEPARATOR} `),
    tokens: tokenizer && chatTokens(task, wording, rules, tokenizer),
  };
}

function chatWording(task: PromptTask): PromptWording {
  const { description } = task;
  const several = task.maxActionsPerTurn > 1;
  const system = fill(CHAT_TEXT.system, {
    instruction: description.instruction,
    symbols:
      description.legend.length > 0
        ? description.legend.map(entry => `${entry.symbol} ${entry.meaning}`).join(', ')
        : undefined,
    actions: description.actions?.join(', '),
    actionFormat: description.actionFormat,
    maxActionsPerTurn: several ? task.maxActionsPerTurn : undefined,
    single: several ? undefined : '',
    separator: ACTION_SEPARATOR,
    maxTurns: counted(task.maxTurns, 'turn'),
    maxActionsPerTrajectory: counted(task.maxActionsPerTrajectory, 'action'),
  });
  const { example, ofOtherState } = exampleAnswer(task);
  const form = fill([task.think ? CHAT_TEXT.thinkForm : CHAT_TEXT.answerForm], { example });
  const turn = (view: TurnView): string =>
    fill(CHAT_TEXT.turn, {
      lastReward: view.lastReward === undefined ? undefined : number(view.lastReward),
      lastInvalid: view.lastInvalid ? '' : undefined,
      turn: view.turn,
      state: view.state,
      actionsLeft: counted(view.actionsLeft, 'action'),
      form: (ofOtherState ? CHAT_TEXT.exampleOfForm : CHAT_TEXT.exactForm) + form,
      responseLength: counted(task.responseLength, 'token'),
    });
  return {
    system: () => system,
    turn,
    folded: (view, past) =>
      [...past.map((entry, i) => retell(entry, past[i + 1]?.view ?? view)), turn(view)].join('\n\n'),
  };
}

function retell(entry: PastTurn, next: TurnView): string {
  return fill(CHAT_TEXT.past, {
    turn: entry.view.turn,
    state: entry.view.state,
    response: entry.response,
    reward: number(next.lastReward ?? 0),
  });
}

/**
 * `Up || Down`: the first actions, as many as an answer may hold (two show the separator). Without a list it is one
 * action of the environment, perhaps from another state: small models copy a placeholder literally.
 */
function exampleAnswer(task: PromptTask): { readonly example: string; readonly ofOtherState: boolean } {
  const { actions, exampleActions, exampleAction, actionFormat } = task.description;
  const listed = actions ?? exampleActions;
  const example = listed?.slice(0, Math.min(2, task.maxActionsPerTurn)).join(` ${ACTION_SEPARATOR} `);
  return { example: example ?? exampleAction ?? actionFormat ?? 'your action', ofOtherState: !listed };
}

function number(value: number): string {
  return String(Number(value.toFixed(MAX_DECIMALS)));
}

function chatTokens(
  task: PromptTask,
  wording: PromptWording,
  rules: ReturnType<typeof responseRules>,
  tokenizer: Tokenizer,
): PromptTokens {
  const { prime } = rules;
  const template = tokenizer.chatTemplate;
  if (!template) {
    throw new Error(
      'the `chat` prompt needs a chat template, and this tokenizer has none: add chat_template.jinja next to its ' +
        'tokenizer.json, or choose the `compact` prompt',
    );
  }
  const system = { role: 'system', content: wording.system() } as const;
  const openingText = template.render([system], { addGenerationPrompt: false });
  const opening = tokenizer.encode(openingText);
  const closing = tokenizer.encode(textAfterResponse(template));

  const user = (content: string): number[] => {
    const text = template.render([system, { role: 'user', content }], { addGenerationPrompt: true });
    if (!text.startsWith(openingText)) {
      throw new Error(
        'this chat template writes the system message differently once a user message follows; turns cannot be appended to it',
      );
    }
    return tokenizer.encode(text.slice(openingText.length) + prime);
  };
  const [lead, separator, end] = [
    task.think ? '</think><answer>' : '',
    ` ${ACTION_SEPARATOR} `,
    '</answer>',
  ].map(text => tokenizer.encode(text));
  /** The tokens of an action, where the environment would read the same one again. */
  const encode = (action: string): readonly number[] | undefined => {
    const ids = tokenizer.encode(action);
    const text = prime + tokenizer.decode([...lead, ...ids, ...end]);
    return ids.length > 0 && parseResponse(text, rules.format).actions[0] === action.trim() ? ids : undefined;
  };
  const ofState = new StateGrammars(task, tokenizer, { lead, separator, end }, encode);
  return {
    opening: () => opening,
    turn: view => user(wording.turn(view)),
    folded: (view, past) => user(wording.folded(view, past)),
    close: response =>
      response.length > 0 && response[response.length - 1] === closing[0] ? closing.slice(1) : closing,
    stopTokenIds: [
      ...new Set(
        [tokenizer.eosTokenId, closing[0], ...endTokenIds(tokenizer)].filter(id => id !== undefined),
      ),
    ],
    ending: closing.slice(0, 1),
    actionTokenIds: new Set(),
    get grammar() {
      const { actions = [], exampleActions = [], actionSchema } = task.description;
      if (actionSchema) {
        const [before, after] = [task.think ? '</think><answer>' : '', '</answer>'];
        return schemaGrammar(actionSchema, task, tokenizer, { lead: [], end: [], before, after });
      }
      const named = (actions.length > 0 ? actions : exampleActions)
        .map(encode)
        .filter(ids => ids !== undefined);
      checkResponseLength(task, named, lead.length + end.length, tokenizer);
      const parts = { lead, actions: named, separator, end };
      return responseGrammar(parts, task.maxActionsPerTurn, mostStates(tokenizer));
    },
    stateGrammar: actions => ofState.of(actions),
    stateResponse: action => ofState.response(action),
  };
}

/** Messages that reveal a template's text after a response, see {@link textAfterPlaceholder}. */
export const PLACEHOLDER_TURN = [
  { role: 'user', content: 'x' },
  { role: 'assistant', content: PLACEHOLDER },
] as const;

/** A template's text after an assistant's message, e.g. `<|im_end|>\n`. */
export function textAfterResponse(template: ChatTemplate): string {
  return textAfterPlaceholder(template.render(PLACEHOLDER_TURN, { addGenerationPrompt: false }));
}

/**
 * Text after the response in the text of {@link PLACEHOLDER_TURN}.
 * @throws Error where it is missing
 */
export function textAfterPlaceholder(text: string): string {
  const at = text.indexOf(PLACEHOLDER);
  if (at < 0)
    throw new Error('this chat template changes what the assistant said; its turns cannot be appended');
  return text.slice(at + PLACEHOLDER.length);
}

/** Texts of the `chat` prompt. Lines with a placeholder without a value are left out. */
const CHAT_TEXT = {
  system: [
    '{instruction}',
    '',
    'Symbols: {symbols}.',
    'Actions: {actions}.',
    'An action is written like this: {actionFormat}',
    'An answer may hold up to {maxActionsPerTurn} actions, separated by {separator}; they are carried out in that order.',
    'An answer holds one action.{single}',
    'An episode has at most {maxTurns} and {maxActionsPerTrajectory}.',
  ],
  turn: [
    'Your last turn earned {lastReward}.',
    'Your last answer held no valid action, so nothing has changed.{lastInvalid}',
    'Turn {turn}. The state is:',
    '{state}',
    'You have {actionsLeft} left. {form}',
    'Use at most {responseLength}.',
  ],
  past: ['Turn {turn}. The state was:', '{state}', 'You replied: {response}', 'This earned {reward}.'],
  exactForm: 'Reply in exactly this form: ',
  exampleOfForm: 'Reply in this form, with your own action in place of the example: ',
  thinkForm: '<think> your reasoning </think><answer> {example} </answer>',
  answerForm: '<answer> {example} </answer>',
} as const;

/** Values of a template's placeholders; a line with an undefined one is left out. */
export type PlaceholderValues = { readonly [name: string]: string | number | undefined };

/**
 * Fills `{name}` placeholders in a template given as lines.
 * @throws Error naming a placeholder that has no entry among the values
 *
 * @example
 * fill(['Turn {turn}.', 'Reward: {reward}'], { turn: 1, reward: undefined }); // 'Turn 1.'
 */
export function fill(lines: readonly string[], values: PlaceholderValues): string {
  const out: string[] = [];
  for (const line of lines) {
    let complete = true;
    const filled = line.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
      if (!(name in values)) {
        throw new Error(`no value for {${name}} in "${line}"; there are: ${Object.keys(values).join(', ')}`);
      }
      const value = values[name];
      if (value === undefined) complete = false;
      return String(value);
    });
    if (complete) out.push(filled);
  }
  return out.join('\n');
}
